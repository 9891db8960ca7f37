"""The report's plots: each takes the exam's data and returns HTML, or None where there is nothing to draw."""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportIndexIssue=false

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from mirrormark.report.exam_data import EXAM, YOKED, Exam, conditions, of, seed_interval
from mirrormark.report.page import interval, nats, percent, plural
from mirrormark.report.svg import Plot, legend

_COLOURS = {"exam": "exam", "negative": "control", "reported": "reported"}
_BAR_PX = 40
NO_AGENT = -1
"""Training seed of conditions in which no agent acts."""


def lead_bars(exam: Exam) -> Markup:
    """The finding in four bars: mirror, no mirror, sham (in a short exam the yoked site) and chance."""
    found = exam.results["conditions"]
    names = [EXAM, "absent", "sham" if "sham" in found else YOKED, "babbling"]
    return _bars(exam, [name for name in names if name == YOKED or name in found])


def all_bars(exam: Exam) -> Markup:
    """Every condition, with the exam's lower bound as a dashed line."""
    found = exam.results["conditions"]
    order = [EXAM, *conditions.names("negative"), YOKED, *conditions.names("reported")]
    return _bars(exam, [name for name in order if name == YOKED or name in found], bound=True)


def _bars(exam: Exam, names: Sequence[str], bound: bool = False) -> Markup:
    results = exam.results
    rows = []
    for name in names:
        rate = results[YOKED] if name == YOKED else results["conditions"][name]
        role = "negative" if name == YOKED else rate["role"]
        rows.append((conditions.title(name), _COLOURS[role], rate))
    said = "; ".join(f"{title} {percent(rate['rate'])}" for title, _, rate in rows)
    plot = Plot(
        f"Share of runs with the mark removed: {said}.",
        (0, 1),
        (len(rows), 0),
        _BAR_PX * len(rows),
        (4, 16, 42, 12),
    )
    if bound:
        lower = results["verdict"]["lower"]
        plot.segment(
            (lower, 0), (lower, len(rows)), "exam", "dashed", f"lower bound of the exam: {percent(lower)}"
        )
    for k, (title, colour, rate) in enumerate(rows):
        low, high = rate["interval"]
        y = k + 0.72
        plot.text(0, k + 0.42, title, "name")
        plot.text(
            1,
            k + 0.42,
            f"{percent(rate['rate'])} ({interval(rate['interval'])}), n={rate['n']:,}",
            "value",
            "end",
        )
        plot.segment((0, y), (1, y), "rule", "bar")
        plot.segment((0, y), (rate["rate"], y), colour, "bar", f"{title}: {percent(rate['rate'])}")
        plot.segment((low, y), (high, y), "ink", "interval", f"95% interval: {interval(rate['interval'])}")
        for seed in seeds(rate):
            share = seed["successes"] / seed["n"]
            plot.dot(
                share,
                y,
                "seed",
                f"training seed {seed['training_seed']}: {percent(share)} of {seed['n']} runs",
            )
    plot.x_axis("runs with the mark removed", percent, (0, 0.25, 0.5, 0.75, 1))
    return plot.html()


def seeds(rate: dict[str, Any]) -> list[dict[str, Any]]:
    """Training seeds behind a rate, where there are several: one alone is the rate itself."""
    found = [seed for seed in rate["seeds"] if seed["training_seed"] != NO_AGENT]
    return found if len(found) > 1 else []


def training_removal(exam: Exam) -> Markup | None:
    """Fig. 4b: removal over training with its interval; every seed a thin line."""
    training = exam.training
    if training.empty:
        return None
    points = []
    for episodes, rows in training.groupby("episodes"):
        hits = (rows["removal_rate"] * rows["n"]).round().astype(int).tolist()
        low, high = seed_interval(hits, rows["n"].tolist())
        points.append((episodes, rows["removal_rate"].mean(), low, high))
    x, rate, low, high = np.array(points, float).T
    plot = Plot("Share of runs with the mark removed over training.", _span(x), (0, 1))
    plot.y_axis("runs with the mark removed", percent)
    _over_training(plot, training, x, rate, low, high, "removal_rate", 1.0)
    return _named(plot, training, "chance_removal_rate", 1.0, percent)


def training_distance(exam: Exam) -> Markup | None:
    """Fig. 4a: distance of the nearer hand over training; band: 5–95% of runs, where the runs kept it."""
    training = exam.training
    if training.empty:
        return None
    columns = ["distance_m", "distance_p05_m", "distance_p95_m", "chance_distance_m"]
    mean = 100 * training.groupby("episodes")[columns].mean()
    x = mean.index.to_numpy(float)
    highest = float(np.nanmax(mean.to_numpy()))
    plot = Plot("Distance of the nearer hand to the mark over training.", _span(x), (0, 1.1 * highest))
    plot.y_axis("nearer hand to mark (cm)")
    middle, low, high = (mean[name].to_numpy() for name in columns[:3])
    _over_training(plot, training, x, middle, low, high, "distance_m", 100.0)
    return _named(plot, training, "chance_distance_m", 100.0, lambda cm: f"{cm:.1f} cm")


def _over_training(
    plot: Plot, training: pd.DataFrame, x, middle, low, high, column: str, scale: float
) -> None:
    if len(x) > 1:
        plot.band(x, low, high, "exam")
    if training["training_seed"].nunique() > 1:
        for _, rows in training.groupby("training_seed"):
            plot.line(rows["episodes"].tolist(), (scale * rows[column]).tolist(), "exam", thin=True)
    plot.line(x, middle, "exam")
    for at, value in zip(x, middle):
        plot.dot(at, value, "exam", f"after {at:,.0f} episodes: {value:.3g}")
    plot.x_axis("episodes of training")


def _named(plot: Plot, training: pd.DataFrame, column: str, scale: float, form) -> Markup:
    chance = scale * float(training[column].mean())
    ends = (float(training["episodes"].min()), float(training["episodes"].max()))
    plot.segment(
        (ends[0], chance),
        (max(ends[1], ends[0] + 1), chance),
        "control",
        "dashed",
        f"motor babbling: {form(chance)}",
    )
    n = training["training_seed"].nunique()
    mean = "mean of the training seeds" if n > 1 else "the agent"
    return legend({mean: "exam", f"motor babbling ({form(chance)})": "control"}) + plot.html()


def _span(x: np.ndarray) -> tuple[float, float]:
    return (float(x.min()), float(x.max()) if len(x) > 1 else float(x.min()) + 1)


def scored(exam: Exam) -> Markup | None:
    """Fig. 3b: one recorded run, as the first and the last snapshot value it."""
    table = exam.scored
    if table.empty:
        return None
    g = table["expected_free_energy_nats"]
    plot = Plot(
        "G within one run, by the first and by the last snapshot.", (0, float(table["t_s"].max())), _range(g)
    )
    plot.y_axis("expected free energy G (nats)")
    for which, colour in (("first", "quiet"), ("last", "exam")):
        curve = table[table["which"] == which]
        plot.line(curve["t_s"].tolist(), curve["expected_free_energy_nats"].tolist(), colour)
    named = {"first snapshot": "quiet", "last snapshot": "exam"}
    removed_s = float(table["removed_s"].iloc[0])
    if np.isfinite(removed_s):
        low, high = _range(g)
        plot.segment((removed_s, low), (removed_s, high), "removal", name=f"mark off at {removed_s:.2f} s")
        named |= {f"mark off at {removed_s:.2f} s": "removal"}
    plot.x_axis("time in the run (s)")
    return legend(named) + plot.html()


def distance(exam: Exam) -> Markup:
    """Distance of the nearer hand to mark and yoked site within a run, with every removal as a tick. All runs
    stay in the mean: those whose mark is still on would be the slow ones."""
    bands = {"mark": ("distance_m", "exam"), "yoked site": ("yoked_distance_m", "control")}
    found = {name: exam.distance_over_time(column) for name, (column, _) in bands.items()}
    top = 105 * max(float(band["high"].max()) for band in found.values())
    last_s = float(found["mark"]["t_s"].iloc[-1])
    plot = Plot(
        "Distance of the nearer hand to the mark and to the yoked site within a run.", (0, last_s), (0, top)
    )
    plot.y_axis("nearer hand to the site (cm)")
    for name, (_, colour) in bands.items():
        band = found[name]
        t_s, low, middle, high = (
            (k * band[c]).tolist() for c, k in (("t_s", 1), ("low", 100), ("mean", 100), ("high", 100))
        )
        plot.band(t_s, low, high, colour)
        plot.line(t_s, middle, colour)
    removed = of(exam.episodes, EXAM).dropna(subset="removed_s")
    for run in removed.itertuples():
        plot.segment(
            (run.removed_s, 0),
            (run.removed_s, 0.06 * top),
            "removal",
            "thin",
            _run_name(run, f"mark off at {run.removed_s:.2f} s"),
        )
    plot.x_axis("time in the run (s)")
    named = {name: colour for name, (_, colour) in bands.items()} | (
        {"a removal": "removal"} if len(removed) else {}
    )
    return legend(named) + plot.html()


def first_touch(exam: Exam) -> Markup:
    """Kaplan–Meier: share of runs in which no hand has come within reach of the mark yet."""
    every, away = exam.first_touch(EXAM), exam.first_touch(EXAM, away=True)
    differs = every is not None and away is not None and away.n < every.n
    wanted = {
        "mirror and mark": (every, "exam", False),
        "of these, hand not at the mark at first": (away if differs else None, "after", True),
        "no mirror": (exam.first_touch("absent"), "control", False),
        "motor babbling": (exam.first_touch("babbling"), "quiet", False),
    }
    found = {name: (curve, *how) for name, (curve, *how) in wanted.items() if curve is not None}
    last_s = float(exam.steps["t_s"].max())
    plot = Plot("Share of runs in which no hand has touched the mark yet.", (0, last_s), (0, 1))
    plot.y_axis("not touched yet", percent)
    for curve, colour, dashed in found.values():
        t_s = np.repeat(np.concatenate([[0.0], curve.time_s, [last_s]]), 2)[1:-1]
        share, low, high = (
            np.repeat(np.concatenate([[1.0], values]), 2) for values in (curve.share, curve.low, curve.high)
        )
        plot.band(t_s, low, high, colour)
        plot.line(t_s, share, colour, dashed=dashed)
    plot.x_axis("time in the run (s)")
    return (
        legend({f"{name} (n={curve.n:,})": colour for name, (curve, colour, _) in found.items()})
        + plot.html()
    )


def before_after(exam: Exam, filmed: Collection[str]) -> Markup | None:
    """Fig. 3c: mean G of each removed run before and after, and its change beside that of runs without
    removal, cut at the same moments. Wide lines are means, everywhere. filmed: ids of the page's films."""
    of_seed = exam.pairs()
    if not of_seed:
        return None
    found = pd.concat([one.pairs for one in of_seed.values()])
    left = Plot(
        "Mean G of each removed run before and after removal.",
        (-0.4, 1.4),
        _range(found[["before", "after"]]),
    )
    left.y_axis("mean G (nats)")
    for run in found.itertuples():
        left.segment((0, run.before), (1, run.after), "quiet", "thin")

    def clip_of(run: Any) -> str | None:
        clip = exam.clip_of(run)
        return clip if clip in filmed else None

    linked_last = sorted(found.itertuples(), key=lambda run: clip_of(run) is not None)
    for x, column, colour in ((0, "before", "exam"), (1, "after", "after")):
        for run in linked_last:
            name = _run_name(run, f"{nats(run.before)} before, {nats(run.after)} after")
            clip = clip_of(run)
            left.dot(x, getattr(run, column), colour, name, 4.5 if clip else 3, clip)
        mean = float(found[column].mean())
        left.segment((x - 0.2, mean), (x + 0.2, mean), colour, "wide", f"mean {column}: {nats(mean)} nats")
    left.x_axis(f"removed runs, n={len(found)}", lambda k: ("before", "after")[round(k)], (0, 1))

    change = (found["after"] - found["before"]).to_numpy()
    kept = [one.kept.mean(0) for one in of_seed.values() if one.kept.size]
    spots = [("removed", "after", change, float(change.mean()))]
    if kept:
        means = [float(values.mean()) for values in kept]
        spots.append(("not removed", "control", np.concatenate(kept), float(np.mean(means))))
    right = Plot(
        "Change of G in removed runs, and in runs without removal cut at the same moments.",
        (-0.6, len(spots) - 0.4),
        _range(np.concatenate([values for _, _, values, _ in spots] + [np.zeros(1)])),
    )
    right.y_axis("change of G (nats)")
    right.segment((-0.6, 0), (len(spots) - 0.4, 0), "ink", "thin")
    jitter = np.random.default_rng(0)
    for x, (name, colour, values, mean) in enumerate(spots):
        for value, aside in zip(values, jitter.uniform(-0.18, 0.18, len(values))):
            right.dot(x + aside, float(value), colour, f"{name}: {nats(float(value))} nats", 2.5)
        right.segment((x - 0.25, mean), (x + 0.25, mean), colour, "wide", f"mean, {name}: {nats(mean)} nats")
    right.x_axis(
        "cut at the same moments",
        lambda k: f"{spots[round(k)][0]}, n={len(spots[round(k)][2])}",
        range(len(spots)),
    )
    return Markup('<div class="pair">') + left.html() + right.html() + Markup("</div>")


def _run_name(run: Any, what: str) -> str:
    return f"world {run.exam_seed}, training seed {run.training_seed}: {what}"


def _range(values: Any) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def captioned_n(exam: Exam) -> str:
    """n=80 runs, 3 training seeds."""
    rate = exam.results["conditions"][EXAM]
    return f"n={plural(rate['n'], 'run')}, {plural(len(rate['seeds']), 'training seed')}"
