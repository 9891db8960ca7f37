"""What the mirror shows: the present, or for a delayed mirror the past."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Reflection:
    """Keeps as many past poses as the longest delay asks for; frame 0 stands in for times before it."""

    def __init__(self, delay_control_steps: NDArray[np.int64]) -> None:
        self._delay = delay_control_steps
        self._length = int(delay_control_steps.max()) + 1
        self._envs = np.arange(len(delay_control_steps))
        self._past: list[NDArray] = []  # poses and mark, each (length, n, ...): a ring over time

    def record(self, xpos: Floats, xmat: Floats, shown: Bools, t: NDArray[np.int64]) -> None:
        """Remember the poses and whether the mark is on, at control step t (n,) of each environment."""
        if self._length == 1:
            self._now = (xpos, xmat, shown)
            return
        now = (xpos, xmat, shown)
        if not self._past:
            self._past = [np.zeros((self._length, *part.shape), part.dtype) for part in now]
        for kept, part in zip(self._past, now):
            kept[t % self._length, self._envs] = part

    def at(self, t: NDArray[np.int64]) -> tuple[Floats, Floats, Bools]:
        """The poses and the mark that the mirrors show at control step t (n,)."""
        if not self._past:
            return self._now
        slot = np.maximum(t - self._delay, 0) % self._length
        xpos, xmat, shown = self._past
        return xpos[slot, self._envs], xmat[slot, self._envs], shown[slot, self._envs]
