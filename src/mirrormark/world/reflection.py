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
        self._worlds = np.arange(len(delay_control_steps))
        self._xpos = self._xmat = self._shown = None

    def record(self, xpos: Floats, xmat: Floats, shown: Bools, t: NDArray[np.int64]) -> None:
        """Remember the poses and whether the mark is on, at control step t (n,) of each world."""
        if self._length == 1:
            self._now = (xpos, xmat, shown)
            return
        if self._xpos is None:
            self._xpos = np.zeros((self._length, *xpos.shape))
            self._xmat = np.zeros((self._length, *xmat.shape))
            self._shown = np.zeros((self._length, *shown.shape), np.bool_)
        slot = t % self._length
        self._xpos[slot, self._worlds] = xpos
        self._xmat[slot, self._worlds] = xmat
        self._shown[slot, self._worlds] = shown

    def at(self, t: NDArray[np.int64]) -> tuple[Floats, Floats, Bools]:
        """The poses and the mark that the mirrors show at control step t (n,)."""
        if self._length == 1:
            return self._now
        slot = np.maximum(t - self._delay, 0) % self._length
        return self._xpos[slot, self._worlds], self._xmat[slot, self._worlds], self._shown[slot, self._worlds]
