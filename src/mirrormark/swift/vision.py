"""Networks of the grid tokenizer: space-to-depth in, pixel shuffle out, channel RMS norm, SiLU.
The decoder starts from a coarse map painted by a *posture* (angles) and takes up the
cells' tokens on the way."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirrormark.agent.numerics import full_precision
from mirrormark.agent.senses import centred_image

COARSE = 4
"""Cells, with tokens of their own, and the decoder's first map are COARSE × COARSE (ours; learning.md)."""
GLANCE = 8  # the side of the picture from which the scene is encoded


class ChannelNorm(nn.Module):
    """RMS norm over channels; channels-last memory makes the permutes free."""

    def __init__(self, channels: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        with full_precision(x):  # autocast would blow bf16 maps up to fp32; the sum inside is fp32 anyway
            x = F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-5)
        return x.permute(0, 3, 1, 2)


class Residual(nn.Module):
    """x + 1×1(silu(3×3(norm x))); starts as the identity."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = ChannelNorm(channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.mix = nn.Conv2d(channels, channels, 1)
        nn.init.zeros_(self.mix.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(F.silu(self.conv(F.silu(self.norm(x)))))


def angle_features(angles: Tensor, octaves: int = 3) -> Tensor:
    """(N, A) in [-1, 1] -> (N, A·(1 + 2·octaves)): the angles and their waves, so that a network can paint
    edges."""
    waves = torch.cat([angles * (math.pi / 2 * 2**o) for o in range(octaves)], -1)
    return torch.cat((angles, waves.sin(), waves.cos()), -1)


def angle_feature_size(angles: int, octaves: int = 3) -> int:
    return angles * (1 + 2 * octaves)


def _widths(size: int, channels: int, most: int) -> dict[int, int]:
    """Channels at each resolution from size/2 down to COARSE: doubled at each halving, at most `most` ×
    channels."""
    steps = math.log2(size / COARSE)
    if steps != int(steps) or steps < 2:
        raise ValueError(f"the image's side must be 16, 32, 64 or 128 pixels, got {size}")
    return {size >> (i + 1): channels * min(2**i, most) for i in range(int(steps))}


class SceneEncoder(nn.Module):
    """The view as a whole: a coarse picture and the posture -> raw scalars."""

    def __init__(self, posture: int, scalars: int, hidden: int = 128):
        super().__init__()
        self.body = nn.Linear(GLANCE * GLANCE * 3 + posture, hidden)
        self.out = nn.Linear(hidden, scalars)

    def forward(self, image: Tensor, posture: Tensor) -> Tensor:
        """image (N, S, S, 3), posture (N, P) -> (N, scalars)."""
        block = image.shape[1] // GLANCE
        coarse = centred_image(image).unflatten(2, (GLANCE, block)).unflatten(1, (GLANCE, block)).mean((2, 4))
        return self.out(F.silu(self.body(torch.cat((coarse.flatten(1), posture), -1))))


class CellEncoder(nn.Module):
    """Image and posture -> raw scalars for each of COARSE² cells. A cell sees its own features, a summary
    of the whole image and the posture."""

    def __init__(
        self,
        size: int,
        channels: int,
        posture: int,
        scalars: int,
        most: int,
        images: int = 1,
        summary: int = 256,
    ):
        super().__init__()
        steps = list(_widths(size, channels, most).values())
        self.first = nn.Conv2d(12 * images, steps[0], 3, padding=1)
        self.first_block = Residual(steps[0])
        self.halve = nn.ModuleList(nn.Conv2d(4 * a, b, 1) for a, b in pairwise(steps))
        self.blocks = nn.ModuleList(Residual(b) for b in steps[1:])
        self.summarise = nn.Linear(steps[-1] + posture, summary)
        self.cell = nn.Linear(steps[-1], summary)
        self.around = nn.Linear(summary, summary)
        self.place = nn.Parameter(torch.zeros(COARSE * COARSE, summary))
        self.out = nn.Linear(summary, scalars)

    def forward(self, image: Tensor, posture: Tensor, expected: Tensor | None = None) -> Tensor:
        """image and, where it is built for two, what was expected in its place (N, S, S, 3; the latter
        already in [-.5, .5]), posture (N, P) -> (N, cells, scalars)."""
        image = centred_image(image)
        x = image if expected is None else torch.cat((image, image - expected), -1)
        x = F.pixel_unshuffle(x.permute(0, 3, 1, 2), 2)
        x = self.first_block(self.first(x.contiguous(memory_format=torch.channels_last)))
        for halve, block in zip(self.halve, self.blocks):
            x = block(halve(F.pixel_unshuffle(x, 2)))
        cells = x.flatten(2).transpose(1, 2)  # (N, cells, channels)
        summary = F.silu(self.summarise(torch.cat((cells.mean(1), posture.to(cells.dtype)), -1)))
        return self.out(F.silu(self.cell(cells) + self.around(summary).unsqueeze(1) + self.place))


class CellDecoder(nn.Module):
    """Posture and cells' scalars -> image in [-.5, .5]."""

    def __init__(self, size: int, channels: int, posture: int, scalars: int, most: int, posture_width: int):
        super().__init__()
        widths = _widths(size, channels, most)
        self.coarse_width = widths[COARSE]
        coarse = self.coarse_width * COARSE * COARSE
        self.paint = nn.Sequential(
            nn.Linear(posture, posture_width),
            nn.SiLU(),
            nn.Linear(posture_width, posture_width),
            nn.SiLU(),
            nn.Linear(posture_width, coarse),
        )
        self.take = nn.Linear(scalars, self.coarse_width)
        steps = list(widths.items())[::-1]  # coarse to fine
        self.start = Residual(steps[0][1])
        self.enlarge = nn.ModuleList(nn.Conv2d(a, 4 * b, 1) for (_, a), (_, b) in pairwise(steps))
        self.blocks = nn.ModuleList(Residual(width) for _, width in steps)
        self.norm = ChannelNorm(steps[-1][1])
        self.last = nn.Conv2d(steps[-1][1], 12, 3, padding=1)
        nn.init.zeros_(self.last.weight)  # start from a grey image, not from noise

    def forward(self, posture: Tensor, cells: Tensor) -> Tensor:
        """posture (N, P), cells (N, cells, scalars) -> (N, S, S, 3)."""
        x = self.paint(posture).unflatten(-1, (COARSE, COARSE, self.coarse_width)).permute(0, 3, 1, 2)
        x = self.start(x + self.take(cells).unflatten(1, (COARSE, COARSE)).permute(0, 3, 1, 2))
        for i, block in enumerate(self.blocks):
            if i:
                x = F.pixel_shuffle(self.enlarge[i - 1](x), 2)
            x = block(x)
        return F.pixel_shuffle(self.last(F.silu(self.norm(x))), 2).permute(0, 2, 3, 1)
