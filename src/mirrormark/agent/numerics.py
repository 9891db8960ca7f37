"""Small exact mathematics. No host synchronisation anywhere: all of it can be captured in a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def full_precision(like: Tensor) -> torch.autocast:
    """Switch autocast off: logits, KL, log-probabilities and returns stay in fp32."""
    return torch.autocast(like.device.type, enabled=False)


@contextmanager
def matmul_precision(tf32: bool) -> Iterator[None]:
    """Let matrix products and convolutions of fp32 run as TF32 on a GPU (rounded to 10 bits on the way in,
    summed in fp32), or not."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


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
        """Of the prediction against the two-hot of `target` (...)."""
        return -(self.encode(target) * logits.float().log_softmax(-1)).sum(-1)


class ReturnRange(nn.Module):
    """S of E11: the range between two percentiles of the returns, both smoothed over steps. A percentile is a
    member of the batch, the ⌊q·n⌋-th smallest (P6)."""

    def __init__(self, from_zero: bool, low: float = 0.05, high: float = 0.95, decay: float = 0.99):
        """from_zero: the averages start at 0, so that S is too small for the first hundreds of steps (public
        code, P4); else at the first batch."""
        super().__init__()
        self.low, self.high, self.decay = low, high, decay
        self.register_buffer("ends", torch.zeros(2))
        self.register_buffer("started", torch.tensor(float(from_zero)))
        self.ends: Tensor
        self.started: Tensor

    @torch.no_grad()
    def update(self, returns: Tensor) -> Tensor:
        """Take in a batch of returns; gives the smoothed range, (). A batch that is not finite is left
        out."""
        ordered = returns.float().flatten().sort().values
        n = ordered.numel()
        now = torch.stack([ordered[max(int(q * n), 1) - 1] for q in (self.low, self.high)])
        new, finite = torch.lerp(self.ends, now, 1 - self.decay * self.started), now.isfinite().all()
        self.ends.copy_(torch.where(finite, new, self.ends))
        self.started.copy_(torch.maximum(self.started, finite.float()))
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

    @staticmethod
    def norm(parameters: Iterable[nn.Parameter]) -> tuple[list[Tensor], Tensor]:
        """The gradients, and the norm of all of them together."""
        grads = [p.grad for p in parameters if p.grad is not None]
        if not grads:
            raise ValueError("ZClip found no gradients: call backward() before it.")
        return grads, torch.stack(torch._foreach_norm(grads)).norm()

    @torch.no_grad()
    def factor(self, norm: Tensor, trusted: Tensor) -> Tensor:
        """What gradients of this norm are to be multiplied with. Only a trusted norm (a bool) is taken into
        the averages."""
        warming, deviation = self.count < self.warmup_steps, self.variance.sqrt()
        score = (norm - self.mean) / (deviation + 1e-6)
        tamed = self.mean + self.z**2 / score.clamp_min(1e-6) * deviation
        kept = torch.where(warming | (score <= self.z), norm, tamed)
        self._observe(kept, warming, trusted)
        limit = kept.clamp_max(self.cap)
        return torch.where(norm > limit, limit / (norm + 1e-6), 1.0)  # O3

    def _observe(self, norm: Tensor, warming: Tensor, trusted: Tensor) -> None:
        """Mean and variance of the first norms; then exponential averages, the variance around the mean
        before (O2)."""
        weight = torch.where(warming, 1 / (self.count + 1), 1 - self.alpha)
        gap = norm - self.mean
        # While warming, exact: the new value's share of the old spread and of its gap.
        spread = torch.where(warming, (1 - weight) * gap.square(), gap.square())
        new = (self.count + 1, self.mean + weight * gap, (1 - weight) * self.variance + weight * spread)
        for buffer, value in zip((self.count, self.mean, self.variance), new):
            buffer.copy_(torch.where(trusted, value, buffer))


@torch.no_grad()
def ema_update(ema: nn.Module, online: nn.Module, decay: float) -> None:
    """ema <- decay × ema + (1 - decay) × online, all parameters in one call."""
    torch._foreach_lerp_(list(ema.parameters()), list(online.parameters()), 1 - decay)
