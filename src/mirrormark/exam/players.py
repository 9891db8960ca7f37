"""Who acts in the exam. A player is anything with `begin(worlds, seeds)` and `act(observation)`."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch

from mirrormark.exam.oracle import Oracle
from mirrormark.life.rollout import Actor
from mirrormark.mind.mind import Mind
from mirrormark.world.movement import Movement, MovementConfig
from mirrormark.world.worlds import Worlds

Mode = Literal["sample", "mean"]


class Player(Protocol):
    """Acts in many worlds at once. Only the oracle takes knowledge of them from `worlds` in `begin`."""

    def begin(self, worlds: Worlds, seeds: Sequence[int]) -> None:
        """A new episode in every world; called after the worlds' reset."""
        ...

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        """Actions (n, A) in [-1, 1]."""
        ...


def expected_free_energy(player: Player, n: int) -> np.ndarray:
    """The player's G of the frame it last acted on, (n,); NaN for a player that has none."""
    found = getattr(player, "expected_free_energy", None)
    return np.full(n, np.nan) if found is None else np.asarray(found, float)


class MindPlayer:
    """A mind, as it acts in its life."""

    def __init__(self, mind: Mind, mode: Mode = "sample") -> None:
        self._mind = mind
        self._mode: Mode = mode

    def begin(self, worlds: Worlds, seeds: Sequence[int]) -> None:
        # The first seed names the noise of the whole batch: the same in every condition of these worlds.
        torch.manual_seed(int(seeds[0]))
        self._actor = Actor(self._mind, worlds.n, self._mode)
        self._actor.begin(int(seeds[0]))

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        return self._actor.act(observation)

    @property
    def expected_free_energy(self) -> np.ndarray:
        return self._actor.expected_free_energy


class MovementPlayer:
    """Random movement that knows nothing."""

    def __init__(self, config: MovementConfig) -> None:
        self._config = config

    def begin(self, worlds: Worlds, seeds: Sequence[int]) -> None:
        self._movement = Movement(self._config, worlds.actions)
        self._movement.begin(seeds)

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        return self._movement.act(observation)


class OraclePlayer:
    """The scripted upper bound: it is told the mark's site, mirror or not."""

    def begin(self, worlds: Worlds, seeds: Sequence[int]) -> None:
        self._oracle = Oracle(worlds, seed=int(seeds[0]))
        self._oracle.begin()

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        return self._oracle.act(observation)
