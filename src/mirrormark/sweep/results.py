"""What a sweep found: one table over all runs, and from it the settings side by side.

runs.parquet has a row for each run of each exam (kind "exam") and one for each evaluation during training
(kind "training"); columns of the other kind are empty. results.json, schema "mirrormark.sweep.results/1":

    jobs[], failed[]      what was run; what failed, or has damaged files, and why
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
from numpy.typing import ArrayLike
from scipy import stats

from mirrormark.exam import measures, statistics, tables
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.protocol import Tables
from mirrormark.exam.results import clean
from mirrormark.exam.results import load as load_exam
from mirrormark.exam.results import results as exam_results
from mirrormark.sweep.folder import Folder, Job
from mirrormark.sweep.status import DAMAGE, read_progress
from mirrormark.training.run_folder import RunFolder, read_lines

SCHEMA = "mirrormark.sweep.results/1"
INDICATORS = ("removal_rate", "distance_m", "efe_gap_nats", "mark_recovery")
"""Indicators whose curves over training are drawn; all others are in the table as well."""
_POINT = ("iteration", "steps", "seconds", "snapshot", "ablation", "episodes")
"""Keys of an evaluation that are no indicators."""
_NULLABLE = {"str": "string", "int64": "Int64", "float64": "Float64", "bool": "boolean"}


# The table


def gather(jobs: Sequence[Job], folder: Folder) -> tuple[pd.DataFrame, dict[str, str]]:
    """One table over all exams and evaluations; and the jobs whose damaged files keep them out of it."""
    parts, damaged = [], {}
    for job in jobs:
        try:
            found = [_training(job, folder)]
            if folder.examined(job.name):
                found.append(_episodes(job, folder))
                load_exam(folder.exam(job.name) / "results.json")
                _steps([job], folder)
        except DAMAGE as error:
            damaged[job.name] = f"damaged: {error}"
            continue
        parts += [part for part in found if not part.empty]
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["job", "setting", "kind"])
    return whole.astype({name: _kind(name) for name in whole.columns}), damaged


def _kind(column: str) -> str:
    """The column's type, empty cells allowed: the exam's own, words for what names a run, else numbers."""
    if column in tables.EPISODES:
        return _NULLABLE[tables.EPISODES[column]]
    if column == "episodes_collected":
        return "Int64"
    return "string" if column in ("job", "setting", "kind") or column.startswith("grid.") else "Float64"


def _about(job: Job, kind: str) -> dict[str, Any]:
    named = {"job": job.name, "setting": job.setting, "body": job.body, "training_seed": job.seed}
    # As JSON has it: a list, however the value came here.
    grid = {name: list(value) if isinstance(value, tuple) else value for name, value in job.values.items()}
    return named | {"kind": kind} | {f"grid.{name}": str(value) for name, value in grid.items()}


def _training(job: Job, folder: Folder) -> pd.DataFrame:
    rows = []
    for point in read_lines(folder.run(job.name) / "evaluations.jsonl"):
        numbers = {name: value for name, value in point.items() if name not in _POINT and value is not None}
        rows.append(_about(job, "training") | {"episodes_collected": point["episodes"]} | numbers)
    return pd.DataFrame(rows)


def _episodes(job: Job, folder: Folder) -> pd.DataFrame:
    """The exam's rows of this job; of an exam beside another agent only its own."""
    found = tables.read(folder.exam(job.name) / "episodes.parquet", tables.EPISODES)
    if job.beside:
        found = found[found["run"] == job.name].assign(condition=EXAM)
    # Random movement keeps its training seed, which is none.
    return found.assign(**_about(job, "exam") | {"training_seed": found["training_seed"]})


def _steps(done: Sequence[Job], folder: Folder) -> pd.DataFrame:
    parts = [tables.read(folder.exam(job.name) / "steps.parquet", tables.STEPS) for job in done]
    steps = pd.concat(parts, ignore_index=True)
    return steps.drop_duplicates(["condition", "training_seed", "exam_seed", "episode", "checkpoint", "t_s"])


def episodes_of(table: pd.DataFrame, setting: str, body: str) -> pd.DataFrame:
    """The exam's episodes of all seeds of a setting. Chance has no seed, so each exam has the same: once."""
    rows = table[(table["kind"] == "exam") & (table["setting"] == setting) & (table["body"] == body)]
    rows = rows.drop_duplicates(["condition", "training_seed", "exam_seed", "episode", "checkpoint"])
    return tables.check(rows, tables.EPISODES, "runs.parquet")


def write(table: pd.DataFrame, path: Path) -> None:
    """Under a temporary name first: a table on disk is always whole."""
    partial = path.with_name(path.name + ".partial")
    table.to_parquet(partial, index=False)
    partial.replace(path)


# The settings side by side


def summarise(
    jobs: Sequence[Job], folder: Folder, table: pd.DataFrame, damaged: dict[str, str]
) -> dict[str, Any]:
    """results.json from the table, and from the exams' own steps."""
    seen, groups = read_progress(folder), []
    for setting, body in dict.fromkeys((job.setting, job.body) for job in jobs):
        members = [job for job in jobs if (job.setting, job.body) == (setting, body)]
        groups.append(_group(members, folder, table, damaged))
    failed = {name: one.reason for name, one in seen.items() if one.failed and not folder.examined(name)}
    failed = {job.name: reason for job in jobs if (reason := (failed | damaged).get(job.name)) is not None}
    found = {
        "schema": SCHEMA,
        "jobs": [job.name for job in jobs],
        "failed": [{"job": n, "reason": reason, "log": f"logs/{n}.log"} for n, reason in failed.items()],
        "groups": groups,
        "comparisons": compare_settings(
            table, [(g["setting"], g["body"]) for g in groups if g["rate"] is not None]
        ),
    }
    return clean(found)


def _group(
    members: Sequence[Job], folder: Folder, table: pd.DataFrame, damaged: dict[str, str]
) -> dict[str, Any]:
    first = members[0]
    done = [job for job in members if folder.examined(job.name) and job.name not in damaged]
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
        found |= {name: exam[name] for name in ("verdict", "conditions")} | {"controls": exam["comparisons"]}
    return found


def _label(members: Sequence[Job], folder: Folder) -> str | None:
    """The words that an ablation carries wherever it is shown."""
    labels = []
    for job in members:
        try:
            labels.append(RunFolder(folder.run(job.name)).config().get("ablation"))
        except DAMAGE:
            continue  # not begun, or damaged
    words = [next((label for label in labels if label), None)]
    words += ["ablation: trained without drive"] if members[0].beside else []
    return "; ".join(word for word in words if word) or None


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
            row = {"setting": name, "minus": settings[0], "body": body, "method": method, "n": effect.n}
            found.append(row | {"difference": effect.estimate, "interval": effect.interval, "p": effect.p})
    for row, p_holm in zip(found, statistics.holm([row["p"] for row in found]), strict=True):
        row["p_holm"] = p_holm
    return found


# Learning curves


def median_interval(values: ArrayLike, confidence: float = 0.95) -> dict[str, float]:
    """Two of the values themselves (low, high), and how often such an interval holds the true median.

    Order statistics (Hollander & Wolfe 3.6) assume no shape. The narrowest symmetric pair of at least this
    confidence; fewer than six seeds cannot reach 95%: then it is their whole range, and its confidence is
    smaller (two seeds: 50%).
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    n = ordered.size
    # The r-th lowest lies above the median with the chance of fewer than r of n below it.
    outside = [2 * float(stats.binom.cdf(r - 1, n, 0.5)) for r in range(1, n // 2 + 1)]
    r = max((r for r, alpha in enumerate(outside, 1) if 1 - alpha >= confidence), default=1)
    held = 1 - outside[r - 1] if n > 1 else 0.0
    return {"low": float(ordered[r - 1]), "high": float(ordered[n - r]), "confidence": held}


def _curves(table: pd.DataFrame, first: Job) -> dict[str, list[dict[str, Any]]]:
    """For each indicator that was ever evaluated, its curve over all seeds of a setting."""
    if table.empty:
        return {}
    rows = table[
        (table["kind"] == "training") & (table["setting"] == first.setting) & (table["body"] == first.body)
    ]
    names = [name for name in INDICATORS if name in rows.columns]
    return {name: points for name in names if (points := curve(rows, name))}


def curve(rows: pd.DataFrame, indicator: str) -> list[dict[str, Any]]:
    """A point for each number of episodes: median, its interval and confidence, how many seeds."""
    points = []
    for episodes, group in rows.dropna(subset=[indicator]).groupby("episodes_collected"):
        values = group[indicator].to_numpy(dtype=float)
        point = {"episodes": int(episodes), "median": float(np.median(values)), "seeds": len(values)}
        points.append(point | median_interval(values))
    return points
