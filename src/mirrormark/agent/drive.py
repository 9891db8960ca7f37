"""What the policy lowers. A drive sees tokens and the agent's own densities, never the simulator's labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mirrormark.agent.losses import Loss

if TYPE_CHECKING:
    from mirrormark.agent.agent import Agent


class Drive(nn.Module, ABC):
    """The cost of what is met, in nats. The agent is handed to it, not held: a module held twice is saved
    twice."""

    @abstractmethod
    def cost(self, agent: Agent, tokens: Tensor, hidden: Tensor) -> Tensor:
        """Of tokens (B, T, K) and hidden states (B, T, D): (B, T)."""

    def loss(
        self, agent: Agent, tokens: Tensor, action: Tensor, start: Tensor, handover: Tensor
    ) -> Loss | None:
        """What it learns by, from real sequences, tokens (B, T, K) and action (B, T, A), from frame `start`
        (B,) of their episodes on, of which motor babbling moves the body from frame `handover` (B,) on. None:
        nothing."""
        return None


class SelfPriorDrive(Drive):
    """G of each frame (E7): the paper's."""

    def cost(self, agent: Agent, tokens: Tensor, hidden: Tensor) -> Tensor:
        return agent.expected_free_energy(tokens)


class NoDrive(Drive):
    """Nothing: a control."""

    def cost(self, agent: Agent, tokens: Tensor, hidden: Tensor) -> Tensor:
        return torch.zeros(tokens.shape[:-1], device=tokens.device)
