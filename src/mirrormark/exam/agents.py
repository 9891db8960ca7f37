"""Who acts in the exam. A player is anything with `begin(worlds, seeds)` and `act(observation)`."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch

from mirrormark.agent.agent import Mind
from mirrormark.envs.babbling import Movement, MovementConfig
from mirrormark.envs.mirror_mark import Worlds
from mirrormark.exam.oracle import Oracle
from mirrormark.training.rollout import Actor

Mode = Literal["sample", "mean"]

LATENTS_AT_ONCE = 1000
"""Latents whose G is computed in one go."""


class Player(Protocol):
    """Acts in many worlds at once. Only the oracle takes knowledge of them from `worlds` in `begin`."""

    def begin(self, worlds: Worlds, seeds: Sequence[int]) -> None:
        """A new episode in every world; called after the worlds' reset."""
        ...

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        """Actions (n, A) in [-1, 1]."""
        ...


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
        self._latents: list[torch.Tensor] = []

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        action = self._actor.act(observation)
        assert self._actor.latent is not None
        self._latents.append(self._actor.latent)
        return action

    @torch.no_grad()
    def expected_free_energy(self) -> np.ndarray:
        """G of every frame acted on since `begin`, (n, T) nats: together, because one by one is slow."""
        latents = torch.stack(self._latents, 1)
        flat = latents.flatten(0, 1).split(LATENTS_AT_ONCE)
        return (
            torch.cat([self._mind.expected_free_energy(some) for some in flat])
            .view(latents.shape[:2])
            .cpu()
            .numpy()
        )


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
