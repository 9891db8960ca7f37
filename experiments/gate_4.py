"""What does it take for a sequence model to foresee a removal? Gate 4 by itself, for the symbolic eye.

    python experiments/gate_4.py MIND [--episodes 8192] [--minutes 20] [--cell-weight 1] ...

MIND has the symbolic eye (preset ideal; ablation: told where the mark is seen); its self-prior says what G
is. A new sequence model learns from everyday episodes alone, all of them marked, without the rest of a life:
the most removals for the least work. Every look tells, of held-out episodes, what the next frame costs, and
gate 4's measure: how far G falls in the dream where the mark came off in the world, in shares of the real
fall, and in what share of dreams no mark is seen, where it came off and where it stayed on (in brackets: the
world's own). Last the same fall in dreams that are shown the real posture of every step: what is left then is
what the model does not know of marks, or nobody can.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import tyro
from safetensors.torch import load_file, save_file
from torch import Tensor

from mirrormark.life.descent import Descent, DescentConfig
from mirrormark.life.held_out import HeldOut, IndicatorConfig, hold_out
from mirrormark.life.indicators import (
    DREAM_CONTROL_STEPS,
    dreamed_removal,
    efe,
    efe_gap_nats,
    find_removals,
    foresight_nats,
    latents,
    stretches,
)
from mirrormark.life.rollout import Recipe, gather
from mirrormark.life.setup import WorldSetup, movement_of
from mirrormark.life.weights import Loaded, load_weights
from mirrormark.mind.dream import recall
from mirrormark.mind.dynamics import Dynamics
from mirrormark.mind.latent import draw, pick
from mirrormark.mind.mind import Mind

LAP = 512
"""Episodes gathered at once."""


@dataclass(frozen=True)
class Settings:
    """Which data, which model, how long."""

    mind: tyro.conf.Positional[Path]
    data: Path | None = None
    """Where the episodes are kept for the next question; made if it is not there, else taken as it is."""
    episodes: int = 8_192
    """Gathered in laps of 512."""
    held_out: int = 1_024
    minutes: float = 20.0
    looks: int = 6
    width: int = 128
    layers: int = 2
    heads: int = 4
    ffn: int = 512
    dropout: float = 0.0
    sequences: int = 32
    frames: int = 64
    learning_rate: float = 1e-3
    cell_weight: float = 1.0
    """Of what the next cell costs, beside 1 for each joint: where the mark is seen changes rarely."""
    threads: int | None = None
    device: str = "cpu"
    seed: int = 0


def lived(world: WorldSetup, mind: Mind, s: Settings) -> dict[str, Tensor]:
    """Everyday episodes with a mark: tokens (N, L, K) and actions (N, L, A)."""
    if s.data is not None and s.data.exists():
        kept = load_file(s.data)
        print(f"{s.data} is there: its {len(kept['latent'])} episodes are taken", flush=True)
        return kept
    worlds, rng, laps = world.worlds(LAP), np.random.default_rng((s.seed, 0x67617465)), []
    for _ in range(max(1, round(s.episodes / LAP))):
        plan = Recipe(rng.integers(0, 2**62, LAP), np.ones(LAP, bool), LAP, np.zeros(LAP, np.int64))
        laps.append(gather(worlds, movement_of(world, worlds), plan, None))
    observed = {name: torch.cat([lap.observation[name] for lap in laps]) for name in laps[0].observation}
    kept = {
        "latent": latents(mind, observed).to(torch.uint8),
        "action": torch.cat([lap.action for lap in laps]).half(),
        "removed": torch.cat([~lap.mark[:, -1] for lap in laps]),
    }
    if s.data is not None:
        save_file(kept, s.data)
    return kept


def new_dynamics(mind: Mind, s: Settings) -> Dynamics:
    """One that has learned nothing, of the asked size."""
    sizes = {"width": s.width, "layers": s.layers, "heads": s.heads, "ffn": s.ffn, "dropout": s.dropout}
    config = replace(mind.dynamics.config, **sizes)
    return Dynamics(mind.spec, mind.actions, config, mind.codec.look).to(s.device)


class Lessons:
    """The sequence model's learning, alone."""

    def __init__(self, mind: Mind, data: dict[str, Tensor], s: Settings) -> None:
        self.mind, self.s = mind, s
        self.latent, self.action = data["latent"].to(s.device), data["action"].to(s.device)
        rate = DescentConfig(s.learning_rate, s.learning_rate / 20)
        self.descent = Descent(mind.dynamics.parameters(), rate)
        self.weight = torch.ones(mind.spec.K, device=s.device)
        self.weight[mind.codec.tokens["cell"]] = s.cell_weight
        self.steps = 0

    def step(self, progress: float) -> None:
        """One batch of windows; progress: 0 to 1, of the rate's fall."""
        s, device = self.s, self.latent.device
        row = torch.randint(len(self.latent), (s.sequences, 1), device=device)
        start = torch.randint(self.latent.shape[1] - s.frames + 1, (s.sequences, 1), device=device)
        frame = start + torch.arange(s.frames, device=device)
        latent, action = self.latent[row, frame].long(), self.action[row, frame].float()
        dynamics = self.mind.dynamics
        hidden = dynamics(latent[:, :-1], action[:, :-1])
        table = dynamics.logits(hidden, latent[:, :-1], latent[:, 1:])
        loss = -(pick(table, latent[:, 1:]) * self.weight).sum(-1).mean()
        self.descent.set_progress(progress)
        self.descent.forget()
        loss.backward()
        self.descent.take(loss)
        self.steps += 1


@torch.no_grad()
def shown_posture(mind: Mind, held: HeldOut, latent: Tensor, cost: Tensor) -> float:
    """Dreamed ÷ real fall where a dream draws the cell alone."""
    context, dynamics = mind.config.imagination.context, mind.dynamics
    cell, action = mind.codec.tokens["cell"], held.episodes.action.to(latent.device)
    found = find_removals(held.episodes.mark.to(latent.device), context)
    real = stretches(latent, action, cost, *found, context)
    _, cache = recall(dynamics, real.latent[:, :context], real.action[:, : context - 1], DREAM_CONTROL_STEPS)
    now = real.latent[:, context - 1]
    for t in range(context - 1, context - 1 + DREAM_CONTROL_STEPS):
        hidden, _ = dynamics.step(now, real.action[:, t], cache, t)
        drawn = draw(dynamics.logits(hidden, now, real.latent[:, t + 1]))
        now = real.latent[:, t + 1].clone()
        now[:, cell] = drawn[:, cell]
    before = real.efe[:, context - 1]
    return float((before - efe(mind, now)).mean() / (before - real.efe[:, -1]).mean())


def look(mind: Mind, held: HeldOut) -> str:
    """Gate 4, in a line."""
    mind.eval()
    latent = latents(mind, held.episodes.observation)
    cost = efe(mind, latent)
    found = dreamed_removal(mind, held, latent, cost, efe_gap_nats(mind, held.pairs))
    shown = shown_posture(mind, held, latent, cost)
    ahead = foresight_nats(mind, latent, held.episodes.action.to(latent.device))
    mind.train()
    told = {name: "unknown" if value is None else f"{value:.2f}" for name, value in found.items()}
    gone = {
        where: f"{told[f'dreamed_gone_where_{where}']} ({told[f'seen_gone_where_{where}']})"
        for where in ("removed", "kept")
    }
    return (
        f"next frame {ahead:.2f} nats; dreamed ÷ real fall {told['dreamed_fall_ratio']} "
        f"(n = {found['removals_found']}); not seen where it came off {gone['removed']}, "
        f"where it stayed {gone['kept']}; shown the posture {shown:.2f} of the fall"
    )


def with_symbols(path: Path) -> Loaded:
    """A mind that is told where the mark is seen."""
    loaded = load_weights(path)
    if "cell" not in loaded.mind.codec.tokens:
        raise SystemExit(f"{path} sees pixels: give a mind of preset ideal.")
    return loaded


def main(s: Settings) -> None:
    """Gather, then learn and look."""
    torch.manual_seed(s.seed)
    loaded = with_symbols(s.mind)
    world = replace(loaded.world, threads=s.threads)
    data = lived(world, loaded.mind, s)
    mind = loaded.mind.to(s.device)
    mind.dynamics = new_dynamics(mind, s)
    held = hold_out(world, IndicatorConfig(everyday_episodes=s.held_out), s.device)
    lessons, began, seconds = Lessons(mind, data, s), time.time(), 60 * s.minutes
    print(
        f"{world.ablation}; {len(data['latent'])} episodes, {int(data['removed'].sum())} removals", flush=True
    )
    mind.train()
    for number in range(s.looks):
        while (now := time.time() - began) < seconds * (number + 1) / s.looks:
            lessons.step(min(now / seconds, 1.0))
        print(f"{lessons.steps} steps, {now:.0f} s: {look(mind, held)}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
