"""Imagined rollouts: from a real context, under the policy or under given actions. No gradient flows through
a dream (the policy learns by log-probabilities of the dreamed actions, E11)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mirrormark.mind.dynamics import Dynamics
from mirrormark.mind.latent import draw
from mirrormark.mind.policy import Policy
from mirrormark.mind.transformer import Cache


class Dream(NamedTuple):
    """Imagined trajectories under the current policy."""

    latent: Tensor  # (B, H+1, K) class indices; [:, 0] is the real present
    hidden: Tensor  # (B, H+1, D)
    action: Tensor  # (B, H, A) before tanh


@torch.no_grad()
def recall(
    dynamics: Dynamics, context_latent: Tensor, context_action: Tensor, horizon: int, dropout: bool = False
) -> tuple[Tensor, Cache]:
    """Hidden state (B, D) for the context's last latent, from the steps before it (zeros when there are
    none)."""
    batch, steps, _ = context_latent.shape
    if context_action.shape[1] != steps - 1:
        raise ValueError(
            f"a context of {steps} latents needs {steps - 1} actions between them, "
            f"got {context_action.shape[1]}"
        )
    cache = dynamics.init_cache(batch, max(steps - 1 + horizon, 1))
    if steps == 1:
        return torch.zeros(batch, dynamics.width, device=context_latent.device), cache
    hidden, cache = dynamics.prefill(context_latent[:, :-1], context_action, cache, dropout)
    return hidden[:, -1].float(), cache


@torch.no_grad()
def dream(
    dynamics: Dynamics,
    policy: Policy,
    context_latent: Tensor,
    context_action: Tensor,
    horizon: int,
    temperature: float = 1.0,
    dropout: bool = False,
) -> Dream:
    """Imagine `horizon` steps from context_latent (B, T0, K), whose last entry is the posterior of the
    present frame, and context_action (B, T0-1, A) in [-1, 1]. dropout: keep it on while imagining (D9)."""
    hidden, cache = recall(dynamics, context_latent, context_action, horizon, dropout)
    latent, before = context_latent[:, -1], context_latent.shape[1] - 1
    latents, hiddens, actions = [latent], [hidden], []
    for t in range(horizon):
        hot = dynamics.spec.hot(latent)
        action = policy(hot, hidden).sample()
        hidden, cache = dynamics.step(hot, action.tanh(), cache, before + t, dropout)
        hidden = hidden.float()
        latent = draw(dynamics.logits(hidden, latent), temperature)
        latents.append(latent)
        hiddens.append(hidden)
        actions.append(action)
    return Dream(torch.stack(latents, 1), torch.stack(hiddens, 1), torch.stack(actions, 1))


@torch.no_grad()
def replay_dream(
    dynamics: Dynamics,
    context_latent: Tensor,
    context_action: Tensor,
    future_action: Tensor,
    temperature: float = 1.0,
) -> Tensor:
    """Imagine what given actions (B, H, A) in [-1, 1] would do -> latents (B, H+1, K), the present first
    (gate 4)."""
    horizon = future_action.shape[1]
    _, cache = recall(dynamics, context_latent, context_action, horizon)
    latents, before = [context_latent[:, -1]], context_latent.shape[1] - 1
    for t in range(horizon):
        hidden, cache = dynamics.step(latents[-1], future_action[:, t], cache, before + t)
        latents.append(draw(dynamics.logits(hidden, latents[-1]), temperature))
    return torch.stack(latents, 1)
