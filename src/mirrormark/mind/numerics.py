"""Small exact mathematics of the train step. No host synchronisation anywhere: all of it is
graph-capturable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def full_precision(like: Tensor) -> torch.autocast:
    """Switch autocast off: logits, KL, log-probabilities and returns stay in fp32."""
    return torch.autocast(like.device.type, enabled=False)


def working_dtype(like: Tensor) -> torch.dtype:
    """What a linear layer computes in on that device, here and now: autocast's type, or fp32."""
    kind = like.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let matrix products of fp32 run as TF32 on a GPU: rounded to 10 bits on the way in, summed in fp32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def spare(features: int, like: Tensor) -> int:
    """How many zeros make a row on a GPU a multiple of 16 bytes: tensor cores take it whole."""
    return -features % 8 if like.is_cuda else 0


class WideLinear(nn.Linear):
    """A linear layer of any size at the speed of even ones: its rows may end in spare zeros, and so do its
    own weights while it computes."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        more = input.shape[-1] - weight.shape[1], spare(weight.shape[0], input)
        if more[0] > 7:  # no spare zeros: something that the layer would never see
            raise ValueError(f"a row of {input.shape[-1]} numbers for a layer of {weight.shape[1]}")
        if any(more):
            weight, bias = F.pad(weight, (0, more[0], 0, more[1])), F.pad(bias, (0, more[1]))
        return F.linear(input, weight, bias)[..., : self.out_features]


def symlog(x: Tensor) -> Tensor:
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """A number as weights on the two nearest of evenly spaced bins, evenly in symlog space (the paper's) or
    in the number's own. Only the latter gives the mean of what it has seen: symexp of a mean symlog pulls
    values of both signs towards 0."""

    def __init__(self, bins: int = 255, low: float = -20.0, high: float = 20.0, linear: bool = False):
        super().__init__()
        self.bins, self.low, self.high, self.linear = bins, low, high, linear
        self.register_buffer("centres", torch.linspace(low, high, bins), persistent=False)
        self.centres: Tensor

    def encode(self, x: Tensor) -> Tensor:
        """(...) -> (..., bins); values beyond the ends go to the end bin."""
        x = x.float() if self.linear else symlog(x.float())
        place = (x.clamp(self.low, self.high) - self.low) * (self.bins - 1) / (self.high - self.low)
        return (1 - (place.unsqueeze(-1) - torch.arange(self.bins, device=x.device)).abs()).clamp_min(0)

    def decode(self, logits: Tensor) -> Tensor:
        """(..., bins) logits -> (...): the expected bin (its symexp)."""
        mean = (logits.float().softmax(-1) * self.centres).sum(-1)
        return mean if self.linear else symexp(mean)

    def cross_entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of the prediction against the two-hot of `target` (...)."""
        return -(self.encode(target) * logits.float().log_softmax(-1)).sum(-1)


def lambda_return(cost: Tensor, value: Tensor, discount: float, lambda_: Tensor) -> Tensor:
    """E11: R_t = c_t + γ((1−λ_t) V_{t+1} + λ_t R_{t+1}), R_H = V_H. cost (B, H) of s_{t+1} (D2), value (B,
    H+1), λ of any shape that goes with (B, H) -> (B, H)."""
    returns, ahead, trust = [], value[:, -1], lambda_.expand_as(cost)
    for t in reversed(range(cost.shape[1])):
        ahead = cost[:, t] + discount * ((1 - trust[:, t]) * value[:, t + 1] + trust[:, t] * ahead)
        returns.append(ahead)
    return torch.stack(returns[::-1], 1)


def quantile(x: Tensor, q: float) -> Tensor:
    """Linear-interpolation quantile of all of x; torch.quantile without its size limit and host checks."""
    ordered = x.flatten().sort().values
    place = q * (ordered.numel() - 1)
    below = math.floor(place)
    above = min(below + 1, ordered.numel() - 1)
    return torch.lerp(ordered[below], ordered[above], place - below)


RANGE_LOW, RANGE_HIGH = 0.05, 0.95
"""Percentiles between which the return range S lies (paper, Table III)."""
RANGE_DECAY = 0.99
"""Decay of the smoothed S (not given; DreamerV3)."""


class PercentileRange(nn.Module):
    """S of E11: the range between two percentiles of the returns, smoothed over steps."""

    def __init__(self, low: float = RANGE_LOW, high: float = RANGE_HIGH, decay: float = RANGE_DECAY):
        super().__init__()
        self.low, self.high, self.decay = low, high, decay
        self.register_buffer("ends", torch.zeros(2))
        self.register_buffer("started", torch.zeros(()))
        self.ends: Tensor
        self.started: Tensor

    @torch.no_grad()
    def update(self, x: Tensor) -> Tensor:
        """Take in a batch of returns; gives the smoothed range. The first batch is taken whole."""
        now = torch.stack((quantile(x.float(), self.low), quantile(x.float(), self.high)))
        self.ends.lerp_(now, 1 - self.decay * self.started)
        self.started.fill_(1.0)
        return self.ends[1] - self.ends[0]


class ZClip(nn.Module):
    """Gradient clipping by z-score of the gradient norm (Kumar et al. 2025), plus a cap on the norm (D8)."""

    def __init__(self, alpha: float = 0.97, z: float = 2.5, warmup_steps: int = 25, cap: float = 1.0):
        super().__init__()
        self.alpha, self.z, self.warmup_steps, self.cap = alpha, z, warmup_steps, cap
        for name in ("count", "mean", "variance"):
            self.register_buffer(name, torch.zeros(()))
        self.count: Tensor
        self.mean: Tensor
        self.variance: Tensor

    @torch.no_grad()
    def clip(self, parameters: Iterable[nn.Parameter]) -> Tensor:
        """Scale the gradients in place; gives their norm before clipping."""
        grads, norm = self.norm(parameters)
        torch._foreach_mul_(grads, self.factor(norm, norm.isfinite()))
        return norm

    @staticmethod
    def norm(parameters: Iterable[nn.Parameter]) -> tuple[list[Tensor], Tensor]:
        """The gradients, and the norm of all of them together."""
        grads = [p.grad for p in parameters if p.grad is not None]
        if not grads:
            raise ValueError("ZClip found no gradients; call backward() before clip()")
        return grads, torch.stack(torch._foreach_norm(grads)).norm()

    @torch.no_grad()
    def factor(self, norm: Tensor, trusted: Tensor) -> Tensor:
        """What gradients of this norm are to be multiplied with. Only a trusted norm (a bool) is taken into
        the averages."""
        warming = self.count < self.warmup_steps
        spread = self.variance.sqrt() + 1e-6
        score = (norm - self.mean) / spread
        tamed = self.mean + self.z**2 / score.clamp_min(1e-6) * spread
        kept = torch.where(warming | (score <= self.z), norm, tamed)
        self._observe(kept, warming, trusted)
        return kept.clamp_max(self.cap) / (norm + 1e-6)

    def _observe(self, norm: Tensor, warming: Tensor, trusted: Tensor) -> None:
        """Warm-up: running mean and variance; afterwards exponential averages."""
        count = self.count + 1
        weight = torch.where(warming, 1 / count, torch.full_like(count, 1 - self.alpha))
        gap = norm - self.mean
        mean = self.mean + weight * gap
        population = (1 - weight) * (self.variance + weight * gap.square())  # exact while warming
        smoothed = self.alpha * self.variance + (1 - self.alpha) * (norm - mean).square()
        variance = torch.where(warming, population, smoothed)
        for buffer, new in ((self.count, count), (self.mean, mean), (self.variance, variance)):
            buffer.copy_(torch.where(trusted, new, buffer))


@torch.no_grad()
def ema_update(slow: nn.Module, fast: nn.Module, decay: float) -> None:
    """slow <- decay x slow + (1 - decay) x fast, all parameters in one call."""
    torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), 1 - decay)
