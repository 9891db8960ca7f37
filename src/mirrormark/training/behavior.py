"""Where policy and value find what they learn from: imagination, and whatever an agent adds to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mirrormark.agent.actor_critic import ENTROPY_SAMPLES
from mirrormark.agent.agent import Agent
from mirrormark.agent.losses import LAMBDA, Loss, Rollout, discounts, imagined_losses
from mirrormark.agent.numerics import ReturnRange
from mirrormark.agent.world_model import imagine, imagine_step
from mirrormark.config import PaperAgentConfig
from mirrormark.training.replay_buffer import ReplayBuffer


class BehaviorSource(nn.Module, ABC):
    """A module, because what it remembers belongs into a checkpoint."""

    def __init__(self, policy_share: float = 1.0, value_share: float = 1.0):
        """Shares of the two losses; over all sources they are 1."""
        super().__init__()
        self.policy_share, self.value_share = policy_share, value_share

    def begin_iteration(self, agent: Agent) -> None:
        """New episodes have come; copies weights in place."""

    @abstractmethod
    def rollout(self, agent: Agent, buffer: ReplayBuffer) -> Any:
        """A batch of paths; without gradient."""

    @abstractmethod
    def losses(self, agent: Agent, rollout: Any) -> tuple[Loss, Loss]:
        """Of policy and value."""


class Imagination(BehaviorSource):
    """Paths under the policy from real windows of the whole replay buffer, freshly encoded (Dc)."""

    def __init__(
        self,
        paths: int,
        horizon: int,
        discount: float,
        eta: float,
        dropout: bool = False,
        weighted: bool = False,
        pull: float = 0.0,
        samples: int = 1,
        range_from_zero: bool = False,
        policy_share: float = 1.0,
        value_share: float = 1.0,
    ):
        """dropout: of the world model while imagining (D9). weighted: losses by γ^t (P3). pull: weight of the
        value's slow copy as a target. samples: behind the policy's entropy (P7). range_from_zero: P4."""
        super().__init__(policy_share, value_share)
        self.paths, self.horizon, self.discount, self.eta = paths, horizon, discount, eta
        self.dropout, self.weighted, self.pull, self.samples = dropout, weighted, pull, samples
        self.return_range = ReturnRange(range_from_zero)
        self.step: Callable = imagine_step  # or it compiled

    @torch.no_grad()
    def rollout(self, agent: Agent, buffer: ReplayBuffer) -> Rollout:
        batch = buffer.windows(self.paths, agent.context)
        tokens = agent.tokens_of(batch.observation)
        action = batch.action if agent.start == "prior" else batch.action[:, :-1]
        found = imagine(
            agent.world_model,
            agent.policy,
            tokens,
            action,
            self.horizon,
            agent.start,
            self.dropout,
            self.step,
        )
        cost = agent.cost(found.tokens[:, 1:], found.hidden[:, 1:])
        lambda_ = torch.full_like(cost, LAMBDA)
        late = discounts(self.horizon, self.discount, cost).expand_as(cost)
        return Rollout(*found, cost, lambda_, late if self.weighted else torch.ones_like(cost))

    def losses(self, agent: Agent, rollout: Rollout) -> tuple[Loss, Loss]:
        return imagined_losses(
            agent.policy,
            agent.value,
            agent.ema.value,
            self.return_range,
            rollout,
            self.discount,
            self.eta,
            self.pull,
            self.samples,
        )


def sources(agent: Agent, config: PaperAgentConfig, imagined: int) -> list[BehaviorSource]:
    """The paper's: imagination alone."""
    i = config.imagination
    return [
        Imagination(
            imagined,
            i.horizon,
            i.discount,
            i.entropy,
            dropout=True,
            weighted=config.as_public_code,
            pull=1.0,
            samples=ENTROPY_SAMPLES,
            range_from_zero=True,
        )
    ]
