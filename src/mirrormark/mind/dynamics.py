"""E2: action mixer e_t = g(s_t, a_t), causal sequence model h_{2:T+1} = f(e_{1:T}), predictor ŝ_{t+1} ~ p(ŝ |
h_{t+1})."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mirrormark.mind.latent import LatentSpec, draw
from mirrormark.mind.numerics import WideLinear, full_precision
from mirrormark.mind.transformer import Activation, Block, Cache, Kernel, Norm


@dataclass(frozen=True)
class DynamicsConfig:
    """The sequence model. Defaults: preset paper."""

    width: int = 512
    """Size of e_t and h_t (paper, Table II)."""
    layers: int = 2
    """Transformer blocks (paper, Table II)."""
    heads: int = 8
    """Attention heads (paper, Table II)."""
    ffn: int = 1024
    """Width inside the blocks' networks (not given; twice the width)."""
    dropout: float = 0.1
    """Dropout while learning (paper, Table II); imagination has its own switch (D9)."""
    norm: Norm = "post"
    """Layer norm after (post) or before (pre) each residual branch (not given)."""
    activation: Activation = "relu"
    """Non-linearity inside the blocks (not given)."""
    unimix: float = 0.01
    """Share of an even distribution mixed into the prediction (paper, Table III)."""
    max_length: int = 64
    """Longest sequence in control steps: learned positions exist up to here (public code's batches, D6)."""
    keeps: bool = False
    """The predictor also says of each token whether it stays as it is (ours; swift: on): what lasts need not
    be spelled out anew in every dreamed frame."""
    kernel: Kernel = "sdpa"
    """How attention is computed; no effect on the result (ours)."""


class Dynamics(nn.Module):
    """hidden[:, t] has seen latents and actions 0..t and predicts latent t+1."""

    def __init__(self, spec: LatentSpec, actions: int, config: DynamicsConfig):
        super().__init__()
        self.spec, self.actions, self.config = spec, actions, config
        c = config
        self.action_mixer = WideLinear(spec.total + actions, c.width)
        self.position = nn.Parameter(torch.randn(c.max_length, c.width) * 0.02)
        self.norm_in = nn.LayerNorm(c.width)
        self.blocks = nn.ModuleList(
            Block(c.width, c.heads, c.ffn, c.norm, c.activation, c.dropout, c.kernel) for _ in range(c.layers)
        )
        self.norm_out = nn.LayerNorm(c.width) if c.norm == "pre" else nn.Identity()
        self.predictor = WideLinear(c.width, spec.total)
        self.keep = nn.Linear(c.width, spec.K) if c.keeps else None

    @property
    def width(self) -> int:
        return self.config.width

    def forward(self, latent: Tensor, action: Tensor, dropout: bool | None = None) -> Tensor:
        """latent (B, T, K) indices or (B, T, total) straight-through, action (B, T, A) -> hidden (B, T,
        D)."""
        x = self._embed(latent, action, 0)
        for block in self.blocks:
            x = block(x, dropout=self.training if dropout is None else dropout)
        return self.norm_out(x)

    def logits(self, hidden: Tensor, present: Tensor) -> Tensor:
        """Prediction of the next latent: hidden (..., D) and the latent that it has seen last (..., K) or
        (..., total) -> normalised log-probabilities (..., K, widest), fp32."""
        with full_precision(hidden):
            return self.spec.log_probs(self._scores(hidden.float(), present), self.config.unimix)

    def draw(self, hidden: Tensor, present: Tensor, temperature: float = 1.0) -> Tensor:
        """A next latent (..., K) from that prediction."""
        if temperature != 1:
            return draw(self.logits(hidden, present), temperature)
        with full_precision(hidden):
            return self.spec.sample(self._scores(hidden.float(), present), self.config.unimix)

    def _scores(self, hidden: Tensor, present: Tensor) -> Tensor:
        """Logits before they are normalised, (..., total)."""
        flat = self.predictor(hidden)
        if self.keep is not None:
            flat = flat + self.spec.spread(self.keep(hidden)) * self.spec.as_one_hot(present)
        return flat

    def init_cache(self, batch: int, max_len: int) -> Cache:
        """An empty memory for `max_len` control steps."""
        if max_len > self.config.max_length:
            raise ValueError(
                f"{max_len} steps do not fit: raise dynamics.max_length ({self.config.max_length})"
            )
        like, c = self.position, self.config
        half = torch.is_autocast_enabled(like.device.type)
        dtype = torch.get_autocast_dtype(like.device.type) if half else like.dtype
        shape = (batch, c.heads, max_len, c.width // c.heads)

        def room() -> tuple[Tensor, ...]:
            return tuple(torch.zeros(shape, dtype=dtype, device=like.device) for _ in range(c.layers))

        return Cache(room(), room())

    def prefill(
        self, latent: Tensor, action: Tensor, cache: Cache, dropout: bool = False
    ) -> tuple[Tensor, Cache]:
        """Take in a whole context at once: latent (B, T, K), action (B, T, A) -> hidden (B, T, D)."""
        return self._remember(self._embed(latent, action, 0), cache, None, dropout), cache

    def step(
        self, latent: Tensor, action: Tensor, cache: Cache, position: int | Tensor, dropout: bool = False
    ) -> tuple[Tensor, Cache]:
        """Take in one step: latent (B, K), action (B, A), at `position` = steps already in the cache -> (B,
        D). As a tensor (1,) on the device, the position is no part of a compiled step."""
        x = self._embed(latent.unsqueeze(1), action.unsqueeze(1), position)
        if isinstance(position, int):
            position = torch.full((1,), position, device=x.device)
        return self._remember(x, cache, position, dropout).squeeze(1), cache

    def _remember(self, x: Tensor, cache: Cache, position: Tensor | None, dropout: bool) -> Tensor:
        for block, *memory in zip(self.blocks, *cache):
            x = block(x, dropout, memory, position)
        return self.norm_out(x)

    def _embed(self, latent: Tensor, action: Tensor, position: int | Tensor) -> Tensor:
        if action.shape[-1] != self.actions or action.shape[:-1] != latent.shape[:-1]:
            raise ValueError(
                f"actions must be {(*latent.shape[:-1], self.actions)} to go with latents "
                f"{tuple(latent.shape)}, got {tuple(action.shape)}"
            )
        mixed = self.action_mixer(self.spec.beside(latent, action))
        return self.norm_in(mixed + self._place(position, latent.shape[1]))

    def _place(self, position: int | Tensor, steps: int) -> Tensor:
        """Learned embedding of `steps` positions, or of the one that a tensor names: (steps, D)."""
        if isinstance(position, Tensor):
            return self.position.index_select(0, position)
        last = position + steps
        if last > self.config.max_length:
            raise ValueError(f"{last} steps are longer than dynamics.max_length ({self.config.max_length})")
        return self.position[position:last]
