"""Expected G under babbling: how strange the next second will be, on average, if motor babbling moved the
body from here on.

G is about what is seen now, and a mark behind a hand is not seen: hiding it lowers G as much as taking it
off. What usually follows sets apart what lasts from what passes. A small network learns that from babbling
alone, with G of later frames as its only teacher."""

from __future__ import annotations

import torch
from torch import Tensor

from mirrormark.agent.actor_critic import TwoHotHead
from mirrormark.agent.agent import Agent
from mirrormark.agent.drive import Drive
from mirrormark.agent.losses import Loss
from mirrormark.swift.on_policy import as_acted, normalised


class ExpectedG(Drive):
    """Mean G over the next control steps of motor babbling, predicted."""

    def __init__(self, head: TwoHotHead, control_steps: int):
        super().__init__()
        self.head, self.control_steps = head, control_steps

    def cost(self, agent: Agent, tokens: Tensor, hidden: Tensor) -> Tensor:
        return self.head(tokens, hidden)

    def loss(self, agent: Agent, tokens: Tensor, action: Tensor, start: Tensor, handover: Tensor) -> Loss:
        with torch.no_grad():
            cost, hidden = agent.expected_free_energy(tokens), agent.hidden_of(tokens, action)
            target = cost[:, 1:].unfold(1, self.control_steps, 1).mean(-1)  # (B, T - control_steps)
            frame = start[:, None] + torch.arange(target.shape[1], device=tokens.device)
            weight = normalised(as_acted(agent, frame, start) & (frame >= handover[:, None]))
        steps = target.shape[1]
        logits = self.head.logits(tokens[:, :steps], hidden[:, :steps])
        loss = (weight * self.head.two_hot.cross_entropy(logits, target)).mean()
        with torch.no_grad():
            error = (weight * (self.head.two_hot.decode(logits) - target).square()).mean()
            spread = (weight * (target - (weight * target).mean()).square()).mean()
        explained = 1 - error / spread.clamp_min(1e-6)
        return Loss(loss, {"expected_g": loss.detach(), "expected_g_explained_variance": explained})
