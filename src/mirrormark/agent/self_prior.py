"""E3: the self-prior p̃(s) = ∏_k p̃(s^(k) | s^(<k)), a small GPT over the tokens of one frame, BOS first."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirrormark.agent.numerics import full_precision
from mirrormark.agent.tokens import TokenSpec, gather_log_prob, sample
from mirrormark.agent.transformer import Block, BlockStyle
from mirrormark.config import SelfPriorConfig

Method = Literal["ancestral", "gibbs", "teacher_forced"]


class SelfPrior(nn.Module, ABC):
    """A density over a frame's tokens that can be evaluated, sampled and asked to fill in missing tokens."""

    spec: TokenSpec

    @abstractmethod
    def _predict(self, before: Tensor) -> Tensor:
        """Tokens (N, k) -> log-probabilities of tokens 0..k, (N, k+1, C or more), fp32."""

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Every token's distribution given the tokens before it: (..., K) -> (..., K, C or more)."""
        self.spec.check(tokens)
        flat = tokens.reshape(-1, self.spec.K)
        predicted = self._predict(flat[:, :-1])
        return predicted.reshape(*tokens.shape, predicted.shape[-1])

    def per_token_log_prob(self, tokens: Tensor) -> Tensor:
        """log p̃(s^(k) | s^(<k)): (..., K) -> (..., K)."""
        return gather_log_prob(self.log_probs(tokens), tokens)

    def log_prob(self, tokens: Tensor) -> Tensor:
        """log p̃(s): (..., K) -> (...)."""
        return self.per_token_log_prob(tokens).sum(-1)

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        """n frames' tokens, drawn one by one -> (n, K)."""
        device = next(self.parameters()).device
        blank = torch.zeros(n, self.spec.K, dtype=torch.int64, device=device)
        return self.complete(blank, torch.zeros_like(blank[0], dtype=torch.bool))

    @torch.no_grad()
    def complete(
        self, tokens: Tensor, known: Tensor, method: Method = "ancestral", sweeps: int = 5
    ) -> Tensor:
        """Keep the `known` (bool (K,) or (..., K)) of tokens (..., K) and draw the others.

        ancestral: left to right, sees only what comes before. gibbs: then `sweeps` times every unknown token
        given all others. teacher_forced: every token given the original ones before it (D18, the public
        code's Fig. 5b)."""
        self.spec.check(tokens)
        flat = tokens.reshape(-1, self.spec.K)
        known = known.expand(tokens.shape).reshape(flat.shape)
        if method == "teacher_forced":
            drawn = sample(self._predict(flat[:, :-1])[..., : self.spec.widest])
            return torch.where(known, flat, drawn).reshape(tokens.shape)
        filled = flat.clone()
        for k in range(self.spec.K):
            drawn = sample(self._predict(filled[:, :k])[:, -1, : self.spec.widest])
            filled[:, k] = torch.where(known[:, k], filled[:, k], drawn)
        if method == "gibbs":
            for _ in range(sweeps):
                self._gibbs_sweep(filled, known)
        elif method != "ancestral":
            raise ValueError(f"unknown method {method!r}: use ancestral, gibbs or teacher_forced")
        return filled.reshape(tokens.shape)

    def _gibbs_sweep(self, tokens: Tensor, known: Tensor) -> None:
        """Redraw each unknown token from p̃(s^(k) | all others), by scoring every class it could have; in
        place."""
        for k, classes in enumerate(self.spec.classes):
            candidates = tokens.unsqueeze(1).repeat(1, classes, 1)  # (n, C, K)
            candidates[:, :, k] = torch.arange(classes, device=tokens.device)
            tokens[:, k] = torch.where(known[:, k], tokens[:, k], sample(self.log_prob(candidates)))


class PaperSelfPrior(SelfPrior):
    """One vocabulary for all tokens, and BOS a word of it (paper: 32 + 1): it takes part in each token's
    normaliser, but is never drawn (S4). Sizes and first weights are the public code's (D7, S2, S6)."""

    def __init__(self, spec: TokenSpec, config: SelfPriorConfig):
        super().__init__()
        c, self.spec, self.bos = config, spec, spec.widest
        self.words = nn.Embedding(spec.widest + 1, c.width)
        self.position = nn.Parameter(torch.randn(spec.K, c.width))
        block = Block(c.width, c.heads, c.ffn, DROPOUT, BlockStyle(inner_dropout=True))
        nn.init.xavier_uniform_(block.project.weight)
        nn.init.zeros_(block.project.bias)
        nn.init.zeros_(block.out.bias)
        self.blocks = nn.ModuleList(copy.deepcopy(block) for _ in range(c.layers))  # all start equal (S6)
        self.head = nn.Linear(c.width, spec.widest + 1)

    def _predict(self, before: Tensor) -> Tensor:
        words = self.words(F.pad(before, (1, 0), value=self.bos))
        x = words + self.position[: words.shape[1]]
        for block in self.blocks:
            x = block(x, self.training)
        with full_precision(x):
            return self.head(x.float()).log_softmax(-1)


DROPOUT = 0.1
"""In the self-prior while it learns and while G of imagined frames is computed (public code, S1, S5)."""
