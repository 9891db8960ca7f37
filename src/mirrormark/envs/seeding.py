"""Where random numbers come from: one tree, seeded per environment and episode (D21).

Each purpose has its own stream, so that sensor noise, posture and mark never disturb one another and
environments that differ in one condition share all other luck.
"""

import numpy as np
from numpy.typing import NDArray

POSTURE, MARK, YOKED = 1, 2, 3


def rng_for(seed: int, episode: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng((int(seed), int(episode), purpose))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: neighbouring numbers become unrelated ones."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def noise_keys(
    seed: NDArray[np.int64], episode: NDArray[np.int64], t: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """A key per environment and control step for the eye's counter-based noise."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    key = _mix(seed.astype(np.uint64) + golden)
    key = _mix(key ^ (episode.astype(np.uint64) + golden))
    return _mix(key ^ (t.astype(np.uint64) + golden))
