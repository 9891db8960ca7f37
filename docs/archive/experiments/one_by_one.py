"""Are dreams sharper if the tokens of what is seen are drawn one after the other?

    python experiments/one_by_one.py MIND [--episodes 1024] [--steps 3000]

A chained sequence model draws a frame's posture first, then every token of what is seen by itself. Here a
small network is laid over it, which hears what the sequence model says of all of these tokens and which were
drawn before in the same frame, and corrects the next one's log-probabilities. Beside it the same network,
deaf to the tokens before: what that one gains is calibration. Both learn from everyday episodes with a mark.
Told are, of held-out ones, what vision's share of the next frame costs, and gate 4, with tokens drawn either
way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np
import torch
import tyro
from torch import Tensor, nn

from mirrormark.life.dreamed import DREAM_CONTROL_STEPS, dreamed_removal
from mirrormark.life.held_out import IndicatorConfig, efe, hold_out, latents
from mirrormark.life.indicators import efe_gap_nats
from mirrormark.life.rollout import Recipe, Sight, gather
from mirrormark.life.setup import WorldSetup, movement_of
from mirrormark.life.weights import load_weights
from mirrormark.mind.dynamics import Dynamics
from mirrormark.mind.latent import FLOOR, draw, pick
from mirrormark.mind.mind import Mind

LAP = 256
"""Episodes gathered at once."""
FIRST_FRAME = 8
"""Frames of a window that have less past than this are not learned from."""


@dataclass(frozen=True)
class Settings:
    """Which mind, how much of everything."""

    mind: tyro.conf.Positional[str]
    """A snapshot's folder, or a body's name: the mind that is shipped for it."""
    episodes: int = 1_024
    """Gathered in laps of 256."""
    held_out: int = 768
    """Everyday episodes on which it is told; three in four have a mark."""
    steps: int = 3_000
    """Train steps of each network."""
    frames: int = 256
    """Frames a step."""
    width: int = 128
    learning_rate: float = 1e-3
    """Falls to 0."""
    threads: int | None = None
    seed: int = 0


class OneByOne(nn.Module):
    """What to add to a sequence model's log-probabilities of a frame's later tokens."""

    def __init__(self, tokens: int, classes: int, width: int, hears: bool) -> None:
        super().__init__()
        self.hears, self.nothing = hears, classes
        self.heard = nn.Embedding(classes + 1, width)
        self.place = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.said, self.all_said = nn.Linear(classes, width), nn.Linear(tokens * classes, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, classes)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.register_buffer("later", torch.triu(torch.ones(tokens, tokens, dtype=torch.bool), 1))

    def forward(self, table: Tensor, tokens: Tensor) -> Tensor:
        """Table (B, K, C), tokens (B, K), of which each row sees those before it -> table (B, K, C)."""
        before = torch.full_like(tokens, self.nothing)
        if self.hears:
            before[:, 1:] = tokens[:, :-1]
        share = table.exp()  # log-probabilities have no floor that a linear layer could bear
        x = self.place + self.heard(before) + self.said(share) + self.all_said(share.flatten(1))[:, None]
        added = self.out(self.body(x, mask=self.later))
        return torch.where(table > FLOOR / 2, table + added, table).log_softmax(-1)

    @torch.no_grad()
    def draw(self, table: Tensor) -> Tensor:
        """Tokens (B, K), one after the other."""
        tokens = torch.zeros(table.shape[:2], dtype=torch.int64)
        for k in range(table.shape[1]):
            tokens[:, k] = draw(self(table, tokens))[:, k]
        return tokens


@torch.no_grad()
def foretold(dynamics: Dynamics, latent: Tensor, action: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """What the sequence model says of the later tokens of frames to come, shown their posture: tables
    (N, K, C), and what came (N, K). Two windows of every episode."""
    tables, came = [], []
    for start in (0, latent.shape[1] - length):
        seen, acted = latent[:, start : start + length], action[:, start : start + length - 1]
        for now, done in zip(seen.split(32), acted.split(32)):
            hidden = dynamics(now[:, :-1], done)
            table = dynamics.logits(hidden, now[:, :-1], now[:, 1:])[:, FIRST_FRAME:, dynamics.split :]
            tables.append(table.flatten(0, 1))
            came.append(now[:, 1 + FIRST_FRAME :, dynamics.split :].flatten(0, 1))
    return torch.cat(tables), torch.cat(came)


def lived(world: WorldSetup, mind: Mind, s: Settings) -> tuple[Tensor, Tensor]:
    """Everyday episodes with a mark: tokens (N, L, K), actions (N, L, A)."""
    worlds, sight = world.worlds(LAP), Sight(mind, False)
    movement, found = movement_of(world, worlds), []
    for lap in range(max(1, round(s.episodes / LAP))):
        seeds = np.random.default_rng((s.seed, 0x6F6E65, lap)).integers(0, 2**62, LAP)
        plan = Recipe(seeds, np.ones(LAP, bool), LAP, np.zeros(LAP, np.int64))
        found.append(gather(worlds, movement, plan, None, sight))
        print(f"gathered {(lap + 1) * LAP} episodes", flush=True)
    return (
        torch.cat([part.observation["latent"].long() for part in found]),
        torch.cat([part.action for part in found]),
    )


def learned(table: Tensor, came: Tensor, s: Settings, hears: bool) -> OneByOne:
    """A network that has learned to correct."""
    torch.manual_seed(s.seed)
    net = OneByOne(table.shape[1], table.shape[2], s.width, hears)
    descent = torch.optim.AdamW(net.parameters(), s.learning_rate)
    falls = torch.optim.lr_scheduler.CosineAnnealingLR(descent, s.steps)
    for _ in range(s.steps):
        rows = torch.randint(len(table), (s.frames,))
        loss = -pick(net(table[rows], came[rows]), came[rows]).sum(-1).mean()
        descent.zero_grad()
        loss.backward()
        descent.step()
        falls.step()
    return net.eval()


@torch.no_grad()
def cost_nats(table: Tensor, came: Tensor, net: OneByOne | None) -> float:
    """What the later tokens of a frame cost."""
    parts = zip(table.split(1024), came.split(1024))
    return float(torch.cat([-pick(net(t, c) if net else t, c).sum(-1) for t, c in parts]).mean())


def correct(dynamics: Dynamics, net: OneByOne) -> None:
    """From now on this sequence model draws later tokens as the network says."""
    plain = dynamics.draw

    def drawn(hidden: Tensor, present: Tensor, temperature: float = 1.0) -> Tensor:
        latent = plain(hidden, present, temperature)  # for its posture
        table = dynamics.logits(hidden, present, latent)[..., dynamics.split :, :]
        return torch.cat((latent[..., : dynamics.split], net.draw(table)), -1)

    dynamics.draw = drawn  # pyright: ignore[reportAttributeAccessIssue]


def main(s: Settings) -> None:
    """Gather, learn, tell."""
    torch.manual_seed(s.seed)
    if s.threads:
        numba.set_num_threads(min(s.threads, numba.get_num_threads()))
        torch.set_num_threads(s.threads)
    loaded = load_weights(s.mind)
    mind, world = loaded.mind, replace(loaded.world, threads=s.threads)
    if not mind.dynamics.chained:
        raise SystemExit(f"{s.mind} foretells all tokens at once: give a mind of preset swift.")
    length = mind.config.imagination.context + DREAM_CONTROL_STEPS
    table, came = foretold(mind.dynamics, *lived(world, mind, s), length)
    held = hold_out(world, IndicatorConfig(everyday_episodes=s.held_out), "cpu")
    latent, gap = latents(mind, held.episodes.observation), efe_gap_nats(mind, held.pairs)
    others = foretold(mind.dynamics, latent, held.episodes.action, length)
    print(f"{world.ablation or 'pixels'}; {len(table)} frames, {len(others[0])} held out", flush=True)
    ways = {"each by itself": None}
    ways |= {name: learned(table, came, s, hears) for name, hears in (("deaf", False), ("one by one", True))}
    plain = mind.dynamics.draw
    for name, net in ways.items():
        mind.dynamics.draw = plain  # pyright: ignore[reportAttributeAccessIssue]
        if net:
            correct(mind.dynamics, net)
        torch.manual_seed(s.seed)
        found = dreamed_removal(mind, held, latent, efe(mind, latent), gap)
        fall, contrast = (
            "unknown" if found[key] is None else f"{found[key]:.2f}"
            for key in ("dreamed_fall_ratio", "dreamed_fall_contrast")
        )
        print(
            f"{name}: {cost_nats(*others, net):.2f} nats for what is seen; dreamed ÷ real fall {fall}, "
            f"contrast {contrast} (n = {found['removals_found']})",
            flush=True,
        )


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
