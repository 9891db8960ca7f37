"""E1: a tokenizer turns an observation into tokens and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mirrormark.agent.losses import Loss
from mirrormark.agent.senses import Observation, Senses, centred_image, lead_shape, of_kind, restore
from mirrormark.agent.tokens import TokenSpec

Prediction = dict[str, Tensor]


class Encoding(NamedTuple):
    """What an observation is encoded into."""

    tokens: Tensor  # (..., K) int64
    one_hot: Tensor | None = None  # (..., ΣC_k) straight-through; None: a point mass
    log_probs: Tensor | None = None  # (..., K, C) the posterior q; None: a point mass

    @property
    def inputs(self) -> Tensor:
        """What the world model reads: with gradient where there is one."""
        return self.tokens if self.one_hot is None else self.one_hot


class Tokenizer(nn.Module, ABC):
    """Base of all tokenizers. Images are (..., S, S, 3), vectors (..., N) in [-1, 1], symbols (..., 1)."""

    spec: TokenSpec

    def __init__(self, senses: Senses):
        super().__init__()
        if not senses:
            raise ValueError("a tokenizer needs at least one sense")
        self.senses = dict(senses)
        self.images, self.vectors = of_kind(senses, "image"), of_kind(senses, "vector")
        self.symbols = of_kind(senses, "symbol")

    @property
    def slices(self) -> dict[str, slice]:
        """Tokens of each sense, where tokens are not mixed."""
        return {}

    def encode(self, observation: Observation, sample: bool = True) -> Encoding:
        """Any leading axes. sample: draw from the posterior, else take its likeliest (point masses: no
        difference)."""
        flat, lead = self._flat(observation)
        encoding = self._encode(flat, sample)
        return Encoding(*(None if part is None else restore(part, lead) for part in encoding))  # pyright: ignore[reportArgumentType]

    def decode(self, tokens: Tensor) -> Prediction:
        """Tokens (..., K) -> what they look and feel like: images in [-.5, .5], vectors in [-1, 1]."""
        lead, one_hot = tokens.shape[:-1], self.spec.one_hot(tokens)
        prediction = self._decode(one_hot.reshape(-1, self.spec.total))
        return {name: restore(value, lead) for name, value in prediction.items()}

    def loss(self, observation: Observation) -> tuple[Encoding, Loss]:
        """Encode frames, and what the tokenizer learns by (E8): any leading axes."""
        flat, lead = self._flat(observation)
        encoding, loss = self._loss(flat)
        return Encoding(*(None if part is None else restore(part, lead) for part in encoding)), loss  # pyright: ignore[reportArgumentType]

    def set_progress(self, progress: float) -> None:
        """Move along the schedule of the tokenizer's own phase, 0..1; outside any captured graph."""

    def targets(self, observation: Observation) -> Prediction:
        """What `decode` should give."""
        return {
            name: centred_image(observation[name]) if sense.kind == "image" else observation[name]
            for name, sense in self.senses.items()
        }

    def _flat(self, observation: Observation) -> tuple[Prediction, torch.Size]:
        lead = lead_shape(observation, self.senses)
        return {n: observation[n].reshape(-1, *sense.shape) for n, sense in self.senses.items()}, lead

    def _vector(self, observation: Prediction) -> Tensor:
        """All vector senses side by side, (N, sum of sizes)."""
        return torch.cat([observation[name].float() for name in self.vectors], -1)

    @abstractmethod
    def _encode(self, observation: Prediction, sample: bool) -> Encoding:
        """Observations (N, ...) -> their encoding."""

    @abstractmethod
    def _decode(self, one_hot: Tensor) -> Prediction:
        """One-hot vectors (N, ΣC_k) -> what they look and feel like."""

    @abstractmethod
    def _loss(self, observation: Prediction) -> tuple[Encoding, Loss]:
        """As `loss`, of observations (N, ...)."""
