"""FSQ codec: all senses in one code of rounded scalars, flat or on a grid of cells. The posterior is a point
mass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mirrormark.mind.codec import Code, Codec, CodecConfig, Prediction
from mirrormark.mind.latent import LatentSpec
from mirrormark.mind.quantise import ScalarQuantiser
from mirrormark.mind.senses import Senses
from mirrormark.mind.vision import COARSE, CellDecoder, CellEncoder, angle_feature_size, angle_features


class FSQCodec(Codec):
    """grid > 0: grid² cells × tokens_per_cell tokens. grid 0: `variables` tokens of one flat code."""

    def __init__(self, senses: Senses, config: CodecConfig):
        super().__init__(senses, config)
        if len(self.images) != 1 or self.symbols:
            raise ValueError(f"the fsq codec needs exactly one image and no symbols, got {sorted(senses)}")
        c, size = config, senses[self.images[0]].size
        self.quantise = ScalarQuantiser(c.levels)
        self.cells = c.grid**2 if c.grid else 1
        self.per_cell = c.tokens_per_cell if c.grid else c.variables
        tokens = self.cells * self.per_cell
        self.spec = LatentSpec((self.quantise.classes,) * tokens, (config.levels,) * tokens)
        scalars, angles = len(c.levels), sum(senses[name].size for name in self.vectors)
        posture, code = angle_feature_size(angles), self.spec.K * scalars
        cell_out = self.per_cell * scalars if c.grid else 64
        self.encoder = CellEncoder(size, c.channels, c.grid or COARSE, posture, cell_out, c.widest)
        self.gather = None if c.grid else nn.Linear(64 * COARSE**2 + posture, code)
        self.image_decoder = CellDecoder(
            size,
            c.channels,
            c.grid,
            code,
            self.per_cell * scalars if c.grid else 0,
            c.widest,
            c.posture_width,
        )
        self.vector_decoder = nn.Sequential(nn.Linear(code, 256), nn.SiLU(), nn.Linear(256, angles))

    def _encode(self, observation: Prediction, sample: bool) -> Code:
        image = observation[self.images[0]]
        posture = image.new_zeros(image.shape[0], 0, dtype=torch.float32)
        if self.vectors:
            posture = angle_features(self._vector(observation))
        raw = self.encoder(image, posture)
        if self.gather is not None:
            raw = self.gather(torch.cat((nn.functional.silu(raw).flatten(1), posture), -1))
        raw = raw.reshape(raw.shape[0], self.spec.K, len(self.config.levels))
        latent, one_hot, activation = self.quantise(raw)
        return Code(latent, one_hot.flatten(1), activation=activation.flatten(1))

    def _decode(self, one_hot: Tensor, seen: Prediction | None) -> Prediction:
        scalars = self.quantise.scalars(one_hot.unflatten(-1, (self.spec.K, self.quantise.classes)))
        code = scalars.flatten(1)
        cells = scalars.reshape(code.shape[0], self.cells, -1) if self.config.grid else None
        prediction = {self.images[0]: self.image_decoder(code, cells, code.shape[0])}
        return prediction | (self._split(self.vector_decoder(code)) if self.vectors else {})
