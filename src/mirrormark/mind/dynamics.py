"""E2: action mixer e_t = g(s_t, a_t), causal sequence model h_{2:T+1} = f(e_{1:T}), predictor ŝ_{t+1} ~ p(ŝ |
h_{t+1})."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mirrormark.mind.codec import BodyLook
from mirrormark.mind.latent import LatentSpec
from mirrormark.mind.numerics import WideLinear, full_precision
from mirrormark.mind.prediction import Following, GridFollowing, Predictor
from mirrormark.mind.reading import By, Reading
from mirrormark.mind.transformer import Activation, Block, Cache, Kernel, Norm

KERNEL: Kernel = "sdpa"
"""How attention is computed; no effect on the result (ours)."""


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
    drifts: bool = False
    """The predictor also says of each long scale (a joint's bins) where it moves to from where it is, and how
    surely (ours; swift: on): what is known of one bin then serves its neighbours."""
    chained: bool = False
    """The first kind of tokens (joint angles) is drawn first and the others given it (ours; swift: on): what
    is seen depends on where the arms will be, not only on where they were."""
    recalls: float = 0.0
    """Of what the cells' tokens have said, this share is recalled a control step later, and so on (ours;
    swift: .97; 0 = off; needs chained and levels): what was seen where an arm is now will be seen again."""
    reads: By = "classes"
    """Sequence model, policy and value read a latent by its classes' names (paper) or by the levels that
    they stand for (ours; swift)."""

    def __post_init__(self) -> None:
        for name in ("dropout", "unimix", "recalls"):
            if not 0 <= getattr(self, name) < 1:
                given = getattr(self, name)
                raise ValueError(f"dynamics.{name} is {given}: give a share from 0 to below 1.")


class Dynamics(nn.Module):
    """hidden[:, t] has seen latents and actions 0..t and predicts latent t+1."""

    def __init__(self, spec: LatentSpec, actions: int, config: DynamicsConfig, look: BodyLook | None = None):
        """look: how the body looks in a posture, where the codec knows it; chained predictions see it."""
        super().__init__()
        self.spec, self.actions, self.config = spec, actions, config
        c = config
        self.reading = Reading(spec, c.reads)
        self.action_mixer = WideLinear(self.reading.size + actions, c.width)
        self.position = nn.Parameter(torch.randn(c.max_length, c.width) * 0.02)
        self.norm_in = nn.LayerNorm(c.width)
        self.blocks = nn.ModuleList(
            Block(c.width, c.heads, c.ffn, c.norm, c.activation, c.dropout, KERNEL) for _ in range(c.layers)
        )
        self.norm_out = nn.LayerNorm(c.width) if c.norm == "pre" else nn.Identity()
        self.look = look
        self.split = spec.runs[0].count if c.chained and len(spec.runs) > 1 else spec.K
        first = spec.part(slice(0, self.split))
        self.first = Predictor(first, c.width, c.keeps, c.drifts)
        self.rest = self._rest(first) if self.chained else None
        self.traces = 0
        if c.recalls and isinstance(self.rest, GridFollowing) and c.reads == "levels":
            self.traces = self.rest.reading.size
            self.register_buffer("silence", self.rest.reading(self.rest.silent), persistent=False)
            self.silence: Tensor

    def _rest(self, first: LatentSpec) -> Following | GridFollowing:
        c, spec = self.config, self.spec.part(slice(self.split, None))
        if self.look is None:
            return Following(first, spec, c.width, c.keeps, c.drifts)
        recalls = c.recalls > 0 and c.reads == "levels"
        return GridFollowing(first, spec, c.width, self.look.grid, self.look.channels, recalls)

    @property
    def chained(self) -> bool:
        """Whether later tokens are predicted given the first ones."""
        return self.split < self.spec.K

    @property
    def width(self) -> int:
        """Size of a hidden state: h, and behind it what is recalled of the cells."""
        return self.config.width + self.traces

    def forward(self, latent: Tensor, action: Tensor, dropout: bool | None = None) -> Tensor:
        """latent (B, T, K) indices or (B, T, total) straight-through, action (B, T, A) -> hidden (B, T,
        D)."""
        x = self._embed(latent, action, 0)
        for block in self.blocks:
            x = block(x, dropout=self.training if dropout is None else dropout)
        return self._recalling(self.norm_out(x), latent)

    def _said(self, latent: Tensor) -> Tensor:
        """What the cells' tokens say beyond silence: latent (..., K), or its reading -> (..., R)."""
        read = latent if latent.is_floating_point() else self.reading(latent)
        return read[..., self.reading.size - self.traces :].float() - self.silence

    def _recalling(self, hidden: Tensor, latent: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, width): behind each h what had been said until then, ever fainter."""
        if not self.traces:
            return hidden
        time = torch.arange(hidden.shape[1], device=hidden.device)
        age = (time[:, None] - time).float()
        weight = torch.where(age >= 0, self.config.recalls**age, 0.0)
        with full_precision(hidden):
            return torch.cat((hidden.float(), weight @ self._said(latent)), -1)

    def logits(self, hidden: Tensor, present: Tensor, following: Tensor | None = None) -> Tensor:
        """Prediction of the next latent: hidden (..., D) and the latent that it has seen last (..., K) or
        (..., total) -> normalised log-probabilities (..., K, widest), fp32. Chained, the later tokens' rows
        are given the first ones of `following` (..., K)."""
        mix = self.config.unimix
        if not self.chained:
            return self.spec.log_probs(self._leading(hidden, present), mix)
        if following is None:
            raise ValueError("a chained prediction needs the latent whose tokens it follows")
        first = self._leading(hidden, present)
        rest = self._following(hidden, present, following[..., : self.split])
        return self.spec.log_probs(torch.cat((first, rest), -1), mix)

    def draw(self, hidden: Tensor, present: Tensor) -> Tensor:
        """A next latent (..., K) from that prediction."""
        unimix = self.config.unimix
        first = self.first.spec.sample(self._leading(hidden, present), unimix)
        if self.rest is None:
            return first
        rest = self.rest.spec.sample(self._following(hidden, present, first), unimix)
        return torch.cat((first, rest), -1)

    def _leading(self, hidden: Tensor, present: Tensor) -> Tensor:
        """Scores of the first tokens, of all where nothing is chained."""
        first = present[..., : self.split] if self.chained else present
        return self.first(hidden[..., : self.config.width], first)

    def _following(self, hidden: Tensor, present: Tensor, first: Tensor) -> Tensor:
        """Scores of the others, `first` (..., split) being known."""
        assert self.rest is not None
        rest, (h, trace) = present[..., self.split :], hidden.split((self.config.width, self.traces), -1)
        if self.look is None:
            return self.rest(h, rest, first)
        return self.rest(h, rest, first, self.look(torch.cat((first, rest), -1)), trace)

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

        return Cache(room(), room(), torch.zeros(batch, self.traces, device=like.device))

    def prefill(
        self, latent: Tensor, action: Tensor, cache: Cache, dropout: bool = False
    ) -> tuple[Tensor, Cache]:
        """Take in a whole context at once: latent (B, T, K), action (B, T, A) -> hidden (B, T, D)."""
        hidden = self._remember(self._embed(latent, action, 0), cache, None, dropout)
        hidden = self._recalling(hidden, latent)
        if self.traces:
            cache.trace.copy_(hidden[:, -1, self.config.width :])
        return hidden, cache

    def step(
        self, latent: Tensor, action: Tensor, cache: Cache, position: int | Tensor, dropout: bool = False
    ) -> tuple[Tensor, Cache]:
        """Take in one step: latent (B, K), action (B, A), at `position` = steps already in the cache -> (B,
        D). As a tensor (1,) on the device, the position is no part of a compiled step."""
        x = self._embed(latent.unsqueeze(1), action.unsqueeze(1), position)
        if isinstance(position, int):
            position = torch.full((1,), position, device=x.device)
        hidden = self._remember(x, cache, position, dropout).squeeze(1)
        if self.traces:
            cache.trace.mul_(self.config.recalls).add_(self._said(latent))
            hidden = torch.cat((hidden.float(), cache.trace), -1)
        return hidden, cache

    def _remember(self, x: Tensor, cache: Cache, position: Tensor | None, dropout: bool) -> Tensor:
        for block, *memory in zip(self.blocks, cache.keys, cache.values):
            x = block(x, dropout, memory, position)
        return self.norm_out(x)

    def _embed(self, latent: Tensor, action: Tensor, position: int | Tensor) -> Tensor:
        if action.shape[-1] != self.actions or action.shape[:-1] != latent.shape[:-1]:
            raise ValueError(
                f"actions must be {(*latent.shape[:-1], self.actions)} to go with latents "
                f"{tuple(latent.shape)}, got {tuple(action.shape)}"
            )
        mixed = self.action_mixer(self.reading.beside(latent, action))
        return self.norm_in(mixed + self._place(position, latent.shape[1]))

    def _place(self, position: int | Tensor, steps: int) -> Tensor:
        """Learned embedding of `steps` positions, or of the one that a tensor names: (steps, D)."""
        if isinstance(position, Tensor):
            return self.position.index_select(0, position)
        last = position + steps
        if last > self.config.max_length:
            raise ValueError(f"{last} steps are longer than dynamics.max_length ({self.config.max_length})")
        return self.position[position:last]
