"""How long a sweep takes and how much disk: only from what was measured, else unknown."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from mirrormark.sweep import journal
from mirrormark.sweep.plan import Folder, Job
from mirrormark.training.run_folder import read_lines
from mirrormark.training.schedule import Schedule


@dataclass(frozen=True)
class Pace:
    """What one run was measured to take; None: not measured."""

    measured_on: str
    iteration_s: dict[str, float]
    """Seconds an iteration, by phase: learning, indicators and checkpoints together."""
    exam_s: float | None = None
    disk_bytes: int | None = None
    """Of the run folder and the exam's together."""


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


def left_s(schedule: Schedule, iteration: int, iteration_s: dict[str, float]) -> float | None:
    """Seconds from this iteration to the end of training; None where a phase to come was never timed."""
    tokenizer = max(0, schedule.config.tokenizer_iterations - iteration)
    training = schedule.total_iterations - max(iteration, schedule.config.tokenizer_iterations)
    needed = {
        phase: iterations
        for phase, iterations in (("tokenizer", tokenizer), ("training", training))
        if iterations
    }
    if not set(needed) <= set(iteration_s):
        return None
    return sum(iterations * iteration_s[phase] for phase, iterations in needed.items())


def folder_bytes(*paths: Path) -> int:
    """Bytes of all files below."""
    return sum(
        os.path.getsize(Path(root) / name)
        for path in paths
        for root, _, names in os.walk(path)
        for name in names
        if os.path.exists(Path(root) / name)  # checkpoints are renamed and removed while we look
    )


def paces(jobs: Sequence[Job], folder: Folder) -> dict[str, Pace]:
    """What the sweep's own runs have shown so far, by job."""
    found = {}
    for job in jobs:
        iteration_s = iteration_seconds(folder.run(job.name))
        if not iteration_s:
            continue
        entry = journal.read(folder, job.name)
        done = entry.state == "finished"
        size = folder_bytes(folder.run(job.name), folder.exam(job.name)) if done else None
        found[job.name] = Pace(job.name, iteration_s, entry.seconds.get("exam") if done else None, size)
    return found


def pace_for(job: Job, jobs: Sequence[Job], known: dict[str, Pace]) -> Pace | None:
    """The nearest measurement: its own, another seed's, else any run's of this body, else none."""
    for like in (
        lambda other: other.name == job.name,
        lambda other: (other.setting, other.body) == (job.setting, job.body),
        lambda other: other.body == job.body,
    ):
        group = [known[other.name] for other in jobs if like(other) and other.name in known]
        if group:
            phases = {phase for pace in group for phase in pace.iteration_s}
            return Pace(
                measured_on=", ".join(pace.measured_on for pace in group),
                iteration_s={k: fmean(p.iteration_s[k] for p in group if k in p.iteration_s) for k in phases},
                exam_s=_mean([p.exam_s for p in group]),
                disk_bytes=_most([p.disk_bytes for p in group]),
            )
    return None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _most(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def in_words(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def bytes_in_words(size: float | None) -> str:
    if size is None:
        return "unknown"
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
