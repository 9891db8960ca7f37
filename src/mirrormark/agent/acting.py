"""What moves the body: a frame is encoded, the world model takes it in, the policy draws an action. The same
`Actor` acts in training, in exams and in the lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.agent import Agent

Mode = Literal["sample", "mean"]


class Actor:
    """Moves n bodies through one episode.

    It keeps at most `agent.acting_context` past steps before it is cut back to what imagination starts from
    and takes that in anew; between, a frame costs one step of the sequence model. An agent that starts from a
    prior sample (public code, D10) chooses before it sees: its first action is even over [-1, 1]."""

    def __init__(self, agent: Agent, n: int, mode: Mode = "sample", noise_rho: float | None = None):
        """noise_rho: correlation of the action noise from step to step; None: that of a trained agent."""
        if mode not in ("sample", "mean"):
            raise ValueError(f"mode is {mode!r}: choose sample or mean.")
        noise = getattr(agent.config, "action_noise", None)
        self.noise_rho = noise_rho if noise_rho is not None else (noise.at(1.0) if noise else 0.0)
        self.agent, self.n, self.mode, self.device = agent, n, mode, agent.device
        self._blind = agent.start == "prior"
        self._pairs = agent.context - (not self._blind)
        self._longest = max(agent.acting_context, self._pairs)
        self._cache = agent.world_model.init_cache(n, max(self._longest, 1))
        self._position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.hidden = torch.zeros(n, agent.world_model.config.width, device=self.device)
        self._choose_and_take_in: Callable[[Tensor, Tensor], Tensor] = self._move
        self.begin()

    def begin(self, seed: int = 0) -> None:
        """A new episode: an empty past. Equal seeds draw equal action noise."""
        self._random = torch.Generator(self.device).manual_seed(seed)
        for part in (*(x for cache in self._cache for x in cache), self._position, self.hidden):
            part.zero_()
        self._steps = 0  # in the cache: what the position says, without asking the GPU
        self._past: list[tuple[Tensor, Tensor]] = []
        self._noise: Tensor | None = None
        self.tokens: Tensor | None = None

    @torch.no_grad()
    def act(self, observation: Mapping[str, Any]) -> np.ndarray:
        """Actions (n, A) in [-1, 1] for what is seen now."""
        return self.act_on(encode(self.agent, observation, sample=self.mode == "sample"))

    @torch.no_grad()
    def act_on(self, tokens: Tensor) -> np.ndarray:
        """The same for frames that are already encoded, (n, K)."""
        self.tokens = tokens
        noise, full = self._next_noise(), self._steps == self._longest
        if self._blind and not self._past:
            action = torch.rand(noise.shape, generator=self._random, device=self.device) * 2 - 1
            self._take_in(tokens, action)
        elif full or not self._pairs:
            action = self._chosen(tokens, noise)
        else:
            action = self._choose_and_take_in(tokens, noise)
        if self._pairs:
            self._past = [*self._past, (tokens, action)][-self._pairs :]
            self._steps += 1
            if full:
                self._take_in_anew()
        return action.float().cpu().numpy()

    def _next_noise(self) -> Tensor:
        """Standard normal at every step, `noise_rho` of it from the step before; none for the mean."""
        if self.mode == "mean":
            return torch.zeros(self.n, self.agent.actions, device=self.device)
        noise = torch.randn((self.n, self.agent.actions), generator=self._random, device=self.device)
        if self._noise is not None:
            noise = self.noise_rho * self._noise + (1 - self.noise_rho**2) ** 0.5 * noise
        self._noise = noise
        return noise

    def _chosen(self, tokens: Tensor, noise: Tensor) -> Tensor:
        """What the policy does; blind, it sees a prediction of the present frame."""
        if self._blind:
            log_probs = self.agent.world_model.log_probs(self.hidden)
            uniform = torch.rand(log_probs.shape, generator=self._random, device=self.device)
            tokens = (log_probs - (-uniform.clamp_min(1e-30).log()).log()).argmax(-1)
        choice = self.agent.policy(tokens, self.hidden)
        return (choice.mean + choice.std * noise).tanh()

    def _move(self, tokens: Tensor, noise: Tensor) -> Tensor:
        """Choose, and take in what was seen and done."""
        action = self._chosen(tokens, noise)
        self._take_in(tokens, action)
        return action

    def _take_in(self, tokens: Tensor, action: Tensor) -> None:
        """Move `hidden` on to the next frame."""
        self.hidden.copy_(self.agent.world_model.step(tokens, action, self._cache, self._position))
        self._position.add_(1)

    def _take_in_anew(self) -> None:
        """Cut the past back to what imagination starts from."""
        tokens, actions = (torch.stack(parts, 1) for parts in zip(*self._past))
        self.hidden.copy_(self.agent.world_model.prefill(tokens, actions, self._cache)[:, -1])
        self._position.fill_(self._pairs)
        self._steps = self._pairs

    @property
    @torch.no_grad()
    def expected_free_energy(self) -> np.ndarray:
        """G of the frame last acted on, (n,) nats."""
        if self.tokens is None:
            raise ValueError("expected_free_energy is known after the first act() of an episode.")
        return self.agent.expected_free_energy(self.tokens).cpu().numpy()


@torch.no_grad()
def encode(agent: Agent, observation: Mapping[str, Any], sample: bool = True) -> Tensor:
    """Tokens (n, K) of an environment's observation, on the agent's device."""
    return agent.encode(to_tensors(observation, agent.device), sample).tokens


def to_tensors(observation: Mapping[str, Any], device: torch.device | str) -> dict[str, Tensor]:
    """An environment's observation on the agent's device; frames that a GPU made stay there."""
    return {name: torch.as_tensor(value, device=device) for name, value in observation.items()}
