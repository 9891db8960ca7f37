"""Life at its own pace: twenty control steps a second, or as many as a person asks for."""

import threading
import time
from collections import deque
from collections.abc import Callable

import numba
import torch

from mirrormark.lab.session import CONTROL_STEP_S, Session

CATCH_UP_S = 0.25
"""A delay up to this is made up for; after a longer one life is slower, not hasty."""


class Pace(threading.Thread):
    """Steps the session until `close`, at its speed on average as long as the machine can."""

    def __init__(self, session: Session, wanted: Callable[[], bool] = lambda: True) -> None:
        """wanted: whether anybody looks; if not, life rests."""
        super().__init__(daemon=True, name="training")
        self._wanted = wanted
        self.session, self.speed, self.paused = session, 1.0, False
        self.problem: str | None = None
        self._closing, self._wake = False, threading.Event()
        self._lately: deque[float] = deque(maxlen=40)

    @property
    def steps_per_s(self) -> float:
        """Control steps a second, over the last two seconds or so; 0 while paused."""
        if self.paused or len(self._lately) < 2:
            return 0.0
        return (len(self._lately) - 1) / max(self._lately[-1] - self._lately[0], 1e-9)

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self._lately.clear()
        self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self.join(timeout=10)

    def run(self) -> None:
        torch.set_num_threads(1)  # two cores: one lives, one draws
        numba.set_num_threads(1)
        due = time.perf_counter()
        while not self._closing:
            if self.paused or not self._wanted():
                self._wake.wait(None if self.paused else CONTROL_STEP_S)
                self._wake.clear()
                due = time.perf_counter()
                continue
            try:
                self.session.step()
            except Exception as error:  # a page that stands still must say why
                self.problem = f"Life stopped: {error}"
                self.paused = True
                continue
            now = time.perf_counter()
            self._lately.append(now)
            due = max(due + CONTROL_STEP_S / self.speed, now - CATCH_UP_S)
            time.sleep(max(0.0, due - time.perf_counter()))
