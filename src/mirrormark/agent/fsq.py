"""Numbers as tokens: bins for joint angles, finite scalar quantisation (Mentzer et al. 2023) for learned
codes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def bin_index(x: Tensor, bins: int) -> Tensor:
    """[-1, 1] -> class 0..bins-1, evenly wide; what lies outside goes to the end bins."""
    return ((x.float() + 1) * (bins / 2)).floor().clamp(0, bins - 1).long()


def bin_centre(index: Tensor, bins: int) -> Tensor:
    """Class -> the middle of its bin, in [-1, 1]."""
    return (index.float() + 0.5) * (2 / bins) - 1


def inactive_class(levels: tuple[int, ...]) -> int:
    """The class of a token that says nothing: each scalar at its middle level, the upper of two."""
    inactive = 0
    for n in levels:
        inactive = inactive * n + n // 2
    return inactive


class FSQ(nn.Module):
    """Each token is len(levels) scalars; scalar i is squashed to [-1, 1] and rounded to one of levels[i]
    values.

    A token's class is the mixed-radix number of its scalars' levels. The one-hot carries the straight-through
    gradient of the scalars: `one_hot @ codebook` gives the rounded scalars and passes gradient to the
    unrounded ones exactly.
    """

    def __init__(self, levels: tuple[int, ...], dead_zone: float = 0.0):
        """hush: once learned, a token whose scalars are together shorter than this says nothing."""
        super().__init__()
        if not levels or min(levels) < 2:
            raise ValueError(f"tokenizer.levels must be numbers of 2 or more, got {levels}")
        self.levels, self.classes, self.dead_zone = levels, math.prod(levels), dead_zone
        axes = [torch.linspace(-1, 1, n) for n in levels]
        codebook = torch.cartesian_prod(*axes).reshape(self.classes, len(levels))
        radix = [math.prod(levels[i + 1 :]) for i in range(len(levels))]
        self.register_buffer("codebook", codebook, persistent=False)
        self.register_buffer("pseudo_inverse", torch.linalg.pinv(codebook), persistent=False)
        self.register_buffer("radix", torch.tensor(radix, dtype=torch.float32), persistent=False)
        self.register_buffer("steps", torch.tensor(levels, dtype=torch.float32) - 1, persistent=False)
        self.codebook: Tensor
        self.pseudo_inverse: Tensor
        self.radix: Tensor
        self.steps: Tensor

    @property
    def centre_class(self) -> int:
        """The class of a silent token (exactly central where all levels are odd)."""
        return inactive_class(self.levels)

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """raw (..., tokens, scalars) -> class (..., tokens), straight-through one-hot (..., tokens, classes)
        and activation in [-1, 1] before rounding (..., tokens, scalars)."""
        activation = torch.tanh(raw.float())
        index = (((activation + 1) * 0.5 * self.steps).round() * self.radix).sum(-1).long()
        if self.dead_zone and not self.training:
            index = torch.where(activation.norm(dim=-1) >= self.dead_zone, index, self.centre_class)
        hot = (index.unsqueeze(-1) == torch.arange(self.classes, device=raw.device)).float()
        soft = activation @ self.pseudo_inverse
        return index, hot + (soft - soft.detach()), activation

    def scalars(self, one_hot: Tensor) -> Tensor:
        """(..., tokens, classes) -> (..., tokens, scalars) in [-1, 1]."""
        return one_hot.float() @ self.codebook
