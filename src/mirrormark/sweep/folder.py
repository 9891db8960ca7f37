"""Where a sweep keeps what, what is done there, and the commands of a job.

Ray's workers and other schedulers' lines use it, so it imports nothing of training or Ray.
"""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Step = Literal["train", "exam"]
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """One training run and its exam."""

    name: str
    setting: str
    body: str
    seed: int
    values: dict[str, Any]
    """The grid's values of its setting."""
    train: tuple[str, ...]
    """Words of `mirrormark train`, without --seed, --out and --resume."""
    exam: tuple[str, ...]
    """Options of `mirrormark exam`, without --out."""
    threads: int
    beside: str | None = None
    """An agent without drive is examined beside its twin with one: that job's name."""


@dataclass(frozen=True)
class Folder:
    """A sweep's folder. What is trained or examined is read from the runs' own files, never remembered."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "sweep.json"

    @property
    def progress(self) -> Path:
        """What the driver has seen of each job: failed tries, the last reason, seconds."""
        return self.path / "progress.json"

    @property
    def stop(self) -> Path:
        """While it exists, every job saves and ends."""
        return self.path / "stop"

    def run(self, job: str) -> Path:
        return self.path / "runs" / job

    def exam(self, job: str) -> Path:
        return self.path / "exams" / job

    def log(self, job: str) -> Path:
        return self.path / "logs" / f"{job}.log"

    def trained(self, job: str) -> bool:
        try:
            return json.loads((self.run(job) / "status.json").read_text())["state"] == "finished"
        except (OSError, ValueError, TypeError, KeyError):
            return False

    def examined(self, job: str) -> bool:
        """The exam's last file is there."""
        return (self.exam(job) / "provenance.json").exists()

    def next_step(self, job: str) -> Step | None:
        if self.examined(job):
            return None
        return "exam" if self.trained(job) else "train"

    def words(self, job: Job, step: Step) -> list[str]:
        """What follows `mirrormark`, without --resume."""
        if step == "train":
            return ["train", *job.train, "--seed", str(job.seed), "--out", str(self.run(job.name))]
        agents = [str(self.run(name)) for name in (job.beside, job.name) if name]
        return ["exam", *agents, "--out", str(self.exam(job.name)), *job.exam]

    def line(self, job: Job) -> str:
        """One shell line for any other scheduler; run again, it goes on where it stopped."""
        config, status = (
            shlex.quote(str(self.run(job.name) / f"{name}.json")) for name in ("config", "status")
        )
        variables = " ".join(f"{name}={value}" for name, value in threads(job.threads).items())
        train, exam = (f"mirrormark {shlex.join(self.words(job, step))}" for step in ("train", "exam"))
        return (
            f"export {variables}; {{ grep -q '\"finished\"' {status} 2>/dev/null"
            f" || {train} $(test -e {config} && echo --resume); }} && {exam}"
        )


def threads(count: int) -> dict[str, str]:
    """The variables that keep jobs side by side from slowing one another."""
    return {name: str(count) for name in _THREADS} | {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}


def last_words(log: Path) -> str:
    """The last line of a log that says something."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "no log"
    return next((line.strip()[:300] for line in reversed(lines) if line.strip(" │╰╯─")), "its log is empty")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
