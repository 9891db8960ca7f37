"""Training runs side by side: the indicators of their evaluations over the minutes that they took.

    python experiments/curves.py docs/images/learning LABEL=EVALUATIONS.jsonl[:RUNS] ...

RUNS: how many shared the GPU; a run that had a third of it is drawn at a third of its minutes.
"""

import argparse
import json
import math
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes

from mirrormark.report import style

PANELS = {
    "removal_rate": "runs with the mark removed",
    "yoked_rate": "runs with the yoked site touched",
    "efe_worn_nats": "G while the mark is on, nats",
    "efe_policy_nats": "G under the policy, marked, nats",
}


def draw(axes: Axes, runs: dict[str, list[dict]], indicator: str) -> None:
    """One indicator of all runs; chance is the first one's."""
    for number, (label, rows) in enumerate(runs.items()):
        minutes, values = [row["minutes"] for row in rows], [row.get(indicator, math.nan) for row in rows]
        colour = colormaps["viridis"](0.9 * number / max(1, len(runs) - 1))
        axes.plot(minutes, values, color=colour, linewidth=1.6, marker="o", markersize=3, label=label)
    axes.set(xlabel="minutes of one H200 (wall time ÷ runs that shared it)", ylabel=PANELS[indicator])
    if indicator.endswith("rate"):
        style.percent_axis(axes, "y")
        first = next(iter(runs.values()))[0]
        chance = first["chance_removal_rate" if indicator == "removal_rate" else "chance_yoked_rate"]
        axes.axhline(chance, color=style.QUIET, linewidth=0.8, linestyle=":")
        axes.text(0, chance, " motor babbling", color=style.QUIET, fontsize=8, va="bottom")
    axes.set_xlim(left=0)


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("out", type=Path)
    ask.add_argument("runs", nargs="+")
    got, runs = ask.parse_args(), {}
    for word in got.runs:
        label, _, place = word.partition("=")
        path, _, shared = place.partition(":")
        rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
        acted = [row for row in rows if "removal_rate" in row]  # not before there is a policy
        runs[label] = [row | {"minutes": row["seconds"] / 60 / int(shared or 1)} for row in acted]
    with style.styled():
        figure, panels = style.new(9.0, 6.0, 2, 2)
        for axes, indicator in zip(panels, PANELS):
            draw(axes, runs, indicator)
        figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, ncols=3, loc="outside upper center")
        style.save(figure, got.out.parent, got.out.name)
    (got.out.parent / f"{got.out.name}.svg").unlink()


main()
