"""All jobs of a sweep in one table: stage, indicators, time left. Read from disk, at any time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from mirrormark.sweep import estimate, journal
from mirrormark.sweep.estimate import Pace, in_words
from mirrormark.sweep.journal import Entry
from mirrormark.sweep.plan import Folder, Job, asked
from mirrormark.training.run_folder import RunFolder, read_lines
from mirrormark.training.schedule import Schedule

_SHOWN = {
    "mark_recovery": "mark seen",
    "efe_gap_nats": "gap, nats",
    "removal_rate": "removal",
    "chance_removal_rate": "chance",
}
"""Indicators in the table, from the run's last exam point."""


@dataclass(frozen=True)
class Standing:
    """Where one job is."""

    job: Job
    stage: str
    iterations: str
    indicators: dict[str, float]
    left_s: float | None
    """Until it is finished; None: unknown."""
    note: str


def standings(jobs: Sequence[Job], folder: Folder, entries: dict[str, Entry] | None = None) -> list[Standing]:
    """Every job as it stands now."""
    known = estimate.paces(jobs, folder)
    entries = entries or {job.name: journal.read(folder, job.name) for job in jobs}
    return [_standing(job, jobs, folder, entries[job.name], known) for job in jobs]


def _standing(
    job: Job, jobs: Sequence[Job], folder: Folder, entry: Entry, known: dict[str, Pace]
) -> Standing:
    run = RunFolder(folder.run(job.name))
    status: dict[str, Any] = (
        run.status() if (run.path / "status.json").exists() else {"state": "none", "iteration": 0}
    )
    exams = read_lines(run.path / "evaluations.jsonl")
    last = exams[-1] if exams else {}
    pace = estimate.pace_for(job, jobs, known)
    schedule = Schedule(asked(job.train).training.schedule)
    left = None
    if pace and entry.state != "failed":
        left = estimate.left_s(schedule, status["iteration"], pace.iteration_s)
        if not journal.examined(folder, job.name):
            left = left + pace.exam_s if left is not None and pace.exam_s is not None else None
    note = entry.reason if entry.state == "failed" else (last.get("ablation") or "")
    if entry.failures and entry.state != "failed":
        note = f"{entry.failures} failed tries; {note}".strip("; ")
    return Standing(
        job=job,
        stage=_stage(job, folder, entry, status, schedule),
        iterations=f"{status['iteration']}/{schedule.total_iterations}",
        indicators={name: last[name] for name in _SHOWN if last.get(name) is not None},
        left_s=left,
        note=note,
    )


def _stage(job: Job, folder: Folder, entry: Entry, status: dict[str, Any], schedule: Schedule) -> str:
    if entry.state == "failed" or journal.examined(folder, job.name):
        return "finished" if entry.state != "failed" else "failed"
    if status["state"] == "finished":
        return "exam" if (folder.exam(job.name) / "exam.json").exists() else "waiting for exam"
    if status["state"] in ("running", "starting"):
        iteration = schedule.iteration(min(status["iteration"], schedule.total_iterations - 1))
        return "+".join(iteration.stages) or "gathering"
    return "waiting" if status["state"] == "none" else f"waiting ({status['state']})"


def table(found: Sequence[Standing]) -> Table:
    """For the terminal."""
    shown = Table(
        "run",
        "stage",
        "iteration",
        *_SHOWN.values(),
        "left",
        "note",
        title=summary(found),
        title_justify="left",
    )
    for one in found:
        values = [f"{one.indicators[name]:.2f}" if name in one.indicators else "" for name in _SHOWN]
        left = "" if one.stage in ("finished", "failed") else in_words(one.left_s)
        shown.add_row(one.job.name, one.stage, one.iterations, *values, left, one.note)
    return shown


def summary(found: Sequence[Standing], workers: int | None = None) -> str:
    """One line over all; with the number of workers also how long the rest takes."""
    counts = {stage: sum(one.stage == stage for one in found) for stage in ("finished", "failed")}
    open_ = [one for one in found if one.stage not in counts]
    told = f"{len(found)} runs: {counts['finished']} finished, {len(open_)} open, {counts['failed']} failed"
    if workers and open_:
        left = [one.left_s for one in open_ if one.left_s is not None]
        rest = max(sum(left) / workers, max(left)) if len(left) == len(open_) else None
        told += f"; left: {in_words(rest)}"
    return told
