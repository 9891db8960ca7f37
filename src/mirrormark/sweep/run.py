"""`mirrormark sweep`: checks the spec and its folder, lets Ray Tune run what is left, writes the report."""

import contextlib
import fcntl
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from mirrormark.exam.results import dump
from mirrormark.sweep import report, results, status
from mirrormark.sweep.folder import Folder, Job, cores
from mirrormark.sweep.spec import Spec, fitting, gpus_here, plan, read, schedule_of
from mirrormark.sweep.status import Pace, bytes_in_words, in_words
from mirrormark.training.checkpoint import write_json
from mirrormark.training.run_folder import differences, to_json

LOCK = "driver.lock"
"""Held by the driver; and the sign that a folder is a sweep's."""
_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anyone
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the coming default, without the warning
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # runs keep their own records
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # it kills after ten seconds what has not saved
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune's tables have no room for what a run tells; see Progress
}
"""Read when Ray is imported. A person's own settings go first."""
_HERE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray then listens on 127.0.0.1 only, on Linux too


def sweep(
    spec: Path,
    /,
    out: Path = Path("sweep"),
    address: str | None = None,
    dry_run: bool = False,
    commands: bool = False,
) -> None:
    """Train and examine seeds × bodies × settings, and write one report; started again, it goes on.

    Args:
        spec: The TOML file that describes the sweep (docs/sweep.md).
        out: Folder of the sweep.
        address: An existing Ray cluster whose machines share the folder; None: Ray on this machine.
        dry_run: Only check everything, and tell what would run, how long it takes and how much disk it needs.
        commands: Only claim the folder and print the commands, one line a run, for another scheduler.
    """
    described = read(spec)
    jobs, folder = plan(described), Folder(out.resolve())
    if commands:
        claim(folder, described, jobs)  # so that `mirrormark runs` knows what the other scheduler does
        print("\n".join(folder.line(job) for job in jobs))
        return
    check(folder, jobs)
    if address is None:  # what a cluster has, it tells only when it is joined
        fitting(described.resources, [(cores(), gpus_here())], "this machine has")
    if dry_run:
        _print_plan(jobs, folder, described)
        return
    try:
        if not all(folder.examined(job.name) for job in jobs):
            _run(jobs, folder, described, address)
        found = write_results(jobs, folder)
    except KeyboardInterrupt:
        print(f"Stopped. Give the same command again to go on from here: {folder.path}", flush=True)
        sys.exit(130)
    print(f"Report: {folder.path / 'report.html'}")
    failed = [one["job"] for one in found["failed"]]
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(jobs)} runs failed ({', '.join(failed[:3])}): see {folder.path}/logs."
        )


def _run(jobs: Sequence[Job], folder: Folder, spec: Spec, address: str | None) -> None:
    if importlib.util.find_spec("ray") is None:
        raise ValueError(
            'Ray is not installed: pip install "mirrormark[sweep]", or use --commands to run the sweep by '
            "another scheduler."
        )
    os.environ.update((_RAY | (_HERE if address is None else {})) | os.environ)
    from mirrormark.sweep import driver

    claim(folder, spec, jobs)
    with _only_driver(folder):
        driver.drive(jobs, folder, spec.resources, address)


# The folder


def check(folder: Folder, jobs: Sequence[Job]) -> None:
    """The folder belongs to one sweep. More seeds, bodies or settings may join; no command may change."""
    path = folder.path
    if not folder.plan.exists():
        ours = (path / LOCK).exists()  # its sweep.json was damaged, and deleted
        if path.exists() and not ours and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"{path} is taken: it is not empty and holds no sweep; choose another --out.")
        return
    found = {job.name: to_json(job) for job in jobs}
    for before in status.load(folder)["jobs"]:
        name = before["name"]
        if name not in found:
            raise ValueError(
                f"{path} holds a sweep with the run {name}, which this spec lacks: choose another --out."
            )
        changed = list(differences(before, found[name]))
        if changed:
            raise ValueError(
                f"{path} holds another sweep ({name}: {changed[0]}): choose another --out, or give the same"
                " values."
            )


def claim(folder: Folder, spec: Spec, jobs: Sequence[Job]) -> None:
    """Write down what the folder is for, if it is free or already for that."""
    check(folder, jobs)
    folder.path.mkdir(parents=True, exist_ok=True)
    (folder.path / LOCK).touch()
    write_json(folder.plan, {"schema": status.SCHEMA, "spec": to_json(spec), "jobs": to_json(list(jobs))})


@contextlib.contextmanager
def _only_driver(folder: Folder) -> Iterator[None]:
    """One driver at a time; the lock goes with the process, however that ends."""
    with open(folder.path / LOCK, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{folder.path} is being run by another driver: end that one first.") from None
        yield


# What is printed before and after


def _print_plan(jobs: Sequence[Job], folder: Folder, spec: Spec) -> None:
    """What would run, and what that takes as far as any run of this folder has measured it."""
    known = status.paces(jobs, folder)
    shown, costs = Table("run", "train", "exam", "disk", "measured on"), []
    for job in jobs:
        pace = known.get(job.body, Pace())
        train_s = status.left_s(schedule_of(job.train), 0, pace)
        costs.append((train_s, pace.exam_s, pace.disk_bytes))
        estimates = (in_words(train_s), in_words(pace.exam_s), bytes_in_words(pace.disk_bytes))
        shown.add_row(job.name, *estimates, f"{pace.runs} runs" if pace.runs else "nothing yet")
    status.console().print(shown)
    train, exam, disk = (None if None in column else sum(column) for column in zip(*costs))
    workers = spec.resources.workers
    print(
        f"{len(jobs)} runs, one after the other: training {in_words(train)}, exams {in_words(exam)}; "
        f"disk {bytes_in_words(disk)}. {f'{workers} at a time.' if workers else 'As many at a time as fit.'}"
    )


def write_results(jobs: Sequence[Job], folder: Folder) -> dict[str, Any]:
    """The table, results.json and the report, from what is on disk; what results.json holds."""
    table, damaged = results.gather(jobs, folder)
    results.write(table, folder.path / "runs.parquet")
    found = results.summarise(jobs, folder, table, damaged)
    dump(found, folder.path / "results.json")
    report.write(found, folder.path)
    return found
