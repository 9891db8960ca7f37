"""The causal transformer shared by the sequence model (E2) and the self-prior (E3), with an explicit
memory."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TRITON = find_spec("triton") is not None
if TRITON or TYPE_CHECKING:
    from mirrormark.agent import kernels

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu"]
Kernel = Literal["sdpa", "plain"]

_SHORT = 32
"""Steps up to which flash kernels waste their tiles even where heads are wide."""


class Cache(NamedTuple):
    """Projected keys and values, of fixed size, so that a CUDA graph can hold it. Steps are written in place:
    use it where no gradient is needed."""

    keys: tuple[Tensor, ...]  # of each layer (B, heads, L, D/heads)
    values: tuple[Tensor, ...]
    trace: Tensor  # (B, R): what the tokens of the cells have said lately, see world_model.memory_trace


def attend(q: Tensor, k: Tensor, v: Tensor, dropout: float, kernel: Kernel) -> Tensor:
    """Causal attention; q, k and v (B, heads, T, d).

    `plain` wins where heads are 16 wide and sequences short: flash kernels waste their tiles there
    (speed.md)."""
    steps = q.shape[-2]
    if kernel == "sdpa":
        return F.scaled_dot_product_attention(q, k, v, is_causal=steps > 1, dropout_p=dropout)
    scores = (q @ k.mT) * q.shape[-1] ** -0.5
    visible = torch.ones(steps, steps, dtype=torch.bool, device=q.device).tril()
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1, dtype=torch.float32).to(v.dtype)
    return (F.dropout(weights, dropout) if dropout else weights) @ v


def look_back(q: Tensor, keys: Tensor, values: Tensor, position: Tensor, dropout: float) -> Tensor:
    """Attention of one step, q (B, heads, 1, d), over keys and values (B, heads, L, d) up to `position` (1,).
    One query makes no matrix product: products and sums, which compile into one kernel each."""
    scores = (q.float() * keys).sum(-1) * q.shape[-1] ** -0.5  # (B, heads, L)
    ahead = torch.arange(keys.shape[2], device=q.device) > position
    weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
    weights = F.dropout(weights, dropout) if dropout else weights
    return (weights.unsqueeze(-1) * values).sum(-2, keepdim=True).to(q.dtype)


class Block(nn.Module):
    """Attention and a two-layer network, each with residual and layer norm (after it: post, before it:
    pre)."""

    def __init__(
        self,
        width: int,
        heads: int,
        ffn: int,
        norm: Norm,
        activation: Activation,
        dropout: float,
        kernel: Kernel,
    ):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} must be a multiple of heads {heads}")
        self.heads, self.norm, self.activation = heads, norm, activation
        self.dropout = dropout
        self.kernel: Kernel = kernel
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, ffn)
        self.down = nn.Linear(ffn, width)
        self.norm_attention = nn.LayerNorm(width)
        self.norm_ffn = nn.LayerNorm(width)

    def forward(
        self,
        x: Tensor,
        dropout: bool = False,
        kv: tuple[Tensor, Tensor] | None = None,
        position: Tensor | None = None,
    ) -> Tensor:
        """x (B, T, D). With memory (keys, values) the steps are written there: from the start, or one step at
        `position` (1,), which sees all before."""
        rate = self.dropout if dropout else 0.0
        if self.norm == "pre":
            x = x + self._drop(self._attention(self.norm_attention(x), rate, kv, position), rate)
            return x + self._drop(self._ffn(self.norm_ffn(x)), rate)
        x = self.norm_attention(x + self._drop(self._attention(x, rate, kv, position), rate))
        return self.norm_ffn(x + self._drop(self._ffn(x), rate))

    @staticmethod
    def _drop(x: Tensor, rate: float) -> Tensor:
        return F.dropout(x, rate) if rate else x

    def _ffn(self, x: Tensor) -> Tensor:
        x = self.up(x)
        return self.down(F.relu(x) if self.activation == "relu" else F.gelu(x))

    def _attention(
        self, x: Tensor, rate: float, kv: tuple[Tensor, Tensor] | None, position: Tensor | None
    ) -> Tensor:
        projected = self.project(x)
        longest = x.shape[1] if position is None or kv is None else kv[0].shape[2]
        quick = TRITON and not rate and kernels.fit(projected, self.heads, longest)
        if quick and kv is not None and position is not None:
            return self.out(kernels.step_attention(projected, *kv, position, self.heads))
        q, k, v = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (B, heads, T, d)
        if kv is not None and position is not None:
            for kept, new in zip(kv, (k, v)):
                kept.index_copy_(2, position, new.to(kept.dtype))
            mixed = look_back(q, *kv, position, rate)
            return self.out(mixed.transpose(1, 2).flatten(-2))
        if kv is not None:
            for kept, new in zip(kv, (k, v)):
                kept[:, :, : x.shape[1]] = new
        if quick and (self.kernel == "plain" or longest <= _SHORT):
            return self.out(kernels.short_attention(projected, self.heads))
        return self.out(attend(q, k, v, rate, self.kernel).transpose(1, 2).flatten(-2))
