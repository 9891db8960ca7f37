"""A self-prior with a vocabulary for each token: a joint's bin 3 and a cell's class 3 have nothing in
common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mirrormark.agent.numerics import full_precision
from mirrormark.agent.self_prior import SelfPrior
from mirrormark.agent.tokens import FLOOR, TokenSpec
from mirrormark.agent.transformer import TRITON, Block, BlockStyle
from mirrormark.config import SelfPriorConfig

if TRITON or TYPE_CHECKING:
    from mirrormark.swift import fused


class PerTokenSelfPrior(SelfPrior):
    """Pre-norm, GELU, without dropout."""

    def __init__(self, spec: TokenSpec, config: SelfPriorConfig):
        super().__init__()
        c, self.spec, self.config = config, spec, config
        self.words = nn.Parameter(torch.randn(spec.K, spec.widest, c.width) * 0.02)
        self.bos = nn.Parameter(torch.randn(c.width) * 0.02)
        self.position = nn.Parameter(torch.randn(spec.K, c.width) * 0.02)
        self.norm_in = nn.LayerNorm(c.width)
        style = BlockStyle(pre_norm=True, gelu=True)
        self.blocks = nn.ModuleList(Block(c.width, c.heads, c.ffn, 0.0, style) for _ in range(c.layers))
        self.norm_out = nn.LayerNorm(c.width)
        self.head = nn.Parameter(torch.randn(spec.K, c.width, spec.widest) * c.width**-0.5)
        self.bias = nn.Parameter(torch.zeros(spec.K, spec.widest))
        classes = torch.tensor(spec.classes)[:, None]
        self.register_buffer("absent", torch.arange(spec.widest) >= classes, persistent=False)
        self.absent: Tensor

    def _predict(self, before: Tensor) -> Tensor:
        tokens = before.shape[1] + 1
        x = self._states_at_once(before) if self._fits_kernel(before) else self._states(before)
        with full_precision(x):
            logits = torch.einsum("nka,kab->nkb", x.float(), self.head[:tokens])
            return (logits + self.bias.masked_fill(self.absent, FLOOR)[:tokens]).log_softmax(-1)

    def _states(self, before: Tensor) -> Tensor:
        """The last layer's states: (N, k) -> (N, k+1, D)."""
        token = torch.arange(before.shape[1], device=before.device)
        embedded = self.words[token, before]
        x = torch.cat((self.bos.expand(before.shape[0], 1, -1), embedded), 1)
        x = self.norm_in(x + self.position[: x.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.norm_out(x)

    def _fits_kernel(self, before: Tensor) -> bool:
        """Whether all layers can be one kernel: no gradient, half precision, sizes that fit."""
        if not TRITON or torch.is_grad_enabled() or not torch.is_autocast_enabled(before.device.type):
            return False
        c = self.config
        return fused.fit(c.width, c.heads, c.ffn, self.spec.K, before)

    def _states_at_once(self, before: Tensor) -> Tensor:
        c, dtype = self.config, torch.get_autocast_dtype(before.device.type)
        table = torch.cat((self.words.flatten(0, 1), self.bos[None])).to(dtype)
        norms, weights = fused.pack(self.blocks, self.norm_in, self.norm_out, dtype)
        sizes = self.spec.K, c.heads, c.layers, c.ffn, True, True
        return fused.small_transformer(before, table, self.position, norms, weights, *sizes)
