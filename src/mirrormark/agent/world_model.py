"""E2: action mixer e_t = g(s_t, a_t), causal sequence model h_{2:T+1} = f(e_{1:T}), predictor ŝ_{t+1} ~ p(ŝ |
h_{t+1}); and imagination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from mirrormark.agent.actor_critic import Policy
from mirrormark.agent.numerics import full_precision
from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.transformer import Block, BlockStyle, Cache
from mirrormark.config import WorldModelConfig

Start = Literal["posterior", "prior"]


class WorldModel(nn.Module):
    """hidden[:, t] has seen tokens and actions 0..t and predicts tokens t+1."""

    def __init__(
        self,
        spec: TokenSpec,
        actions: int,
        config: WorldModelConfig,
        style: BlockStyle,
        unimix: float,
        mixer: nn.Module,
    ):
        """mixer: (..., ΣC_k + A) -> (..., D), tokens first."""
        super().__init__()
        self.spec, self.actions, self.config, self.unimix = spec, actions, config, unimix
        c = config
        self.action_mixer = mixer
        self.position = nn.Parameter(torch.randn(c.max_length, c.width))
        self.norm_in = nn.LayerNorm(c.width, eps=style.norm_eps)
        self.blocks = nn.ModuleList(Block(c.width, c.heads, c.ffn, c.dropout, style) for _ in range(c.layers))
        self.norm_out = nn.LayerNorm(c.width) if style.pre_norm else nn.Identity()
        self.predictor = nn.Linear(c.width, spec.total)

    def forward(self, inputs: Tensor, action: Tensor, dropout: bool | None = None) -> Tensor:
        """inputs: tokens (B, T, K) or one-hot vectors (B, T, ΣC_k); action (B, T, A) -> hidden (B, T, D)."""
        x = self._embed(inputs, action, self._positions(action.shape[1]))
        for block in self.blocks:
            x = block(x, self.training if dropout is None else dropout)
        return self.norm_out(x)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Prediction of the next frame: (..., D) -> (..., K, C), fp32."""
        return self.spec.log_probs(self._logits(hidden), self.unimix)

    def sample(self, hidden: Tensor) -> Tensor:
        """A next frame from that prediction: (..., D) -> (..., K)."""
        return self.spec.sample(self._logits(hidden), self.unimix)

    def _logits(self, hidden: Tensor) -> Tensor:
        with full_precision(hidden):
            return self.predictor(hidden.float())

    def init_cache(self, batch: int, length: int) -> tuple[Cache, ...]:
        """An empty cache for `length` control steps."""
        self._positions(length)
        c, like = self.config, self.position
        half = torch.is_autocast_enabled(like.device.type)
        dtype = torch.get_autocast_dtype(like.device.type) if half else like.dtype
        shape = (batch, c.heads, length, c.width // c.heads)

        def room() -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=like.device)

        return tuple(Cache(room(), room()) for _ in self.blocks)

    def prefill(
        self, inputs: Tensor, action: Tensor, cache: tuple[Cache, ...], dropout: bool = False
    ) -> Tensor:
        """Take in a whole context at once: as `forward`, and into the cache."""
        x = self._embed(inputs, action, self._positions(action.shape[1]))
        for block, own in zip(self.blocks, cache):
            x = block(x, dropout, own)
        return self.norm_out(x)

    def step(
        self,
        inputs: Tensor,
        action: Tensor,
        cache: tuple[Cache, ...],
        position: Tensor,
        dropout: bool = False,
    ) -> Tensor:
        """Take in one step, tokens (B, K) and action (B, A), at `position` (1,) -> hidden (B, D)."""
        x = self._embed(inputs[:, None], action[:, None], self.position.index_select(0, position))
        for block, own in zip(self.blocks, cache):
            x = block(x, dropout, own, position)
        return self.norm_out(x)[:, 0]

    def _positions(self, steps: int) -> Tensor:
        if steps > self.config.max_length:
            raise ValueError(
                f"{steps} steps do not fit: raise world_model.max_length ({self.config.max_length})."
            )
        return self.position[:steps]

    def _embed(self, inputs: Tensor, action: Tensor, position: Tensor) -> Tensor:
        if action.shape[-1] != self.actions or action.shape[:-1] != inputs.shape[:-1]:
            raise ValueError(
                f"actions must be {(*inputs.shape[:-1], self.actions)} to go with tokens "
                f"{tuple(inputs.shape)}, got {tuple(action.shape)}"
            )
        mixed = self.action_mixer(torch.cat((self.spec.one_hot(inputs), action), -1))
        return self.norm_in(mixed + position)


class Imagined(NamedTuple):
    """H imagined steps."""

    tokens: Tensor  # (B, H+1, K)
    hidden: Tensor  # (B, H+1, D)
    action: Tensor  # (B, H, A), before tanh


def context(
    world_model: WorldModel, tokens: Tensor, action: Tensor, horizon: int, start: Start, dropout: bool
) -> tuple[Tensor, Tensor, tuple[Cache, ...]]:
    """Where imagination starts: tokens (B, K), hidden (B, D) and a cache with room for `horizon` steps."""
    pairs = tokens.shape[1] - (start == "posterior")
    cache = world_model.init_cache(tokens.shape[0], pairs + horizon)
    if pairs:
        hidden = world_model.prefill(tokens[:, :pairs], action[:, :pairs], cache, dropout)[:, -1].float()
    else:
        hidden = torch.zeros(tokens.shape[0], world_model.config.width, device=tokens.device)
    now = tokens[:, -1] if start == "posterior" else world_model.sample(hidden)
    return now.contiguous(), hidden.contiguous(), cache  # laid out as later ones: compiled once


def imagine_step(
    world_model: WorldModel,
    policy: Policy,
    tokens: Tensor,
    hidden: Tensor,
    cache: tuple[Cache, ...],
    position: Tensor,
    dropout: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The action (B, A) before tanh, and the tokens and hidden state that it leads to."""
    inputs = world_model.spec.one_hot(tokens)
    action = policy(inputs, hidden).sample()
    hidden = world_model.step(inputs, action.tanh(), cache, position, dropout).float()
    return action, world_model.sample(hidden), hidden


@torch.no_grad()
def imagine(
    world_model: WorldModel,
    policy: Policy,
    tokens: Tensor,
    action: Tensor,
    horizon: int,
    start: Start = "posterior",
    dropout: bool = False,
    step: Callable = imagine_step,
) -> Imagined:
    """What the policy would lead to, after real tokens (B, T, K) and actions (B, T or T-1, A).

    start (Dd): the last real frame itself, a "posterior" sample, whose own action is not taken (paper); or a
    "prior" sample after all T pairs (public code). No gradient: the policy learns by log-probabilities.
    step: `imagine_step`, or it compiled."""
    now, hidden, cache = context(world_model, tokens, action, horizon, start, dropout)
    position = torch.full((1,), tokens.shape[1] - (start == "posterior"), device=tokens.device)
    frames, hiddens, actions = [now], [hidden], []
    for _ in range(horizon):
        chosen, now, hidden = step(world_model, policy, now, hidden, cache, position, dropout)
        position = position + 1
        frames.append(now)
        hiddens.append(hidden)
        actions.append(chosen)
    return Imagined(torch.stack(frames, 1), torch.stack(hiddens, 1), torch.stack(actions, 1))


@torch.no_grad()
def predict(world_model: WorldModel, tokens: Tensor, action: Tensor, future: Tensor) -> Tensor:
    """Imagine what given actions (B, H, A) in [-1, 1] would lead to, after tokens (B, T, K) and the actions
    (B, T-1, A) between them -> tokens (B, H+1, K), the present first."""
    now, _, cache = context(world_model, tokens, action, future.shape[1], "posterior", False)
    frames = [now]
    for t in range(future.shape[1]):
        position = torch.full((1,), tokens.shape[1] - 1 + t, device=tokens.device)
        frames.append(world_model.sample(world_model.step(frames[-1], future[:, t], cache, position).float()))
    return torch.stack(frames, 1)
