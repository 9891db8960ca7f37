"""One command of a job, as the engines run it: a subprocess with its own log and few threads.

Ray workers import this file, so it stays light: no torch, nothing of the other rooms.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

_LEASH = Path(__file__).with_name("leash.py")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
STOP_S = 120.0
"""A run that was asked to stop finishes its iteration first; after this long it is killed (ours)."""

Step = Literal["train", "exam"]


@dataclass(frozen=True)
class Work:
    """One try of one command."""

    job: str
    step: Step
    words: tuple[str, ...]
    """What follows `mirrormark`."""
    log: Path
    """Everything it prints is added to this file."""
    threads: int = 1


class Ended(NamedTuple):
    """A command that has ended, however it did."""

    work: Work
    how: str  # "exit 0", "exit 2", "killed by signal 9", "its worker died: …"
    seconds: float  # that it ran; 0 where nobody was left to tell


class Engine(Protocol):
    """Runs commands, as many at a time as there are resources."""

    name: str
    workers: int

    def submit(self, work: Work) -> None:
        """Run it as soon as there is room."""
        ...

    def wait(self, timeout_s: float) -> list[Ended]:
        """What has ended since the last call; returns at once if anything has."""
        ...

    def stop(self) -> None:
        """Ask all commands to save and end, and wait until they have."""
        ...

    def close(self) -> None:
        """Let go of everything; commands that still run are killed."""
        ...


def environment(threads: int) -> dict[str, str]:
    """The variables that keep parallel runs from slowing one another."""
    return {name: str(threads) for name in _THREADS} | {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONUNBUFFERED": "1"}


def start(work: Work, gpus: str | None = None) -> subprocess.Popen[bytes]:
    """Start the command; it dies with this process."""
    variables = os.environ | environment(work.threads)
    if gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = gpus
    command = [sys.executable, "-m", "mirrormark", *work.words]
    work.log.parent.mkdir(parents=True, exist_ok=True)
    with open(work.log, "ab") as log:
        log.write(f"$ mirrormark {' '.join(work.words)}\n".encode())
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-S", "-E", str(_LEASH), str(os.getpid()), *command],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the driver alone, which then asks each command to save
        )


def how(returncode: int) -> str:
    return f"exit {returncode}" if returncode >= 0 else f"killed by signal {-returncode}"


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ask for an orderly end; kill what does not come to one."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + STOP_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
