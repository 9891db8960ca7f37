"""`mirrormark sweep` and `mirrormark runs`."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from rich.console import Console
from rich.live import Live
from rich.table import Table

from mirrormark.exam.results import dump
from mirrormark.life import commands as life_commands
from mirrormark.life.schedule import Schedule
from mirrormark.sweep import estimate, journal, report, results, status
from mirrormark.sweep import plan as plans
from mirrormark.sweep.drive import drive
from mirrormark.sweep.engine_processes import Processes, fitting, gpus_here
from mirrormark.sweep.engine_ray import Ray, installed
from mirrormark.sweep.estimate import Pace, bytes_in_words, in_words
from mirrormark.sweep.journal import Entry
from mirrormark.sweep.plan import Folder, Job, asked, plan
from mirrormark.sweep.spec import Resources, Spec, read
from mirrormark.sweep.work import Engine

EngineName = Literal["auto", "ray", "processes"]
_DRAW_S = 5.0
"""How often the table is read anew from disk: it may hold many runs."""
_WIDE = 160
"""Columns where the output is no terminal."""


def sweep(
    spec: Path,
    /,
    out: Path = Path("sweep"),
    engine: EngineName = "auto",
    address: str | None = None,
    dry_run: bool = False,
    commands: bool = False,
) -> None:
    """Train and examine seeds × bodies × settings, and write one report; started again, it goes on.

    Args:
        spec: The TOML file that describes the sweep (docs/sweep.md).
        out: Folder of the sweep.
        engine: Ray, plain processes, or auto: Ray where it is installed.
        address: An existing Ray cluster whose machines share the folder; None: Ray on this machine.
        dry_run: Only tell what would run, how long it takes and how much disk it needs.
        commands: Only claim the folder and print the commands, one line a run, for another scheduler.
    """
    described = read(spec)
    jobs, folder = plan(described), Folder(out.resolve())
    if commands:
        journal.claim(
            folder, described, jobs
        )  # so that `mirrormark runs` knows what the other scheduler does
        print("\n".join(plans.commands(jobs, folder)))
        return
    if address and engine == "processes":
        raise ValueError("--address is a Ray cluster's, but --engine is processes: leave one of them out.")
    journal.check(folder, jobs)
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    if dry_run:
        if address is None:  # what a cluster has, it tells only when it is joined
            fitting(described.resources, os.cpu_count() or 1, gpus_here(), "this machine has")
        _tell_plan(jobs, folder, described, console)
        return
    if not all(journal.examined(folder, job.name) for job in jobs):
        # The engine comes first: it refuses what does not fit, and then nothing should have been written.
        runner = _engine(engine, described.resources, address)
        try:
            journal.claim(folder, described, jobs)
            with journal.driver_of(folder):
                _run(jobs, folder, runner, described.resources.tries, console)
        finally:
            runner.close()
    path = write_results(jobs, folder)
    console.print(f"Report: {path}", highlight=False)
    failed = [job.name for job in jobs if journal.read(folder, job.name).state == "failed"]
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(jobs)} runs failed ({', '.join(failed[:3])}): see {folder.path}/logs."
        )


def _engine(name: EngineName, resources: Resources, address: str | None) -> Engine:
    if name == "ray" or address or (name == "auto" and installed()):
        return Ray(resources, address)
    return Processes(resources)


def _run(jobs: Sequence[Job], folder: Folder, engine: Engine, tries: int, console: Console) -> None:
    """Everything that is still to be done; Ctrl-C lets each run save first."""
    told = f"{len(jobs)} runs with {engine.name}, {engine.workers} at a time: {folder.path}"
    console.print(told, highlight=False)
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with _Display(jobs, folder, engine, console) as display:
            drive(jobs, folder, engine, tries, display)
    except KeyboardInterrupt:
        console.print("Stopping: each run finishes its lap and saves; the same command goes on from there.")
        with contextlib.suppress(KeyboardInterrupt):  # once more: they are killed where they stand
            engine.stop()
        sys.exit(130)
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Display:
    """A table that is redrawn on a terminal; lines of what has happened elsewhere."""

    def __init__(self, jobs: Sequence[Job], folder: Folder, engine: Engine, console: Console) -> None:
        self._jobs, self._folder, self._engine, self._console = jobs, folder, engine, console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._drawn_s = 0.0

    def __enter__(self) -> "_Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, entries: dict[str, Entry], happened: str | None) -> None:
        if happened:
            self._console.print(f"{time.strftime('%H:%M:%S')} {happened}", highlight=False, markup=False)
        if self._live and (happened or time.monotonic() - self._drawn_s > _DRAW_S):
            found = status.standings(self._jobs, self._folder, entries)
            shown = status.table(found)
            shown.title = status.summary(found, self._engine.workers)
            self._live.update(shown, refresh=True)
            self._drawn_s = time.monotonic()


def write_results(jobs: Sequence[Job], folder: Folder) -> Path:
    """The table, results.json and the report, from what is on disk."""
    table = results.gather(jobs, folder)
    results.write(table, folder.path / "runs.parquet")
    found = results.summarise(jobs, folder, table)
    dump(found, folder.path / "results.json")
    return report.write(found, folder.path)


def runs(folder: Path = Path("runs"), /) -> None:
    """List runs with their state; of a sweep's folder, all its runs with stage, indicators and time left.

    Args:
        folder: Where to look.
    """
    place = Folder(folder)
    if not place.plan.is_file():
        life_commands.runs(folder)
        return
    found = status.standings(journal.jobs_of(place), place)
    Console(width=None if sys.stdout.isatty() else _WIDE).print(status.table(found))


def _tell_plan(jobs: Sequence[Job], folder: Folder, spec: Spec, console: Console) -> None:
    """What would run, and what that takes as far as anything was measured."""
    known = estimate.paces(jobs, folder)
    shown = Table("run", "train", "exam", "disk", "measured on")
    costs = []
    for job in jobs:
        pace = estimate.pace_for(job, jobs, known)
        costs.append(_cost(job, pace))
        told = (in_words(costs[-1][0]), in_words(costs[-1][1]), bytes_in_words(costs[-1][2]))
        shown.add_row(job.name, *told, pace.measured_on if pace else "nothing")
    console.print(shown)
    train, exam, disk = (None if None in column else sum(column) for column in zip(*costs))
    workers = spec.resources.workers
    console.print(
        f"{len(jobs)} runs, one after the other: training {in_words(train)}, exams {in_words(exam)}; "
        f"disk {bytes_in_words(disk)}. {f'{workers} at a time.' if workers else 'As many at a time as fit.'}",
        highlight=False,
    )


def _cost(job: Job, pace: Pace | None) -> tuple[float | None, float | None, int | None]:
    if pace is None:
        return None, None, None
    return (
        estimate.left_s(Schedule(asked(job.train).life.schedule), 0, pace.lap_s),
        pace.exam_s,
        pace.disk_bytes,
    )
