"""The sweep's figures: removal of every setting, and learning curves, in the style of the exam's."""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mirrormark.report import style

TITLES = {
    "removal_rate": "runs with the mark removed",
    "distance_m": "nearer hand to mark (m)",
    "efe_gap_nats": "G with mark minus without (nats)",
    "mark_recovery": "share of the mark that the tokenizer keeps",
}
_BASE = (style.EXAM, style.CONTROL, style.AFTER, style.REMOVAL, style.REPORTED, style.QUIET)


def colours(count: int) -> list[str]:
    """The show's own; more settings than it has colours are spread over a map for colour-blind eyes too."""
    if count <= len(_BASE):
        return list(_BASE[:count])
    return [to_hex(colormaps["viridis"](x)) for x in np.linspace(0, 0.92, count)]


def settings(groups: list[dict[str, Any]]) -> Figure | None:
    """Removal of each setting: interval, and a dot a seed."""
    rows = [group for group in groups if group["rate"] is not None]
    if not rows:
        return None
    figure, (axes,) = style.new(7.0, 0.9 + 0.42 * len(rows))
    for y, (group, colour) in enumerate(zip(reversed(rows), reversed(colours(len(rows))))):
        axes.plot(group["interval"], [y, y], color=colour, linewidth=2.4, clip_on=False)
        dots = [seed["successes"] / seed["n"] for seed in group["by_seed"]]
        axes.plot(dots, [y + 0.25] * len(dots), "o", color=colour, markersize=2.8, alpha=0.7, clip_on=False)
        axes.plot(group["rate"], y, "o", color=colour, markersize=6, clip_on=False)
        told = f"{100 * group['rate']:.0f}%  n={group['n']}, {len(dots)} seed{'s' if len(dots) > 1 else ''}"
        axes.annotate(told, (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [f"{group['setting']}, {group['body']}" for group in reversed(rows)])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.tick_params(axis="y", length=0)
    style.percent_axis(axes)
    axes.set_xlabel("runs in which the mark was removed, 95% interval; small dots: training seeds")
    return figure


def learning(groups: list[dict[str, Any]], indicator: str) -> Figure | None:
    """Median over seeds at each exam point, with its interval; a line a setting."""
    rows = [group for group in groups if group["curves"].get(indicator)]
    if not rows:
        return None
    figure, (axes,) = style.new(6.4, 3.2)
    ends = [_line(axes, group, indicator, colour) for group, colour in zip(rows, colours(len(rows)))]
    axes.set(xlabel="episodes lived", ylabel=TITLES[indicator])
    axes.margins(x=0.02)
    if indicator == "removal_rate":
        style.percent_axis(axes, "y")
    _labels(axes, ends)  # last: they stand where the axis' final scale puts the lines' ends
    return figure


def _line(axes: Axes, group: dict[str, Any], indicator: str, colour: str) -> tuple[float, str, str]:
    points = group["curves"][indicator]
    x, median, low, high = (
        np.array([p[key] for p in points], float) for key in ("episodes", "median", "low", "high")
    )
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, median, color=colour, linewidth=2, marker="o", markersize=3.5)
    return float(median[-1]), f"{group['setting']}, {group['body']}", colour


def _labels(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Names beside the lines' ends; where lines meet, one above the other."""
    bottom, top = axes.get_ylim()
    step, lowest = 0.07, -1.0
    for end, name, colour in sorted(ends):
        lowest = max((end - bottom) / (top - bottom or 1.0), lowest + step)
        axes.annotate(name, (1.02, lowest), xycoords="axes fraction", color=colour, va="center", fontsize=8)
