"""How a sweep's jobs stand, what is left of them, and `mirrormark runs`. All of it is read from disk."""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from mirrormark.sweep.folder import Folder, Job
from mirrormark.sweep.spec import schedule_of
from mirrormark.training import commands as training_commands
from mirrormark.training.checkpoint import write_json
from mirrormark.training.run_folder import RunFolder, read_lines
from mirrormark.training.schedule import Schedule

SCHEMA = "mirrormark.sweep/2"
DAMAGE = (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError)
"""What reading a damaged file of a run may raise: that run is shown as damaged, the others as they are."""
_SHOWN = {
    "mark_recovery": "mark seen",
    "efe_gap_nats": "gap, nats",
    "removal_rate": "removal",
    "chance_removal_rate": "chance",
}
"""Indicators in the table, from the run's last evaluation."""
_WIDE = 160
"""Columns where the output is no terminal."""


@dataclass
class Seen:
    """What the driver has seen of a job."""

    failures: int = 0
    """Failed tries since a driver last took the job up."""
    failed: bool = False
    """It has no tries left."""
    reason: str = ""
    """Of the last failure."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each command that came to a good end."""


@dataclass(frozen=True)
class Pace:
    """What the runs of a body were measured to take; None: not measured."""

    runs: int = 0
    """On how many runs."""
    iteration_s: dict[str, float] = field(default_factory=dict)
    """Seconds an iteration, by phase: learning, evaluation and checkpoints together."""
    exam_s: float | None = None
    disk_bytes: float | None = None
    """Of the run folder and the exam's together."""


@dataclass(frozen=True)
class Standing:
    """Where one job is."""

    job: Job
    stage: str
    iterations: str = ""
    indicators: dict[str, float] = field(default_factory=dict)
    left_s: float | None = None
    """Until it is finished; None: unknown."""
    note: str = ""

    @property
    def ended(self) -> bool:
        return self.stage in ("finished", "failed")


def load(folder: Folder) -> dict[str, Any]:
    """sweep.json of this schema, or a clear sentence."""
    if not folder.plan.is_file():
        raise ValueError(
            f"{folder.path} holds no sweep: run `mirrormark sweep SPEC.toml --out {folder.path}` first."
        )
    try:
        found = json.loads(folder.plan.read_text())
        schema, _ = found["schema"], found["jobs"]
    except DAMAGE:
        raise ValueError(
            f"{folder.plan} is damaged: delete it, and give the same `mirrormark sweep` command again; "
            "it is written anew, and no run is lost."
        ) from None
    if schema != SCHEMA:
        raise ValueError(f"{folder.plan} has schema {schema!r}; this version reads {SCHEMA!r}.")
    return found


def jobs_of(folder: Folder) -> list[Job]:
    """The jobs of the sweep in that folder, in their order."""
    jobs = load(folder)["jobs"]
    return [Job(**{**job, "train": tuple(job["train"]), "exam": tuple(job["exam"])}) for job in jobs]


def read_progress(folder: Folder) -> dict[str, Seen]:
    """What the driver has seen; a damaged file only means that this is forgotten."""
    try:
        return {name: Seen(**seen) for name, seen in json.loads(folder.progress.read_text()).items()}
    except DAMAGE:
        return {}


def write_progress(folder: Folder, seen: dict[str, Seen]) -> None:
    write_json(folder.progress, {name: asdict(one) for name, one in seen.items()})


# Estimates: only from what was measured


def paces(jobs: Sequence[Job], folder: Folder) -> dict[str, Pace]:
    """What the sweep's own runs have shown so far, by body."""
    seen, found = read_progress(folder), {}
    for body in dict.fromkeys(job.body for job in jobs):
        phases: dict[str, list[float]] = {}
        runs, exams, sizes = 0, [], []
        for name in (job.name for job in jobs if job.body == body):
            with contextlib.suppress(*DAMAGE):
                spent = iteration_seconds(folder.run(name))
                runs += bool(spent)
                for phase, seconds in spent.items():
                    phases.setdefault(phase, []).append(seconds)
                if folder.examined(name):
                    sizes.append(folder_bytes(folder.run(name), folder.exam(name)))
                    exams += [s for step, s in seen.get(name, Seen()).seconds.items() if step == "exam"]
        exam_s, size = (fmean(values) if values else None for values in (exams, sizes))
        found[body] = Pace(runs, {phase: fmean(all_s) for phase, all_s in phases.items()}, exam_s, size)
    return found


def iteration_seconds(run: Path) -> dict[str, float]:
    """Mean seconds an iteration, by phase. Each process counts from its own start: a smaller number is a
    restart."""
    spent: dict[str, list[float]] = {}
    before = 0.0
    for row in read_lines(run / "metrics.jsonl"):
        seconds = row["seconds"] - before if row["seconds"] >= before else row["seconds"]
        spent.setdefault(row["phase"], []).append(seconds)
        before = row["seconds"]
    return {phase: fmean(all_s) for phase, all_s in spent.items()}


def folder_bytes(*paths: Path) -> int:
    """Bytes of all files below."""
    files = (Path(root) / name for path in paths for root, _, names in os.walk(path) for name in names)
    return sum(file.stat().st_size for file in files if file.exists())  # checkpoints come and go meanwhile


def left_s(schedule: Schedule, iteration: int, pace: Pace) -> float | None:
    """Seconds from this iteration to the end of training; None where a phase to come was never timed."""
    first = max(0, schedule.tokenizer_iterations - iteration)
    rest = schedule.total_iterations - max(iteration, schedule.tokenizer_iterations)
    needed = {phase: count for phase, count in (("tokenizer", first), ("training", rest)) if count}
    if not set(needed) <= set(pace.iteration_s):
        return None
    return sum(count * pace.iteration_s[phase] for phase, count in needed.items())


def in_words(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}" if unit == "h" else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def bytes_in_words(size: float | None) -> str:
    if size is None:
        return "unknown"
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


# How every job stands


def standings(jobs: Sequence[Job], folder: Folder) -> list[Standing]:
    """Every job as it stands now; damage to one's files is shown, not raised."""
    known, seen, found = paces(jobs, folder), read_progress(folder), []
    for job in jobs:
        try:
            found.append(_standing(job, folder, seen.get(job.name, Seen()), known[job.body]))
        except DAMAGE as error:
            found.append(Standing(job, "damaged", note=f"{folder.run(job.name)}: {error}"))
    return found


def _standing(job: Job, folder: Folder, seen: Seen, pace: Pace) -> Standing:
    run, examined = RunFolder(folder.run(job.name)), folder.examined(job.name)
    status = run.status() if (run.path / "status.json").exists() else {"state": "none", "iteration": 0}
    schedule = schedule_of(job.train)
    left = left_s(schedule, status["iteration"], pace)
    points = read_lines(run.path / "evaluations.jsonl")
    last = points[-1] if points else {}
    failures = f"{seen.failures} failed tries: {seen.reason}" if seen.failures else ""
    return Standing(
        job=job,
        stage=_stage(job, folder, seen, status, schedule),
        iterations=f"{status['iteration']}/{schedule.total_iterations}",
        indicators={name: last[name] for name in _SHOWN if last.get(name) is not None},
        left_s=None if left is None or pace.exam_s is None else left + pace.exam_s,
        note="; ".join(words for words in (failures, last.get("ablation")) if words and not examined),
    )


def _stage(job: Job, folder: Folder, seen: Seen, status: dict[str, Any], schedule: Schedule) -> str:
    if folder.examined(job.name):
        return "finished"
    if seen.failed:
        return "failed"
    if status["state"] == "finished":
        return "exam" if folder.exam(job.name).exists() else "waiting for exam"
    if status["state"] in ("running", "starting"):
        iteration = schedule.iteration(min(status["iteration"], schedule.total_iterations - 1))
        return "+".join(iteration.stages) or "collecting"
    return "waiting" if status["state"] == "none" else f"waiting ({status['state']})"


def table(found: Sequence[Standing]) -> Table:
    """For the terminal."""
    columns = ("run", "stage", "iteration", *_SHOWN.values(), "left", "note")
    shown = Table(*columns, title=summary(found), title_justify="left")
    for one in found:
        values = [f"{one.indicators[name]:.2f}" if name in one.indicators else "" for name in _SHOWN]
        left = "" if one.ended else in_words(one.left_s)
        shown.add_row(one.job.name, one.stage, one.iterations, *values, left, one.note)
    return shown


def summary(found: Sequence[Standing]) -> str:
    """One line over all."""
    finished, failed = (sum(one.stage == stage for one in found) for stage in ("finished", "failed"))
    rest = len(found) - finished - failed
    return f"{len(found)} runs: {finished} finished, {rest} open, {failed} failed"


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDE)


def runs(folder: Path = Path("runs"), /) -> None:
    """List runs with their state; of a sweep's folder, all its runs with stage, indicators and time left.

    Args:
        folder: Where to look.
    """
    place = Folder(folder.resolve())
    if place.plan.is_file():
        console().print(table(standings(jobs_of(place), place)))
    else:
        training_commands.runs(folder)
