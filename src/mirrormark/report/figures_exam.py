"""Figures of the exam itself: removal beside its controls, distance, first touch, G, failures."""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false, reportAttributeAccessIssue=false

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mirrormark.exam import conditions, measures
from mirrormark.exam.before_after import cuts
from mirrormark.exam.conditions import EXAM, YOKED
from mirrormark.report import style

_COLOURS = {"exam": style.EXAM, "negative": style.CONTROL, "reported": style.REPORTED}


def of(table: pd.DataFrame, condition: str) -> pd.DataFrame:
    return table[table["condition"] == condition]


def removal(results: dict[str, Any]) -> Figure:
    """Every condition's rate and interval; each training seed a dot; the exam's lower bound a line."""
    rows = _rows(results)
    figure, (axes,) = style.new(7.0, 0.9 + 0.3 * len(rows))
    for y, (_, role, found) in enumerate(reversed(rows)):
        colour = _COLOURS[role]
        axes.plot(found["interval"], [y, y], color=colour, linewidth=2.4, alpha=0.9, clip_on=False)
        if len(found["seeds"]) > 1:
            dots = [seed["successes"] / seed["n"] for seed in found["seeds"]]
            axes.plot(dots, [y + 0.22] * len(dots), "o", color=colour, markersize=2.6, alpha=0.7)
        axes.plot(found["rate"], y, "o", color=colour, markersize=6, clip_on=False)
        seeds = _seeds(found)
        axes.annotate(
            f"{100 * found['rate']:.0f}%  n={found['n']}{seeds}",
            (1.02, y),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
            color=style.INK,
        )
    axes.axvline(results["verdict"]["lower"], color=style.EXAM, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_yticks(range(len(rows)), [title for title, _, _ in reversed(rows)])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.tick_params(axis="y", length=0)
    style.percent_axis(axes)
    axes.set_xlabel("runs in which the mark was removed (yoked: its site touched), 95% interval")
    return figure


def _rows(results: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    found = results["conditions"]
    rows = [(found[EXAM]["title"], "exam", found[EXAM])]
    of_role = {
        role: [found[c] for c in conditions.names(role) if c in found] for role in ("negative", "reported")
    }
    rows += [(c["title"], "negative", c) for c in of_role["negative"]]
    rows.append((conditions.title(YOKED), "negative", results[YOKED]))
    return rows + [(c["title"], "reported", c) for c in of_role["reported"]]


def _seeds(found: dict[str, Any]) -> str:
    seeds = [seed["training_seed"] for seed in found["seeds"]]
    return "" if seeds == [-1] else f", {len(seeds)} seed{'s' if len(seeds) > 1 else ''}"


def distance(episodes: pd.DataFrame, steps: pd.DataFrame) -> Figure:
    """Distance of the nearer hand to mark and yoked site within a run: mean and 5–95% band of runs. All runs
    stay in the mean: those whose mark is still on would be the slow ones. Removals are ticks at the foot."""
    exam, removed_s = of(steps, EXAM), of(episodes, EXAM)["removed_s"].dropna()
    figure, (axes,) = style.new(6.4, 3.0)
    labels = []
    shown = (("distance_m", style.EXAM, "mark"), ("yoked_distance_m", style.CONTROL, "yoked site"))
    for column, colour, label in shown:
        band = measures.distance_over_time(exam, column)
        axes.fill_between(
            band["t_s"], 100 * band["low"], 100 * band["high"], color=colour, alpha=0.15, linewidth=0
        )
        axes.plot(band["t_s"], 100 * band["mean"], color=colour, linewidth=1.8)
        labels.append((100 * float(band["mean"].iloc[-1]), f" {label}", colour, band["t_s"].iloc[-1]))
    axes.set(xlabel="time in the run (s)", ylabel="nearer hand to site (cm)", ylim=(0, None))
    axes.vlines(removed_s, 0, 0.05, style.REMOVAL, linewidth=1, transform=axes.get_xaxis_transform())
    axes.margins(x=0)
    _label_ends(axes, labels)
    return figure


def first_touch(steps: pd.DataFrame, reach_m: float) -> Figure:
    """Kaplan–Meier: share of runs in which no hand has come within reach of the mark yet."""
    figure, (axes,) = style.new(6.4, 3.0)
    drawn = [(EXAM, style.EXAM)] + [(name, style.CONTROL) for name in ("absent", "babbling")]
    labels = []
    for name, colour in drawn:
        found = of(steps, name)
        if found.empty:
            continue
        curve = measures.first_touch_curve(found, reach_m)
        time_s = np.concatenate([[0.0], curve.time_s])
        share, low, high = (np.concatenate([[1.0], part]) for part in (curve.share, curve.low, curve.high))
        axes.fill_between(time_s, low, high, step="post", color=colour, alpha=0.12, linewidth=0)
        line = "-" if name != "babbling" else (0, (2, 2))
        axes.step(time_s, share, where="post", color=colour, linewidth=1.8, linestyle=line)
        labels.append((float(share[-1]), f" {conditions.title(name)} (n={curve.n})", colour, time_s[-1]))
    axes.set(xlabel="time in the run (s)", ylabel="not touched yet")
    style.percent_axis(axes, "y")
    axes.margins(x=0)
    _label_ends(axes, labels)
    return figure


def _label_ends(axes: Axes, labels: list[tuple[float, str, str, float]]) -> None:
    """Names at the ends of curves (height, name, colour, x), kept apart where curves meet."""
    gap, lowest = 0.07 * float(np.ptp(axes.get_ylim())), -np.inf
    for height, label, colour, x in sorted(labels):
        lowest = max(height, lowest + gap)
        axes.annotate(label, (x, lowest), color=colour, va="center", fontsize=8)


def before_after(episodes: pd.DataFrame, steps: pd.DataFrame) -> Figure | None:
    """Fig. 3c: each removed run's mean G before and after; each kept run's mean change at these cuts."""
    of_seed = cuts(of(episodes, EXAM), of(steps, EXAM))
    if not of_seed:
        return None
    found = pd.concat([one.pairs for one in of_seed.values()])
    kept = pd.Series(np.concatenate([one.kept.mean(0) for one in of_seed.values()]))
    figure, (left, right) = style.new(6.4, 3.2, 1, 2, width_ratios=[1.15, 1])
    for row in found.itertuples():
        left.plot([0, 1], [row.before, row.after], color=style.QUIET, linewidth=0.6, alpha=0.45)
    for x, column, colour in ((0, "before", style.EXAM), (1, "after", style.AFTER)):
        left.plot(np.full(len(found), x), found[column], "o", color=colour, markersize=2.6, alpha=0.6)
        left.plot([x - 0.16, x + 0.16], [found[column].mean()] * 2, color=colour, linewidth=3)
    left.set(xlim=(-0.4, 1.4), ylabel="expected free energy G (nats)", title=f"removed runs, n={len(found)}")
    left.set_xticks([0, 1], ["before", "after"])
    change = found["after"] - found["before"]
    spots = [
        (0, change, style.AFTER, f"removed\nn={len(change)}"),
        (1, kept, style.CONTROL, f"not removed\nn={len(kept)}"),
    ]
    jitter = np.random.default_rng(0)
    for x, values, colour, _ in spots:
        spread = x + jitter.uniform(-0.15, 0.15, len(values))
        right.plot(spread, values, "o", color=colour, markersize=2.6, alpha=0.6)
        if len(values):
            right.plot([x - 0.22, x + 0.22], [np.median(values)] * 2, color=colour, linewidth=3)
    right.axhline(0, color=style.INK, linewidth=0.6)
    right.set(xlim=(-0.6, 1.6), ylabel="change of G (nats)", title="cut at the same moments")
    right.set_xticks([0, 1], [label for *_, label in spots])
    return figure


def failures(results: dict[str, Any]) -> Figure:
    """Why runs failed, and which hand came to which side."""
    figure, (left, right) = style.new(6.8, 2.6, 1, 2, width_ratios=[1.3, 1])
    names, counts = list(results["failures"]), list(results["failures"].values())
    left.barh(range(len(names)), counts, color=style.CONTROL, height=0.6)
    for y, count in enumerate(counts):
        left.annotate(f" {count}", (count, y), va="center", fontsize=8.5)
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.set(title=f"failed runs, n={sum(counts)}", xlim=(0, max([1, *counts]) * 1.2))
    left.xaxis.set_visible(False)
    left.spines["bottom"].set_visible(False)
    left.tick_params(axis="y", length=0)
    _sides(right, results["sides"])
    return figure


def _sides(axes, sides: dict[str, dict[str, int]]) -> None:
    order = [side for side in ("left", "middle", "right") if side in sides]
    hands = sorted({hand for row in sides.values() for hand in row})
    table = np.array([[sides[side].get(hand, 0) for hand in hands] for side in order], float).reshape(
        -1, len(hands)
    )
    share = table / np.maximum(table.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=2.0, aspect="auto")
    for y, x in np.ndindex(*table.shape):
        axes.text(x, y, f"{table[y, x]:.0f}", ha="center", va="center", color="#14202b")
    axes.set_xticks(
        range(len(hands)), [f"{hand} hand" if hand in ("left", "right") else hand for hand in hands]
    )
    axes.set_yticks(range(len(order)), [f"mark {side}" for side in order])
    axes.tick_params(length=0)
    axes.set_title("nearest hand, runs")
    for spine in axes.spines.values():
        spine.set_visible(False)
