"""Imagined rollouts: from a real context, under the policy or under given actions. No gradient flows through
a dream (the policy learns by log-probabilities of the dreamed actions, E11)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from mirrormark.mind.dynamics import Dynamics
from mirrormark.mind.numerics import WideLinear, spare
from mirrormark.mind.policy import Policy
from mirrormark.mind.transformer import Cache

Part = TypeVar("Part", bound=nn.Module)


class Moment(NamedTuple):
    """Where a dream stands."""

    latent: Tensor  # (B, K)
    hidden: Tensor  # (B, D)


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
    return hidden[:, -1].float().contiguous(), cache


def imagine(
    dynamics: Dynamics,
    policy: Policy,
    now: Moment,
    cache: Cache,
    position: Tensor,
    temperature: float,
    dropout: bool,
) -> tuple[Tensor, Moment, Tensor]:
    """One dreamed step at `position` (1,): the action (B, A) before tanh, what it leads to, and the next
    position."""
    read = dynamics.reading(now.latent)
    action = policy(read, now.hidden).sample()
    hidden, _ = dynamics.step(read, action.tanh(), cache, position, dropout)
    hidden = hidden.float()
    latent = dynamics.draw(hidden, now.latent, temperature)
    return action, Moment(latent, hidden), position + 1


@torch.no_grad()
def dream(
    dynamics: Dynamics,
    policy: Policy,
    context_latent: Tensor,
    context_action: Tensor,
    horizon: int,
    temperature: float = 1.0,
    dropout: bool = False,
    begin: Callable = recall,
    step: Callable = imagine,
) -> Dream:
    """Imagine `horizon` steps from context_latent (B, T0, K), whose last entry is the posterior of the
    present frame, and context_action (B, T0-1, A) in [-1, 1]. dropout: keep it on while imagining (D9).
    begin, step: `recall` and `imagine`, or these compiled."""
    hidden, cache = begin(dynamics, context_latent, context_action, horizon, dropout)
    now = Moment(context_latent[:, -1].contiguous(), hidden)  # laid out as later ones: compiled once
    position = torch.full((1,), context_latent.shape[1] - 1, device=hidden.device)
    moments, actions = [now], []
    for _ in range(horizon):
        action, now, position = step(dynamics, policy, now, cache, position, temperature, dropout)
        moments.append(now)
        actions.append(action)
    latents, hiddens = zip(*moments)
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
        latents.append(dynamics.draw(hidden, latents[-1], temperature))
    return torch.stack(latents, 1)


def _even(layer: nn.Linear, dtype: torch.dtype) -> nn.Linear:
    """The layer with room for its weights in `dtype`, and for a WideLinear's in even sizes; itself, where
    that is what it has."""
    shape = layer.weight.shape
    if isinstance(layer, WideLinear):
        shape = tuple(side + spare(side, layer.weight) for side in shape)
    if shape == layer.weight.shape and dtype == layer.weight.dtype:
        return layer
    own, place = copy.copy(layer), {"dtype": dtype, "device": layer.weight.device}
    own._parameters = {
        "weight": nn.Parameter(torch.zeros(shape, **place), requires_grad=False),
        "bias": nn.Parameter(torch.zeros(shape[0], **place), requires_grad=False),
    }
    return own


class Dreamer:
    """Dreams of one dynamics and policy, again and again: a compiled prefill, one compiled step for the whole
    horizon, and weights that are cast and padded once a dream, not once a step."""

    def __init__(self, dynamics: Dynamics, policy: Policy, dtype: torch.dtype):
        self._own: list[Tensor] = []
        self._whole: list[Tensor] = []
        self._dynamics = self._twin(dynamics, dtype, ("scores", "keep", "drift"))
        self._policy = self._twin(policy, dtype, ("head",))
        self._recall = torch.compile(recall, dynamic=False)
        self._imagine = torch.compile(imagine, dynamic=False)

    def _twin(self, part: Part, dtype: torch.dtype, exact: tuple[str, ...]) -> Part:
        """A copy that shares all weights but those of its linear layers, which are in `dtype`, or in full
        precision where the original computes so (`exact`)."""
        shared = [
            *part.parameters(),
            getattr(part, "look", None),
        ]  # the codec behind a look is no copy either
        twin = copy.deepcopy(part, {id(thing): thing for thing in shared})
        for name, layer in part.named_modules():
            if not isinstance(layer, nn.Linear):
                continue
            own = _even(layer, torch.float32 if name.split(".")[-1] in exact else dtype)
            if own is not layer:
                twin.set_submodule(name, own)
                self._own += [own.weight[: layer.out_features, : layer.in_features]]
                self._own += [own.bias[: layer.out_features]]
                self._whole += [layer.weight, layer.bias]
        return twin

    @torch.no_grad()
    def __call__(
        self, context_latent: Tensor, context_action: Tensor, horizon: int, temperature: float, dropout: bool
    ) -> Dream:
        """`dream`, with the weights as they are now."""
        if self._own:
            torch._foreach_copy_(self._own, self._whole)
        context = context_latent, context_action
        settings = horizon, temperature, dropout
        return dream(self._dynamics, self._policy, *context, *settings, self._recall, self._imagine)
