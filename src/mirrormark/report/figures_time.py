"""Figures over time: training (Fig. 4), one run as it was seen (3a) and as it was valued (3b)."""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false, reportReturnType=false, reportCallIssue=false, reportAttributeAccessIssue=false

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mirrormark.exam import statistics
from mirrormark.exam.protocol import CONTROL_STEP_S
from mirrormark.exam.recording import senses_of
from mirrormark.report import style

STRIP_FRAMES = 8


def training_distance(training: pd.DataFrame) -> Figure | None:
    """Fig. 4a: distance of the nearer hand over training; band: 5–95% of runs, where the runs kept it."""
    if training.empty:
        return None
    figure, (axes,) = style.new(6.4, 3.0)
    mean = training.groupby("episodes")[
        ["distance_m", "distance_p05_m", "distance_p95_m", "chance_distance_m"]
    ].mean()
    x = mean.index.to_numpy(float)
    _band(axes, x, *(100 * mean[name].to_numpy(float) for name in ("distance_p05_m", "distance_p95_m")))
    _seed_lines(axes, training, "distance_m", 100)
    axes.plot(x, 100 * mean["distance_m"], color=style.EXAM, linewidth=2, marker="o", markersize=3.5)
    _chance(axes, 100 * training["chance_distance_m"].mean())
    highest = 100 * np.nanmax(mean[["distance_m", "distance_p95_m", "chance_distance_m"]].to_numpy())
    axes.set(xlabel="episodes lived", ylabel="nearer hand to mark (cm)", ylim=(0, 1.15 * highest))
    return figure


def training_removal(training: pd.DataFrame) -> Figure | None:
    """Fig. 4b: removal over training with its interval; every seed a thin line."""
    if training.empty:
        return None
    figure, (axes,) = style.new(6.4, 3.0)
    points = []
    for episodes, rows in training.groupby("episodes"):
        hits = (rows["removal_rate"] * rows["n"]).round().astype(int).tolist()
        low, high = statistics.seed_interval(hits, rows["n"].tolist())
        points.append((episodes, rows["removal_rate"].mean(), low, high))
    x, rate, low, high = np.array(points, float).T
    _band(axes, x, low, high)
    _seed_lines(axes, training, "removal_rate", 1)
    axes.plot(x, rate, color=style.EXAM, linewidth=2, marker="o", markersize=3.5)
    _chance(axes, training["chance_removal_rate"].mean())
    axes.set(xlabel="episodes lived", ylabel="runs with the mark removed")
    style.percent_axis(axes, "y")
    return figure


def _band(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """A band over time; of one point alone an upright line."""
    if len(x) > 1:
        axes.fill_between(x, low, high, color=style.EXAM, alpha=0.15, linewidth=0)
    else:
        axes.vlines(x, low, high, color=style.EXAM, alpha=0.4, linewidth=6)


def _seed_lines(axes: Axes, training: pd.DataFrame, column: str, scale: float) -> None:
    if training["training_seed"].nunique() < 2:
        return
    for _, rows in training.groupby("training_seed"):
        axes.plot(rows["episodes"], scale * rows[column], color=style.EXAM, linewidth=0.7, alpha=0.5)


def _chance(axes: Axes, level: float) -> None:
    axes.axhline(level, color=style.CONTROL, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.annotate(
        " motor babbling",
        (1, level),
        xycoords=("axes fraction", "data"),
        color=style.CONTROL,
        va="center",
        fontsize=8,
    )


def strip(recording: dict[str, np.ndarray], run: int = 0) -> Figure | None:
    """Fig. 3a: one run from outside and through the eye; where the mark has just gone, a red edge."""
    outside, removed_s = recording["outside"][run], float(recording["removed_s"][run])
    total = len(outside)
    gone = min(round(removed_s / CONTROL_STEP_S), total - 1) if np.isfinite(removed_s) else None
    shown = _moments(total, gone)
    rows = [outside] + [seen for name, seen in senses_of(recording, run).items() if name == "vision"]
    figure, axes = style.new(1.05 * len(shown), 1.12 * len(rows) + 0.2, len(rows), len(shown))
    for k, axis in enumerate(axes):
        step = shown[k % len(shown)]
        axis.imshow(rows[k // len(shown)][step], interpolation="nearest")
        axis.set(xticks=[], yticks=[])
        if k < len(shown):
            axis.set_title(f"{step * CONTROL_STEP_S:.2f} s", fontsize=8)
        for spine in axis.spines.values():
            spine.set(visible=step == gone, color=style.REMOVAL, linewidth=2.6)
    return figure


def _moments(total: int, gone: int | None) -> list[int]:
    """Evenly over the run; with a removal: up to it, at it and just after."""
    if gone is None:
        return np.linspace(0, total - 1, STRIP_FRAMES).round().astype(int).tolist()
    before = np.linspace(0, gone, STRIP_FRAMES - 2).round().astype(int).tolist()
    after = np.linspace(gone, total - 1, 3).round().astype(int).tolist()[1:]
    return sorted(set(before + after))


def scored(table: pd.DataFrame) -> Figure | None:
    """Fig. 3b: the same recorded run, as the first and the last snapshot value it."""
    if table.empty:
        return None
    figure, (axes,) = style.new(6.4, 2.8)
    for which, colour in (("first", style.QUIET), ("last", style.EXAM)):
        curve = table[table["which"] == which]
        axes.plot(curve["t_s"], curve["expected_free_energy_nats"], color=colour, linewidth=1.6)
        axes.annotate(
            f" {which} snapshot",
            (curve["t_s"].iloc[-1], curve["expected_free_energy_nats"].iloc[-1]),
            color=colour,
            va="center",
            fontsize=8,
        )
    removed_s = float(table["removed_s"].iloc[0])
    if np.isfinite(removed_s):
        axes.axvline(removed_s, color=style.REMOVAL, linewidth=1.2)
        axes.annotate(
            " removed",
            (removed_s, 1),
            xycoords=("data", "axes fraction"),
            color=style.REMOVAL,
            va="top",
            fontsize=8,
        )
    axes.set(xlabel="time in the run (s)", ylabel="expected free energy G (nats)")
    axes.margins(x=0)
    return figure
