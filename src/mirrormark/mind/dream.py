"""Imagined rollouts: from a real context, under the policy or under given actions. No gradient flows through
a dream (the policy learns by log-probabilities of the dreamed actions, E11)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

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
    dropout: bool,
) -> tuple[Tensor, Moment, Tensor]:
    """One dreamed step at `position` (1,): the action (B, A) before tanh, what it leads to, and the next
    position."""
    read = dynamics.reading(now.latent)
    action = policy(read, now.hidden).sample()
    hidden, _ = dynamics.step(read, action.tanh(), cache, position, dropout)
    hidden = hidden.float()
    latent = dynamics.draw(hidden, now.latent)
    return action, Moment(latent, hidden), position + 1


@torch.no_grad()
def dream(
    dynamics: Dynamics,
    policy: Policy,
    context_latent: Tensor,
    context_action: Tensor,
    horizon: int,
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
        action, now, position = step(dynamics, policy, now, cache, position, dropout)
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
) -> Tensor:
    """Imagine what given actions (B, H, A) in [-1, 1] would do -> latents (B, H+1, K), the present first
    (gate 4)."""
    horizon = future_action.shape[1]
    _, cache = recall(dynamics, context_latent, context_action, horizon)
    latents, before = [context_latent[:, -1]], context_latent.shape[1] - 1
    for t in range(horizon):
        hidden, cache = dynamics.step(latents[-1], future_action[:, t], cache, before + t)
        latents.append(dynamics.draw(hidden, latents[-1]))
    return torch.stack(latents, 1)


class Twin(Generic[Part]):
    """A copy of a part as a dream reads it: linear layers in `dtype` and even sizes, but in full precision
    where the original computes so (`exact`). It shares no weight: the original may learn meanwhile."""

    def __init__(self, part: Part, dtype: torch.dtype, exact: tuple[str, ...]) -> None:
        look = getattr(part, "look", None)  # the codec behind a look is no part of it
        self.part = copy.deepcopy(part, {id(look): look}).requires_grad_(False)
        for name, layer in self.part.named_modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                _make_room(layer, torch.float32 if name.split(".")[-1] in exact else dtype)
        self._copies: dict[tuple, tuple[list[Tensor], list[Tensor]]] = {}
        for own, whole in zip(self.part.parameters(), part.parameters()):
            own = own[tuple(slice(side) for side in whole.shape)]
            alike = own.dtype, own.stride() == whole.stride()  # of one kind, they are copied by one kernel
            for tensors, tensor in zip(self._copies.setdefault(alike, ([], [])), (own, whole)):
                tensors.append(tensor)

    @torch.no_grad()
    def follow(self) -> None:
        """Take over the weights of now."""
        for own, whole in self._copies.values():
            torch._foreach_copy_(own, whole)


def _make_room(layer: nn.Linear | nn.Conv2d, dtype: torch.dtype) -> None:
    """Weights of zeros in `dtype`, a WideLinear's in even sizes."""
    shape: Sequence[int] = layer.weight.shape
    if isinstance(layer, WideLinear):
        shape = [side + spare(side, layer.weight) for side in shape]
    place = {"dtype": dtype, "device": layer.weight.device}
    layer.weight = nn.Parameter(torch.zeros(shape, **place), requires_grad=False)
    layer.bias = nn.Parameter(torch.zeros(shape[0], **place), requires_grad=False)


class Dreamer:
    """Dreams of one dynamics and policy, again and again: a compiled prefill, one compiled step for the whole
    horizon, and weights that are cast and padded once, not once a step."""

    def __init__(self, dynamics: Dynamics, policy: Policy, dtype: torch.dtype):
        self._dynamics = Twin(dynamics, dtype, ("scores", "keep", "drift"))
        self._policy = Twin(policy, dtype, ("head",))
        self._recall = torch.compile(recall, dynamic=False)
        self._imagine = torch.compile(imagine, dynamic=False)

    def follow(self) -> None:
        """Dream by the dynamics of now, until the next call: meanwhile the dynamics itself may change."""
        self._dynamics.follow()

    def __call__(self, context_latent: Tensor, context_action: Tensor, horizon: int, dropout: bool) -> Dream:
        """`dream`, with the policy of now."""
        self._policy.follow()
        parts, context = (self._dynamics.part, self._policy.part), (context_latent, context_action)
        return dream(*parts, *context, horizon, dropout, self._recall, self._imagine)
