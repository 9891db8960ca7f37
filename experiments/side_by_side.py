"""Several training runs on one GPU, which they share by MPS; the next one begins when one has ended.

    python experiments/side_by_side.py FOLDER RUNS.txt --at-once 6 --until 16384

RUNS.txt has a line for each run: its name, then the words of `mirrormark train`, such as

    seed-0 --preset swift --seed 0

A run goes to its own end, or an iteration beyond its first evaluation at or after --until episodes (its
learning rates fall as they would have). Run folders: FOLDER/NAME; what they print: FOLDER/NAME.log. Ctrl-C or
SIGTERM lets each finish its iteration. Several of these may go at once if all their runs have names of their
own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import tyro


@dataclass
class SideBySide:
    """Which training runs, how many at once, how far."""

    folder: tyro.conf.Positional[Path]
    """Where the run folders go."""
    runs: tyro.conf.Positional[Path]
    """A file with a line for each run: a name, then the words of `mirrormark train`."""
    at_once: int = 6
    """So many runs share the GPU; from four on, more only hide one another's start-up."""
    until: int | None = None
    """Stop each at its first evaluation from here on, in episodes; None: at its own end."""
    threads: int = field(default_factory=lambda: max(1, (os.cpu_count() or 1) // 6))
    """Cores for the environments of each."""


def main(asked: SideBySide) -> None:
    """Train them all."""
    asked.folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("nvidia-cuda-mps-control"):
        # Refuses, harmlessly, where one is running.
        subprocess.run(["nvidia-cuda-mps-control", "-d"], capture_output=True, check=False)
    signal.signal(signal.SIGTERM, _as_interrupt)
    waiting = [line for line in asked.runs.read_text().splitlines() if line.strip()]
    if len({line.split()[0] for line in waiting}) < len(waiting):
        raise SystemExit(f"{asked.runs} has a name twice: give every run one of its own.")
    failed: list[str] = []
    stopped: set[str] = set()
    going: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while waiting or going:
            while waiting and len(going) < asked.at_once:
                name, *words = waiting.pop(0).split()
                going[name] = _begin(asked, name, words)
                print(f"{name} begins, {len(waiting)} wait", flush=True)
            time.sleep(1)
            for name, process in list(going.items()):
                if process.poll() is not None:
                    del going[name]
                    failed += [name] if process.returncode > 0 else []  # ours end by a signal or well
                    print(f"{name} ends with {process.returncode}", flush=True)
                elif name not in stopped and _done(asked, name):
                    # Not SIGKILL: a client of MPS that dies with work on the GPU may take others with it.
                    process.terminate()
                    stopped.add(name)
    finally:
        for name, process in going.items():
            if name not in stopped:  # asked twice, a run would not finish its iteration
                process.terminate()
        for process in going.values():
            process.wait()
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}. Their logs lie in {asked.folder}.")


def _begin(asked: SideBySide, name: str, words: list[str]) -> "subprocess.Popen[bytes]":
    out = asked.folder / name
    command = [sys.executable, "-m", "mirrormark", "train", *words]
    command += ["--env.threads", str(asked.threads), "--out", str(out)]
    with open(f"{out}.log", "wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )


def _done(asked: SideBySide, name: str) -> bool:
    return asked.until is not None and _examined(asked.folder / name) >= asked.until


def _examined(run: Path) -> int:
    """Episodes at a run's newest evaluation whose weights are kept, too."""
    exams = run / "evaluations.jsonl"
    if not exams.exists():
        return 0
    whole = [line for line in exams.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return json.loads(whole[-1])["episodes"] if whole else 0


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(tyro.cli(SideBySide, description=__doc__))
