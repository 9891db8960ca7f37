"""Who acts in the exam: anyone's agent (`ExamAgent`), our own, motor babbling and the scripted oracle.

A stranger's agent needs `privileged`, `reset(n)` and `act(observations)`; `CheckedAgent` puts it into the
exam and names what is wrong with what it returns. `OneByOne` and `StableBaselines3Agent` make such agents of
those that act in one body, and of trained policies of stable-baselines3.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import numpy as np
import torch

from mirrormark.agent.acting import Actor
from mirrormark.agent.agent import Agent
from mirrormark.envs.babbling import Babbling, BabblingConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.exam.oracle import Oracle

Mode = Literal["sample", "mean"]
Observations = dict[str, np.ndarray]

TOKENS_AT_ONCE = 1000
"""Frames whose G is computed in one go."""


class AgentError(ValueError):
    """An agent that cannot take the exam, with the reason in one sentence."""


class ExamAgent(Protocol):
    """What anyone's agent must offer to take the exam; all n bodies act at once.

    Optional: `free_energy(observations)` → (n,) nats; `name`, `training_seed`, `environment_steps` and
    `gpu_minutes`, which outputs show.
    """

    privileged: tuple[str, ...]
    """What it is, or was in training, given beyond the senses ("reward", "mark position"); (): nothing."""

    def reset(self, n: int) -> None:
        """A new episode in n bodies: the past is forgotten."""
        ...

    def act(self, observations: Observations) -> np.ndarray:
        """Actions (n, A) in [-1, 1] for vision (n, 64, 64, 3) uint8 and proprioception (n, A) float32."""
        ...


class ConditionAgent(Protocol):
    """Who acts in one condition's worlds, as the rollout loop sees it."""

    def begin(self, envs: MirrorMarkEnvs, seeds: Sequence[int]) -> None:
        """A new episode in every world, after the worlds' reset. Only the oracle reads `envs`' state."""
        ...

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        """Actions (n, A) in [-1, 1]."""
        ...

    def free_energy(self) -> np.ndarray | None:
        """G of every frame acted on since `begin`, (n, T) nats; None: this agent has no G."""
        ...


class TrainedAgent:
    """An agent of this package, acting as in its training."""

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
    def free_energy(self) -> np.ndarray:
        """All frames together at the end, because one by one is slow."""
        tokens = torch.stack(self._tokens, 1)
        batches = tokens.flatten(0, 1).split(TOKENS_AT_ONCE)
        nats = torch.cat([self._agent.expected_free_energy(batch) for batch in batches])
        return nats.view(tokens.shape[:2]).cpu().numpy()


class BabblingAgent:
    """Random movement: chance."""

    def __init__(self, config: BabblingConfig) -> None:
        self._config = config

    def begin(self, envs: MirrorMarkEnvs, seeds: Sequence[int]) -> None:
        self._babbling = Babbling(self._config, envs.actions)
        self._babbling.begin(seeds)

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        return self._babbling.act(observation)

    def free_energy(self) -> None:
        return None


class OracleAgent:
    """The scripted upper bound: it reads the mark's site from the simulator, mirror or not."""

    def begin(self, envs: MirrorMarkEnvs, seeds: Sequence[int]) -> None:
        self._oracle = Oracle(envs, seed=int(seeds[0]))
        self._oracle.begin()

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        return self._oracle.act(observation)

    def free_energy(self) -> None:
        return None


class CheckedAgent:
    """Anyone's agent in the exam: it gets copies of the observations, and what it returns is checked."""

    def __init__(self, agent: ExamAgent, name: str, condition: str) -> None:
        self._agent, self._name, self._condition = agent, name, condition
        self._free_energy: Callable[[Observations], np.ndarray] | None = getattr(agent, "free_energy", None)

    def begin(self, envs: MirrorMarkEnvs, seeds: Sequence[int]) -> None:
        seed_everything(int(seeds[0]))
        self._n, self._actions, self._step = envs.n, envs.actions, 0
        self._nats: list[np.ndarray] = []
        self._call("reset", lambda: self._agent.reset(envs.n))

    def act(self, observation: dict[str, Any]) -> np.ndarray:
        copies = {name: np.array(value) for name, value in observation.items()}
        action = self._returned("act", copies, self._agent.act, (self._n, self._actions))
        outside = np.abs(action).max()
        if outside > 1:
            raise self._error(f"act returned {outside:.3g}, but actions lie in [-1, 1]: clip them")
        if self._free_energy:
            self._nats.append(self._returned("free_energy", copies, self._free_energy, (self._n,)))
        self._step += 1
        return action

    def free_energy(self) -> np.ndarray | None:
        return np.stack(self._nats, 1) if self._free_energy else None

    def _returned(
        self, method: str, observations: Observations, function: Callable, shape: tuple[int, ...]
    ) -> np.ndarray:
        found = self._call(method, lambda: function(observations))
        try:
            values = np.asarray(found, dtype=np.float32)
        except (TypeError, ValueError):
            raise self._error(
                f"{method} returned a {type(found).__name__}: return an array of numbers"
            ) from None
        if values.shape != shape:
            raise self._error(f"{method} returned the shape {values.shape}, where {shape} is needed")
        if not np.isfinite(values).all():
            raise self._error(f"{method} returned numbers that are not finite (NaN or infinite)")
        return values

    def _call(self, method: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as reason:
            raise self._error(f"{method} raised {type(reason).__name__}: {reason}") from reason

    def _error(self, problem: str) -> AgentError:
        return AgentError(f"agent {self._name}, “{self._condition}”, step {self._step}: {problem}.")


@contextmanager
def separate_random_numbers() -> Iterator[None]:
    """Inside, agents may seed and draw from the global random numbers; the caller's stay as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def seed_everything(seed: int) -> None:
    """Python's, NumPy's and torch's global random numbers: an agent that draws from them repeats itself."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


class SingleAgent(Protocol):
    """An agent that acts in one body: observations and actions without the first axis."""

    def reset(self) -> None: ...

    def act(self, observation: Observations) -> np.ndarray: ...


class OneByOne:
    """Takes the exam with agents that act in one body each, made by `make`."""

    def __init__(self, make: Callable[[], SingleAgent], privileged: tuple[str, ...]) -> None:
        self._make, self.privileged = make, privileged
        self._agents: list[SingleAgent] = []

    def reset(self, n: int) -> None:
        self._agents += [self._make() for _ in range(n - len(self._agents))]
        self._acting = self._agents[:n]
        for agent in self._acting:
            agent.reset()

    def act(self, observations: Observations) -> np.ndarray:
        return np.stack(
            [
                agent.act({name: values[i] for name, values in observations.items()})
                for i, agent in enumerate(self._acting)
            ]
        )


class StableBaselines3Agent:
    """Takes the exam with a trained model of stable-baselines3 (or sb3-contrib), by its `predict`."""

    def __init__(self, model: Any, privileged: tuple[str, ...], deterministic: bool = True) -> None:
        self._model, self.privileged, self._deterministic = model, privileged, deterministic

    def reset(self, n: int) -> None:
        self._state, self._first = None, np.ones(n, np.bool_)

    def act(self, observations: Observations) -> np.ndarray:
        action, self._state = self._model.predict(
            observations,
            state=self._state,
            episode_start=self._first,
            deterministic=self._deterministic,
        )
        self._first = np.zeros_like(self._first)
        return action
