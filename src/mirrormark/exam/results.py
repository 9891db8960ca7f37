"""results.json: all that the exam found, from its tables. No times, paths or versions of software (see
provenance.json).

Schema "mirrormark.exam/5". Rates are shares 0..1, intervals [low, high] at 95%, G in nats, times in seconds;
null: could not be measured.

    exam_version              numbers of another version do not compare
    body, tone, eye, label    what was examined; label: the words that every output must carry, else null
    shown                     the agent of strips, film, probes and dream: the first that was given
    agents[]                  run, checkpoint, training_seed, privileged[], environment_steps, gpu_minutes
    settings                  runs, first_exam_seed, chance_runs, mode, …
    verdict                   status, sentence, lower, criteria[], answers{}, caveats[]
    conditions{name}          title, role, rate, interval, successes, n, seeds[], method, distance_m, mark_px
    headline                  removal at the mark minus touches at the yoked site
    comparisons[]             exam minus each negative control: difference, interval, p, p_holm, n, method
    left_out{name}            conditions that this body, mirror or agent cannot have, and why
    free_energy               G before and after removal, with the matched-time control
    reach_m, hold_sim_steps   how near counts as touching; how many physics steps it must last
    first_touch               median_s, touched, n (Kaplan-Meier)
    sides, failures           left/right confusion; why runs failed
    by_site, by_region        removal by surface; by part of the body
    by_visibility             removal by whether the mark was seen in the first frame
    coverage[]                how often our intervals hold the truth, by simulation
    probes                    what the self-prior has learned (see probes.py), null if not run
"""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false, reportAttributeAccessIssue=false

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from mirrormark.envs.mark import MarkConfig
from mirrormark.envs.senses import ABLATION
from mirrormark.exam import conditions, measures
from mirrormark.exam.before_after import before_after
from mirrormark.exam.conditions import EXAM, YOKED
from mirrormark.exam.measures import Rate
from mirrormark.exam.protocol import EXAM_VERSION, Tables
from mirrormark.exam.statistics import median_time_s, simulate
from mirrormark.exam.verdict import DEVELOPMENT, DEVELOPMENT_FROM_SEED, judge

SCHEMA = "mirrormark.exam/5"
DIGITS = 6
"""Significant digits kept: more than anyone reads, fewer than floating-point noise."""


class LearnedBy(NamedTuple):
    """What stands beside an agent's results: what it knows beyond the senses, and what it learned from."""

    privileged: tuple[str, ...] = ()
    environment_steps: int | None = None
    gpu_minutes: float | None = None


def results(
    found: Tables,
    settings: dict[str, Any],
    reach_m: float,
    probes: dict | None = None,
    left_out: dict[str, str] | None = None,
    hold_sim_steps: int = MarkConfig.hold_sim_steps,
    learned_by: dict[int, LearnedBy] | None = None,
) -> dict[str, Any]:
    """Everything the exam found, ready for JSON. learned_by: by training seed."""
    episodes, steps = found
    exam, exam_steps = _of(episodes, EXAM), _of(steps, EXAM)
    rates = {name: measures.rate(_of(episodes, name)) for name in _present(episodes)}
    negative = {name: rates[name] for name in conditions.names("negative") if name in rates}
    negative[YOKED] = measures.rate(exam, "yoked_touched")
    symbolic = bool((exam["eye"] == "symbolic").any())
    development = int(exam["exam_seed"].max()) >= DEVELOPMENT_FROM_SEED
    untrained_given = (left_out or {}).get("untrained") is None
    verdict = judge(
        rates[EXAM], negative, symbolic=symbolic, development=development, untrained_given=untrained_given
    )
    labels = [words for words, due in ((ABLATION, symbolic), (DEVELOPMENT, development)) if due]
    against = {name: (_of(episodes, name), "removed") for name in negative if name != YOKED}
    compared = measures.compare(exam, {YOKED: (exam, "yoked_touched")} | against)
    touch = measures.first_touch_curve(exam_steps, reach_m)
    free_energy = before_after(exam, exam_steps)
    return clean(
        {
            "schema": SCHEMA,
            "exam_version": EXAM_VERSION,
            "label": "; ".join(labels) or None,
            **{name: str(exam[name].iloc[0]) for name in ("body", "tone", "eye")},
            "agents": _agents(exam, learned_by or {}),
            "shown": {name: str(exam[name].iloc[0]) for name in ("run", "checkpoint")},
            "settings": settings,
            "verdict": verdict,
            "conditions": {name: _condition(name, rates[name], _of(steps, name)) for name in rates},
            YOKED: negative[YOKED],
            "headline": compared[0],
            "comparisons": compared,
            "left_out": left_out or {},
            "free_energy": free_energy,
            "first_touch": {"median_s": median_time_s(touch), "touched": touch.events, "n": touch.n},
            "reach_m": reach_m,
            "hold_sim_steps": hold_sim_steps,
            "sides": measures.sides(exam),
            "failures": measures.failures(exam, exam_steps)[0],
            "by_site": measures.breakdown(exam, exam["site"]),
            "by_region": measures.breakdown(exam, exam["region"]),
            "by_visibility": measures.breakdown(exam, (exam["mark_px_start"] > 0).map(_SEEN)),
            "coverage": [simulate(*case, exams=1000) for case in _coverage_cases(rates[EXAM])],
            "probes": probes,
        }
    )


_SEEN = {True: "seen in the first frame", False: "not seen in the first frame"}


def _of(table: pd.DataFrame, condition: str) -> pd.DataFrame:
    return table[table["condition"] == condition]


def _present(episodes: pd.DataFrame) -> list[str]:
    found = set(episodes["condition"])
    return [name for name in conditions.names() if name in found]


def _agents(exam: pd.DataFrame, learned_by: dict[int, LearnedBy]) -> list[dict[str, Any]]:
    named = exam[["run", "checkpoint", "training_seed"]].drop_duplicates().sort_values("training_seed")
    rows = named.to_dict("records")
    return [row | learned_by.get(row["training_seed"], LearnedBy())._asdict() for row in rows]


def _condition(name: str, rate: Rate, steps: pd.DataFrame) -> dict[str, Any]:
    found = conditions.get(name)
    seen = steps.dropna(subset="mark_px")
    return {
        "title": found.title,
        "role": found.role,
        **_fields(rate),
        "distance_m": measures.mean_distance_m(steps),
        "mark_px": float(seen["mark_px"].mean()) if len(seen) else None,
    }


def _coverage_cases(exam: Rate) -> list[tuple[int, int, float, float]]:
    """The exam's size and rate for one, three and eight seeds, spread by a third of the way to 0 or 1."""
    rate = min(max(exam.rate, 0.05), 0.95)
    runs_per_seed = exam.seeds[0].n
    spread = round(min(rate, 1 - rate) / 3, 3)
    return [(1, runs_per_seed, rate, 0.0), (3, runs_per_seed, rate, spread), (8, runs_per_seed, rate, spread)]


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def clean(value: Any) -> Any:
    """JSON values only: dataclasses and named tuples unfolded, numbers rounded, what is not finite null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return clean(_fields(value))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        pair = getattr(value, "_fields", ()) == ("low", "high")
        return [clean(end) for end in value] if pair else clean(value._asdict())  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def dump(value: dict[str, Any], path: Path) -> None:
    """In the order of the schema and with a fixed layout: the same results are the same bytes."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load(path: Path) -> dict[str, Any]:
    """results.json of this schema, or a clear sentence."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist; run `mirrormark exam … --out {path.parent}` first.")
    found = json.loads(path.read_text(encoding="utf-8"))
    if found.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {found.get('schema')!r}; this version reads {SCHEMA!r}.")
    return found
