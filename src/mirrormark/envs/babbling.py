"""Motor babbling: random movement that knows nothing of the mark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

BabblingKind = Literal["iid", "held", "goal", "bouts"]
KINDS = get_args(BabblingKind)

_STREAM = 0x6D6F7665  # other random numbers than the environment's own for the same seed

GOAL_CONTROL_STEPS = 25
"""Control steps for which `goal` pursues one posture (ours)."""
GOAL_GAIN = 3.0
"""Its torque per joint error, both in their ranges' units (ours)."""
GOAL_DAMPING = 6.0
"""Its torque per joint speed in range units per control step (ours)."""


@dataclass(frozen=True)
class BabblingConfig:
    """How the random movement is made."""

    kind: BabblingKind = "held"
    """iid: a new torque every control step (paper). held: each episode draws for how many control steps
    every torque is held. goal: random postures, reached by a weak controller (goal babbling). bouts: held,
    with rests in between, in which only the body's tone moves it."""
    longest_hold_control_steps: int = 16
    """Longest hold that an episode of `held` or `bouts` may draw (ours)."""
    bout_control_steps: tuple[int, int] = (10, 40)
    """Shortest and longest bout of `bouts`, and rest between two of them (ours)."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"babbling.kind is {self.kind!r}; choose one of {', '.join(KINDS)}.")
        shortest, longest = self.bout_control_steps
        if not 1 <= shortest <= longest:
            raise ValueError(
                f"babbling.bout_control_steps is {self.bout_control_steps}; give the shortest and the longest"
                " bout, whole numbers from 1."
            )
        if self.longest_hold_control_steps < 1:
            raise ValueError(
                f"babbling.longest_hold_control_steps is {self.longest_hold_control_steps}; give at least 1."
            )


class Babbling:
    """Random actions for many bodies. Body i depends on seed i only, not on its neighbours."""

    def __init__(self, config: BabblingConfig, actions: int, horizon_control_steps: int = 100) -> None:
        self.config = config
        self.actions = actions
        self.horizon = horizon_control_steps

    def begin(self, seeds: Sequence[int]) -> None:
        """Draw a whole episode for each seed."""
        n = len(seeds)
        self._t = 0
        self._last: np.ndarray | None = None
        self._values = np.empty((n, self.horizon, self.actions), np.float32)
        self._hold = np.ones(n, np.int64)
        self._moves = np.ones((n, self.horizon), np.bool_)
        for i, seed in enumerate(seeds):
            rng = np.random.default_rng((_STREAM, int(seed)))
            if self.config.kind in ("held", "bouts"):
                self._hold[i] = rng.integers(1, self.config.longest_hold_control_steps + 1)
            elif self.config.kind == "goal":
                self._hold[i] = GOAL_CONTROL_STEPS
            self._values[i] = rng.uniform(-1.0, 1.0, (self.horizon, self.actions))
            if self.config.kind == "bouts":
                self._moves[i] = self._bouts(rng)

    def _bouts(self, rng: np.random.Generator) -> np.ndarray:
        """(horizon,) bool: bouts and rests in turn, either first."""
        shortest, longest = self.config.bout_control_steps
        lengths = rng.integers(shortest, longest + 1, self.horizon // shortest + 1)
        turns = (np.arange(len(lengths)) + rng.integers(2)) % 2 == 0
        return np.repeat(turns, lengths)[: self.horizon]

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """The next action (n, A) in [-1, 1]; only `goal` looks at the body, at its joint angles."""
        index = (self._t // self._hold) % self.horizon
        value = self._values[np.arange(len(index)), index] * self._moves[:, self._t % self.horizon, None]
        self._t += 1
        if self.config.kind != "goal":
            return value
        angle = observation["proprioception"]
        speed = np.zeros_like(angle) if self._last is None else angle - self._last
        self._last = angle.copy()
        torque = GOAL_GAIN * (value - angle) - GOAL_DAMPING * speed
        return np.clip(torque, -1.0, 1.0).astype(np.float32)
