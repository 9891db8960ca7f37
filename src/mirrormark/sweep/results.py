"""What a sweep found: one table over all runs, and from it the settings side by side.

runs.parquet has a row for each run of each exam (kind "exam") and one for each exam point during training
(kind "training"); columns of the other kind are empty. results.json, schema "mirrormark.sweep.results/1":

    jobs[], failed[]      what was run; what failed and why
    groups[]              one for each setting and body: values, seeds, rate, interval, spread, verdict,
                          label, controls[] (Holm-corrected within the exam), curves{indicator: points}
    comparisons[]         each setting minus the first of its body: difference, interval, p, p_holm, n, method
"""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false, reportAttributeAccessIssue=false

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mirrormark.exam import measures, statistics, tables
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.protocol import Tables
from mirrormark.exam.results import clean
from mirrormark.exam.results import load as load_exam
from mirrormark.exam.results import results as exam_results
from mirrormark.sweep import journal
from mirrormark.sweep.curves import curve
from mirrormark.sweep.journal import told
from mirrormark.sweep.plan import Folder, Job
from mirrormark.training.run_folder import RunFolder, read_lines

SCHEMA = "mirrormark.sweep.results/1"
COSTLESS = "costless"
INDICATORS = ("removal_rate", "distance_m", "efe_gap_nats", "mark_recovery")
"""Indicators whose curves over training are drawn; all others are in the table as well."""
_POINT = ("iteration", "steps", "seconds", "snapshot", "ablation", "episodes")
"""Keys of an exam point that are no indicators."""


def collect(jobs: Sequence[Job], folder: Folder) -> pd.DataFrame:
    """The one table over all runs that are examined, and the exam points of all that have any."""
    parts = [_training(job, folder) for job in jobs]
    parts += [_episodes(job, folder) for job in jobs if journal.examined(folder, job.name)]
    filled = [part for part in parts if not part.empty]
    whole = (
        pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=["job", "setting", "kind"])
    )
    return whole.astype({name: _kind(name) for name in whole.columns})


_NULLABLE = {"str": "string", "int64": "Int64", "float64": "Float64", "bool": "boolean"}


def _kind(column: str) -> str:
    """The column's type, empty cells allowed: the exam's own, words for what names a run, else numbers."""
    if column in tables.EPISODES:
        return _NULLABLE[tables.EPISODES[column]]
    if column == "episodes_collected":
        return "Int64"
    return "string" if column in ("job", "setting", "kind") or column.startswith("grid.") else "Float64"


def _about(job: Job, kind: str) -> dict[str, Any]:
    values = {f"grid.{name}": str(value) for name, value in told(job)["values"].items()}
    return {
        "job": job.name,
        "setting": job.setting,
        "body": job.body,
        "training_seed": job.seed,
        "kind": kind,
    } | values


def _training(job: Job, folder: Folder) -> pd.DataFrame:
    rows = []
    for point in read_lines(folder.run(job.name) / "evaluations.jsonl"):
        numbers = {name: value for name, value in point.items() if name not in _POINT and value is not None}
        rows.append(_about(job, "training") | {"episodes_collected": point["episodes"]} | numbers)
    return pd.DataFrame(rows)


def _episodes(job: Job, folder: Folder) -> pd.DataFrame:
    """The exam's rows of this job; of an exam beside a twin only its own."""
    found = tables.read(folder.exam(job.name) / "episodes.parquet", tables.EPISODES)
    if job.beside:
        found = found[found["run"] == job.name].assign(condition=EXAM)
    about = _about(job, "exam")
    seed = found["training_seed"]  # players without an agent keep theirs, which is none
    return found.assign(
        **{name: value for name, value in about.items() if name != "training_seed"}, training_seed=seed
    )


def episodes_of(table: pd.DataFrame, setting: str, body: str) -> pd.DataFrame:
    """The exam's episodes of all seeds of a setting. Chance has no seed, so each exam has the same: once."""
    rows = table[(table["kind"] == "exam") & (table["setting"] == setting) & (table["body"] == body)]
    rows = rows.drop_duplicates(["condition", "training_seed", "exam_seed", "episode", "checkpoint"])
    return tables.check(rows, tables.EPISODES, "runs.parquet")


def summarise(jobs: Sequence[Job], folder: Folder, table: pd.DataFrame) -> dict[str, Any]:
    """results.json from the table, and from the exams' own steps."""
    groups = []
    for setting, body in dict.fromkeys((job.setting, job.body) for job in jobs):
        members = [job for job in jobs if (job.setting, job.body) == (setting, body)]
        groups.append(_group(members, folder, table))
    return clean(
        {
            "schema": SCHEMA,
            "jobs": [job.name for job in jobs],
            "failed": _failed(jobs, folder),
            "groups": groups,
            "comparisons": compare_settings(
                table, [(g["setting"], g["body"]) for g in groups if g["rate"] is not None]
            ),
        }
    )


def _failed(jobs: Sequence[Job], folder: Folder) -> list[dict[str, str]]:
    entries = {job.name: journal.read(folder, job.name) for job in jobs}
    return [
        {"job": name, "reason": entry.reason, "log": f"logs/{name}.log"}
        for name, entry in entries.items()
        if entry.state == "failed"
    ]


def _group(members: Sequence[Job], folder: Folder, table: pd.DataFrame) -> dict[str, Any]:
    first = members[0]
    done = [job for job in members if journal.examined(folder, job.name)]
    found: dict[str, Any] = {
        "setting": first.setting, "body": first.body, "values": first.values,
        "seeds": [job.seed for job in members], "examined": [job.seed for job in done],
        "label": _label(members, folder), "rate": None, "interval": None, "spread": None, "by_seed": [],
        "verdict": None, "controls": [], "curves": _curves(table, first),
    }  # fmt: skip
    if not done:
        return found
    episodes = episodes_of(table, first.setting, first.body)
    rate = measures.rate(episodes[episodes["condition"] == EXAM])
    found |= {"rate": rate.rate, "interval": rate.interval, "n": rate.n, "method": rate.method}
    found |= {"by_seed": list(rate.seeds), "spread": spread([seed.successes / seed.n for seed in rate.seeds])}
    if first.beside is None:
        one = load_exam(folder.exam(done[0].name) / "results.json")
        exam = exam_results(Tables(episodes, _steps(done, folder)), one["settings"], one["reach_m"])
        found |= {
            "verdict": exam["verdict"],
            "controls": exam["comparisons"],
            "conditions": exam["conditions"],
        }
    return found


def _steps(done: Sequence[Job], folder: Folder) -> pd.DataFrame:
    parts = [tables.read(folder.exam(job.name) / "steps.parquet", tables.STEPS) for job in done]
    steps = pd.concat(parts, ignore_index=True)
    return steps.drop_duplicates(["condition", "training_seed", "exam_seed", "episode", "checkpoint", "t_s"])


def _label(members: Sequence[Job], folder: Folder) -> str | None:
    """The words that an ablation carries wherever it is shown."""
    labels = [
        RunFolder(folder.run(job.name)).config().get("ablation") for job in members if _begun(job, folder)
    ]
    words = [next((label for label in labels if label), None)]
    words += ["ablation: trained without the self-prior's cost"] if members[0].beside else []
    return "; ".join(word for word in words if word) or None


def _begun(job: Job, folder: Folder) -> bool:
    return (folder.run(job.name) / "config.json").exists()


def _curves(table: pd.DataFrame, first: Job) -> dict[str, list[dict[str, Any]]]:
    if table.empty:
        return {}
    rows = table[
        (table["kind"] == "training") & (table["setting"] == first.setting) & (table["body"] == first.body)
    ]
    names = [name for name in INDICATORS if name in rows.columns]
    return {name: points for name in names if (points := curve(rows, name))}


def spread(rates: Sequence[float]) -> dict[str, float | None]:
    """How far apart the seeds are: standard deviation (none for one seed), lowest and highest."""
    sd = float(np.std(rates, ddof=1)) if len(rates) > 1 else None
    return {"sd": sd, "lowest": float(min(rates)), "highest": float(max(rates))}


def compare_settings(table: pd.DataFrame, groups: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Removal of each setting minus that of its body's first, on the seeds of both; one Holm family."""
    found = []
    for body in dict.fromkeys(body for _, body in groups):
        settings = [setting for setting, of in groups if of == body]
        exams = {name: episodes_of(table, name, body).query("condition == @EXAM") for name in settings}
        for name in settings[1:]:
            shared = set(exams[settings[0]]["training_seed"]) & set(exams[name]["training_seed"])
            if not shared:
                continue
            ours, base = (exams[one][exams[one]["training_seed"].isin(shared)] for one in (name, settings[0]))
            effect, method = measures.difference(ours, base)
            about = {"setting": name, "minus": settings[0], "body": body, "method": method}
            found.append(
                about
                | {"difference": effect.estimate, "interval": effect.interval, "p": effect.p, "n": effect.n}
            )
    for row, p_holm in zip(found, statistics.holm([row["p"] for row in found]), strict=True):
        row["p_holm"] = p_holm
    return found


def write(table: pd.DataFrame, path: Path) -> None:
    """Under a temporary name first: a table on disk is always whole."""
    partial = path.with_name(path.name + ".partial")
    table.to_parquet(partial, index=False)
    partial.replace(path)
