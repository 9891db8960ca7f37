"""`mirrormark bench exam`: how long the default exam takes here, condition by condition."""

import itertools
import json
import os
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mirrormark.exam import commands, subjects
from mirrormark.exam.sitting import Settings, sit

GOAL_S = 120.0
"""Issue 6: the whole default exam of a smoke-sized mind on two CPU cores."""


def bench_exam(
    preset: str = "smoke", runs: int = 80, chance_runs: int = 1000, out: Path | None = None
) -> None:
    """Time the default exam of an untrained mind of a preset.

    Args:
        preset: Whose sizes the mind has.
        runs: Runs of each condition.
        chance_runs: Runs of each random movement.
        out: Also write the figures to this JSON file.
    """
    subject, settings = subjects.untrained(preset), Settings(runs=runs, chance_runs=chance_runs)
    marks: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "exam"
        sit([subject], place, settings, lambda what, done, of: marks.append((what, time.perf_counter())))
        commands.examine([subject], place, settings)  # conditions are on disk: only probes and results remain
    end = time.perf_counter()
    took = {name: round(later - begun, 2) for (name, begun), (_, later) in itertools.pairwise(marks)}
    took |= {"probes and results": round(end - marks[-1][1], 2)}
    total = round(end - marks[0][1], 2)
    table = Table("condition", "seconds", title=f"{preset}, {runs} runs, {os.cpu_count()} cores")
    for name, seconds in took.items():
        table.add_row(name, f"{seconds:.1f}")
    table.add_row("whole exam", f"{total:.1f} (goal {GOAL_S:.0f} on 2 cores)")
    Console().print(table)
    found = {"preset": preset, "runs": runs, "cores": os.cpu_count(), "total_s": total, "conditions_s": took}
    print(json.dumps(found))
    if out is not None:
        out.write_text(json.dumps(found) + "\n")
