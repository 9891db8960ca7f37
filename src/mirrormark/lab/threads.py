"""What runs beside the page: the simulation at its pace, and the agent's pictures."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirrormark.agent.acting import encode, to_tensors
from mirrormark.agent.agent import Agent
from mirrormark.agent.completion import complete_senses
from mirrormark.lab.session import CONTROL_STEP_S, Session, Snapshot

Picture = NDArray[np.uint8]

CATCH_UP_S = 0.25
"""A delay up to this is made up for; after a longer one the simulation is slower than its speed."""
SPEEDS = (0.1, 4.0)
_PICTURES_EVERY_S = 0.1
_PICTURES_AT_MOST = 0.4
"""Share of its time in which the pictures' thread may compute: it shares two cores with the simulation."""


class Pace(threading.Thread):
    """Steps the session until `close`, at its speed on average as long as the machine can."""

    def __init__(self, session: Session, wanted: Callable[[], bool] = lambda: True) -> None:
        """wanted: whether a tab is open; if not, the simulation rests."""
        super().__init__(daemon=True, name="simulation")
        self._wanted = wanted
        self.session, self.paused = session, False
        self._speed = 1.0
        self.problem: str | None = None
        self._closing, self._wake = False, threading.Event()
        self._lately: deque[float] = deque(maxlen=40)

    @property
    def speed(self) -> float:
        """Simulated seconds a second."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        low, high = SPEEDS
        if not low <= speed <= high:  # NaN, too
            raise ValueError(f"speed is {speed:g}: give a number from {low:g} to {high:g}.")
        self._speed = speed

    @property
    def steps_per_s(self) -> float:
        """Control steps a second, over the last two seconds or so; 0 while paused."""
        if self.paused or len(self._lately) < 2:
            return 0.0
        return (len(self._lately) - 1) / max(self._lately[-1] - self._lately[0], 1e-9)

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.problem = None if not paused else self.problem
        self._lately.clear()
        self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self.join(timeout=10)

    def run(self) -> None:
        torch.set_num_threads(1)  # two cores: one simulates, one draws
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
                self.problem = f"The simulation stopped: {error}"
                self.paused = True
                continue
            now = time.perf_counter()
            self._lately.append(now)
            due = max(due + CONTROL_STEP_S / self.speed, now - CATCH_UP_S)
            time.sleep(max(0.0, due - time.perf_counter()))


class Pictures(NamedTuple):
    """Three pictures (64, 64, 3) of one instant. The last two are None for an agent without pixels, and until
    they are made."""

    t_s: float
    eye: Picture
    reconstruction: Picture | None = None
    expectation: Picture | None = None

    @staticmethod
    @torch.no_grad()
    def of(snapshot: Snapshot) -> "Pictures":
        agent, observation = snapshot.agent, snapshot.observation
        if "vision" not in agent.tokenizer.senses:
            return Pictures(snapshot.t_s, snapshot.picture)
        tokens = encode(agent, observation, sample=False)
        expectation = expect(agent, observation, tokens)
        return Pictures(snapshot.t_s, snapshot.picture, decoded(agent, tokens), expectation)


@torch.no_grad()
def decoded(agent: Agent, tokens: Tensor) -> Picture:
    """The picture that tokens (1, K) stand for."""
    image = agent.decode(tokens)["vision"][0]
    return ((image.clamp(-0.5, 0.5) + 0.5) * 255).round().to(torch.uint8).cpu().numpy()


@torch.no_grad()
def expect(agent: Agent, observation: dict, tokens: Tensor) -> Picture:
    """A draw from the self-prior of what is seen in this posture and room: all other vision tokens are drawn
    anew."""
    place = agent.tokenizer.slices.get("vision")
    if place is None:  # no token belongs to vision alone
        known = set(agent.tokenizer.senses) - {"vision"}
        return decoded(agent, complete_senses(agent, to_tensors(observation, agent.device), known))
    kept = torch.ones(agent.spec.K, dtype=torch.bool, device=tokens.device)
    kept[place.start + agent.tokenizer.config.scene_tokens : place.stop] = False
    return decoded(agent, agent.self_prior.complete(tokens, kept))


class AgentPictures(threading.Thread):
    """Keeps `latest` as fresh as the machine allows; all three of its pictures are of one instant, always."""

    def __init__(self, session: Session, wanted: Callable[[], bool] = lambda: True) -> None:
        """wanted: whether a tab is open; if not, nothing is computed."""
        super().__init__(daemon=True, name="pictures")
        self.session, self._wanted = session, wanted
        snapshot = session.snapshot()
        self.latest = Pictures(snapshot.t_s, snapshot.picture)
        self.problem: str | None = None
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()
        self.join(timeout=10)

    def run(self) -> None:
        torch.set_num_threads(1)
        last: Snapshot | None = None
        while not self._closing.is_set():
            began, snapshot = time.perf_counter(), self.session.snapshot()
            known = last and snapshot.sim_state is last.sim_state and snapshot.agent is last.agent
            if not self._wanted() or known:
                self._closing.wait(_PICTURES_EVERY_S / 2)
                continue
            last = snapshot
            try:
                self.latest, self.problem = Pictures.of(snapshot), None
            except Exception as error:
                self.problem = f"No pictures of this instant: {error}"
            took = time.perf_counter() - began
            self._closing.wait(max(_PICTURES_EVERY_S - took, took * (1 / _PICTURES_AT_MOST - 1)))


def within(value: float, low: float, high: float) -> bool:
    """Whether a number that a page sent can be used."""
    return math.isfinite(value) and low <= value <= high
