"""The same question on a GPU, at swift's networks and batches: three iterations of its tokenizer, and three
over the shipped tokenizer with every stage open from the first episode.

    python gpu.py record OUT.json [--device cuda] [--eager] [--toy]   # of the tree on PYTHONPATH
    python gpu.py compare A.json B.json                               # largest relative difference by metric
    python gpu.py both TREE_A TREE_B OUT_FOLDER [as for record]       # both, each by its own gpu.py

--eager: neither compiled nor captured, so that kernels are the same in both trees. --toy: smoke's networks,
to try it on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import compare
import torch

PHASES = ("tokenizer", "agent")
ITERATIONS = 3


def take(out: Path, device: str, eager: bool, toy: bool) -> None:
    """Record both phases; what is done is on disk even if the second one fails."""
    import adapter
    import record

    torch.backends.cuda.matmul.allow_tf32 = False
    found = {}
    for phase in PHASES:
        began = time.perf_counter()
        run = adapter.gpu_training(phase, device, eager, toy)
        found[phase] = record.of_training(run, ITERATIONS)
        record.write(out, found)
        print(f"{phase}: {time.perf_counter() - began:.0f} s", flush=True)
        del run
    short = {
        phase: {
            "metrics": part["metrics"],
            "weights": part["weights"]["sha256"],
            "moments": part["moments"]["sha256"],
        }
        for phase, part in found.items()
    }
    print(json.dumps(short))


def report(a: Path, b: Path) -> None:
    """Whether all is equal, and the largest relative difference of each metric and of the weights' way."""
    one, other = json.loads(a.read_text()), json.loads(b.read_text())
    for phase in (phase for phase in PHASES if phase in one and phase in other):
        exact = not compare.differences(one[phase], other[phase])
        print(f"{phase}: {'equal to the bit' if exact else 'not equal to the bit'}")
        rows = list(zip(one[phase]["metrics"], other[phase]["metrics"], strict=True))
        for name in sorted({name for pair in rows for metrics in pair for name in metrics}):
            pairs = [(x[name], y[name]) for x, y in rows if name in x and name in y]
            missing = sum((name in x) != (name in y) for x, y in rows)
            worst = max((relative(x, y) for x, y in pairs), default=float("nan"))
            last = f"{pairs[-1][0]:.6g} {pairs[-1][1]:.6g}" if pairs else ""
            print(f"  {name:36} {worst:.2e}   {last}{'   MISSING IN ONE' if missing else ''}")
        sets = [sorted(part[phase]["weights"]["tensors"]) for part in (one, other)]
        if [row[0] for row in sets[0]] == [row[0] for row in sets[1]]:
            moved = [sum(row[2] ** 2 for row in rows) ** 0.5 for rows in sets]
            print(f"  {'all weights have moved':36} {relative(*moved):.2e}   {moved[0]:.6g} {moved[1]:.6g}")
        else:
            print(f"  other sizes of tensors: {len(sets[0])} and {len(sets[1])}")


def relative(x: float, y: float) -> float:
    """Of a metric near 0, the difference itself."""
    return abs(x - y) / max(abs(x), abs(y), 1e-3)


def both(trees: list[Path], out: Path, flags: list[str]) -> None:
    """Record each tree by its own gpu.py, in a process of its own, and compare."""
    out.mkdir(parents=True, exist_ok=True)
    files = [(out / f"{name}.json").resolve() for name in "ab"]
    for tree, file in zip(trees, files):
        root = tree.resolve()
        script = root / "tests" / "goldens" / "gpu.py"
        print(f"{root}:", flush=True)
        environment = os.environ | {"PYTHONPATH": str(root / "src")}
        subprocess.run(
            [sys.executable, str(script), "record", str(file), *flags], env=environment, check=True
        )
    report(files[0], files[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("record", "compare", "both"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--toy", action="store_true")
    asked = parser.parse_args()
    wanted = {"record": 1, "compare": 2, "both": 3}[asked.what]
    if len(asked.paths) != wanted:
        parser.error(f"{asked.what} takes {wanted} paths")
    if asked.what == "record":
        take(asked.paths[0], asked.device, asked.eager, asked.toy)
    elif asked.what == "compare":
        report(asked.paths[0], asked.paths[1])
    else:
        flags = ["--device", asked.device, *["--eager"] * asked.eager, *["--toy"] * asked.toy]
        both(asked.paths[:2], asked.paths[2], flags)


if __name__ == "__main__":
    main()
