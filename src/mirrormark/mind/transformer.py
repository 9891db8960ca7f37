"""The causal transformer shared by the sequence model (E2) and the self-prior (E3), with an explicit
memory."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu"]
Kernel = Literal["sdpa", "plain"]


class Cache(NamedTuple):
    """Projected keys and values of all layers, of fixed size, so that a CUDA graph can hold it. Steps are
    written in place: use it where no gradient is needed."""

    keys: Tensor  # (layers, B, heads, L, D/heads)
    values: Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, dropout: float, kernel: Kernel) -> Tensor:
    """Causal attention; the last query is aligned with the last key. q (B, heads, Tq, d), k and v (B, heads,
    Tk, d).

    `plain` wins where heads are 16 wide and sequences short: flash kernels waste their tiles there
    (speed.md)."""
    steps, seen = q.shape[-2], k.shape[-2]
    if kernel == "sdpa" and steps == seen:
        return F.scaled_dot_product_attention(q, k, v, is_causal=steps > 1, dropout_p=dropout)
    scores = (q @ k.mT) * q.shape[-1] ** -0.5
    if steps > 1:
        visible = torch.ones(steps, seen, dtype=torch.bool, device=q.device).tril(seen - steps)
        scores = scores.masked_fill(~visible, float("-inf"))
    weights = scores.softmax(-1, dtype=torch.float32).to(v.dtype)
    return (F.dropout(weights, dropout) if dropout else weights) @ v


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
        self, x: Tensor, dropout: bool = False, memory: tuple[Tensor, Tensor] | None = None, position: int = 0
    ) -> Tensor:
        """x (B, T, D). With memory (keys, values), the T steps are written at `position` and see all
        before."""
        rate = self.dropout if dropout else 0.0
        if self.norm == "pre":
            x = x + self._drop(self._attention(self.norm_attention(x), rate, memory, position), rate)
            return x + self._drop(self._ffn(self.norm_ffn(x)), rate)
        x = self.norm_attention(x + self._drop(self._attention(x, rate, memory, position), rate))
        return self.norm_ffn(x + self._drop(self._ffn(x), rate))

    @staticmethod
    def _drop(x: Tensor, rate: float) -> Tensor:
        return F.dropout(x, rate) if rate else x

    def _ffn(self, x: Tensor) -> Tensor:
        x = self.up(x)
        return self.down(F.relu(x) if self.activation == "relu" else F.gelu(x))

    def _attention(
        self, x: Tensor, rate: float, memory: tuple[Tensor, Tensor] | None, position: int
    ) -> Tensor:
        steps = x.shape[1]
        q, k, v = (
            self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )  # (B, heads, T, d)
        if memory is not None:
            keys, values = memory
            keys[:, :, position : position + steps] = k
            values[:, :, position : position + steps] = v
            k, v = keys[:, :, : position + steps], values[:, :, : position + steps]
        mixed = attend(q, k.to(q.dtype), v.to(q.dtype), rate, self.kernel)
        return self.out(mixed.transpose(1, 2).flatten(-2))
