"""How the nets read a frame's tokens: by the names of its classes (one-hot, the paper's way), or by what they
mean.

A joint's bins lie in order, and a vision token is a few scalars of some levels each. Nets that read names
must learn about every bin apart, from the frames that hold it; nets that read levels carry over what they
learn.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from mirrormark.agent.numerics import working_dtype
from mirrormark.agent.tokens import TokenGroup, TokenSpec

FeatureKind = Literal["classes", "levels"]

LONG = 8
"""A scale of more levels than this is read as a place on a line, by waves; a shorter one level by level."""
_OCTAVES = 5
"""Waves from twice the scale's length down to a sixteenth of that: four bins of 64."""


class TokenFeatures:
    """Tokens (..., K) as rows of numbers for a linear layer."""

    def __init__(self, spec: TokenSpec, by: FeatureKind = "classes"):
        self.spec, self.by = spec, by
        self.size = spec.total if by == "classes" else sum(r.count * _width(r) for r in spec.groups)

    def __call__(self, tokens: Tensor) -> Tensor:
        """(..., K) class indices -> (..., size), in the precision in which linear layers will read it. Make
        it once where several layers read it."""
        if self.by == "classes":
            return self.spec.hot(tokens)
        self.spec.check(tokens)
        dtype = working_dtype(tokens)
        parts = [_read(tokens[..., r.token : r.token + r.count], r, dtype) for r in self.spec.groups]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def concat(self, tokens: Tensor, other: Tensor) -> Tensor:
        """Class indices or rows already read, and `other` (..., D), in one row for a WideLinear."""
        if self.by == "classes" or tokens.is_floating_point():
            return self.spec.concat(tokens, other, self.size)
        return self.spec.concat(self(tokens), other, self.size)


def _width(group: TokenGroup) -> int:
    """How many numbers a token of the run is read as."""
    scales = group.levels or (group.classes,)
    return sum(1 + 2 * _OCTAVES if group.levels and n > LONG else n for n in scales)


def _read(tokens: Tensor, group: TokenGroup, dtype: torch.dtype) -> Tensor:
    """(..., count) -> (..., count × width)."""
    parts, radix = [], group.classes
    for n in group.levels or (group.classes,):
        radix //= n
        level = tokens // radix % n
        if group.levels and n > LONG:
            parts.append(_waves((level.float() + 0.5) * (2 / n) - 1).to(dtype))
        else:
            parts.append((level.unsqueeze(-1) == torch.arange(n, device=tokens.device)).to(dtype))
    return torch.cat(parts, -1).flatten(-2)


def _waves(place: Tensor) -> Tensor:
    """A place in [-1, 1], coarse and fine: (...) -> (..., 1 + 2 × octaves)."""
    octave = torch.arange(_OCTAVES, device=place.device)
    phase = place.unsqueeze(-1) * torch.exp2(octave.float()) * (math.pi / 2)
    return torch.cat((place.unsqueeze(-1), phase.sin(), phase.cos()), -1)
