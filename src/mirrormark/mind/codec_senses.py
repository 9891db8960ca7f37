"""Tokens for each sense. Vector senses: one token a number, in bins, first in the latent, so that posture is
there even when the arms are out of sight. Symbols: one token. An image: FSQ tokens on a grid, encoded and
decoded *given the angles*, so that they need to carry only what posture does not tell; before them, if
wanted, tokens for the view as a whole."""

from __future__ import annotations

import torch
from torch import Tensor

from mirrormark.mind.codec import BodyLook, Code, Codec, CodecConfig, Prediction
from mirrormark.mind.latent import LatentSpec
from mirrormark.mind.quantise import ScalarQuantiser, bin_centre, bin_index
from mirrormark.mind.senses import Senses
from mirrormark.mind.vision import (
    COARSE,
    CellDecoder,
    CellEncoder,
    SceneEncoder,
    angle_feature_size,
    angle_features,
)


class SymbolicCodec(Codec):
    """No parameters: joint bins and symbols are the latent."""

    def __init__(self, senses: Senses, config: CodecConfig):
        super().__init__(senses, config)
        if config.kind == "symbolic" and self.images:
            raise ValueError(f"the symbolic codec cannot see images {self.images}: use codec.kind='senses'")
        self.angles = sum(senses[name].size for name in self.vectors)
        self.read = (config.bins,) * self.angles + tuple(senses[name].size for name in self.symbols)
        self.scales = ((config.bins,),) * self.angles + ((),) * len(self.symbols)
        self.spec = LatentSpec(self.read or (1,), self.scales or ((),))

    @property
    def learned(self) -> tuple[str, ...]:
        return ()

    @property
    def tokens(self) -> dict[str, slice]:
        """Which tokens belong to which sense."""
        places, start = {}, 0
        for name in self.vectors + self.symbols:
            width = self.senses[name].size if name in self.vectors else 1
            places[name] = slice(start, start + width)
            start += width
        return places | {name: slice(start, self.spec.K) for name in self.images}

    def _encode(self, observation: Prediction, sample: bool) -> Code:
        latent = self._read_tokens(observation)
        return Code(latent, self.spec.one_hot(latent))

    def _decode(self, one_hot: Tensor, seen: Prediction | None) -> Prediction:
        latent = self.spec.rows(one_hot, fill=0.0).argmax(-1)
        symbols = {name: latent[:, place] for name, place in self.tokens.items() if name in self.symbols}
        return self._split(self._centres(latent)) | symbols if self.vectors else symbols

    def _read_tokens(self, observation: Prediction) -> Tensor:
        """The tokens that need no learning: (N, angles + symbols)."""
        parts = [observation[name].long() for name in self.symbols]
        if self.vectors:
            parts.insert(0, bin_index(self._vector(observation), self.config.bins))
        return torch.cat(parts, -1)

    def _centres(self, latent: Tensor) -> Tensor:
        """Angles at the middle of their bins: (N, K) -> (N, angles)."""
        return bin_centre(latent[:, : self.angles], self.config.bins)


class SensesCodec(SymbolicCodec):
    """Bins first, then one image's FSQ tokens, which the quiet loss (losses.py) keeps at their centre level
    unless the image holds something that the angles do not explain."""

    def __init__(self, senses: Senses, config: CodecConfig):
        super().__init__(senses, config)
        if len(self.images) != 1 or not self.vectors:
            raise ValueError(
                f"the senses codec needs one image and at least one vector, got {sorted(senses)}"
            )
        c, size = config, senses[self.images[0]].size
        self.quantise = ScalarQuantiser(c.levels, c.hush)
        vision_tokens = c.scene_tokens + COARSE**2 * c.tokens_per_cell
        self.spec = LatentSpec(
            self.read + (self.quantise.classes,) * vision_tokens, self.scales + (c.levels,) * vision_tokens
        )
        posture, scalars = angle_feature_size(self.angles), c.tokens_per_cell * len(c.levels)
        self.scalars = scalars
        images = 2 if c.encoder_sees == "surprise" else 1
        self.encoder = CellEncoder(size, c.channels, posture, scalars, c.widest, images)
        scene = c.scene_tokens * len(c.levels)
        self.scene_encoder = SceneEncoder(posture, scene) if scene else None
        seen = scene + posture
        self.image_decoder = CellDecoder(size, c.channels, seen, scalars, c.widest, c.posture_width)

    @property
    def learned(self) -> tuple[str, ...]:
        return self.images

    @property
    def look(self) -> BodyLook | None:
        return PaintedBody(self) if self.config.tokens_per_cell == 1 and not self.symbols else None

    @property
    def silent_token(self) -> int:
        """The class of a vision token that says nothing."""
        return self.quantise.centre_class

    def _encode(self, observation: Prediction, sample: bool) -> Code:
        read, image = self._read_tokens(observation), observation[self.images[0]]
        posture = angle_features(self._vector(observation))
        found = [self._quantised(self.scene_encoder(image, posture))] if self.scene_encoder else []
        expected = None
        if self.config.encoder_sees == "surprise":
            expected = self._expected(posture, found[0][1] if found else None)
        found.append(self._quantised(self.encoder(image, posture, expected)))
        vision, hot, activation = (torch.cat(parts, 1) for parts in zip(*found))
        read_hot = LatentSpec(self.read).one_hot(read)
        return Code(
            torch.cat((read, vision), -1),
            torch.cat((read_hot, hot.flatten(1)), -1),
            activation=activation.flatten(1),
        )

    def _quantised(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.quantise(raw.reshape(raw.shape[0], -1, len(self.config.levels)))

    @torch.no_grad()
    def _expected(self, posture: Tensor, scene_hot: Tensor | None) -> Tensor:
        """What the decoder paints when every cell's token is silent."""
        silent = posture.new_zeros(posture.shape[0], COARSE**2, self.scalars)
        return self.image_decoder(self._base(posture, scene_hot), silent)

    def _base(self, posture: Tensor, scene_hot: Tensor | None) -> Tensor:
        """What the coarse map is painted from: angles and scene."""
        if scene_hot is None:
            return posture
        return torch.cat((posture, self.quantise.scalars(scene_hot).flatten(1)), -1)

    def _decode(self, one_hot: Tensor, seen: Prediction | None) -> Prediction:
        prediction, n = super()._decode(one_hot, None), one_hot.shape[0]
        posture = angle_features(self._vector(prediction if seen is None else seen))
        hot = one_hot[:, sum(self.read) :].unflatten(-1, (-1, self.quantise.classes))
        scenes = self.config.scene_tokens
        cells = self.quantise.scalars(hot[:, scenes:]).reshape(n, COARSE**2, -1)
        if seen is not None and self.training and self.config.silence > 0:
            speaks = torch.rand(n, 1, 1, device=cells.device) >= self.config.silence
            cells = cells * speaks
        base = self._base(posture, hot[:, :scenes] if scenes else None)
        return prediction | {self.images[0]: self.image_decoder(base, cells)}


class PaintedBody:
    """The coarse map that the decoder paints from joint angles and scene, cells' tokens aside."""

    def __init__(self, codec: SensesCodec):
        self.codec, self.grid, self.channels = codec, COARSE, codec.image_decoder.coarse_width

    @torch.no_grad()
    def __call__(self, latent: Tensor) -> Tensor:
        codec, lead = self.codec, latent.shape[:-1]
        flat = latent.reshape(-1, latent.shape[-1])
        posture, scenes = angle_features(codec._centres(flat)), codec.config.scene_tokens
        scene = flat[:, codec.angles : codec.angles + scenes]
        base = torch.cat((posture, codec.quantise.codebook[scene].flatten(1)), -1) if scenes else posture
        return codec.image_decoder.paint(base).reshape(*lead, self.grid**2, self.channels)
