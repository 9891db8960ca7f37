"""`mirrormark bench exam`: how long the default exam takes here, condition by condition."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mirrormark.training.commands import Device

GOALS_S = {"cpu": 120.0, "cuda": 30.0}
"""Issue 6: the whole default exam of a smoke-sized agent, on two CPU cores or on the GPU machine."""


def bench_exam(
    preset: str = "smoke",
    checkpoint: Path | None = None,
    runs: int = 80,
    chance_runs: int = 1000,
    device: Device = "cpu",
    out: Path | None = None,
) -> None:
    """Time the command `mirrormark exam`, from its start to the written report, as a person waits for it.

    The first exam after an installation also compiles the eye (half a minute, once): run this twice.

    Args:
        preset: Whose sizes the untrained agent has.
        checkpoint: Examine this agent instead.
        runs: Runs of each condition.
        chance_runs: Runs of each random movement.
        device: Where agent and eye run.
        out: Also write the figures to this JSON file.
    """
    who = ["--preset", preset] if checkpoint is None else [str(checkpoint)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "exam"
        command = [sys.executable, "-m", "mirrormark", "exam", *who, "--out", str(place), "--device", device]
        command += ["--runs", str(runs), "--chance-runs", str(chance_runs)]
        began = time.perf_counter()
        subprocess.run(command, check=True)
        total = time.perf_counter() - began
        took: dict[str, float] = json.loads((place / "provenance.json").read_text())["sessions"][0]["took_s"]
    took["start and report"] = round(total - sum(took.values()), 2)
    found = {
        "agent": preset if checkpoint is None else str(checkpoint),
        "runs": runs,
        "device": device,
        "cores": os.cpu_count(),
        "total_s": round(total, 2),
        "took_s": took,
    }
    _print(found)
    if out is not None:
        out.write_text(json.dumps(found) + "\n")


def _print(found: dict) -> None:
    title = f"{found['agent']}, {found['runs']} runs, {found['device']}, {found['cores']} cores"
    table = Table("part", "seconds", title=title)
    for name, seconds in found["took_s"].items():
        table.add_row(name, f"{seconds:.1f}")
    goal = GOALS_S["cuda" if found["device"] == "cuda" else "cpu"]
    table.add_row("whole exam", f"{found['total_s']:.1f} (goal {goal:.0f})")
    Console().print(table)
    print(json.dumps(found))
