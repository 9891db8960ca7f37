"""The paper's codec (E1, Table II): an encoder for each sense, a mixer, 32 straight-through categorical
variables of 32 classes, an inverse mixer and a decoder for each sense. The convolutions are exact rewrites of
the classic ones: 4×4 stride 2 on RGB = space-to-depth + 2×2; transposed 6×6 stride 2 to RGB = 3×3 + pixel
shuffle; transposed 5×5 from 1×1 = a linear layer (speed.md)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirrormark.mind.codec import Code, Codec, CodecConfig, Prediction
from mirrormark.mind.latent import LatentSpec, draw
from mirrormark.mind.numerics import full_precision
from mirrormark.mind.senses import Senses, SenseSpec, centred_image, restore


class ImageEncoder(nn.Module):
    """64×64×3 -> 4 convolutions -> 2×2×(8·channels) = 1024 features."""

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
        x = F.pixel_unshuffle(centred_image(image).permute(0, 3, 1, 2), 2)
        x = F.relu(self.first(x))
        for conv in self.rest:
            x = F.relu(conv(x))
        return x.flatten(1)


class ImageDecoder(nn.Module):
    """Embedding -> 1 linear layer -> 4 transposed convolutions (1 -> 5 -> 13 -> 30 -> 64)."""

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
        x = F.relu(self.third(F.relu(self.second(x))))
        return F.pixel_shuffle(self.last(x), 2).permute(0, 2, 3, 1)


def _encoder(sense: SenseSpec, c: CodecConfig) -> nn.Module:
    if sense.kind == "image":
        if sense.size != 64:
            raise ValueError(
                f"the categorical codec sees images of 64×64, got {sense.size}: use codec.kind='fsq'"
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
            table = self.spec.log_probs(self.posterior(embedding.float()), self.config.unimix)
        latent = draw(table.detach(), 1.0 if sample else 0.0)
        probs = self.spec.flat(table.exp())
        straight_through = self.spec.one_hot(latent) + (probs - probs.detach())
        return Code(latent, straight_through, table, embedding)

    def _decode(self, one_hot: Tensor, seen: Prediction | None) -> Prediction:
        return {name: self.decoders[name](self.inverse_mixers[name](one_hot)) for name in self.senses}

    def decode_stopped(self, one_hot: Tensor) -> Prediction:
        """The paper's auxiliary path: gradient reaches the decoders only, not inverse mixer, posterior or
        encoder."""
        lead = one_hot.shape[:-1]
        flat = one_hot.detach().reshape(-1, self.spec.total)
        return {
            name: restore(self.decoders[name](self.inverse_mixers[name](flat).detach()), lead)
            for name in self.senses
        }

    def decode_embedding(self, embedding: Tensor) -> Prediction:
        """The public code's auxiliary path (D4): the stopped mixer embedding goes straight to the
        decoders."""
        lead, flat = embedding.shape[:-1], embedding.detach().reshape(-1, embedding.shape[-1])
        return {name: restore(self.decoders[name](flat), lead) for name in self.senses}
