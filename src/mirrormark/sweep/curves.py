"""Learning curves over seeds: the median at each exam point, with its interval."""

# pandas ships no exact types for what grouping returns.
# pyright: reportArgumentType=false

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

CONFIDENCE = 0.95


class MedianInterval(NamedTuple):
    """Two of the values themselves, and how often such an interval holds the true median."""

    low: float
    high: float
    confidence: float


def median_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> MedianInterval:
    """Interval of the median between two order statistics (Hollander & Wolfe 3.6): no shape is assumed.

    The narrowest symmetric one of at least this confidence. Fewer than six seeds cannot reach 95%: then it is
    their whole range, and the confidence says what that is worth (two seeds: 50%).
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    n = ordered.size
    if n == 0:
        raise ValueError("median_interval: no values were given.")
    # The r-th lowest lies above the median with the chance of fewer than r of n below it.
    outside = [2 * float(stats.binom.cdf(r - 1, n, 0.5)) for r in range(1, n // 2 + 1)]
    fitting = [r for r, alpha in enumerate(outside, 1) if 1 - alpha >= confidence]
    r = max(fitting, default=1)
    held = 1 - outside[r - 1] if n > 1 else 0.0
    return MedianInterval(float(ordered[r - 1]), float(ordered[n - r]), held)


def curve(rows: pd.DataFrame, indicator: str) -> list[dict[str, Any]]:
    """A point for each number of episodes lived: median, interval, its confidence, how many seeds."""
    points = []
    for episodes, group in rows.dropna(subset=[indicator]).groupby("episodes_collected"):
        values = group[indicator].to_numpy(dtype=float)
        low, high, held = median_interval(values)
        points.append(
            {
                "episodes": int(episodes),
                "median": float(np.median(values)),
                "low": low,
                "high": high,
                "confidence": held,
                "seeds": len(values),
            }
        )
    return points
