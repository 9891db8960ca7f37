"""The causal transformer block of world model (E2) and self-prior (E3), with an explicit cache."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TRITON = find_spec("triton") is not None
if TRITON or TYPE_CHECKING:
    from mirrormark.agent import kernels


class BlockStyle(NamedTuple):
    """What differs between the blocks of the paper's two transformers, and ours."""

    pre_norm: bool = False  # layer norm before each branch, else after its residual
    gelu: bool = False  # else ReLU
    attention_bias: bool = True  # biases of the attention's linear layers
    norm_eps: float = 1e-5
    inner_dropout: bool = False  # dropout also inside the two-layer network


class Cache(NamedTuple):
    """Keys and values of one block, of fixed length, so that a CUDA graph can hold them. Written in place:
    use it where no gradient is needed."""

    keys: Tensor  # (B, heads, L, D/heads)
    values: Tensor


class Block(nn.Module):
    """Attention and a two-layer network, each with residual and layer norm."""

    def __init__(self, width: int, heads: int, ffn: int, dropout: float, style: BlockStyle):
        super().__init__()
        self.heads, self.dropout, self.style = heads, dropout, style
        self.project = nn.Linear(width, 3 * width, bias=style.attention_bias)  # queries, keys, values
        self.out = nn.Linear(width, width, bias=style.attention_bias)
        self.norm_attention = nn.LayerNorm(width, eps=style.norm_eps)
        self.up = nn.Linear(width, ffn)
        self.down = nn.Linear(ffn, width)
        self.norm_ffn = nn.LayerNorm(width, eps=style.norm_eps)

    def forward(
        self, x: Tensor, dropout: bool = False, cache: Cache | None = None, position: Tensor | None = None
    ) -> Tensor:
        """x (B, T, D) -> (B, T, D). With a cache the steps are written there: from its start, or one step at
        `position` (1,), which sees all before it."""
        rate = self.dropout if dropout else 0.0
        if self.style.pre_norm:
            x = x + F.dropout(self._attend(self.norm_attention(x), rate, cache, position), rate)
            return x + F.dropout(self._ffn(self.norm_ffn(x), rate), rate)
        x = self.norm_attention(x + F.dropout(self._attend(x, rate, cache, position), rate))
        return self.norm_ffn(x + F.dropout(self._ffn(x, rate), rate))

    def _ffn(self, x: Tensor, rate: float) -> Tensor:
        inner = F.gelu(self.up(x)) if self.style.gelu else F.relu(self.up(x))
        return self.down(F.dropout(inner, rate) if self.style.inner_dropout else inner)

    def _attend(self, x: Tensor, rate: float, cache: Cache | None, position: Tensor | None) -> Tensor:
        projected = self.project(x)
        if TRITON and not rate and kernels.serve(projected, self.heads, cache, position):
            return self.out(kernels.attend(projected, self.heads, cache, position))
        q, k, v = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (B, heads, T, d)
        if cache is not None and position is not None:
            for kept, new in zip(cache, (k, v)):
                kept.index_copy_(2, position, new.to(kept.dtype))
            mixed = look_back(q, cache, position, rate)
        else:
            if cache is not None:
                for kept, new in zip(cache, (k, v)):
                    kept[:, :, : x.shape[1]] = new
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1, dropout_p=rate)
        return self.out(mixed.transpose(1, 2).flatten(-2))


def look_back(q: Tensor, cache: Cache, position: Tensor, rate: float) -> Tensor:
    """Attention of one step, q (B, heads, 1, d), to the cache up to `position` (1,). One query makes no
    matrix product: products and sums, which compile into one kernel each."""
    scores = (q.float() * cache.keys).sum(-1) * q.shape[-1] ** -0.5  # (B, heads, L)
    ahead = torch.arange(scores.shape[-1], device=q.device) > position
    weights = F.dropout(scores.masked_fill(ahead, float("-inf")).softmax(-1), rate)
    return (weights.unsqueeze(-1) * cache.values).sum(-2, keepdim=True).to(q.dtype)
