"""E8-E11 as pure functions over tensors. Tables are normalised log-probabilities (..., K, widest), see
latent.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mirrormark.mind.latent import kl, pick
from mirrormark.mind.numerics import TwoHot

BETA_DYN, BETA_REP = 0.5, 0.1
"""Weights of the dynamics and the representation loss (paper, Table III)."""
FREE_NATS = 1.0
"""KL below this costs nothing more (paper, E9); summed over tokens, clipped per time step."""
SELF_PRIOR_EMA = 1.0
"""Weight of KL(EMA || online) in the self-prior's loss (paper, E10)."""
POLICY_CLIP = 0.2
"""Of what really happened, the policy learns until an action is so much more or less likely than when it was
done (ours; Schulman et al. 2017, PPO's ε)."""


@dataclass(frozen=True)
class LossConfig:
    """Weights of the losses. Defaults: preset paper."""

    decoder: Literal["latent", "embedding", "off"] = "latent"
    """Auxiliary decoder loss: from the stopped latent (paper), from the mixer's embedding (public code), none
    (D4)."""
    quiet: float = 0.0
    """Weight of the rate term that keeps FSQ tokens at their centre level (ours; 0 in the paper's codec)."""
    quiet_ramp: float = 0.0
    """Share of the codec's phase over which that weight grows from 0 (ours; 0: full at once). A cell that
    falls silent before its tokens mean anything to the decoder stays so (notebook: cells that never
    woke)."""
    value_ema: float = 1.0
    """Weight of the pull towards the slow value (paper, E11)."""
    value_lived: float = 0.0
    """Share of real life, the rest being dreams, in what the value learns from, once the policy has lived
    (ours; as DreamerV3's replay value loss; swift: .9)."""
    policy_lived: float = 0.0
    """Share of real life, the rest being dreams, in what the policy learns from (ours; swift: .97): the cost
    of what it really came to see. Above 0, it learns nothing before it has lived."""

    def __post_init__(self) -> None:
        for name in ("quiet_ramp", "value_lived", "policy_lived"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"losses.{name} is {getattr(self, name)}: a share is a number from 0 to 1.")


def reconstruction_loss(prediction: Tensor, target: Tensor, axes: int) -> Tensor:
    """E8, one sense: squared error summed over the sense's own last `axes` axes, mean over the rest."""
    return (prediction.float() - target.float()).square().flatten(-axes).sum(-1).mean()


def weighted_sum(losses: Mapping[str, Tensor], weights: Mapping[str, float | Tensor]) -> Tensor:
    """E8: the sum that is descended. A loss without a weight, or a weight without a loss, is an error."""
    if set(losses) != set(weights):
        raise ValueError(f"losses {sorted(losses)} and weights {sorted(weights)} must have the same names")
    return torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()


def dynamics_loss(posterior: Tensor, prior: Tensor, free_nats: float) -> Tensor:
    """E9: max(1, KL[sg(q) || p]): the prediction learns to meet the posterior."""
    return kl(posterior.detach(), prior).clamp_min(free_nats).mean()


def representation_loss(posterior: Tensor, prior: Tensor, free_nats: float) -> Tensor:
    """E9: max(1, KL[q || sg(p)]): the posterior learns to be predictable."""
    return kl(posterior, prior.detach()).clamp_min(free_nats).mean()


def point_dynamics_loss(latent: Tensor, prior: Tensor, free_nats: float) -> Tensor:
    """E9 where the posterior is a point mass: the KL is a cross-entropy, and there is no representation
    loss."""
    cost = -pick(prior, latent).sum(-1)
    return torch.where(cost <= free_nats, free_nats, cost).mean()  # a cost that is no number stays none


def quiet_loss(activation: Tensor, softness: float = 0.05) -> Tensor:
    """Rate of point-mass tokens, standing in for E9's representation loss: smooth |distance from the centre
    level| before rounding, (..., scalars) in [-1, 1], summed over scalars. Tokens with nothing to say fall
    silent."""
    distance = (activation.float().square() + softness**2).sqrt() - softness
    return distance.sum(-1).mean()


def self_prior_loss(online: Tensor, slow: Tensor, latent: Tensor, ema_weight: float) -> Tensor:
    """E10: token cross-entropy + KL(EMA || online), both means over the K tokens (online, slow: tables)."""
    surprise = -pick(online, latent).mean(-1)
    return (surprise + ema_weight * kl(slow.detach(), online) / latent.shape[-1]).mean()


def policy_loss(log_prob: Tensor, entropy: Tensor, excess_cost: Tensor, eta: float) -> Tensor:
    """E11, policy. D1: the printed sign would raise free energy; we descend it."""
    return (excess_cost.detach() * log_prob - eta * entropy).mean()


_TOO_LIKELY = 3.0
"""Ye et al. 2020, arXiv 1912.09729."""


def lived_policy_loss(log_prob: Tensor, before: Tensor, excess_cost: Tensor, clip: float) -> Tensor:
    """The same for what was really done, (...), by the policy as it then was: PPO's clipped objective
    (Schulman et al. 2017), not reduced. before: the log-probabilities then. What has become many times more
    likely meanwhile has nothing more to say (Ye et al. 2020, dual clip)."""
    ratio, excess = (log_prob - before.detach()).clamp_max(math.log(_TOO_LIKELY)).exp(), excess_cost.detach()
    return torch.maximum(ratio * excess, ratio.clamp(1 - clip, 1 + clip) * excess)


def discounts(steps: int, discount: float, like: Tensor) -> Tensor:
    """γ^t, (steps,)."""
    return (math.log(discount) * torch.arange(steps, device=like.device)).exp()


def value_loss(
    logits: Tensor, target: Tensor, slow: Tensor, two_hot: TwoHot, weight: Tensor, ema_weight: float
) -> Tensor:
    """E11, value, as cross-entropy (D3): towards the λ-return `target` (B, H) and the slow copy's value (B,
    H), weighted (E11: γ^t). logits (B, H, bins)."""
    error = two_hot.cross_entropy(logits, target.detach())
    error = error + ema_weight * two_hot.cross_entropy(logits, slow.detach())
    return (weight * error).mean()
