"""Numbers as tokens: bins for joint angles, finite scalar quantisation (Mentzer et al. 2023) for what is
seen."""

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


class FSQ(nn.Module):
    """Each token is len(levels) scalars in [-1, 1]; scalar i is rounded to one of levels[i] values. A token's
    class is the mixed-radix number of its scalars' levels."""

    def __init__(self, levels: tuple[int, ...]):
        super().__init__()
        if not levels or min(levels) < 2:
            raise ValueError(f"tokenizer.levels must be numbers of 2 or more, got {levels}")
        self.classes = math.prod(levels)
        self.centre = sum(n // 2 * math.prod(levels[i + 1 :]) for i, n in enumerate(levels))
        axes = [torch.linspace(-1, 1, n) for n in levels]
        radix = [math.prod(levels[i + 1 :]) for i in range(len(levels))]
        codebook = torch.cartesian_prod(*axes).reshape(self.classes, len(levels))
        self.register_buffer("codebook", codebook, persistent=False)
        self.register_buffer("radix", torch.tensor(radix, dtype=torch.float32), persistent=False)
        self.register_buffer("steps", torch.tensor(levels, dtype=torch.float32) - 1, persistent=False)
        self.codebook: Tensor
        self.radix: Tensor
        self.steps: Tensor

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """raw (..., tokens, scalars) -> classes (..., tokens), the rounded scalars with the gradient of the
        unrounded ones (..., tokens, scalars), and these."""
        unrounded = torch.tanh(raw.float())
        index = (((unrounded + 1) * 0.5 * self.steps).round() * self.radix).sum(-1).long()
        return index, self.codebook[index] + (unrounded - unrounded.detach()), unrounded
