"""What differs between two records: `python tests/goldens/compare.py A.json B.json [--tolerant]`. Without
--tolerant to the bit; with it hashes are left out and numbers may differ as processors make them differ.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Tolerance(NamedTuple):
    """|a - b| <= absolute + relative * max(|a|, |b|)."""

    relative: float
    absolute: float

    def excess(self, a: float, b: float) -> float:
        """How many times as far apart as they may be."""
        return abs(a - b) / (self.absolute + self.relative * max(abs(a), abs(b)))


TOLERANCES = {
    "metrics": Tolerance(1e-3, 1e-4),
    "size": Tolerance(0, 1e-9),
    "norm": Tolerance(1e-3, 1e-6),
    "moved": Tolerance(1e-3, 1e-6),
    "numbers": Tolerance(1e-3, 1e-3),
    "largest_difference": Tolerance(0, 1e-4),
}


def differences(a: Any, b: Any, tolerant: bool = False, where: str = "") -> list[str]:
    """One sentence for each difference, by its place in the record."""
    if isinstance(a, dict) and isinstance(b, dict):
        found = [f"{where}: only in one of them: {key}" for key in sorted(set(a) ^ set(b))]
        if "tensors" in a and "tensors" in b and tolerant:
            return found + _sets(a["tensors"], b["tensors"], where)
        if tolerant and "removed" in a and "removed" in b:
            return found + _exams(a, b, where)
        for key in a:
            if key in b and not (tolerant and key == "sha256"):
                found += differences(a[key], b[key], tolerant, f"{where}/{key}" if where else key)
        return found
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        if not tolerant and where.endswith("/tensors"):
            count = sum(one != other for one, other in zip(a, b))
            return [f"{where}: {count} of {len(a)} differ"] if count else []
        pairs = enumerate(zip(a, b))
        return [line for i, pair in pairs for line in differences(*pair, tolerant, f"{where}[{i}]")]
    if tolerant and isinstance(a, int | float) and isinstance(b, int | float):
        allowed = _tolerance(where)
        if allowed.excess(a, b) > 1:
            return [f"{where}: {a:.9g} and {b:.9g}, {allowed.excess(a, b):.1f} times what is allowed"]
        return []
    return [] if a == b else [f"{where}: {_short(a)} and {_short(b)}"]


def _tolerance(where: str) -> Tolerance:
    return next((allowed for name, allowed in TOLERANCES.items() if name in where), TOLERANCES["numbers"])


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def _sets(a: list[list[float]], b: list[list[float]], where: str) -> list[str]:
    """Two sets of tensors: those of one size are matched by the order of each statistic."""
    sizes: list[dict[int, list[list[float]]]] = []
    for rows in (a, b):
        sizes.append(defaultdict(list))
        for row in rows:
            sizes[-1][int(row[0])].append(row[1:])
    found = []
    for size in sorted(set(sizes[0]) | set(sizes[1])):
        one, other = sizes[0].get(size, []), sizes[1].get(size, [])
        if len(one) != len(other):
            found.append(f"{where}: {len(one)} and {len(other)} tensors of {size} numbers")
            continue
        for name, left, right in zip(("norm", "moved"), zip(*one), zip(*other)):
            for x, y in zip(np.sort(left), np.sort(right)):
                excess = TOLERANCES[name].excess(x, y)
                if excess > 1:
                    place = f"{where}: {name} of a tensor of {size} numbers"
                    found.append(f"{place}: {x:.9g} and {y:.9g}, {excess:.1f} times what is allowed")
    return found


def _exams(a: dict[str, list], b: dict[str, list], where: str) -> list[str]:
    """A body that moves long enough magnifies the smallest difference: outcomes of some runs may change."""
    unlike = sum(x != y for x, y in zip(a["removed"], b["removed"]))
    allowed = 0.15 * len(a["removed"])
    return [f"{where}: {unlike} of {len(a['removed'])} runs end otherwise"] if unlike > allowed else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--tolerant", action="store_true", help="for records of different machines")
    asked = parser.parse_args()
    found = differences(json.loads(asked.a.read_text()), json.loads(asked.b.read_text()), asked.tolerant)
    print("\n".join(found) or ("Equal within tolerances." if asked.tolerant else "Equal to the bit."))
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
