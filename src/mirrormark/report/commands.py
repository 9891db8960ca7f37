"""`mirrormark exam` with its report at the end, and `mirrormark report`, which writes it again."""

from concurrent.futures import Executor
from functools import wraps
from pathlib import Path
from typing import Any

from mirrormark.exam import commands
from mirrormark.exam.findings import lead
from mirrormark.exam.results import load
from mirrormark.report import report as reports


@wraps(commands.exam)  # the same options and help
def exam(*options: Any, **named: Any) -> None:
    commands.exam(*options, **(named | {"report": _report}))


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
