"""The latent: K tokens, token k one of C_k classes. Every other part takes its sizes from a LatentSpec.

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


class Run(NamedTuple):
    """A stretch of neighbouring tokens of one kind."""

    token: int  # first token
    start: int  # its place in the flat one-hot
    count: int
    classes: int
    levels: tuple[int, ...]


@dataclass(frozen=True)
class LatentSpec:
    """How many tokens a latent has and how many classes each. levels, if given: for each token the numbers of
    levels of the ordered scales that its class counts through, the last one fastest; () where classes are
    mere names."""

    classes: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.classes or min(self.classes) < 1:
            raise ValueError(f"LatentSpec.classes must be one or more positive numbers, got {self.classes}")
        if self.levels and [math.prod(n) if n else c for n, c in zip(self.levels, self.classes)] != list(
            self.classes
        ):
            raise ValueError(f"LatentSpec.levels must multiply to {self.classes}, got {self.levels}")
        _ = self.total, self.widest, self.runs  # now: torch.compile cannot look into a cached property

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
    def runs(self) -> tuple[Run, ...]:
        runs: list[Run] = []
        levels = self.levels or ((),) * self.K
        for token, (start, classes, scales) in enumerate(zip(self.offsets, self.classes, levels)):
            if runs and (runs[-1].classes, runs[-1].levels) == (classes, scales):
                runs[-1] = runs[-1]._replace(count=runs[-1].count + 1)
            else:
                runs.append(Run(token, start, 1, classes, scales))
        return tuple(runs)

    def part(self, tokens: slice) -> LatentSpec:
        """The latent that these tokens alone would be."""
        return LatentSpec(self.classes[tokens], self.levels[tokens])

    def check(self, latent: Tensor) -> None:
        """Shape and dtype only: values are not looked at (that would wait for the GPU)."""
        if latent.shape[-1:] != (self.K,) or latent.is_floating_point():
            raise ValueError(
                f"a latent is integer class indices (..., {self.K}), got {latent.dtype} {tuple(latent.shape)}"
            )

    def one_hot(self, latent: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(..., K) class indices -> (..., total)."""
        hot = torch.zeros((*latent.shape[:-1], self.total), dtype=dtype, device=latent.device)
        return self._mark(hot, latent)

    def _mark(self, rows: Tensor, latent: Tensor) -> Tensor:
        """Write the ones of a flat one-hot into rows of zeros, in place."""
        self.check(latent)
        starts = [r.start + r.classes * torch.arange(r.count, device=latent.device) for r in self.runs]
        return rows.scatter_(-1, latent + torch.cat(starts), 1.0)

    def as_one_hot(self, latent: Tensor) -> Tensor:
        """Class indices or an already flat (straight-through) one-hot, as a flat one-hot."""
        if not latent.is_floating_point():
            return self.one_hot(latent)
        if latent.shape[-1] != self.total:
            raise ValueError(f"a flat one-hot has {self.total} entries, got shape {tuple(latent.shape)}")
        return latent

    def hot(self, latent: Tensor) -> Tensor:
        """(..., K) class indices -> flat one-hot in the precision in which linear layers will read it: so
        long a row is better made short than cast later. Make it once where several layers read it."""
        return self.one_hot(latent, working_dtype(latent))

    def beside(self, latent: Tensor, other: Tensor, size: int | None = None) -> Tensor:
        """Class indices or flat one-hots (or rows of another `size`), and `other` (..., D), in one row for a
        WideLinear."""
        size = self.total if size is None else size
        if torch.is_autocast_enabled(other.device.type):  # else the short rows would make the long ones wide
            other = other.to(working_dtype(other))
        zeros = spare(size + other.shape[-1], other)
        if latent.is_floating_point():
            if latent.shape[-1] != size:
                raise ValueError(f"a latent is read as {size} numbers, got shape {tuple(latent.shape)}")
            return F.pad(torch.cat((latent.to(other.dtype), other), -1), (0, zeros))
        return self._mark(F.pad(other, (self.total, zeros)), latent)

    def rows(self, flat: Tensor, fill: float = FLOOR) -> Tensor:
        """(..., total) -> (..., K, widest), short rows filled up."""
        parts = []
        for run in self.runs:
            part = flat[..., run.start : run.start + run.count * run.classes]
            part = part.unflatten(-1, (run.count, run.classes))
            parts.append(F.pad(part, (0, self.widest - run.classes), value=fill))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -2)

    def spread(self, per_token: Tensor) -> Tensor:
        """(..., K) -> (..., total): each token's number for all of its classes."""
        parts = []
        for run in self.runs:
            part = per_token[..., run.token : run.token + run.count, None]
            parts.append(part.expand(*part.shape[:-1], run.classes).flatten(-2))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def flat(self, rows: Tensor) -> Tensor:
        """(..., K, widest) -> (..., total): undoes `rows`."""
        parts = [rows[..., r.token : r.token + r.count, : r.classes].flatten(-2) for r in self.runs]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def log_probs(self, logits: Tensor, unimix: float = 0.0) -> Tensor:
        """Flat logits (..., total) -> table (..., K, widest); a share `unimix` is spread evenly."""
        parts = []
        for run in self.runs:
            part = logits[..., run.start : run.start + run.count * run.classes].float()
            part = part.unflatten(-1, (run.count, run.classes))
            if unimix > 0:
                part = ((1 - unimix) * part.softmax(-1) + unimix / run.classes).log()
            else:
                part = part.log_softmax(-1)
            parts.append(F.pad(part, (0, self.widest - run.classes), value=FLOOR))
        return parts[0] if len(parts) == 1 else torch.cat(parts, -2)

    def sample(self, logits: Tensor, unimix: float = 0.0) -> Tensor:
        """Draw (..., K) from what `log_probs` would give. Of a mixture the part is chosen first, so that
        nothing needs to be normalised."""
        parts = []
        for run in self.runs:
            part = logits[..., run.start : run.start + run.count * run.classes].float()
            part = draw(part.unflatten(-1, (run.count, run.classes)))
            if unimix > 0:
                even = torch.randint(run.classes, part.shape, device=part.device)
                part = torch.where(torch.rand(part.shape, device=part.device) < unimix, even, part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def draw(log_probs: Tensor, temperature: float = 1.0) -> Tensor:
    """Sample (..., K) class indices from a table (Gumbel-max); temperature 0 takes the likeliest."""
    if temperature == 0:
        return log_probs.argmax(-1)
    noise = torch.rand_like(log_probs).clamp_min_(1e-30).log_().neg_().log_()
    sharpened = log_probs if temperature == 1 else log_probs / temperature
    return (sharpened - noise).argmax(-1)


def pick(log_probs: Tensor, latent: Tensor) -> Tensor:
    """Log-probability of each token's class: table (..., K, widest), latent (..., K) -> (..., K)."""
    return log_probs.gather(-1, latent.unsqueeze(-1)).squeeze(-1)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL[p || q] of two tables, summed over tokens: (..., K, widest) -> (...)."""
    return (p.exp() * (p - q)).sum((-2, -1))
