"""E1: the paper's tokenizer. An encoder for each sense, a mixer, 32 categorical variables of 32 classes, and
for each sense an inverse mixer and a decoder (Table II). Norms and activations are the public code's: the
paper gives none (C1 to C3)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirrormark.agent.losses import Loss, reconstruction_loss
from mirrormark.agent.numerics import full_precision
from mirrormark.agent.senses import Senses, SenseSpec, centred_image
from mirrormark.agent.tokenizer import Encoding, Prediction, Tokenizer
from mirrormark.agent.tokens import TokenSpec, sample
from mirrormark.config import CategoricalTokenizerConfig

UNIMIX = 0.01
"""Share of an even distribution mixed into posterior and prediction (paper, Table III)."""


class ImageEncoder(nn.Module):
    """(N, 64, 64, 3) -> (N, 1024). Four convolutions, 64 -> 31 -> 14 -> 6 -> 2. Their 256×2×2 numbers,
    channels first, are cut into 32 rows of 32 (8 channels each); one linear layer, layer norm and ELU serve
    every row. A layer norm over all 1,024 learns more slowly (the public code's author)."""

    def __init__(self, channels: int):
        super().__init__()
        sizes = (3, channels, 2 * channels, 4 * channels, 8 * channels)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 4, 2) for a, b in pairwise(sizes))
        self.linear = nn.Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)
        self.row = channels

    def forward(self, image: Tensor) -> Tensor:
        x = centred_image(image).permute(0, 3, 1, 2)
        for convolution in self.convolutions:
            x = F.elu(convolution(x))
        rows = x.flatten(1).unflatten(1, (-1, self.row))  # (N, 32, 32)
        return F.elu(self.norm(self.linear(rows))).flatten(1)


class ImageDecoder(nn.Module):
    """(N, 1024) -> (N, 64, 64, 3). Four transposed convolutions, 1 -> 5 -> 13 -> 30 -> 64."""

    def __init__(self, embedding: int, channels: int):
        super().__init__()
        sizes = (embedding, 4 * channels, 2 * channels, channels, 3)
        self.convolutions = nn.ModuleList(
            nn.ConvTranspose2d(a, b, kernel, 2) for (a, b), kernel in zip(pairwise(sizes), (5, 5, 6, 6))
        )

    def forward(self, embedding: Tensor) -> Tensor:
        first, *rest = self.convolutions
        assert isinstance(first, nn.ConvTranspose2d) and first.bias is not None
        # From one place a transposed convolution is a matrix product. As a convolution its gradient does not
        # compile in torch 2.11.
        x = (embedding @ first.weight.flatten(1)).unflatten(1, (-1, 5, 5)) + first.bias[:, None, None]
        for convolution in rest:
            x = convolution(F.elu(x))
        return x.permute(0, 2, 3, 1)


def mixing_layer(inputs: int, outputs: int) -> nn.Sequential:
    """ "1 linear layer" of Table II, with the public code's layer norm and ELU."""
    return nn.Sequential(nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ELU())


class PaperTokenizer(Tokenizer):
    """Frames -> 32 tokens -> frames; vectors come before images in the mixer."""

    def __init__(self, senses: Senses, config: CategoricalTokenizerConfig):
        super().__init__(senses)
        c, self.config = config, config
        if self.symbols:
            raise ValueError(f"the paper's tokenizer has no symbols {self.symbols}: use preset symbolic.")
        self.spec = TokenSpec((c.classes,) * c.variables)
        names = self.vectors + self.images
        self.encoders = nn.ModuleDict({name: self._encoder(senses[name]) for name in names})
        self.mixer = mixing_layer(len(names) * c.embedding, c.embedding)
        self.posterior = nn.Linear(c.embedding, self.spec.total)
        self.inverse_mixers = nn.ModuleDict(
            {name: mixing_layer(self.spec.total, c.embedding) for name in names}
        )
        self.decoders = nn.ModuleDict({name: self._decoder(senses[name]) for name in names})

    def _encoder(self, sense: SenseSpec) -> nn.Module:
        c = self.config
        if sense.kind == "image":
            if sense.size != 64:
                raise ValueError(f"the paper's tokenizer sees images of 64×64, got {sense.size}.")
            return ImageEncoder(c.channels)
        return nn.Sequential(
            nn.Linear(sense.size, c.hidden),
            nn.ELU(),
            nn.Linear(c.hidden, c.embedding),
            nn.LayerNorm(c.embedding),
            nn.ELU(),
        )

    def _decoder(self, sense: SenseSpec) -> nn.Module:
        c = self.config
        if sense.kind == "image":
            return ImageDecoder(c.embedding, c.channels)
        return nn.Sequential(nn.Linear(c.embedding, c.hidden), nn.ELU(), nn.Linear(c.hidden, sense.size))

    def _encode(self, observation: Prediction, sample: bool) -> Encoding:
        return self._posterior(self._embed(observation), sample)

    def _embed(self, observation: Prediction) -> Tensor:
        """s̄: what is seen and felt, mixed: (N, E)."""
        return self.mixer(torch.cat([encoder(observation[n]) for n, encoder in self.encoders.items()], -1))

    def _posterior(self, embedding: Tensor, draws: bool) -> Encoding:
        """A sample of q(s | s̄), or its mode, and q."""
        with full_precision(embedding):
            log_probs = self.spec.log_probs(self.posterior(embedding.float()), UNIMIX)
        tokens = sample(log_probs.detach()) if draws else log_probs.argmax(-1)
        return Encoding(tokens, self.spec.straight_through(tokens, log_probs), log_probs)

    def _decode(self, one_hot: Tensor) -> Prediction:
        return self._decoded(self._unmix(one_hot))

    def _loss(self, observation: Prediction) -> tuple[Encoding, Loss]:
        """E8: the reconstruction loss reaches everything, the auxiliary loss the decoders alone (D4)."""
        embedding = self._embed(observation)
        encoding = self._posterior(embedding, draws=True)
        assert encoding.one_hot is not None
        mixed, target = self._unmix(encoding.one_hot), self.targets(observation)
        if self.config.auxiliary == "tokens":  # the same prediction twice: once, half its gradient going on
            halved = {name: x.detach() + 0.5 * (x - x.detach()) for name, x in mixed.items()}
            loss = reconstruction_loss(self._decoded(halved), target)
            return encoding, 2 * loss
        loss = reconstruction_loss(self._decoded(mixed), target)
        if self.config.auxiliary == "embedding":
            stopped = embedding.detach()
            auxiliary = reconstruction_loss(self._decoded(dict.fromkeys(mixed, stopped)), target)
            loss = loss + auxiliary.named("auxiliary_")
        return encoding, loss

    def _unmix(self, one_hot: Tensor) -> Prediction:
        return {name: unmix(one_hot) for name, unmix in self.inverse_mixers.items()}

    def _decoded(self, mixed: Prediction) -> Prediction:
        return {name: decoder(mixed[name]) for name, decoder in self.decoders.items()}
