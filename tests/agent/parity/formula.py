"""Weights, inputs and noise from a formula, and sketches of long vectors: the same numbers on every machine,
for the public code's networks and for ours. Integers throughout, until the last division."""

from __future__ import annotations

import zlib

import numpy as np

SKETCH = 256
"""Entries of a sketch. A vector that is not longer is kept whole."""

JOINTS = ACTIONS = 12
SEQUENCES, FRAMES = 2, 16
PATHS, CONTEXT, HORIZON = 8, 8, 16

_GAINS = {
    # At their usual scale these would leave the KL below the free nat, where it has no gradient.
    "tokenizer.posterior.weight": 4.0,
    "world_model.predictor.weight": 4.0,
    # Both start at (nearly) zero, where nothing behind them has a gradient.
    "policy.network.6.weight": 1.0,
    "value.network.6.weight": 4.0,
}
_TABLES = ("world_model.position", "self_prior.words.weight", "self_prior.position")


def _mixed(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele et al. 2014) on uint64."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def bits(tag: str, n: int) -> np.ndarray:
    """n numbers of 64 bits that belong to the tag."""
    with np.errstate(over="ignore"):
        return _mixed(np.arange(n, dtype=np.uint64) + (np.uint64(zlib.crc32(tag.encode())) << np.uint64(32)))


def uniform(tag: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers in (0, 1), fp32."""
    words = bits(tag, int(np.prod(shape))) >> np.uint64(41)  # 23 bits: exact in fp32
    return ((words.astype(np.float64) + 0.5) / 2**23).astype(np.float32).reshape(shape)


def even(tag: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers in (-1, 1), fp32."""
    return 2 * uniform(tag, shape) - 1


def spread(tag: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of mean 0 and variance 1, fp32: what stands for normal noise."""
    return np.float32(np.sqrt(3)) * even(tag, shape)


def weight(tag: str, shape: tuple[int, ...]) -> np.ndarray:
    """A parameter, about as large as torch would make it."""
    if tag.removeprefix("ema.") in _TABLES:
        return spread(tag, shape)
    if len(shape) > 1:
        bound = _GAINS.get(tag.removeprefix("ema."), 1.0) / np.sqrt(np.prod(shape[1:]))
        return np.float32(bound) * even(tag, shape)
    if tag.endswith(".weight"):  # of a layer norm: the only vectors that are called so
        return 1 + np.float32(0.1) * even(tag, shape)
    return np.float32(0.05) * even(tag, shape)


def image(tag: str, n: int) -> np.ndarray:
    """n images (n, 3, 64, 64) uint8: squares of 8 × 8 pixels, and noise of a sixteenth of their range."""
    squares = (bits(f"{tag}/squares", n * 3 * 8 * 8) % np.uint64(241)).reshape(n, 3, 8, 8)
    noise = (bits(f"{tag}/noise", n * 3 * 64 * 64) % np.uint64(15)).reshape(n, 3, 64, 64)
    return (squares.repeat(8, 2).repeat(8, 3) + noise).astype(np.uint8)


def sketch(x: np.ndarray) -> np.ndarray:
    """A CountSketch (Charikar et al. 2002): `SKETCH` signed sums, each entry of x in one of them. It is
    linear, and the squared length of a sketch is on average that of x, with a standard deviation of
    √(2/SKETCH)."""
    flat = np.asarray(x, dtype=np.float64).ravel()
    if flat.size <= SKETCH:
        return flat
    random = bits("sketch", flat.size)
    sign = 1.0 - 2.0 * ((random >> np.uint64(32)) & np.uint64(1)).astype(np.float64)
    return np.bincount((random % np.uint64(SKETCH)).astype(np.int64), sign * flat, SKETCH)


def relative_error(ours: np.ndarray, public: np.ndarray) -> float:
    """L2 of the difference over L2 of the public code's."""
    ours, public = np.asarray(ours, np.float64), np.asarray(public, np.float64)
    return float(np.linalg.norm(ours - public) / max(np.linalg.norm(public), 1e-12))
