"""The paper's codec (E1, Table II): an encoder for each sense, a mixer, 32 straight-through categorical
variables of 32 classes, an inverse mixer and a decoder for each sense. The convolutions are exact rewrites of
the classic ones that GPUs like better: 4×4 stride 2 = space-to-depth + 2×2; transposed 6×6 stride 2 = 3×3 +
depth-to-space; transposed 5×5 from 1×1 = a linear layer (speed.md)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirrormark.mind.codec import Code, Codec, CodecConfig, Prediction
from mirrormark.mind.latent import LatentSpec, draw
from mirrormark.mind.numerics import full_precision
from mirrormark.mind.senses import Senses, SenseSpec, centred_image, restore

UNIMIX = 0.01
"""Share of an even distribution mixed into the posterior (paper, Table III)."""


def _to_depth(x: Tensor, side: int) -> Tensor:
    """(N, H, W, C) -> (N, H/side, W/side, side²·C): each square in one place, its channels last of all."""
    n, h, w, c = x.shape
    squares = x.reshape(n, h // side, side, w // side, side, c).transpose(2, 3)
    return squares.reshape(n, h // side, w // side, side * side * c)


def _to_space(x: Tensor, side: int) -> Tensor:
    """(N, H, W, side²·C) -> (N, side·H, side·W, C): undoes `_to_depth`."""
    n, h, w, c = x.shape
    squares = x.reshape(n, h, w, side, side, c // side**2).transpose(2, 3)
    return squares.reshape(n, side * h, side * w, c // side**2)


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int = 0) -> Tensor:
    """(N, H, W, C) -> (N, H', W', C'). Channels come last in memory, as tensor cores want them."""
    weight = weight.contiguous(memory_format=torch.channels_last)
    return F.conv2d(x.permute(0, 3, 1, 2), weight, bias, padding=padding).permute(0, 2, 3, 1)


def _four_at_once(weight: Tensor, stride: int, taps: int) -> Tensor:
    """The kernel (out, in, k, k) as four, for a 2×2 square of outputs that see the same `taps` × `taps`
    inputs: (2, 2, out, in, taps, taps), each shifted by `stride` from the one before."""
    room = taps - weight.shape[-1]

    def shifted(y: int, x: int) -> Tensor:
        return F.pad(weight, (x * stride, room - x * stride, y * stride, room - y * stride))

    return torch.stack([torch.stack([shifted(y, x) for x in range(2)]) for y in range(2)])


class ImageEncoder(nn.Module):
    """64×64×3 -> 4 convolutions -> 2×2×(8·channels) = 1024 features. A 4×4 convolution of stride 2 is a 2×2
    one of stride 1 after `_to_depth`. The first one, whose weights are kept in that form, computes 2×2
    outputs at once, from squares of 4×4 pixels: more channels than work, but channels are what GPUs like."""

    def __init__(self, channels: int, embedding: int):
        super().__init__()
        if 32 * channels != embedding:
            raise ValueError(
                f"codec.embedding must be 32 × codec.channels = {32 * channels}, got {embedding}"
            )
        sizes = [channels, 2 * channels, 4 * channels, 8 * channels]
        self.first = nn.Conv2d(12, sizes[0], 2)
        self.rest = nn.ModuleList(nn.Conv2d(a, b, 4, 2) for a, b in pairwise(sizes))

    def forward(self, image: Tensor) -> Tensor:
        x = F.relu(self._first(centred_image(image)))  # (N, 15, 15, 4·channels): 30×30 in squares
        for i, conv in enumerate(self.rest):
            assert isinstance(conv, nn.Conv2d)
            squares = conv.weight.unflatten(3, (2, 2)).unflatten(2, (2, 2))  # (out, in, 2, dy, 2, dx)
            weight = squares.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
            x = F.relu(_convolve(_to_depth(x, 2) if i else x, weight, conv.bias))
        return x.permute(0, 3, 1, 2).flatten(1)

    def _first(self, image: Tensor) -> Tensor:
        assert self.first.bias is not None
        squares = self.first.weight.unflatten(1, (3, 2, 2))  # (out, 3, dy, dx, 2, 2)
        classic = squares.permute(0, 1, 4, 2, 5, 3).flatten(4, 5).flatten(2, 3)  # (out, 3, 4, 4)
        four = _four_at_once(classic, 2, 8).unflatten(5, (2, 4)).unflatten(4, (2, 4))
        weight = four.permute(0, 1, 2, 5, 7, 3, 4, 6).flatten(3, 5).flatten(0, 2)
        return _convolve(_to_depth(image, 4), weight, self.first.bias.repeat(4))


class ImageDecoder(nn.Module):
    """Embedding -> 1 linear layer -> 4 transposed convolutions (1 -> 5 -> 13 -> 30 -> 64). A transposed 6×6
    convolution of stride 2 is a 3×3 one and `_to_space`; 5×5: with zeros for its last row and column. The
    last one, whose weights are kept in that form and in the order of `pixel_shuffle`, computes 2×2 of the
    outputs at once, from the squares that the third one makes."""

    def __init__(self, channels: int, embedding: int):
        super().__init__()
        self.channels = channels
        self.linear = nn.Linear(embedding, embedding)
        self.first = nn.Linear(embedding, 4 * channels * 25)
        self.second = nn.ConvTranspose2d(4 * channels, 2 * channels, 5, 2)
        self.third = nn.ConvTranspose2d(2 * channels, channels, 6, 2)
        self.last = nn.Conv2d(channels, 12, 3, padding=2)

    def forward(self, embedding: Tensor) -> Tensor:
        x = F.relu(self.first(self.linear(embedding))).unflatten(1, (4 * self.channels, 5, 5))
        x = _to_space(self._enlarge(x.permute(0, 2, 3, 1), self.second), 2)[:, :13, :13]
        x = F.relu(self._enlarge(F.relu(x), self.third))  # (N, 15, 15, 4·channels): 30×30 in squares
        return _to_space(self._last(x), 4)

    def _enlarge(self, x: Tensor, layer: nn.ConvTranspose2d) -> Tensor:
        """(N, S, S, C) -> (N, S + 2, S + 2, 4·C'), the squares of 2·S + 4: output 2u + r is the sum over j of
        input u - j times weight 2j + r."""
        assert layer.bias is not None
        missing = 6 - layer.kernel_size[0]
        taps = F.pad(layer.weight, (0, missing, 0, missing)).unflatten(3, (3, 2)).unflatten(2, (3, 2))
        weight = taps.permute(3, 5, 1, 0, 2, 4).flatten(0, 2).flip(2, 3)  # (dy, dx, out) together, in, 3, 3
        return _convolve(x, weight, layer.bias.repeat(4), padding=2)

    def _last(self, x: Tensor) -> Tensor:
        assert self.last.bias is not None
        four = _four_at_once(self.last.weight, 1, 4).unflatten(5, (2, 2)).unflatten(4, (2, 2))
        four = four.unflatten(2, (3, 2, 2))  # (ey, ex, 3, dy, dx, in, 2, by, 2, bx)
        weight = four.permute(0, 3, 1, 4, 2, 7, 9, 5, 6, 8).flatten(5, 7).flatten(0, 4)
        bias = self.last.bias.view(3, 1, 2, 1, 2).expand(3, 2, 2, 2, 2).permute(1, 2, 3, 4, 0).flatten()
        return _convolve(x, weight, bias, padding=1)


def _encoder(sense: SenseSpec, c: CodecConfig) -> nn.Module:
    if sense.kind == "image":
        if sense.size != 64:
            raise ValueError(
                f"the categorical codec sees images of 64×64, got {sense.size}: use codec.kind='senses'"
            )
        return ImageEncoder(c.channels, c.embedding)
    return nn.Sequential(
        nn.Linear(sense.size, c.vector_hidden), nn.ReLU(), nn.Linear(c.vector_hidden, c.embedding)
    )


def _decoder(sense: SenseSpec, c: CodecConfig) -> nn.Module:
    if sense.kind == "image":
        return ImageDecoder(c.channels, c.embedding)
    hidden = c.vector_hidden
    return nn.Sequential(
        nn.Linear(c.embedding, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, sense.size),
    )


class CategoricalCodec(Codec):
    """Any set of image and vector senses by name: a new sense brings its own encoder, inverse mixer and
    decoder."""

    def __init__(self, senses: Senses, config: CodecConfig):
        super().__init__(senses, config)
        if self.symbols:
            raise ValueError(
                f"the categorical codec cannot read symbols {self.symbols}: use codec.kind='symbolic'"
            )
        self.spec = LatentSpec((config.classes,) * config.variables)
        size = config.embedding
        self.encoders = nn.ModuleDict({name: _encoder(sense, config) for name, sense in senses.items()})
        self.mixer = nn.Linear(size * len(senses), size)
        self.posterior = nn.Linear(size, self.spec.total)
        self.inverse_mixers = nn.ModuleDict({name: nn.Linear(self.spec.total, size) for name in senses})
        self.decoders = nn.ModuleDict({name: _decoder(sense, config) for name, sense in senses.items()})

    def _encode(self, observation: Prediction, sample: bool) -> Code:
        embedding = self.mixer(torch.cat([self.encoders[n](observation[n]) for n in self.senses], -1))
        with full_precision(embedding):
            table = self.spec.log_probs(self.posterior(embedding.float()), UNIMIX)
        latent = draw(table.detach(), 1.0 if sample else 0.0)
        probs = self.spec.flat(table.exp())
        straight_through = self.spec.one_hot(latent) + (probs - probs.detach())
        return Code(latent, straight_through, table, embedding)

    def _decode(self, one_hot: Tensor, seen: Prediction | None) -> Prediction:
        return {name: self.decoders[name](self.inverse_mixers[name](one_hot)) for name in self.senses}

    def decode_for_two(self, one_hot: Tensor) -> Prediction:
        """One pass for the reconstruction and for the paper's auxiliary path, whose gradient reaches the
        decoders only, not inverse mixer, posterior or encoder. Both predict the same; to be descended twice,
        so that half the gradient goes on from the decoders into the latent."""
        lead, flat = one_hot.shape[:-1], one_hot.reshape(-1, self.spec.total)
        mixed = {name: self.inverse_mixers[name](flat) for name in self.senses}
        halved = {name: x.detach() + 0.5 * (x - x.detach()) for name, x in mixed.items()}
        return {name: restore(self.decoders[name](x), lead) for name, x in halved.items()}

    def decode_embedding(self, embedding: Tensor) -> Prediction:
        """The public code's auxiliary path (D4): the stopped mixer embedding goes straight to the
        decoders."""
        lead, flat = embedding.shape[:-1], embedding.detach().reshape(-1, embedding.shape[-1])
        return {name: restore(self.decoders[name](flat), lead) for name in self.senses}
