"""Who acts in the exam. A player is anything with `begin(worlds, seeds)` and `act(observation)`."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch

from mirrormark.agent.acting import Actor
from mirrormark.agent.agent import Agent
from mirrormark.envs.babbling import Babbling, BabblingConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.exam.oracle import Oracle

Mode = Literal["sample", "mean"]

TOKENS_AT_ONCE = 1000
"""Tokens whose G is computed in one go."""


class ExamAgent(Protocol):
    """Acts in many worlds at once. Only the oracle takes knowledge of them from `envs` in `begin`."""

    def begin(self, envs: MirrorMarkEnvs, seeds: Sequence[int]) -> None:
        """A new episode in every world; called after the worlds' reset."""
        ...

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        """Actions (n, A) in [-1, 1]."""
        ...


class TrainedAgent:
    """An agent, as it acts in its life."""

    def __init__(self, agent: Agent, mode: Mode = "sample") -> None:
        self._agent = agent
        self._mode: Mode = mode

    def begin(self, envs: MirrorMarkEnvs, seeds: Sequence[int]) -> None:
        # The first seed names the noise of the whole batch: the same in every condition of these worlds.
        torch.manual_seed(int(seeds[0]))
        self._actor = Actor(self._agent, envs.n, self._mode)
        self._actor.begin(int(seeds[0]))
        self._tokens: list[torch.Tensor] = []

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        action = self._actor.act(observation)
        assert self._actor.tokens is not None
        self._tokens.append(self._actor.tokens)
        return action

    @torch.no_grad()
    def expected_free_energy(self) -> np.ndarray:
        """G of every frame acted on since `begin`, (n, T) nats: together, because one by one is slow."""
        tokens = torch.stack(self._tokens, 1)
        flat = tokens.flatten(0, 1).split(TOKENS_AT_ONCE)
        return (
            torch.cat([self._agent.expected_free_energy(some) for some in flat])
            .view(tokens.shape[:2])
            .cpu()
            .numpy()
        )


class BabblingAgent:
    """Random movement that knows nothing."""

    def __init__(self, config: BabblingConfig) -> None:
        self._config = config

    def begin(self, envs: MirrorMarkEnvs, seeds: Sequence[int]) -> None:
        self._babbling = Babbling(self._config, envs.actions)
        self._babbling.begin(seeds)

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        return self._babbling.act(observation)


class OracleAgent:
    """The scripted upper bound: it is told the mark's site, mirror or not."""

    def begin(self, envs: MirrorMarkEnvs, seeds: Sequence[int]) -> None:
        self._oracle = Oracle(envs, seed=int(seeds[0]))
        self._oracle.begin()

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        return self._oracle.act(observation)
