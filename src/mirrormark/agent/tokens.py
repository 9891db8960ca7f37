"""The tokens: K tokens, token k one of C_k classes. Every other part takes its sizes from a TokenSpec.

Token k's distribution is a row of a *table* (..., K, widest) of normalised log-probabilities in fp32; tokens
with fewer classes than the widest are padded with FLOOR (finite, so that 0 x FLOOR is 0 and no KL turns into
NaN). Nothing here creates a tensor on the host: all of it can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mirrormark.agent.numerics import spare, working_dtype

FLOOR = -1e9


class TokenGroup(NamedTuple):
    """A stretch of neighbouring tokens of one kind."""

    token: int  # first token
    start: int  # its place in the flat one-hot
    count: int
    classes: int
    levels: tuple[int, ...]


@dataclass(frozen=True)
class TokenSpec:
    """How many tokens a frame's tokens has and how many classes each. levels, if given: for each token the
    numbers of levels of the ordered scales that its class counts through, the last one fastest; () where
    classes are mere names."""

    classes: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.classes or min(self.classes) < 1:
            raise ValueError(f"TokenSpec.classes must be one or more positive numbers, got {self.classes}")
        if self.levels and [math.prod(n) if n else c for n, c in zip(self.levels, self.classes)] != list(
            self.classes
        ):
            raise ValueError(f"TokenSpec.levels must multiply to {self.classes}, got {self.levels}")
        _ = self.total, self.widest, self.groups  # now: torch.compile cannot look into a cached property

    @property
    def K(self) -> int:
        """Number of tokens."""
        return len(self.classes)

    @cached_property
    def total(self) -> int:
        """Length of the flat one-hot."""
        return sum(self.classes)

    @cached_property
    def widest(self) -> int:
        return max(self.classes)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each token starts in the flat one-hot."""
        return tuple(sum(self.classes[:k]) for k in range(self.K))

    @cached_property
    def groups(self) -> tuple[TokenGroup, ...]:
        groups: list[TokenGroup] = []
        levels = self.levels or ((),) * self.K
        for token, (start, classes, scales) in enumerate(zip(self.offsets, self.classes, levels)):
            if groups and (groups[-1].classes, groups[-1].levels) == (classes, scales):
                groups[-1] = groups[-1]._replace(count=groups[-1].count + 1)
            else:
                groups.append(TokenGroup(token, start, 1, classes, scales))
        return tuple(groups)

    def part(self, tokens: slice) -> TokenSpec:
        """The tokens that these tokens alone would be."""
        return TokenSpec(self.classes[tokens], self.levels[tokens])

    def check(self, tokens: Tensor) -> None:
        """Shape and dtype only: values are not looked at (that would wait for the GPU)."""
        if tokens.shape[-1:] != (self.K,) or tokens.is_floating_point():
            raise ValueError(
                f"a frame's tokens is integer class indices (..., {self.K}), got {tokens.dtype} "
                f"{tuple(tokens.shape)}"
            )

    def one_hot(self, tokens: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(..., K) class indices -> (..., total)."""
        hot = torch.zeros((*tokens.shape[:-1], self.total), dtype=dtype, device=tokens.device)
        return self._mark(hot, tokens)

    def _mark(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Write the ones of a flat one-hot into rows of zeros, in place."""
        self.check(tokens)
        starts = [r.start + r.classes * torch.arange(r.count, device=tokens.device) for r in self.groups]
        return rows.scatter_(-1, tokens + torch.cat(starts), 1.0)

    def as_one_hot(self, tokens: Tensor) -> Tensor:
        """Class indices or an already flat (straight-through) one-hot, as a flat one-hot."""
        if not tokens.is_floating_point():
            return self.one_hot(tokens)
        if tokens.shape[-1] != self.total:
            raise ValueError(f"a flat one-hot has {self.total} entries, got shape {tuple(tokens.shape)}")
        return tokens

    def hot(self, tokens: Tensor) -> Tensor:
        """(..., K) class indices -> flat one-hot in the precision in which linear layers will read it: so
        long a row is better made short than cast later. Make it once where several layers read it."""
        return self.one_hot(tokens, working_dtype(tokens))

    def concat(self, tokens: Tensor, other: Tensor, size: int | None = None) -> Tensor:
        """Class indices or flat one-hots (or rows of another `size`), and `other` (..., D), in one row for a
        WideLinear."""
        size = self.total if size is None else size
        if torch.is_autocast_enabled(other.device.type):  # else the short rows would make the long ones wide
            other = other.to(working_dtype(other))
        zeros = spare(size + other.shape[-1], other)
        if tokens.is_floating_point():
            if tokens.shape[-1] != size:
                raise ValueError(
                    f"a frame's tokens is read as {size} numbers, got shape {tuple(tokens.shape)}"
                )
            return F.pad(torch.cat((tokens.to(other.dtype), other), -1), (0, zeros))
        return self._mark(F.pad(other, (self.total, zeros)), tokens)

    def rows(self, flat: Tensor, fill: float = FLOOR) -> Tensor:
        """(..., total) -> (..., K, widest), short rows filled up."""
        parts = []
        for group in self.groups:
            part = flat[..., group.start : group.start + group.count * group.classes]
            part = part.unflatten(-1, (group.count, group.classes))
            parts.append(F.pad(part, (0, self.widest - group.classes), value=fill))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -2)

    def spread(self, per_token: Tensor) -> Tensor:
        """(..., K) -> (..., total): each token's number for all of its classes."""
        parts = []
        for group in self.groups:
            part = per_token[..., group.token : group.token + group.count, None]
            parts.append(part.expand(*part.shape[:-1], group.classes).flatten(-2))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def flat(self, rows: Tensor) -> Tensor:
        """(..., K, widest) -> (..., total): undoes `rows`."""
        parts = [rows[..., r.token : r.token + r.count, : r.classes].flatten(-2) for r in self.groups]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def log_probs(self, logits: Tensor, unimix: float = 0.0) -> Tensor:
        """Flat logits (..., total) -> table (..., K, widest); a share `unimix` is spread evenly."""
        parts = []
        for group in self.groups:
            part = logits[..., group.start : group.start + group.count * group.classes].float()
            part = part.unflatten(-1, (group.count, group.classes))
            if unimix > 0:
                part = ((1 - unimix) * part.softmax(-1) + unimix / group.classes).log()
            else:
                part = part.log_softmax(-1)
            parts.append(F.pad(part, (0, self.widest - group.classes), value=FLOOR))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -2)

    def sample(self, logits: Tensor, unimix: float = 0.0) -> Tensor:
        """Draw (..., K) from what `log_probs` would give. Of a mixture the part is chosen first, so that
        nothing needs to be normalised."""
        parts = []
        for group in self.groups:
            part = logits[..., group.start : group.start + group.count * group.classes].float()
            part = sample_tokens(part.unflatten(-1, (group.count, group.classes)))
            if unimix > 0:
                even = torch.randint(group.classes, part.shape, device=part.device)
                part = torch.where(torch.rand(part.shape, device=part.device) < unimix, even, part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def sample_tokens(log_probs: Tensor, temperature: float = 1.0) -> Tensor:
    """Sample (..., K) class indices from a table (Gumbel-max); temperature 0 takes the likeliest."""
    if temperature == 0:
        return log_probs.argmax(-1)
    noise = torch.rand_like(log_probs).clamp_min_(1e-30).log_().neg_().log_()
    sharpened = log_probs if temperature == 1 else log_probs / temperature
    return (sharpened - noise).argmax(-1)


def gather_log_prob(log_probs: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability of each token's class: table (..., K, widest), tokens (..., K) -> (..., K)."""
    return log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL[p || q] of two tables, summed over tokens: (..., K, widest) -> (...)."""
    return (p.exp() * (p - q)).sum((-2, -1))
