"""What callers hand to the environments, checked before any work: one sentence names the field and the
fix."""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormark.envs.mark import MarkConfig
from mirrormark.envs.mirror import MirrorConfig


def count(n: Any) -> int:
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
        raise ValueError(f"n is {n!r}; ask for a whole number of environments, at least one.")
    return int(n)


def device(name: Any) -> None:
    if name not in ("cpu", "cuda"):
        raise ValueError(f"device is {name!r}; choose cpu or cuda.")


def mark(config: Any) -> MarkConfig:
    if config is not None and not isinstance(config, MarkConfig):
        raise ValueError(f"mark is {config!r}; give a MarkConfig.")
    return config or MarkConfig()


def mirrors(given: Any, n: int) -> list[MirrorConfig]:
    """One mirror for all environments or one for each; their places and sizes must be equal."""
    if given is None or isinstance(given, MirrorConfig):
        return [given or MirrorConfig()] * n
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"mirror is {given!r}; give a MirrorConfig, or one for each environment.")
    if len(given) != n or not all(isinstance(config, MirrorConfig) for config in given):
        raise ValueError(
            f"mirror: {len(given)} mirrors for {n} environments; give one MirrorConfig, or one per "
            "environment."
        )
    if len({replace(config, kind="present", delay_control_steps=0) for config in given}) > 1:
        raise ValueError(
            "mirror: these environments' mirrors differ in place or size; make one Environments for each."
        )
    return list(given)


def seeds(given: Any, n: int) -> NDArray[np.int64]:
    """One seed means seed + i for environment i."""
    array = np.asarray(given)
    if not np.issubdtype(array.dtype, np.integer) or array.shape not in ((), (n,)) or (array < 0).any():
        raise ValueError(f"seed is {given!r}; give one whole number of 0 or more, or {n} of them.")
    array = array.astype(np.int64)
    return array + np.arange(n) if array.ndim == 0 else array


def flags(name: str, given: Any, n: int) -> NDArray[np.bool_]:
    array = np.asarray(given)
    if array.shape not in ((), (n,)) or array.dtype.kind not in "biu":
        raise ValueError(f"{name} has shape {array.shape}; give True, False or {n} of them.")
    return np.broadcast_to(array.astype(np.bool_), (n,))


def actions(given: Any, n: int, width: int) -> NDArray[np.float32]:
    try:
        action = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"action is {given!r}; give numbers of shape ({n}, {width}).") from None
    if action.shape != (n, width):
        raise ValueError(f"action has shape {action.shape}; give ({n}, {width}).")
    if not (np.abs(action) <= 1.0).all():  # NaN fails this too
        raise ValueError("action has numbers that are NaN or outside [-1, 1]; clip them first.")
    return action
