"""E1: the codec turns an observation into a latent and back. Variants: CodecConfig.kind; built by
mind.build_codec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from mirrormark.mind.latent import LatentSpec
from mirrormark.mind.senses import Observation, Senses, centred_image, lead_shape, of_kind, restore

Prediction = dict[str, Tensor]


@dataclass(frozen=True)
class CodecConfig:
    """Which codec, and its sizes. Defaults: preset paper. A field is read only by the kinds it names."""

    kind: Literal["categorical", "senses", "symbolic"] = "categorical"
    """categorical: the paper's. senses: tokens for each sense. symbolic: no pixels."""
    variables: int = 32
    """categorical: tokens (paper)."""
    classes: int = 32
    """categorical: classes of each token (paper)."""
    embedding: int = 1024
    """categorical: size of s^V, s^P and the mixer's output (paper, Table II)."""
    channels: int = 32
    """Channels of the first convolution; doubled at each halving of the image (categorical: 32 gives Table
    II's 1024)."""
    widest: int = 8
    """senses: the coarse maps have at most so many times `channels` (ours)."""
    vector_hidden: int = 32
    """categorical: hidden units of the encoders and decoders of vector senses (paper, Table II)."""
    levels: tuple[int, ...] = (8, 4)
    """senses: levels of a vision token's scalars, classes = their product (ours; learning.md)."""
    tokens_per_cell: int = 2
    """senses: vision tokens in each of 4 × 4 cells (ours; learning.md)."""
    hush: float = 0.0
    """senses: once the codec has learned, a vision token whose scalars are together shorter than this says
    nothing (ours; swift: .45): what is hardly worth saying flickers."""
    scene_tokens: int = 0
    """senses: vision tokens for the view as a whole, which the coarse map is painted from, as from the angles
    (ours): a room without its mirror need not be spelled out cell by cell."""
    bins: int = 32
    """senses, symbolic: classes of a joint's token, evenly over [-1, 1] (ours)."""
    encoder_sees: Literal["image", "surprise"] = "image"
    """senses: the image, or also its difference from what the decoder paints from the angles alone (ours)."""
    silence: float = 0.0
    """senses: share of frames that the decoder must paint from the angles alone while learning (ours)."""
    posture_width: int = 1024
    """senses: width of the network from angles to the decoder's coarse map (ours)."""

    def __post_init__(self) -> None:
        if self.bins < 2 or self.classes < 2:
            raise ValueError("codec.bins and codec.classes must be at least 2.")
        if self.hush < 0:
            raise ValueError(f"codec.hush is {self.hush}: it is a length, 0 or more.")
        if not 0 <= self.silence <= 1:
            raise ValueError(f"codec.silence is a share: give a number from 0 to 1, not {self.silence}.")


class Code(NamedTuple):
    """What the encoder made of an observation."""

    latent: Tensor  # (..., K) class indices
    straight_through: Tensor  # (..., total) one-hot, with the encoder's gradient
    logits: Tensor | None = None  # (..., K, widest) normalised posterior; None: a point mass
    embedding: Tensor | None = None  # (..., E) the mixer's output (categorical)
    activation: Tensor | None = None  # (..., scalars) before rounding, in [-1, 1] (senses)


class BodyLook(Protocol):
    """Paints postures."""

    grid: int
    channels: int

    def __call__(self, latent: Tensor) -> Tensor:
        """Latents (..., K) -> what their joint angles and scene make each cell look like (..., grid²,
        channels); no gradient."""
        ...


class Codec(nn.Module, ABC):
    """Base of all codecs: `spec` (what a latent is), `senses`, encode, decode, reconstruct."""

    spec: LatentSpec

    def __init__(self, senses: Senses, config: CodecConfig):
        super().__init__()
        if not senses:
            raise ValueError("a codec needs at least one sense")
        self.senses, self.config = dict(senses), config
        self.images, self.vectors = of_kind(senses, "image"), of_kind(senses, "vector")
        self.symbols = of_kind(senses, "symbol")

    @property
    def learned(self) -> tuple[str, ...]:
        """Senses whose prediction has parameters to learn; the others are read off their tokens."""
        return self.images + self.vectors

    @property
    def tokens(self) -> dict[str, slice]:
        """Which tokens belong to which sense, where tokens are not mixed."""
        return {}

    @property
    def look(self) -> BodyLook | None:
        """How the body looks in a posture, where the codec has learned to paint it on a grid."""
        return None

    def encode(self, observation: Observation, sample: bool = True) -> Code:
        """Any leading axes. sample: draw from the posterior, else take its likeliest (point masses: no
        difference)."""
        lead = lead_shape(observation, self.senses)
        flat = {name: observation[name].reshape(-1, *sense.shape) for name, sense in self.senses.items()}
        code = self._encode(flat, sample)
        return Code(*(part if part is None else restore(part, lead) for part in code))  # pyright: ignore[reportArgumentType]

    def decode(self, code: Tensor, observation: Observation | None = None) -> Prediction:
        """Latent (..., K) or straight-through one-hot (..., total) -> predicted senses, scaled as `targets`.

        With an observation, a decoder that sees angles sees the exact ones (while learning)."""
        one_hot = self.spec.as_one_hot(code)
        lead = one_hot.shape[:-1]
        seen = None
        if observation is not None:
            lead_shape(observation, self.senses)
            seen = {name: observation[name].reshape(-1, *self.senses[name].shape) for name in self.vectors}
        prediction = self._decode(one_hot.reshape(-1, self.spec.total), seen)
        return {name: restore(value, lead) for name, value in prediction.items()}

    def decode_embedding(self, embedding: Tensor) -> Prediction:
        """D4: decoders fed with the mixer's embedding; only the categorical codec has one."""
        raise ValueError(
            f"losses.decoder='embedding' needs codec.kind='categorical', not {self.config.kind!r}"
        )

    def targets(self, observation: Observation) -> Prediction:
        """What `decode` should give: images in [-.5, .5], vectors as they are, symbols as classes."""
        return {
            name: centred_image(observation[name]) if sense.kind == "image" else observation[name]
            for name, sense in self.senses.items()
        }

    @abstractmethod
    def _encode(self, observation: Prediction, sample: bool) -> Code:
        """Observations (N, ...) -> their code."""

    @abstractmethod
    def _decode(self, one_hot: Tensor, seen: Prediction | None) -> Prediction:
        """Flat one-hots (N, total), and the exact vector senses if known -> what they look and feel like."""

    def _vector(self, observation: Prediction) -> Tensor:
        """All vector senses side by side, (N, sum of sizes)."""
        return torch.cat([observation[name].float() for name in self.vectors], -1)

    def _split(self, vector: Tensor) -> Prediction:
        """Undoes `_vector`."""
        sizes = [self.senses[name].size for name in self.vectors]
        return dict(zip(self.vectors, vector.split(sizes, -1)))
