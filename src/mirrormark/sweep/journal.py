"""What the driver remembers of each job, on disk: a JSON file a job, replaced as a whole.

Whether a run is trained or examined is read from its own folders, never from here: a line of `--commands`
that another scheduler has run counts just the same.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mirrormark.sweep.plan import Folder, Job
from mirrormark.sweep.spec import Spec
from mirrormark.training.checkpoint import write_json
from mirrormark.training.run_folder import RunFolder, differences, to_json

SCHEMA = "mirrormark.sweep/1"
State = Literal["waiting", "train", "exam", "finished", "failed"]


@dataclass(frozen=True)
class Entry:
    """One job as the driver knows it."""

    state: State = "waiting"
    failures: int = 0
    """Tries that ended badly since this driver or an earlier one took the job up."""
    reason: str = ""
    """Of the last failure."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of finished steps, of all their tries."""


def read(folder: Folder, job: str) -> Entry:
    """The job's entry; a fresh one where none is."""
    path = folder.journal(job)
    return Entry(**json.loads(path.read_text())) if path.exists() else Entry()


def write(folder: Folder, job: str, entry: Entry) -> None:
    path = folder.journal(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(entry))


def trained(folder: Folder, job: str) -> bool:
    return RunFolder(folder.run(job)).status()["state"] == "finished"


def examined(folder: Folder, job: str) -> bool:
    """The exam's last file is there."""
    return (folder.exam(job) / "provenance.json").exists()


def check(folder: Folder, jobs: Sequence[Job]) -> None:
    """The folder belongs to one sweep. More seeds, bodies or settings may join; no command may change."""
    path = folder.path
    if not folder.plan.exists():
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"{path} is taken: it is not empty and holds no sweep; choose another --out.")
        return
    found = {job.name: told(job) for job in jobs}
    for name, before in load(folder)["jobs"].items():
        if name not in found:
            raise ValueError(
                f"{path} holds a sweep with the job {name}, which this spec lacks: choose another --out."
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
    about = {"schema": SCHEMA, "spec": to_json(spec), "jobs": {job.name: told(job) for job in jobs}}
    write_json(folder.plan, about)


def load(folder: Folder) -> dict[str, Any]:
    """sweep.json of this schema, or a clear sentence."""
    if not folder.plan.is_file():
        raise ValueError(
            f"{folder.path} holds no sweep: run `mirrormark sweep SPEC.toml --out {folder.path}` first."
        )
    found = json.loads(folder.plan.read_text())
    if found.get("schema") != SCHEMA:
        raise ValueError(f"{folder.plan} has schema {found.get('schema')!r}; this version reads {SCHEMA!r}.")
    return found


def jobs_of(folder: Folder) -> list[Job]:
    """The jobs of the sweep in that folder, in their order."""
    return [
        Job(**{**job, "name": name, "train": tuple(job["train"]), "exam": tuple(job["exam"])})
        for name, job in load(folder)["jobs"].items()
    ]


def told(job: Job) -> dict[str, Any]:
    """A job as JSON, without its name."""
    return {name: value for name, value in to_json(job).items() if name != "name"}


@contextlib.contextmanager
def driver_of(folder: Folder) -> Iterator[None]:
    """One driver at a time; the lock goes with the process, however that ends."""
    path: Path = folder.path / "driver.lock"
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"{folder.path} is being run by another driver: end that one first.") from None
        yield


def failed(entry: Entry, reason: str, tries: int) -> Entry:
    """One more failure; the last allowed one ends the job."""
    failures = entry.failures + 1
    state: State = "failed" if failures >= tries else "waiting"
    return replace(entry, state=state, failures=failures, reason=reason)
