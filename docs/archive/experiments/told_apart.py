"""What each departure does: lives with the paper's choice beside lives of swift as it is, in one table.

    python experiments/told_apart.py docs/results/run-21/ablations.exams.jsonl --beside RUN/exams.jsonl ...

Lives are told by their exam lines: those with a field "life" by it, others by their file's name. Beside them
stands swift as it is, exams.jsonl of one run for each seed, by its seeds' range. Bold is what one more seed
of swift would hardly do: it lies outside the interval in which that seed falls with 95% (Student's t on the
seeds' spread, which holds the exams' own).
"""

import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from scipy import stats

AT = (8_192, 16_384)
"""Episodes of the two exam points."""
LAST = {
    "efe_gap_per_posture_range": "G gap ÷ posture range",
    "dreamed_fall_ratio": "dreamed ÷ real fall",
    "chance_removal_rate": "everyday removal",
}
"""What else is told, of the second point."""
Point = dict[str, Any]


@dataclass
class ToldApart:
    """Which lives, beside which."""

    lives: tyro.conf.Positional[list[Path]]
    """Files of exam lines: of many lives, or exams.jsonl of one."""
    beside: list[Path]
    """exams.jsonl of swift as it is, a file for each of at least three seeds."""


def main(asked: ToldApart) -> None:
    """Print the table."""
    if len(asked.beside) < 3:
        raise SystemExit("--beside needs at least three files: a spread wants three seeds.")
    swift = [{point["episodes"]: point for point in _points(path)} for path in asked.beside]
    lives: dict[str, dict[int, Point]] = defaultdict(dict)
    for path in asked.lives:
        for point in _points(path):
            lives[point.get("life", path.name.partition(".")[0])][point["episodes"]] = point
    print(_row("life", *(f"removal / yoked at {at:,}" for at in AT), *LAST.values()))
    print("|---" * (1 + len(AT) + len(LAST)) + "|")
    cells = [f"{_range(swift, at, 'removal_rate')} / {_range(swift, at, 'yoked_rate')}" for at in AT]
    print(_row(f"swift, {len(swift)} lives", *cells, *(_range(swift, AT[-1], key) for key in LAST)))
    for name, points in lives.items():
        if not points.keys() >= set(AT):
            print(f"{name} was not examined at {AT[0]:,} and {AT[1]:,} episodes: left out.", file=sys.stderr)
            continue
        cells = [_against(points[at], [seed[at] for seed in swift]) for at in AT]
        print(_row(name, *cells, *(_short(points[AT[-1]][key]) for key in LAST)))
    for at in AT:
        low, high = _next([seed[at]["removal_rate"] for seed in swift])
        print(f"\nAt {at:,} one more seed of swift would remove {_short(low)} to {_short(high)} (95%).")


def _points(path: Path) -> list[Point]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _short(value: float | None) -> str:
    return "–" if value is None else re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")


def _range(seeds: list[dict[int, Point]], at: int, key: str) -> str:
    values = [value for seed in seeds if (value := seed[at][key]) is not None]
    low, high = _short(min(values)), _short(max(values))
    return low if low == high else f"{low}–{high}"


def _next(values: list[float]) -> tuple[float, float]:
    """Where one more of these falls with 95%."""
    n = len(values)
    reach = float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) * np.sqrt(1 + 1 / n))
    return float(np.mean(values)) - reach, float(np.mean(values)) + reach


def _against(point: Point, seeds: list[Point]) -> str:
    low, high = _next([seed["removal_rate"] for seed in seeds])
    removal = _short(point["removal_rate"])
    shown = removal if low <= point["removal_rate"] <= high else f"**{removal}**"
    return f"{shown} / {_short(point['yoked_rate'])}"


if __name__ == "__main__":
    main(tyro.cli(ToldApart, description=__doc__))
