"""`mirrormark report`: the exam's report, written again from its tables."""

from pathlib import Path

from mirrormark.exam.results import load
from mirrormark.show import report as reports


def report(directory: Path, /) -> None:
    """Write an exam's figures, film and HTML report again from its tables.

    Args:
        directory: The folder that `mirrormark exam --out` filled.
    """
    path = reports.write(directory)
    results = load(directory / "results.json")
    if results["label"]:
        print(results["label"])
    print(results["verdict"]["sentence"])
    print(f"Report: {path}")
