"""How often our 95% intervals hold the truth, by simulation; printed with each exam."""

from dataclasses import dataclass

import numpy as np

from mirrormark.exam import statistics


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
            interval = statistics.seed_interval(row, n)
            known[row] = interval.low <= rate <= interval.high
    held = sum(known[tuple(row)] for row in np.sort(hits, axis=1).tolist())
    return Coverage(seeds, runs_per_seed, rate, seed_sd, held / exams, exams)
