"""The exam's statistics: pure functions of counts and numbers, each tested against a worked example; and how
often the 95% intervals hold the truth, by simulation.

scipy does what it can (Wilson, Student's t, Kaplan-Meier, Wilcoxon's p, Fisher, McNemar by the binomial
test); what it lacks is written here from the papers named in each docstring.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class Interval(NamedTuple):
    """A confidence interval, both ends inclusive."""

    low: float
    high: float


class Difference(NamedTuple):
    """An effect with its interval and the p-value of no effect; `n` is what the p-value rests on."""

    estimate: float
    interval: Interval
    p: float
    n: int


class Shift(NamedTuple):
    """Paired shift: Hodges-Lehmann estimate and interval, Wilcoxon's p, matched-pairs rank correlation."""

    estimate: float
    interval: Interval
    p: float
    n: int
    rank_biserial: float


class Survival(NamedTuple):
    """Kaplan-Meier curve: share still waiting after each event time, with its log-log interval."""

    time_s: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: int
    events: int


@cache  # the simulated coverage asks for the same few counts a thousand times
def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Score interval of one proportion (Wilson 1927); no continuity correction."""
    if n <= 0:
        raise ValueError("wilson: n must be at least 1; no runs were counted, so no rate can be given.")
    if not 0 <= successes <= n:
        raise ValueError(f"wilson: successes must lie in 0..n, got {successes} of {n}.")
    found = stats.binomtest(int(successes), int(n)).proportion_ci(confidence, method="wilson")
    return Interval(float(found.low), float(found.high))


@cache
def _t_quantile(probability: float, degrees: int) -> float:
    return float(stats.t.ppf(probability, degrees))


def t_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Student's interval of the mean of independent values (seed means); needs at least two."""
    sample = np.asarray(values, dtype=float)
    if sample.size < 2:
        raise ValueError(
            "t_interval: at least two seeds are needed for an interval across seeds; use wilson for one."
        )
    centre, error = sample.mean(), stats.sem(sample)
    reach = _t_quantile(0.5 + confidence / 2, sample.size - 1) * float(error)
    return Interval(float(centre - reach), float(centre + reach))


def seed_interval(successes: Sequence[int], n: Sequence[int], confidence: float = 0.95) -> Interval:
    """Interval of a rate across training seeds: Student's on the seed means, no narrower than Wilson's.

    Three seeds that happen to agree (say 0 of 80 thrice) have a Student interval of width zero, although the
    binomial noise of their runs is still there; the pooled Wilson interval puts it back.
    """
    pooled = wilson(sum(successes), sum(n), confidence)
    if len(n) < 2:
        return pooled
    across = t_interval(np.divide(successes, n), confidence)
    return Interval(max(0.0, min(across.low, pooled.low)), min(1.0, max(across.high, pooled.high)))


def newcombe(a: int, n_a: int, b: int, n_b: int, confidence: float = 0.95) -> Difference:
    """a/n_a − b/n_b of independent runs: Newcombe (1998b) method 10; p by Fisher's exact test."""
    p_a, p_b = a / max(n_a, 1), b / max(n_b, 1)
    wilson_a, wilson_b = wilson(a, n_a, confidence), wilson(b, n_b, confidence)
    low = p_a - p_b - np.hypot(p_a - wilson_a.low, wilson_b.high - p_b)
    high = p_a - p_b + np.hypot(wilson_a.high - p_a, p_b - wilson_b.low)
    p = float(stats.fisher_exact([[a, n_a - a], [b, n_b - b]]).pvalue)
    return Difference(p_a - p_b, Interval(float(low), float(high)), p, n_a + n_b)


def newcombe_paired(both: int, first: int, second: int, neither: int, confidence: float = 0.95) -> Difference:
    """First outcome's rate minus the second's on the same runs: Newcombe (1998c) method 10; exact McNemar."""
    n = both + first + second + neither
    p_1, p_2 = (both + first) / max(n, 1), (both + second) / max(n, 1)
    wilson_1, wilson_2 = wilson(both + first, n, confidence), wilson(both + second, n, confidence)
    margins = float(both + first) * (second + neither) * (both + second) * (first + neither)
    cross = float(both * neither - first * second)
    if cross > 0:  # Newcombe's continuity correction of phi, only where it is positive
        cross = max(cross - n / 2, 0.0)
    phi = cross / np.sqrt(margins) if margins > 0 else 0.0

    def reach(x: float, y: float) -> float:
        return float(np.sqrt(max(x * x - 2 * phi * x * y + y * y, 0.0)))

    low = p_1 - p_2 - reach(p_1 - wilson_1.low, wilson_2.high - p_2)
    high = p_1 - p_2 + reach(wilson_1.high - p_1, p_2 - wilson_2.low)
    discordant = first + second
    p = float(stats.binomtest(first, discordant).pvalue) if discordant else 1.0
    return Difference(p_1 - p_2, Interval(max(low, -1.0), min(high, 1.0)), p, n)


def seed_difference(
    differences: ArrayLike, pooled: Difference | None = None, confidence: float = 0.95
) -> Difference:
    """Mean of one difference a training seed: Student's interval and t-test; n is the number of seeds.

    `pooled`: the difference over all runs at once. Seeds that happen to agree have a Student interval of
    width zero although their runs are still noisy: interval and p claim no more than the pooled ones do.
    """
    sample = np.asarray(differences, dtype=float)
    low, high = t_interval(sample, confidence)
    if np.ptp(sample) < 1e-12:  # the t-test is undefined: claim nothing unless the effect is exactly zero
        p = 1.0 if sample[0] == 0 else float("nan")
    else:
        p = float(stats.ttest_1samp(sample, 0.0).pvalue)
    if pooled is not None:
        low, high = min(low, pooled.interval.low), max(high, pooled.interval.high)
        p = float(np.maximum(p, pooled.p))  # NaN stays NaN
    return Difference(float(sample.mean()), Interval(low, high), p, sample.size)


def crossed_shift(removed: ArrayLike, kept: ArrayLike, confidence: float = 0.95) -> Difference:
    """Mean over all pairs (i, j) of removed[i] − kept[i, j], with the errors of both groups of runs.

    removed (m,): one change for each run of the first group. kept (m, k): the change of each run of the
    second group at the moment of each of the first. The mean is a two-sample U-statistic; its variance is
    that of its two projections (Hoeffding 1948), compared with Student's t at Welch's degrees of freedom.
    """
    first, second = np.asarray(removed, dtype=float), np.asarray(kept, dtype=float)
    m, k = second.shape
    if m < 2 or k < 2:
        raise ValueError("crossed_shift: at least two runs are needed in each group.")
    parts = [
        np.var(first - second.mean(1), ddof=1) / m,
        np.var(second.mean(0), ddof=1) / k,
    ]
    estimate, variance = float(first.mean() - second.mean()), float(sum(parts))
    if variance == 0:
        return Difference(estimate, Interval(estimate, estimate), float("nan"), m + k)
    freedom = variance**2 / (parts[0] ** 2 / (m - 1) + parts[1] ** 2 / (k - 1))
    error = float(np.sqrt(variance))
    reach = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * error
    p = float(2 * stats.t.sf(abs(estimate) / error, freedom))
    return Difference(estimate, Interval(estimate - reach, estimate + reach), p, m + k)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, in the given order; NaN (no test possible) is not counted."""
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, np.nan)
    order = [index for index in np.argsort(p, kind="stable") if not np.isnan(p[index])]
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p[index]))
        adjusted[index] = highest
    return [float(value) for value in adjusted]


def paired_shift(before: ArrayLike, after: ArrayLike, confidence: float = 0.95) -> Shift:
    """Shift after − before (Hollander & Wolfe, ch. 3): median of the Walsh averages.

    The interval's ends are the Walsh averages that the signed-rank distribution names: exact up to 50 pairs,
    its normal limit above. Zero differences are dropped from Wilcoxon's p (as he did), not from the shift.
    """
    change = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    n = change.size
    if n == 0:
        raise ValueError("paired_shift: no pairs; no run has a G both before and after removal.")
    rows, columns = np.triu_indices(n)
    walsh = np.sort((change[rows] + change[columns]) / 2)
    depth = _signed_rank_depth(n, confidence)
    interval = (
        Interval(float(walsh[depth - 1]), float(walsh[walsh.size - depth]))
        if depth >= 1
        else Interval(float("-inf"), float("inf"))  # too few pairs for this confidence
    )
    moved = change[change != 0]
    if moved.size == 0:
        return Shift(0.0, interval, 1.0, n, 0.0)
    p = float(stats.wilcoxon(moved).pvalue)
    ranks = stats.rankdata(np.abs(moved))
    rank_biserial = float((ranks * np.sign(moved)).sum() / ranks.sum())
    return Shift(float(np.median(walsh)), interval, p, n, rank_biserial)


def _signed_rank_depth(n: int, confidence: float) -> int:
    """How many Walsh averages from either end the limits lie (Hollander & Wolfe 3.3); 0: no such limits."""
    alpha = (1 - confidence) / 2
    if n > 50:
        mean, spread = n * (n + 1) / 4, np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, int(np.floor(mean - stats.norm.ppf(1 - alpha) * spread)))
    ways = np.array([1.0])
    for rank in range(1, n + 1):  # ways[t]: subsets of ranks 1..n that sum to t
        longer = np.zeros(ways.size + rank)
        longer[: ways.size] += ways
        longer[rank:] += ways
        ways = longer
    below = np.cumsum(ways) / ways.sum()
    return int(np.searchsorted(below, alpha, side="right"))


def kaplan_meier(time_s: ArrayLike, happened: ArrayLike, confidence: float = 0.95) -> Survival:
    """Share of runs still waiting for the event (Kaplan & Meier 1958), Greenwood log-log interval."""
    time = np.asarray(time_s, dtype=float)
    event = np.asarray(happened, dtype=bool)
    if time.size == 0:
        raise ValueError("kaplan_meier: no runs were given.")
    curve = stats.ecdf(stats.CensoredData.right_censored(time, ~event)).sf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # scipy warns where the log-log form is undefined
        interval = curve.confidence_interval(confidence, method="log-log")
    share = np.asarray(curve.probabilities, dtype=float)
    ends = [np.asarray(end.probabilities, dtype=float) for end in (interval.low, interval.high)]
    # Where nobody or everybody is left the interval is undefined: the share itself is all that is known.
    low, high = (np.where(np.isfinite(end), end, share) for end in ends)
    return Survival(np.asarray(curve.quantiles, dtype=float), share, low, high, time.size, int(event.sum()))


def kaplan_meier_of_seeds(curves: Sequence[Survival], pooled: Survival) -> Survival:
    """The pooled curve with a band for seeds: Student's interval of the seeds' shares at each time, no
    narrower than the pooled one."""
    if len(curves) < 2:
        return pooled
    at = [np.searchsorted(curve.time_s, pooled.time_s, side="right") for curve in curves]
    shares = np.stack([np.concatenate([[1.0], c.share])[i] for c, i in zip(curves, at, strict=True)])
    ends = np.array([t_interval(column) for column in shares.T])
    low, high = np.clip(np.minimum(ends[:, 0], pooled.low), 0, 1), np.clip(ends[:, 1], pooled.high, 1)
    return pooled._replace(share=shares.mean(0), low=low, high=high)


def median_time_s(curve: Survival) -> float:
    """First time at which half of the runs are done; NaN if fewer than half ever are."""
    reached = np.flatnonzero(curve.share <= 0.5)
    return float(curve.time_s[reached[0]]) if reached.size else float("nan")


@dataclass(frozen=True)
class Coverage:
    """Share of simulated exams whose interval held the true rate."""

    seeds: int
    runs_per_seed: int
    rate: float
    seed_sd: float
    """Spread of the seeds' own rates around the true one, as a standard deviation."""
    covered: float
    exams: int


def simulate(
    seeds: int, runs_per_seed: int, rate: float, seed_sd: float = 0.0, exams: int = 2000
) -> Coverage:
    """Seeds' rates are drawn from a Beta of this mean and spread, runs are binomial; repeatable."""
    rng = np.random.default_rng((seeds, runs_per_seed, round(1000 * rate), round(1000 * seed_sd)))
    truth = np.full((exams, seeds), rate)
    if seed_sd > 0:
        size = rate * (1 - rate) / seed_sd**2 - 1
        if size <= 0:
            raise ValueError(
                f"simulate: seed_sd {seed_sd} is impossible at rate {rate}; choose a smaller one."
            )
        truth = rng.beta(rate * size, (1 - rate) * size, (exams, seeds))
    hits = rng.binomial(runs_per_seed, truth)
    n = [runs_per_seed] * seeds
    known: dict[tuple[int, ...], bool] = {}  # seeds are exchangeable and counts repeat: judge each set once
    for row in map(tuple, np.sort(hits, axis=1).tolist()):
        if row not in known:
            interval = seed_interval(row, n)
            known[row] = interval.low <= rate <= interval.high
    held = sum(known[tuple(row)] for row in np.sort(hits, axis=1).tolist())
    return Coverage(seeds, runs_per_seed, rate, seed_sd, held / exams, exams)
