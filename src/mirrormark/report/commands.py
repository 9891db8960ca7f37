"""`mirrormark exam` with its report at the end, `mirrormark.examine`, the same for any agent from Python, and
`mirrormark report`, which writes the report again."""

from concurrent.futures import Executor
from functools import wraps
from pathlib import Path
from typing import Any

from rich.console import Console

from mirrormark.exam import candidates, commands, conditions
from mirrormark.exam.results import load
from mirrormark.exam.run import Settings
from mirrormark.exam.verdict import lead
from mirrormark.report import report as reports


@wraps(commands.exam)  # the same options and help
def exam(*options: Any, **named: Any) -> None:
    commands.exam(*options, **(named | {"report": _report}))


def examine(
    agent: object,
    body: str = "infant",
    out: Path | str = "exam",
    *,
    runs: int = 80,
    chance_runs: int = 1000,
    first_exam_seed: int = 0,
    only: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Any agent takes the mirror-mark exam (docs/exam.md); tables, results and report are written to `out`.

    Args:
        agent: An agent with `privileged`, `reset(n)` and `act(observations)`, a function that makes one, or
            its name as "module:function"; a list or tuple of those: one for each training seed.
        body: Which body.
        out: Folder for tables, results and report.
        runs: Runs of each condition for each agent.
        chance_runs: Runs of each random movement; below 1,000 nothing can be called passed.
        first_exam_seed: Number of the first world.
        only: Conditions to run; none: all.

    Returns:
        What results.json holds.
    """
    each = agent if isinstance(agent, list | tuple) else [agent]
    settings = Settings(runs, first_exam_seed, chance_runs, conditions=only or conditions.names())
    examinees = [candidates.external(one, body, k) for k, one in enumerate(each)]
    console, folder = Console(), Path(out)
    found = commands.examine(examinees, folder, settings, console)
    commands.show(found, console)
    _report(folder, None)
    return found


def _report(directory: Path, helpers: Executor | None) -> None:
    print(f"Report: {reports.write(directory, helpers)}")


def report(directory: Path, /) -> None:
    """Write an exam's HTML report and films again from its tables.

    Args:
        directory: The folder that `mirrormark exam --out` filled.
    """
    path = reports.write(directory)
    results = load(directory / "results.json")
    if results["label"]:
        print(results["label"])
    print(*lead(results), sep="\n")
    print(f"Report: {path}")
