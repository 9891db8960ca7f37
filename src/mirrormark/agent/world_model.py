"""E2: action mixer e_t = g(s_t, a_t), causal sequence model h_{2:T+1} = f(e_{1:T}), predictor ŝ_{t+1} ~ p(ŝ |
h_{t+1})."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mirrormark.agent.numerics import WideLinear, full_precision
from mirrormark.agent.token_features import FeatureKind, TokenFeatures
from mirrormark.agent.token_heads import GridNextTokenHead, NextTokenHead, Predictor
from mirrormark.agent.tokenizer import PostureRenderer
from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.transformer import Activation, Block, Cache, Kernel, Norm

KERNEL: Kernel = "sdpa"
"""How attention is computed; no effect on the result (ours)."""


@dataclass(frozen=True)
class WorldModelConfig:
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
    memory_trace: float = 0.0
    """Of what the cells' tokens have said, this share is recalled a control step later, and so on (ours;
    swift: .97; 0 = off; needs chained and levels): what was seen where an arm is now will be seen again."""
    token_features: FeatureKind = "classes"
    """Sequence model, policy and value read a frame's tokens by its classes' names (paper) or by the levels
    that they stand for (ours; swift)."""

    def __post_init__(self) -> None:
        for name in ("dropout", "unimix", "memory_trace"):
            if not 0 <= getattr(self, name) < 1:
                given = getattr(self, name)
                raise ValueError(f"world_model.{name} is {given}: give a share from 0 to below 1.")


class WorldModel(nn.Module):
    """hidden[:, t] has seen tokens and actions 0..t and predicts tokens t+1."""

    def __init__(
        self,
        spec: TokenSpec,
        actions: int,
        config: WorldModelConfig,
        rendered_posture: PostureRenderer | None = None,
    ):
        """look: how the body looks in a posture, where the tokenizer knows it; chained predictions see it."""
        super().__init__()
        self.spec, self.actions, self.config = spec, actions, config
        c = config
        self.features = TokenFeatures(spec, c.token_features)
        self.action_mixer = WideLinear(self.features.size + actions, c.width)
        self.position = nn.Parameter(torch.randn(c.max_length, c.width) * 0.02)
        self.norm_in = nn.LayerNorm(c.width)
        self.blocks = nn.ModuleList(
            Block(c.width, c.heads, c.ffn, c.norm, c.activation, c.dropout, KERNEL) for _ in range(c.layers)
        )
        self.norm_out = nn.LayerNorm(c.width) if c.norm == "pre" else nn.Identity()
        self.posture_renderer = rendered_posture
        self.split = spec.groups[0].count if c.chained and len(spec.groups) > 1 else spec.K
        first = spec.part(slice(0, self.split))
        self.first = Predictor(first, c.width, c.keeps, c.drifts)
        self.rest = self._rest(first) if self.chained else None
        self.trace_size = 0
        if c.memory_trace and isinstance(self.rest, GridNextTokenHead) and c.token_features == "levels":
            self.trace_size = self.rest.features.size
            self.register_buffer(
                "inactive_features", self.rest.features(self.rest.inactive), persistent=False
            )
            self.inactive_features: Tensor

    def _rest(self, first: TokenSpec) -> NextTokenHead | GridNextTokenHead:
        c, spec = self.config, self.spec.part(slice(self.split, None))
        if self.posture_renderer is None:
            return NextTokenHead(first, spec, c.width, c.keeps, c.drifts)
        memory_trace = c.memory_trace > 0 and c.token_features == "levels"
        return GridNextTokenHead(
            first, spec, c.width, self.posture_renderer.grid, self.posture_renderer.channels, memory_trace
        )

    @property
    def chained(self) -> bool:
        """Whether later tokens are predicted given the first ones."""
        return self.split < self.spec.K

    @property
    def width(self) -> int:
        """Size of a hidden state: h, and behind it what is recalled of the cells."""
        return self.config.width + self.trace_size

    def forward(self, tokens: Tensor, action: Tensor, dropout: bool | None = None) -> Tensor:
        """tokens (B, T, K) indices or (B, T, total) straight-through, action (B, T, A) -> hidden (B, T,
        D)."""
        x = self._embed(tokens, action, 0)
        for block in self.blocks:
            x = block(x, dropout=self.training if dropout is None else dropout)
        return self._with_memory_trace(self.norm_out(x), tokens)

    def _active_features(self, tokens: Tensor) -> Tensor:
        """What the cells' tokens say beyond silence: tokens (..., K), or its reading -> (..., R)."""
        features = tokens if tokens.is_floating_point() else self.features(tokens)
        return features[..., self.features.size - self.trace_size :].float() - self.inactive_features

    def _with_memory_trace(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, width): behind each h what had been said until then, ever fainter."""
        if not self.trace_size:
            return hidden
        time = torch.arange(hidden.shape[1], device=hidden.device)
        age = (time[:, None] - time).float()
        weight = torch.where(age >= 0, self.config.memory_trace**age, 0.0)
        with full_precision(hidden):
            return torch.cat((hidden.float(), weight @ self._active_features(tokens)), -1)

    def logits(self, hidden: Tensor, present: Tensor, following: Tensor | None = None) -> Tensor:
        """Prediction of the next tokens: hidden (..., D) and the tokens that it has seen last (..., K) or
        (..., total) -> normalised log-probabilities (..., K, widest), fp32. Chained, the later tokens' rows
        are given the first ones of `following` (..., K)."""
        mix = self.config.unimix
        if not self.chained:
            return self.spec.log_probs(self._leading(hidden, present), mix)
        if following is None:
            raise ValueError("a chained prediction needs the tokens whose tokens it follows")
        first = self._leading(hidden, present)
        rest = self._following(hidden, present, following[..., : self.split])
        return self.spec.log_probs(torch.cat((first, rest), -1), mix)

    def sample(self, hidden: Tensor, present: Tensor) -> Tensor:
        """A next tokens (..., K) from that prediction."""
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
        rest, (h, trace) = present[..., self.split :], hidden.split((self.config.width, self.trace_size), -1)
        if self.posture_renderer is None:
            return self.rest(h, rest, first)
        return self.rest(h, rest, first, self.posture_renderer(torch.cat((first, rest), -1)), trace)

    def init_cache(self, batch: int, max_len: int) -> Cache:
        """An empty memory for `max_len` control steps."""
        if max_len > self.config.max_length:
            raise ValueError(
                f"{max_len} steps do not fit: raise world_model.max_length ({self.config.max_length})"
            )
        like, c = self.position, self.config
        half = torch.is_autocast_enabled(like.device.type)
        dtype = torch.get_autocast_dtype(like.device.type) if half else like.dtype
        shape = (batch, c.heads, max_len, c.width // c.heads)

        def room() -> tuple[Tensor, ...]:
            return tuple(torch.zeros(shape, dtype=dtype, device=like.device) for _ in range(c.layers))

        return Cache(room(), room(), torch.zeros(batch, self.trace_size, device=like.device))

    def prefill(
        self, tokens: Tensor, action: Tensor, cache: Cache, dropout: bool = False
    ) -> tuple[Tensor, Cache]:
        """Take in a whole context at once: tokens (B, T, K), action (B, T, A) -> hidden (B, T, D)."""
        hidden = self._remember(self._embed(tokens, action, 0), cache, None, dropout)
        hidden = self._with_memory_trace(hidden, tokens)
        if self.trace_size:
            cache.trace.copy_(hidden[:, -1, self.config.width :])
        return hidden, cache

    def step(
        self, tokens: Tensor, action: Tensor, cache: Cache, position: int | Tensor, dropout: bool = False
    ) -> tuple[Tensor, Cache]:
        """Take in one step: tokens (B, K), action (B, A), at `position` = steps already in the cache -> (B,
        D). As a tensor (1,) on the device, the position is no part of a compiled step."""
        x = self._embed(tokens.unsqueeze(1), action.unsqueeze(1), position)
        if isinstance(position, int):
            position = torch.full((1,), position, device=x.device)
        hidden = self._remember(x, cache, position, dropout).squeeze(1)
        if self.trace_size:
            cache.trace.mul_(self.config.memory_trace).add_(self._active_features(tokens))
            hidden = torch.cat((hidden.float(), cache.trace), -1)
        return hidden, cache

    def _remember(self, x: Tensor, cache: Cache, position: Tensor | None, dropout: bool) -> Tensor:
        for block, *kv in zip(self.blocks, cache.keys, cache.values):
            x = block(x, dropout, kv, position)
        return self.norm_out(x)

    def _embed(self, tokens: Tensor, action: Tensor, position: int | Tensor) -> Tensor:
        if action.shape[-1] != self.actions or action.shape[:-1] != tokens.shape[:-1]:
            raise ValueError(
                f"actions must be {(*tokens.shape[:-1], self.actions)} to go with tokens "
                f"{tuple(tokens.shape)}, got {tuple(action.shape)}"
            )
        mixed = self.action_mixer(self.features.concat(tokens, action))
        return self.norm_in(mixed + self._place(position, tokens.shape[1]))

    def _place(self, position: int | Tensor, steps: int) -> Tensor:
        """Learned embedding of `steps` positions, or of the one that a tensor names: (steps, D)."""
        if isinstance(position, Tensor):
            return self.position.index_select(0, position)
        last = position + steps
        if last > self.config.max_length:
            raise ValueError(
                f"{last} steps are longer than world_model.max_length ({self.config.max_length})"
            )
        return self.position[position:last]
