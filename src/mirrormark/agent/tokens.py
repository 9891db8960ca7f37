"""A frame's tokens: K tokens, token k one of C_k classes. Every other part takes its sizes from a TokenSpec.

tokens (..., K) int64; log-probabilities (..., K, C), C the largest number of classes, shorter rows padded
with FLOOR (finite, so that 0 × FLOOR is 0 and no KL turns into NaN); one-hot vectors (..., ΣC_k). Nothing
here waits for the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

FLOOR = -1e9


class TokenGroup(NamedTuple):
    """Neighbouring tokens with equally many classes."""

    start: int  # its first place in the one-hot vector
    count: int
    classes: int

    def of(self, flat: Tensor) -> Tensor:
        """Its part of a flat row: (..., ΣC_k) -> (..., count, classes)."""
        part = flat[..., self.start : self.start + self.count * self.classes]
        return part.unflatten(-1, (self.count, self.classes))


@dataclass(frozen=True)
class TokenSpec:
    """How many tokens a frame has, and how many classes each."""

    classes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.classes or min(self.classes) < 1:
            raise ValueError(f"TokenSpec.classes must be one or more positive numbers, got {self.classes}")
        _ = self.total, self.widest, self.groups  # now: torch.compile cannot look into a cached property

    @property
    def K(self) -> int:
        """Number of tokens."""
        return len(self.classes)

    @cached_property
    def total(self) -> int:
        """Length of a one-hot vector."""
        return sum(self.classes)

    @cached_property
    def widest(self) -> int:
        """Largest number of classes."""
        return max(self.classes)

    @cached_property
    def groups(self) -> tuple[TokenGroup, ...]:
        groups: list[TokenGroup] = []
        for start, classes in zip(self._starts(), self.classes):
            if groups and groups[-1].classes == classes:
                groups[-1] = groups[-1]._replace(count=groups[-1].count + 1)
            else:
                groups.append(TokenGroup(start, 1, classes))
        return tuple(groups)

    def _starts(self) -> list[int]:
        return [sum(self.classes[:k]) for k in range(self.K)]

    def check(self, tokens: Tensor) -> None:
        """Shape and dtype only: values are not looked at (that would wait for the GPU)."""
        if tokens.shape[-1:] != (self.K,) or tokens.is_floating_point():
            raise ValueError(
                f"tokens are class indices (..., {self.K}), got {tokens.dtype} {tuple(tokens.shape)}"
            )

    def one_hot(self, tokens: Tensor) -> Tensor:
        """Tokens (..., K), or one-hot vectors already -> (..., ΣC_k)."""
        if tokens.is_floating_point():
            if tokens.shape[-1] != self.total:
                raise ValueError(f"a one-hot vector has {self.total} entries, got {tuple(tokens.shape)}")
            return tokens
        self.check(tokens)
        starts = [g.start + g.classes * torch.arange(g.count, device=tokens.device) for g in self.groups]
        hot = torch.zeros((*tokens.shape[:-1], self.total), device=tokens.device)
        return hot.scatter_(-1, tokens + torch.cat(starts), 1.0)

    def rows(self, flat: Tensor, fill: float = FLOOR) -> Tensor:
        """(..., ΣC_k) -> (..., K, C), short rows filled up."""
        parts = [F.pad(g.of(flat), (0, self.widest - g.classes), value=fill) for g in self.groups]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -2)

    def log_probs(self, logits: Tensor, unimix: float = 0.0) -> Tensor:
        """Logits (..., ΣC_k) -> log-probabilities (..., K, C); a share `unimix` is spread evenly. fp32."""
        parts = []
        for group in self.groups:
            part = group.of(logits).float()
            if unimix > 0:
                part = ((1 - unimix) * part.softmax(-1) + unimix / group.classes).log()
            else:
                part = part.log_softmax(-1)
            parts.append(F.pad(part, (0, self.widest - group.classes), value=FLOOR))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -2)

    def sample(self, logits: Tensor, unimix: float = 0.0) -> Tensor:
        """Draw tokens (..., K) from what `log_probs` would give. Of a mixture the part is chosen first, so
        that nothing needs to be normalised."""
        parts = []
        for group in self.groups:
            part = sample(group.of(logits).float())
            if unimix > 0:
                even = torch.randint(group.classes, part.shape, device=part.device)
                part = torch.where(torch.rand(part.shape, device=part.device) < unimix, even, part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def straight_through(self, tokens: Tensor, log_probs: Tensor) -> Tensor:
        """The one-hot vector of tokens with the gradient of their probabilities: (..., ΣC_k)."""
        probs = log_probs.exp()
        parts = []
        token = 0
        for group in self.groups:
            part = probs[..., token : token + group.count, : group.classes]
            parts.append(part.flatten(-2))
            token += group.count
        soft = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return self.one_hot(tokens) + (soft - soft.detach())


def sample(log_probs: Tensor) -> Tensor:
    """Tokens (..., K) of (unnormalised) log-probabilities (..., K, C), by the Gumbel-max trick."""
    noise = torch.rand_like(log_probs).clamp_min_(1e-30).log_().neg_().log_()
    return (log_probs - noise).argmax(-1)


def gather_log_prob(log_probs: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability of each token: (..., K, C), (..., K) -> (..., K)."""
    return log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL[p || q], summed over tokens: (..., K, C) -> (...)."""
    return (p.exp() * (p - q)).sum((-2, -1))
