"""E4: the policy a ~ π(a | s, h), a normal squashed by tanh, and the value v = V(s, h), symlog two-hot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirrormark.mind.numerics import TwoHot, WideLinear, full_precision
from mirrormark.mind.reading import Reading

LAYERS = 3
"""Linear layers of policy, value (paper, Table II) and outlook (ours)."""
MIN_STD, MAX_STD = 0.1, 1.0
"""Smallest and largest standard deviation of an action before tanh (not given)."""


@dataclass(frozen=True)
class PolicyConfig:
    """The policy network. Defaults: preset paper."""

    hidden: int = 128
    """Hidden units (paper, Table II)."""
    bounded_mean: bool = True
    """tanh on the mean before the tanh normal, so the mode stays within ±.76 (public code, D20; swift:
    off)."""
    persistence: float = 0.0
    """Of an acting body's noise, how much lasts until the next control step (ours; swift: .95). 0: every step
    has its own, which hardly moves an arm; so have dreams."""
    final_persistence: float | None = None
    """What it comes to by the end of the life, slowly at first; a finished mind acts with that (ours; None:
    it stays; swift: 0)."""
    persistence_power: float = 2.0
    """How slowly at first: 1 in equal steps, 2 by the square of what is lived, and so on (ours; swift: 6)."""
    recalls: bool = False
    """Policy and value also see what the sequence model recalls of the cells (ours; swift: on): a mark behind
    the arm that reaches for it is still where it was. Needs dynamics.recalls."""
    acts_on: Literal["posterior", "prior"] = "posterior"
    """Act on the latent of the present frame, or on a prediction of it, blind to it (public code; D10)."""

    def __post_init__(self) -> None:
        for name in ("persistence", "final_persistence"):
            if not 0 <= (getattr(self, name) or 0) < 1:
                given = getattr(self, name)
                raise ValueError(f"policy.{name} is {given}: give a number from 0 to below 1.")
        if self.persistence_power <= 0:
            raise ValueError(f"policy.persistence_power is {self.persistence_power}: give a number above 0.")

    def persistence_at(self, progress: float) -> float:
        """How much of the noise lasts when so much of the life is lived, from 0 to 1. In equal steps, heads
        are given up before they are reached (notebook: noise that lasts less and less)."""
        final = self.persistence if self.final_persistence is None else self.final_persistence
        return self.persistence + (final - self.persistence) * progress**self.persistence_power


@dataclass(frozen=True)
class ValueConfig:
    """The value network. Defaults: preset paper."""

    hidden: int = 256
    """Hidden units (paper, Table II)."""
    bins: int = 255
    """Classes of the symlog two-hot (paper, Table II)."""
    linear: bool = False
    """Bins are even in nats, not in symlog (ours; swift: on): centred returns have both signs, and symlog
    bins are biased there."""
    reach: float = 20.0
    """Bins span ± this, in symlog space (not given; DreamerV3) or, linear, in nats."""

    def __post_init__(self) -> None:
        if self.bins < 2 or self.reach <= 0:
            raise ValueError("value.bins must be at least 2, value.reach above 0.")


_FULL = 1 - 2**-11
"""The largest action below 1 in half precision, in which memory keeps them."""
_BEYOND = math.atanh(1 - 1.5 * 2**-11)
"""Raw samples above this become it, or 1."""


class TanhNormal(NamedTuple):
    """A diagonal normal; the action is tanh of its sample. Methods take the sample *before* tanh, save
    `log_prob_of`."""

    mean: Tensor  # (..., A)
    std: Tensor

    def sample(self) -> Tensor:
        return self.mean + self.std * torch.randn_like(self.mean)

    def log_prob(self, raw: Tensor) -> Tensor:
        """Log-density of the action tanh(raw): (..., A) -> (...)."""
        return self._log_densities(raw).sum(-1)

    def _log_densities(self, raw: Tensor) -> Tensor:
        normal = -0.5 * ((raw - self.mean) / self.std).square() - self.std.log() - 0.5 * math.log(2 * math.pi)
        return normal - _log_slope(raw)

    def log_prob_of(self, action: Tensor) -> Tensor:
        """The same of an action in [-1, 1]. At its very ends, tanh tells no more how far beyond the sample
        was: there it is the probability of all that lies beyond."""
        action = action.float()
        raw, end = action.clamp(-_FULL, _FULL).atanh(), action.abs() >= _FULL
        beyond = torch.special.log_ndtr((self.mean * action.sign() - _BEYOND) / self.std)
        return torch.where(end, beyond, self._log_densities(raw)).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy of the action: exact for the normal, one reparametrised sample for the tanh."""
        normal = 0.5 * math.log(2 * math.pi * math.e) + self.std.log()
        return (normal + _log_slope(self.sample())).sum(-1)


def _log_slope(raw: Tensor) -> Tensor:
    """log of tanh's derivative, log(1 - tanh²), without cancellation."""
    return 2 * (math.log(2) - raw - F.softplus(-2 * raw))


def mlp(inputs: int, hidden: int) -> nn.Sequential:
    """LAYERS - 1 hidden layers, each linear, layer norm, ReLU; the caller adds the last one."""
    parts: list[nn.Module] = []
    for layer in range(LAYERS - 1):
        linear = nn.Linear(hidden, hidden) if layer else WideLinear(inputs, hidden)
        parts += [linear, nn.LayerNorm(hidden), nn.ReLU()]
    return nn.Sequential(*parts)


class Policy(nn.Module):
    """(latent, hidden) -> TanhNormal over actions."""

    def __init__(self, reading: Reading, hidden_size: int, actions: int, config: PolicyConfig):
        super().__init__()
        self.reading, self.config, self.hidden_size = reading, config, hidden_size
        self.body = mlp(reading.size + hidden_size, config.hidden)
        self.head = nn.Linear(config.hidden, 2 * actions)

    def forward(self, latent: Tensor, hidden: Tensor) -> TanhNormal:
        """latent (..., K), or its reading, hidden (..., D)."""
        x = self.body(self.reading.beside(latent, hidden[..., : self.hidden_size]))
        with full_precision(x):
            mean, spread = self.head(x.float()).chunk(2, -1)
        if self.config.bounded_mean:
            mean = mean.tanh()
        # +2: exploration starts near the widest
        return TanhNormal(mean, MIN_STD + (MAX_STD - MIN_STD) * torch.sigmoid(spread + 2))


class Foreteller(nn.Module):
    """(latent, hidden) -> a number of nats, as a two-hot."""

    def __init__(self, reading: Reading, hidden_size: int, hidden: int, two_hot: TwoHot):
        super().__init__()
        self.reading, self.hidden_size, self.two_hot = reading, hidden_size, two_hot
        self.body = mlp(reading.size + hidden_size, hidden)
        self.head = WideLinear(hidden, two_hot.bins)

    def logits(self, latent: Tensor, hidden: Tensor) -> Tensor:
        """(..., bins), fp32."""
        x = self.body(self.reading.beside(latent, hidden[..., : self.hidden_size]))
        with full_precision(x):
            return self.head(x.float())

    def forward(self, latent: Tensor, hidden: Tensor) -> Tensor:
        """The number itself, (...)."""
        return self.two_hot.decode(self.logits(latent, hidden))


class Value(Foreteller):
    """The expected sum of discounted free energy, as a symlog two-hot; starts at zero."""

    def __init__(self, reading: Reading, hidden_size: int, config: ValueConfig):
        two_hot = TwoHot(config.bins, -config.reach, config.reach, config.linear)
        super().__init__(reading, hidden_size, config.hidden, two_hot)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
