"""E5 to E11: free energies, and what each part of the agent learns by. Shapes stand beside tensors: B
sequences, T frames, H imagined steps, K tokens, C classes.

Which loss reaches which parameters: `world_model_loss` the world model (and through straight-through inputs
and the representation loss the tokenizer), `self_prior_loss` the self-prior, `actor_loss` the policy,
`critic_loss` the value. A tokenizer has its own (`Tokenizer.loss`); a drive may (`Drive.loss`), and so may
other sources of what policy and value learn from (`BehaviorSource.losses`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from mirrormark.agent.tokens import gather_log_prob, kl

if TYPE_CHECKING:
    from mirrormark.agent.actor_critic import Policy, TanhNormal, TwoHotHead
    from mirrormark.agent.numerics import ReturnRange
    from mirrormark.agent.self_prior import SelfPrior
    from mirrormark.agent.tokenizer import Encoding
    from mirrormark.agent.world_model import WorldModel

BETA_DYN, BETA_REP = 0.5, 0.1
"""Weights of dynamics and representation loss (paper, Table III)."""
FREE_NATS = 1.0
"""KL below this costs nothing more (paper, E9); summed over tokens, clipped per time step."""
LAMBDA = 0.95
"""λ of the return (paper, Table III)."""


class Loss(NamedTuple):
    """What is descended, and what to log: detached tensors."""

    value: Tensor  # ()
    metrics: dict[str, Tensor]

    def __add__(self, other: Loss) -> Loss:  # type: ignore[override]
        return Loss(self.value + other.value, self.metrics | other.metrics)

    def __rmul__(self, weight: float | Tensor) -> Loss:  # type: ignore[override]
        return Loss(weight * self.value, self.metrics)

    def named(self, prefix: str) -> Loss:
        """With a prefix to its metrics' names."""
        return Loss(self.value, {f"{prefix}{name}": value for name, value in self.metrics.items()})


# E5 to E7: free energies -----------------------------------------------------------------------------------


def variational_free_energy(complexity: Tensor, squared_error: Tensor) -> Tensor:
    """E5: F = KL[q(s|o) || p(ŝ|h)] − E_q log p(o|s), for Gaussian outputs of standard deviation 1, less the
    constant. complexity: that KL (...); squared_error: summed over the observation (...)."""
    return complexity + 0.5 * squared_error


def expected_free_energy_in_full(
    log_q_action: Tensor,
    log_q_tokens: Tensor,
    log_p_action: Tensor | float,
    log_p_observation: Tensor | float,
    log_self_prior: Tensor,
) -> Tensor:
    """E6: G = E[log q(a|s) + log q(s'|s,a) − log p(a) − log p(o|s) − log p̃(s)], one sample of each (...)."""
    return log_q_action + log_q_tokens - log_p_action - log_p_observation - log_self_prior


def expected_free_energy(log_self_prior: Tensor) -> Tensor:
    """E7: the G used, −log p̃(s). The action's entropy enters in E11; the rest of E6 is taken as constant
    (even action prior, fixed output variance, transition uncertainty left out)."""
    return -log_self_prior


# E8, E9: tokenizer and world model -------------------------------------------------------------------------


def reconstruction_loss(prediction: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> Loss:
    """E8: squared error of each sense, summed over its own axes, mean over frames (N, ...)."""
    errors = {
        name: (value.float() - target[name].float()).square().flatten(1).sum(1).mean()
        for name, value in prediction.items()
    }
    total = torch.stack(list(errors.values())).sum()
    return Loss(total, {name: error.detach() for name, error in errors.items()})


def world_model_loss(world_model: WorldModel, encoding: Encoding, action: Tensor) -> Loss:
    """E9 over sequences, (B, T, ...): frame t+1 is predicted from 0..t, max(1, KL) per time step.

    Dynamics: the prediction learns to meet the stopped posterior. Representation: the posterior learns to be
    predictable. Of point masses the KL is a cross-entropy, and there is no representation loss."""
    hidden = world_model(encoding.inputs[:, :-1], action[:, :-1])  # (B, T-1, D)
    prior = world_model.log_probs(hidden)  # (B, T-1, K, C)
    if encoding.log_probs is None:
        cost = -gather_log_prob(prior, encoding.tokens[:, 1:]).sum(-1)
        dynamics = cost.clamp_min(FREE_NATS).mean()
        return Loss(BETA_DYN * dynamics, {"dynamics": dynamics.detach()})
    posterior = encoding.log_probs[:, 1:]
    dynamics = kl(posterior.detach(), prior).clamp_min(FREE_NATS).mean()
    representation = kl(posterior, prior.detach()).clamp_min(FREE_NATS).mean()
    metrics = {"dynamics": dynamics.detach(), "representation": representation.detach()}
    return Loss(BETA_DYN * dynamics + BETA_REP * representation, metrics)


# E10: self-prior -------------------------------------------------------------------------------------------


def self_prior_loss(online: SelfPrior, ema: SelfPrior, tokens: Tensor) -> Loss:
    """E10 on tokens (N, K): cross-entropy + KL(EMA || online), both means over tokens."""
    log_probs = online.log_probs(tokens)  # (N, K, C)
    with torch.no_grad():
        slow = ema.log_probs(tokens)
    surprise = -gather_log_prob(log_probs, tokens)  # (N, K)
    loss = surprise.mean() + kl(slow, log_probs).mean() / tokens.shape[-1]
    return Loss(loss, {"self_prior": loss.detach(), "G_babbling": surprise.detach().sum(-1).mean()})


# E11: policy and value -------------------------------------------------------------------------------------


class Rollout(NamedTuple):
    """Paths that policy and value learn from, imagined or real."""

    tokens: Tensor  # (B, H+1, K)
    hidden: Tensor  # (B, H+1, D)
    action: Tensor  # (B, H, A); before tanh where imagined
    cost: Tensor  # (B, H) of tokens[:, 1:] (D2)
    lambda_: Tensor  # (B, H)
    weight: Tensor  # (B, H)


def lambda_return(cost: Tensor, value: Tensor, discount: float, lambda_: Tensor) -> Tensor:
    """E11: R_t = G(s_{t+1}) + γ((1−λ_t) V_{t+1} + λ_t R_{t+1}), R_H = V_H. cost, λ (B, H), value (B, H+1) ->
    (B, H)."""
    returns, ahead = [], value[:, -1]
    for t in reversed(range(cost.shape[1])):
        mixed = (1 - lambda_[:, t]) * value[:, t + 1] + lambda_[:, t] * ahead
        ahead = cost[:, t] + discount * mixed
        returns.append(ahead)
    return torch.stack(returns[::-1], 1)


def discounts(steps: int, discount: float, like: Tensor) -> Tensor:
    """γ^t, (steps,)."""
    return (math.log(discount) * torch.arange(steps, device=like.device)).exp()


def critic_loss(
    critic: TwoHotHead, ema: TwoHotHead, rollout: Rollout, inputs: Tensor, discount: float, pull: float
) -> tuple[Loss, Tensor, Tensor]:
    """E11, value, as cross-entropy (D3): towards the λ-return and, weighed by `pull`, towards its slow copy.
    inputs: one-hot tokens. -> loss, value (B, H+1), return (B, H)."""
    logits = critic.logits(inputs, rollout.hidden)  # (B, H+1, bins)
    with torch.no_grad():
        value = critic.two_hot.decode(logits)
        returns = lambda_return(rollout.cost, value, discount, rollout.lambda_)
    error = critic.two_hot.cross_entropy(logits[:, :-1], returns)
    if pull:
        with torch.no_grad():
            slow = ema(inputs[:, :-1], rollout.hidden[:, :-1])
        error = error + pull * critic.two_hot.cross_entropy(logits[:, :-1], slow)
    loss = (rollout.weight * error).mean()
    return Loss(loss, {"value_loss": loss.detach(), "value": value.mean()}), value, returns


def actor_loss(
    distribution: TanhNormal, action: Tensor, advantage: Tensor, weight: Tensor, eta: float, samples: int
) -> Loss:
    """E11, policy, all (B, H); action before tanh. D1: the printed sign would raise free energy; we descend
    it."""
    log_prob, entropy = distribution.log_prob(action), distribution.entropy(samples)
    loss = (weight * (advantage.detach() * log_prob - eta * entropy)).mean()
    return Loss(loss, {"policy": loss.detach(), "entropy": entropy.detach().mean()})


def imagined_losses(
    policy: Policy,
    critic: TwoHotHead,
    ema: TwoHotHead,
    return_range: ReturnRange,
    rollout: Rollout,
    discount: float,
    eta: float,
    pull: float,
    samples: int,
) -> tuple[Loss, Loss]:
    """E11 on imagined paths: (policy, value). The advantage is scaled by S, the returns' smoothed range."""
    inputs = policy.spec.one_hot(rollout.tokens)
    value_loss, value, returns = critic_loss(critic, ema, rollout, inputs, discount, pull)
    spread = return_range.update(returns)
    advantage = (returns - value[:, :-1]) / spread.clamp_min(1.0)
    distribution = policy(inputs[:, :-1], rollout.hidden[:, :-1])
    policy_loss = actor_loss(distribution, rollout.action, advantage, rollout.weight, eta, samples)
    fall = (rollout.cost[:, 0] - rollout.cost[:, -1]).mean()
    metrics = {"imagined_cost": rollout.cost.mean(), "imagined_cost_fall": fall, "return_range": spread}
    return Loss(policy_loss.value, policy_loss.metrics | metrics), value_loss
