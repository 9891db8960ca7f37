"""The policy's newest real episodes as a source of what policy and value learn from: PPO's clipped objective
with the λ-return of the cost of what really came."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor

from mirrormark.agent.agent import Agent
from mirrormark.agent.losses import LAMBDA, Loss, Rollout, critic_loss, lambda_return
from mirrormark.training.behavior import BehaviorSource
from mirrormark.training.replay_buffer import ReplayBuffer

CLIP = 0.2
"""PPO's ε (Schulman et al. 2017)."""
MOST_LIKELY = 3.0
"""Importance ratios above this get no gradient (dual clip; Ye et al. 2020, arXiv 1912.09729)."""


class RealRollout(NamedTuple):
    """Real paths under the policy and the value of when they were made."""

    rollout: Rollout
    old_log_prob: Tensor  # (B, H)
    old_value: Tensor  # (B, H+1)


def as_acted(agent: Agent, frame: Tensor, start: Tensor) -> Tensor:
    """Where a window holds as much of the past as an acting agent has: a context of it, or all there is.
    frame (B, H), start (B,) of the window -> (B, H) bool."""
    start = start[:, None]
    return (frame - start >= agent.context - 1) | (start == 0)


def normalised(counts: Tensor) -> Tensor:
    """Bools as weights that are 1 on average."""
    weight = counts.float()
    return weight / weight.mean().clamp_min(1e-6)


class OnPolicy(BehaviorSource):
    """Weighs 0 what babbling did and what was done with more of the past than a window shows."""

    def __init__(
        self, agent: Agent, windows: int, policy_share: float, value_share: float, discount: float, eta: float
    ):
        super().__init__(policy_share, value_share)
        self.windows, self.discount, self.eta = windows, discount, eta
        self.behavior_policy = copy.deepcopy(agent.policy).requires_grad_(False)
        self.old_value = copy.deepcopy(agent.value).requires_grad_(False)

    def begin_iteration(self, agent: Agent) -> None:
        self.behavior_policy.load_state_dict(agent.policy.state_dict())
        self.old_value.load_state_dict(agent.value.state_dict())

    @torch.no_grad()
    def rollout(self, agent: Agent, buffer: ReplayBuffer) -> RealRollout:
        past = agent.acting_context
        # So many more windows begin with the episode that its first frames count no less than later ones.
        batch = buffer.newest(self.windows, past + 1, early=past + 1 - agent.context)
        tokens = agent.tokens_of(batch.observation)
        hidden = agent.hidden_of(tokens, batch.action)
        action, cost = batch.action[:, :-1], agent.cost(tokens[:, 1:], hidden[:, 1:])
        old = self.behavior_policy(tokens[:, :-1], hidden[:, :-1]).log_prob_of(action)
        frame = batch.start[:, None] + torch.arange(action.shape[1], device=tokens.device)
        acts = frame < batch.handover[:, None]
        # What babbling leads to is not the policy's doing: λ is 0 at its last step before the handover.
        lambda_ = LAMBDA * (frame + 1 < batch.handover[:, None]).float()
        weight = normalised(as_acted(agent, frame, batch.start) & acts)
        rollout = Rollout(tokens, hidden, action, cost, lambda_, weight)
        return RealRollout(rollout, old, self.old_value(tokens, hidden))

    def losses(self, agent: Agent, rollout: RealRollout) -> tuple[Loss, Loss]:
        real, old_log_prob, old_value = rollout
        inputs, weight = agent.spec.one_hot(real.tokens), real.weight
        value_loss, _, _ = critic_loss(agent.value, agent.ema.value, real, inputs, self.discount, pull=0.0)
        with torch.no_grad():
            # By the old value: what it has learned since of these very episodes is no longer a surprise.
            returns = lambda_return(real.cost, old_value, self.discount, real.lambda_)
            advantage = returns - old_value[:, :-1]
            advantage = advantage - (weight * advantage).mean()
            spread = _spread(advantage, weight)
            explained = 1 - (spread / _spread(returns, weight).clamp_min(1e-6)).square()
            advantage = advantage / spread.clamp_min(1.0)
        distribution = agent.policy(inputs[:, :-1], real.hidden[:, :-1])
        log_prob = distribution.log_prob_of(real.action)
        loss = ppo_loss(log_prob, old_log_prob, advantage) - self.eta * distribution.entropy()
        policy = (weight * loss).mean()
        learned = (1 - (log_prob.detach() - old_log_prob).exp()) * advantage.sign()
        metrics = {
            "policy_on_policy": policy.detach(),
            "cost_on_policy": (weight * real.cost).mean(),
            "clipped": (weight * (learned > CLIP)).mean(),
        }
        value = {"value_loss_on_policy": value_loss.value.detach(), "value_explained_variance": explained}
        return Loss(policy, metrics), Loss(value_loss.value, value)


def ppo_loss(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor) -> Tensor:
    """PPO's clipped objective for a cost to be lowered, (...), not reduced."""
    ratio = (log_prob - old_log_prob).clamp_max(math.log(MOST_LIKELY)).exp()
    return torch.maximum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)


def _spread(x: Tensor, weight: Tensor) -> Tensor:
    """Standard deviation; weight: 1 on average."""
    return (weight * (x - (weight * x).mean()).square()).mean().sqrt()
