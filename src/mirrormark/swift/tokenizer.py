"""Tokens for each sense. Joint angles: one token a number, in bins, first, so that posture is there even when
the arms are out of sight. An image: FSQ tokens for the cells of a grid, encoded and decoded *given the
angles*, so that they carry only what posture does not tell; before them tokens for the view as a whole."""

from __future__ import annotations

import torch
from torch import Tensor

from mirrormark.agent.losses import Loss, reconstruction_loss
from mirrormark.agent.senses import Senses
from mirrormark.agent.tokenizer import Encoding, Prediction, Tokenizer
from mirrormark.agent.tokens import TokenSpec
from mirrormark.config import GridTokenizerConfig, SymbolicTokenizerConfig
from mirrormark.swift.fsq import FSQ, bin_centre, bin_index
from mirrormark.swift.vision import (
    COARSE,
    CellDecoder,
    CellEncoder,
    SceneEncoder,
    angle_feature_size,
    angle_features,
)


class SymbolicTokenizer(Tokenizer):
    """No parameters: joint bins and symbols are the tokens."""

    def __init__(self, senses: Senses, config: SymbolicTokenizerConfig):
        super().__init__(senses)
        if not isinstance(config, GridTokenizerConfig) and self.images:
            raise ValueError(f"the symbolic tokenizer cannot see images {self.images}: use preset swift.")
        self.config = config
        self.angles = sum(senses[name].size for name in self.vectors)
        self.exact = (config.bins,) * self.angles + tuple(senses[name].size for name in self.symbols)
        self.spec = TokenSpec(self.exact or (1,))

    @property
    def slices(self) -> dict[str, slice]:
        """Tokens of each sense."""
        places, start = {}, 0
        for name in self.vectors + self.symbols:
            width = self.senses[name].size if name in self.vectors else 1
            places[name] = slice(start, start + width)
            start += width
        return places | {name: slice(start, self.spec.K) for name in self.images}

    def _encode(self, observation: Prediction, sample: bool) -> Encoding:
        return Encoding(self._exact_tokens(observation))

    def _decode(self, one_hot: Tensor) -> Prediction:
        tokens = self.spec.rows(one_hot, fill=0.0).argmax(-1)
        symbols = {name: tokens[:, place] for name, place in self.slices.items() if name in self.symbols}
        angles = self._centres(tokens)
        sizes = [self.senses[name].size for name in self.vectors]
        return dict(zip(self.vectors, angles.split(sizes, -1))) | symbols if self.vectors else symbols

    def _loss(self, observation: Prediction) -> tuple[Encoding, Loss]:
        encoding = self._encode(observation, True)
        return encoding, Loss(torch.zeros((), device=encoding.tokens.device), {})

    def _exact_tokens(self, observation: Prediction) -> Tensor:
        """The tokens that need no learning: (N, angles + symbols)."""
        parts = [observation[name].long() for name in self.symbols]
        if self.vectors:
            parts.insert(0, bin_index(self._vector(observation), self.config.bins))
        return torch.cat(parts, -1)

    def _centres(self, tokens: Tensor) -> Tensor:
        """Angles at the middle of their bins: (N, K) -> (N, angles)."""
        return bin_centre(tokens[:, : self.angles], self.config.bins)


class GridTokenizer(SymbolicTokenizer):
    """Joint bins, then one image's FSQ tokens, which the rate term keeps at their centre level unless the
    image holds something that the angles do not explain."""

    config: GridTokenizerConfig

    def __init__(self, senses: Senses, config: GridTokenizerConfig):
        super().__init__(senses, config)
        if len(self.images) != 1 or not self.vectors:
            raise ValueError(
                f"the grid tokenizer needs one image and at least one vector, got {sorted(senses)}."
            )
        c, size = config, senses[self.images[0]].size
        self.quantise = FSQ(c.levels)
        self.vision_tokens = c.scene_tokens + COARSE**2 * c.tokens_per_cell
        self.spec = TokenSpec(self.exact + (self.quantise.classes,) * self.vision_tokens)
        posture, scalars = angle_feature_size(self.angles), c.tokens_per_cell * len(c.levels)
        images = 2 if c.encoder_sees == "surprise" else 1
        self.encoder = CellEncoder(size, c.channels, posture, scalars, c.widest, images)
        scene = c.scene_tokens * len(c.levels)
        self.scene_encoder = SceneEncoder(posture, scene) if scene else None
        self.image_decoder = CellDecoder(
            size, c.channels, scene + posture, scalars, c.widest, c.posture_width
        )
        # On the device, for a captured train step to read: how much of the rate term counts by now.
        self.register_buffer("rate_share", torch.ones(()), persistent=False)
        self.rate_share: Tensor

    @property
    def inactive_token(self) -> int:
        """The class of a vision token that says nothing: every scalar at its middle level."""
        return self.quantise.centre

    def train(self, mode: bool = True) -> GridTokenizer:
        """Once frozen it stays as it acts: without token dropout."""
        learns = any(parameter.requires_grad for parameter in self.parameters())
        return super().train(mode and learns)

    def set_progress(self, progress: float) -> None:
        ramp = self.config.rate_ramp
        self.rate_share.fill_(min(progress / ramp, 1.0) if ramp else 1.0)

    def _encode(self, observation: Prediction, sample: bool) -> Encoding:
        return self._quantised(observation)[0]

    def _quantised(self, observation: Prediction) -> tuple[Encoding, Tensor, Tensor, Tensor]:
        """Tokens; scalars of scene (N, S) and cells (N, 16, C), rounded with gradient; all unrounded ones."""
        exact, image = self._exact_tokens(observation), observation[self.images[0]]
        posture, levels = angle_features(self._vector(observation)), len(self.config.levels)
        scene, indices, unrounded = posture[:, :0], [], []
        if self.scene_encoder is not None:
            index, rounded, raw = self.quantise(
                self.scene_encoder(image, posture).unflatten(-1, (-1, levels))
            )
            scene = rounded.flatten(1)
            indices.append(index)
            unrounded.append(raw.flatten(1))
        expected = None
        if self.config.encoder_sees == "surprise":
            expected = self._expected(torch.cat((posture, scene), -1))
        cells = self.encoder(image, posture, expected)  # (N, 16, tokens_per_cell × levels)
        index, rounded, raw = self.quantise(cells.unflatten(-1, (-1, levels)).flatten(1, 2))
        indices.append(index)
        unrounded.append(raw.flatten(1))
        tokens = torch.cat((exact, *indices), -1)
        return Encoding(tokens), scene, rounded.reshape(cells.shape), torch.cat(unrounded, 1)

    @torch.no_grad()
    def _expected(self, base: Tensor) -> Tensor:
        """What the decoder paints when every cell's token is inactive."""
        scalars = self.config.tokens_per_cell * len(self.config.levels)
        return self.image_decoder(base, base.new_zeros(base.shape[0], COARSE**2, scalars))

    def _decode(self, one_hot: Tensor) -> Prediction:
        prediction = super()._decode(one_hot)
        hot = one_hot[:, sum(self.exact) :].unflatten(-1, (self.vision_tokens, -1))
        scalars, scenes = hot @ self.quantise.codebook, self.config.scene_tokens
        posture = angle_features(self._vector(prediction))
        base = torch.cat((posture, scalars[:, :scenes].flatten(1)), -1)
        cells = scalars[:, scenes:].reshape(len(hot), COARSE**2, -1)
        return prediction | {self.images[0]: self.image_decoder(base, cells)}

    def _loss(self, observation: Prediction) -> tuple[Encoding, Loss]:
        """E8's reconstruction, given the exact angles; and a rate term in place of the representation
        loss."""
        encoding, scene, cells, unrounded = self._quantised(observation)
        if self.training and self.config.vision_token_dropout:
            share = self.config.vision_token_dropout
            cells = cells * (torch.rand(len(cells), 1, 1, device=cells.device) >= share)
        base = torch.cat((angle_features(self._vector(observation)), scene), -1)
        painted = {self.images[0]: self.image_decoder(base, cells)}
        loss = reconstruction_loss(painted, self.targets(observation))
        rate = rate_loss(unrounded)
        return encoding, loss + Loss(self.config.rate * self.rate_share * rate, {"rate": rate.detach()})


def rate_loss(scalars: Tensor, softness: float = 0.05) -> Tensor:
    """Smooth distance from the centre level before rounding, (N, scalars) in [-1, 1], summed over scalars: a
    token that does not serve becomes inactive."""
    distance = (scalars.float().square() + softness**2).sqrt() - softness
    return distance.sum(-1).mean()
