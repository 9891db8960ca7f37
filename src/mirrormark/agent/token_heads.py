"""The predictors of E2: logits of the next tokens from the sequence model's hidden state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mirrormark.agent.fsq import inactive_class
from mirrormark.agent.numerics import WideLinear, full_precision
from mirrormark.agent.token_features import LONG, TokenFeatures
from mirrormark.agent.tokens import TokenSpec


class Predictor(nn.Module):
    """hidden, present tokens -> flat logits of the next tokens, in fp32."""

    def __init__(self, spec: TokenSpec, width: int, keeps: bool, drifts: bool):
        super().__init__()
        self.spec = spec
        self.scores = WideLinear(width, spec.total)
        self.keep = nn.Linear(width, spec.K) if keeps else None
        self.lines = [r for r in spec.groups if len(r.levels) == 1 and r.classes > LONG] if drifts else []
        self.drift = nn.Linear(width, 2 * sum(r.count for r in self.lines)) if self.lines else None

    def forward(self, hidden: Tensor, present: Tensor) -> Tensor:
        """hidden (..., D), present (..., K) or flat one-hot -> (..., total)."""
        with full_precision(hidden):
            hidden = hidden.float()
            flat = self.scores(hidden)
            if self.keep is not None:
                flat = flat + self.spec.spread(self.keep(hidden)) * self.spec.as_one_hot(present)
            return flat if self.drift is None else flat + self._drifting(self.drift(hidden), present)

    def _drifting(self, drift: Tensor, present: Tensor) -> Tensor:
        """A bell over each long scale, around where its token is now plus how far it moves; (..., total)."""
        parts, used, place = [], 0, 0
        for group in self.lines:
            if group.start > place:
                parts.append(drift.new_zeros((*drift.shape[:-1], group.start - place)))
            move, surely = drift[..., used : used + 2 * group.count].chunk(2, -1)
            goal = present[..., group.token : group.token + group.count] + move
            away = torch.arange(group.classes, device=drift.device) - goal.unsqueeze(-1)
            parts.append((-0.5 * away.square() * F.softplus(surely).unsqueeze(-1)).flatten(-2))
            used, place = used + 2 * group.count, group.start + group.count * group.classes
        if place < self.spec.total:
            parts.append(drift.new_zeros((*drift.shape[:-1], self.spec.total - place)))
        return torch.cat(parts, -1)


class NextTokenHead(nn.Module):
    """Predicts the later tokens of the next moment, its first ones (where the body will be) being known."""

    def __init__(self, first: TokenSpec, spec: TokenSpec, width: int, keeps: bool, drifts: bool):
        super().__init__()
        self.body = TokenFeatures(first, "levels")
        self.meet = WideLinear(width + self.body.size, 2 * width)
        self.after = Predictor(spec, 2 * width, keeps, drifts)
        self.spec = spec

    def forward(self, hidden: Tensor, present: Tensor, body: Tensor) -> Tensor:
        """hidden (..., D), present later tokens (..., K), next first tokens (..., F) -> (..., total)."""
        return self.after(F.gelu(self.meet(self.body.concat(body, hidden))), present)


class GridNextTokenHead(nn.Module):
    """The same for tokens that lie on a grid of cells, with one set of weights for all cells: a token of the
    next moment from those of its neighbourhood now and lately, from how the body will look there (the
    tokenizer's own painting of the posture) and from what the sequence model has to say to that cell. What is
    learned of a thing in one place is then known of it in all places."""

    def __init__(
        self,
        first: TokenSpec,
        spec: TokenSpec,
        width: int,
        grid: int,
        rendered_posture: int,
        memory_trace: bool,
        channels: int = 128,
    ):
        super().__init__()
        self.spec, self.cells, self.grid = spec, grid * grid, grid
        self.scenes = spec.K - self.cells
        cells = spec.part(slice(self.scenes, None))
        self.body, self.features = TokenFeatures(first, "levels"), TokenFeatures(cells, "levels")
        self.scene = None
        if self.scenes:
            self.scene = Predictor(spec.part(slice(0, self.scenes)), width, True, False)
        self.tell = WideLinear(width + self.body.size, self.cells * channels)
        self.take = nn.Linear(
            (1 + memory_trace) * self.features.size // self.cells + rendered_posture, channels
        )
        self.place = nn.Parameter(torch.zeros(self.cells, channels))
        self.around = nn.Conv2d(channels, channels, 3, padding=1)
        self.mix = nn.Linear(channels, 2 * channels)
        self.scores = WideLinear(2 * channels, cells.classes[0])
        self.keep = nn.Linear(2 * channels, 1)
        self.cell_spec = cells

    @property
    def inactive(self) -> Tensor:
        """Cells' tokens that say nothing, (cells,)."""
        return torch.full((self.cells,), inactive_class(self.cell_spec.levels[0]))

    def forward(
        self, hidden: Tensor, present: Tensor, body: Tensor, rendered_posture: Tensor, trace: Tensor
    ) -> Tensor:
        """As Following; look (..., cells, look): the painted body of the next moment; trace (..., R): what
        the cells' tokens have said lately, R = 0 where that is not recalled."""
        told = self.tell(self.body.concat(body, hidden)).unflatten(-1, (self.cells, -1))
        here = self.features(present[..., self.scenes :]).unflatten(-1, (self.cells, -1))
        lately = trace.to(here.dtype).unflatten(-1, (self.cells, -1)) if trace.shape[-1] else here[..., :0]
        x = F.silu(
            self.take(torch.cat((here, lately, rendered_posture.to(here.dtype)), -1)) + told + self.place
        )
        field = x.flatten(0, -3).transpose(1, 2).unflatten(2, (self.grid, self.grid))
        x = x + self.around(field).flatten(2).transpose(1, 2).unflatten(0, x.shape[:-2])
        x = F.silu(self.mix(F.silu(x)))
        with full_precision(x):
            x = x.float()
            hot = self.cell_spec.one_hot(present[..., self.scenes :]).unflatten(-1, (self.cells, -1))
            flat = (self.scores(x) + self.keep(x) * hot).flatten(-2)
        if self.scene is None:
            return flat
        return torch.cat((self.scene(hidden, present[..., : self.scenes]), flat), -1)
