"""E3: the self-prior p̃(s) = ∏_k p̃(s^(k) | s^(<k)), a small GPT over the tokens of one latent, BOS first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirrormark.mind.latent import FLOOR, LatentSpec, draw, pick
from mirrormark.mind.numerics import full_precision, spare, working_dtype
from mirrormark.mind.senses import restore
from mirrormark.mind.transformer import TRITON, Activation, Block, Kernel, Norm

if TRITON or TYPE_CHECKING:
    from mirrormark.mind import fused

KERNEL: Kernel = "plain"
"""How attention is computed; no effect on the result (ours)."""
Method = Literal["ancestral", "gibbs", "teacher_forced"]


@dataclass(frozen=True)
class SelfPriorConfig:
    """The self-prior. Defaults: preset paper (sizes from the public code, D7)."""

    width: int = 128
    """Size of a token's embedding (public code, D7)."""
    layers: int = 2
    """Transformer blocks (public code, D7)."""
    heads: int = 8
    """Attention heads (public code, D7)."""
    ffn: int = 256
    """Width inside the blocks' networks (public code, D7)."""
    norm: Norm = "post"
    """Layer norm after (post) or before (pre) each residual branch (public code, D7)."""
    activation: Activation = "relu"
    """Non-linearity inside the blocks (public code, D7)."""
    vocabulary: Literal["shared", "per_token"] = "shared"
    """One table of classes for all tokens (paper: 32+1 words) or one for each token (ours: joints are not
    pixels)."""


class SelfPrior(nn.Module):
    """A density over latents that can be evaluated, sampled and asked to fill in missing tokens."""

    def __init__(self, spec: LatentSpec, config: SelfPriorConfig):
        super().__init__()
        self.spec, self.config = spec, config
        c, rows = config, 1 if config.vocabulary == "shared" else spec.K
        self.words = nn.Parameter(torch.randn(rows, spec.widest, c.width) * 0.02)
        self.bos = nn.Parameter(torch.randn(c.width) * 0.02)
        self.position = nn.Parameter(torch.randn(spec.K, c.width) * 0.02)
        self.norm_in = nn.LayerNorm(c.width)
        self.blocks = nn.ModuleList(
            Block(c.width, c.heads, c.ffn, c.norm, c.activation, 0.0, KERNEL) for _ in range(c.layers)
        )
        self.norm_out = nn.LayerNorm(c.width) if c.norm == "pre" else nn.Identity()
        self.head = nn.Parameter(torch.randn(rows, c.width, spec.widest) * c.width**-0.5)
        self.bias = nn.Parameter(torch.zeros(spec.K, spec.widest))
        classes = torch.tensor(spec.classes)[:, None]
        self.register_buffer("absent", torch.arange(spec.widest) >= classes, persistent=False)
        self.absent: Tensor

    def logits(self, latent: Tensor) -> Tensor:
        """Every token's distribution given the tokens before it: (..., K) -> table (..., K, widest), fp32."""
        self.spec.check(latent)
        lead, latent = latent.shape[:-1], latent.reshape(-1, self.spec.K)
        return restore(self._predict(latent[:, :-1]), lead)

    def per_token_log_prob(self, latent: Tensor) -> Tensor:
        """log p̃(s^(k) | s^(<k)): (..., K) -> (..., K)."""
        return pick(self.logits(latent), latent)

    def log_prob(self, latent: Tensor) -> Tensor:
        """log p̃(s): (..., K) -> (...)."""
        return self.per_token_log_prob(latent).sum(-1)

    @torch.no_grad()
    def sample(self, n: int, temperature: float = 1.0) -> Tensor:
        """n latents drawn token by token -> (n, K)."""
        blank = torch.zeros(n, self.spec.K, dtype=torch.int64, device=self.bos.device)
        return self.complete(blank, torch.zeros_like(blank[0], dtype=torch.bool), temperature=temperature)

    @torch.no_grad()
    def complete(
        self,
        latent: Tensor,
        known: Tensor,
        method: Method = "ancestral",
        sweeps: int = 5,
        temperature: float = 1.0,
    ) -> Tensor:
        """Keep the `known` tokens (bool (K,) or (..., K)) of `latent` (..., K) and draw the others.

        ancestral: left to right, sees only what comes before. gibbs: then `sweeps` times every unknown token
        given all others. teacher_forced: every token given the original ones before it (D18, the public
        code's Fig. 5b).
        """
        self.spec.check(latent)
        lead, flat = latent.shape[:-1], latent.reshape(-1, self.spec.K)
        known = known.expand(latent.shape).reshape(flat.shape)
        if method == "teacher_forced":
            drawn = draw(self._predict(flat[:, :-1]), temperature)
            return restore(torch.where(known, flat, drawn), lead)
        filled = flat.clone()
        for k in range(self.spec.K):
            drawn = draw(self._predict(filled[:, :k])[:, -1], temperature)
            filled[:, k] = torch.where(known[:, k], filled[:, k], drawn)
        if method == "gibbs":
            for _ in range(sweeps):
                self._gibbs_sweep(filled, known, temperature)
        elif method != "ancestral":
            raise ValueError(f"unknown method {method!r}: use ancestral, gibbs or teacher_forced")
        return restore(filled, lead)

    def _gibbs_sweep(self, latent: Tensor, known: Tensor, temperature: float) -> None:
        """Redraw each unknown token from p̃(s^(k) | all others), by scoring every class it could have; in
        place."""
        for k, classes in enumerate(self.spec.classes):
            candidates = latent.unsqueeze(1).repeat(1, classes, 1)  # (n, C, K)
            candidates[:, :, k] = torch.arange(classes, device=latent.device)
            drawn = draw(self.log_prob(candidates), temperature)
            latent[:, k] = torch.where(known[:, k], latent[:, k], drawn)

    def _predict(self, before: Tensor) -> Tensor:
        """Tables for tokens 0..k given tokens 0..k-1: before (n, k) -> (n, k+1, widest)."""
        tokens = before.shape[1] + 1
        x = self._states_at_once(before) if self._rates_only(before) else self._states(before)
        with full_precision(x):
            # Only the classes that each token has take part: the others' bias is FLOOR, and so is their row.
            bias = self.bias.masked_fill(self.absent, FLOOR)[:tokens]
            zeros = spare(self.spec.widest, x)
            head = F.pad(self.head[:tokens], (0, zeros)) if zeros else self.head[:tokens]
            return (_by_token(x.float(), head)[..., : self.spec.widest] + bias).log_softmax(-1)

    def _states(self, before: Tensor) -> Tensor:
        """The last layer's states: (n, k) -> (n, k+1, width)."""
        embedded = self._embed(before)
        x = torch.cat((self.bos.to(embedded.dtype).expand(before.shape[0], 1, -1), embedded), 1)
        x = self.norm_in(x + self.position[: x.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.norm_out(x)

    def _rates_only(self, before: Tensor) -> bool:
        """Whether all layers can be one kernel: no gradient, half precision, sizes that fit."""
        c = self.config
        if not TRITON or torch.is_grad_enabled() or working_dtype(before) == torch.float32:
            return False
        return fused.fit(c.width, c.heads, c.ffn, self.spec.K, before)

    def _states_at_once(self, before: Tensor) -> Tensor:
        c, dtype = self.config, working_dtype(before)
        table = torch.cat((self.words.flatten(0, 1), self.bos[None])).to(dtype)
        norms, weights = fused.pack(self.blocks, self.norm_in, self.norm_out, dtype)
        sizes = self.words.shape[0], c.heads, c.layers, c.ffn, c.norm == "pre", c.activation == "gelu"
        return fused.small_transformer(before, table, self.position, norms, weights, *sizes)

    def _embed(self, before: Tensor) -> Tensor:
        """(n, k) -> (n, k, width). While learning a one-hot product, not a lookup: its backward pass is one
        matrix product, without sorting. The result is the same to the bit."""
        dtype = working_dtype(before)
        if not (torch.is_grad_enabled() and self.words.requires_grad):
            token = torch.arange(before.shape[1], device=before.device)
            return self.words.to(dtype)[token % self.words.shape[0], before]
        zeros = spare(self.spec.widest, before)
        classes = torch.arange(self.spec.widest + zeros, device=before.device)
        hot = (before.unsqueeze(-1) == classes).to(dtype)
        return _by_token(hot, F.pad(self.words[: before.shape[1]], (0, 0, 0, zeros)))


def _by_token(x: Tensor, weight: Tensor) -> Tensor:
    """(n, k, a) times one matrix for all tokens (1, a, b) or one for each (k, a, b) -> (n, k, b)."""
    if weight.shape[0] == 1 and x.shape[1] != 1:
        return x @ weight[0]
    return torch.einsum("nka,kab->nkb", x, weight)
