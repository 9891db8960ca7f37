"""What does it take for a sequence model to foresee a removal? Gate 4 by itself.

    python experiments/gate_4.py MIND [--episodes 8192] [--minutes 20] [--posture 0.1] [--goes-on] ...

MIND's codec sees and its self-prior says what G is (one with the symbolic eye is an ablation: told where the
mark is seen). A sequence model, a new one or MIND's own, learns from everyday episodes alone, all of them
marked, without the rest of a life: the most removals for the least work. Every look tells, of held-out
episodes, what the next frame costs, and gate 4's measures: how far G falls in the dream where the mark came
off in the world, in shares of the real fall; how much farther than where it stayed on (contrast); in what
share of dreams no mark is seen, where it came off and where it stayed on (in brackets: the world's own). Last
the same fall in dreams that are shown the real posture of every step: what is left then is what the model
does not know of marks, or nobody can.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import tyro
from safetensors.torch import load_file, save_file
from torch import Tensor

from mirrormark.life.descent import DescentConfig
from mirrormark.life.dreamed import (
    DREAM_CONTROL_STEPS,
    dreamed_removal,
    find_removals,
    foresight_nats,
    stretches,
)
from mirrormark.life.held_out import HeldOut, IndicatorConfig, efe, eye_device, hold_out, latents
from mirrormark.life.indicators import efe_gap_nats
from mirrormark.life.learner import Learner, LearnerConfig
from mirrormark.life.memory import Episodes, Memory, MemoryConfig
from mirrormark.life.rollout import Recipe, Sight, gather
from mirrormark.life.schedule import Lap
from mirrormark.life.setup import WorldSetup, movement_of
from mirrormark.life.weights import Loaded, load_weights
from mirrormark.mind.dream import recall
from mirrormark.mind.latent import draw
from mirrormark.mind.mind import Mind
from mirrormark.mind.outlook import OutlookConfig

LAP = 512
"""Episodes gathered at once."""
STRIDE = 50
"""Train steps between two looks at the clock."""


@dataclass(frozen=True)
class Settings:
    """Which data, which model, how long."""

    mind: tyro.conf.Positional[Path]
    data: Path | None = None
    """Where the episodes are kept for the next question; made if it is not there."""
    episodes: int = 8_192
    """Gathered in laps of 512."""
    held_out: int = 1_024
    minutes: float = 20.0
    """0: only gather."""
    looks: int = 6
    goes_on: bool = False
    """MIND's own sequence model learns on; else a new one, of the sizes that follow."""
    width: int = 128
    layers: int = 2
    heads: int = 4
    ffn: int = 512
    dropout: float = 0.0
    sequences: int = 32
    frames: int = 64
    learning_rate: float = 1e-3
    """Falls to a twentieth."""
    posture: float = 1.0
    """losses.dynamics_posture: weight of what joints cost beside 1 for the cell, which changes rarely."""
    curious: float = 0.0
    """memory.curious_share: of each batch, drawn by how badly it was foreseen."""
    steps: int | None = None
    """Train steps in all, in strides of 50; None: as many as fit into the minutes."""
    threads: int | None = None
    device: str = "cpu"
    seed: int = 0


def lived(world: WorldSetup, mind: Mind, s: Settings) -> dict[str, Tensor]:
    """Everyday episodes with a mark: tokens (N, L, K), actions (N, L, A), where the mark is on (N, L)."""
    laps = max(1, round(s.episodes / LAP))
    if s.data is not None and s.data.exists():
        kept = load_file(s.data)
        if not 0 <= laps * LAP - len(kept["latent"]) < LAP:  # worlds whose physics broke are left out
            raise SystemExit(f"--data {s.data} holds {len(kept['latent'])} episodes: ask for as many.")
        return kept
    worlds = world.worlds(LAP, eye_device(world, mind.device))
    rng, sight, parts = np.random.default_rng((s.seed, 0x67617465)), Sight(mind, False), []
    for _ in range(laps):
        plan = Recipe(rng.integers(0, 2**62, LAP), np.ones(LAP, bool), LAP, np.zeros(LAP, np.int64))
        lap = gather(worlds, movement_of(world, worlds), plan, None, sight)
        latent = lap.observation["latent"].to("cpu", torch.uint8)
        parts.append({"latent": latent, "action": lap.action.half(), "mark": lap.mark})
    kept = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if s.data is not None:
        save_file(kept, s.data)
    return kept


def remember(data: dict[str, Tensor], mind: Mind, s: Settings) -> Memory:
    """All of them, as a life remembers: in one of its four groups."""
    n, length = data["mark"].shape
    fields = {"latent": ((mind.spec.K,), torch.uint8)}
    room = MemoryConfig(capacity_episodes=4 * n, curious_share=s.curious)
    memory = Memory(fields, mind.actions, length, room, s.device, torch.float16)
    marked, policy = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
    let_go = torch.zeros(n, dtype=torch.int64)  # everyday movement moves them from the first frame on
    memory.extend(Episodes({"latent": data["latent"]}, data["action"], data["mark"], policy, marked, let_go))
    return memory


def beginner(loaded: Loaded, s: Settings) -> Mind:
    """The same codec and self-prior, and the sequence model that is asked for."""
    old = loaded.mind
    sizes = {"width": s.width, "layers": s.layers, "heads": s.heads, "ffn": s.ffn, "dropout": s.dropout}
    config = replace(
        old.config,
        dynamics=old.config.dynamics if s.goes_on else replace(old.config.dynamics, **sizes),
        losses=replace(old.config.losses, dynamics_posture=s.posture),
        outlook=OutlookConfig(),
    )
    mind = Mind(config, old.codec.senses, old.actions)
    mind.codec.load_state_dict(old.codec.state_dict())
    mind.self_prior.load_state_dict(old.self_prior.state_dict())
    if s.goes_on:
        mind.dynamics.load_state_dict(old.dynamics.state_dict())
    mind.codec.requires_grad_(False)
    return mind.to(s.device)


def learn(mind: Mind, memory: Memory, s: Settings) -> Iterator[tuple[int, float]]:
    """Steps taken and seconds since the beginning, at every look."""
    rate = DescentConfig(s.learning_rate, s.learning_rate / 20)
    config = LearnerConfig(world=rate, world_sequences=s.sequences, world_frames=s.frames, precision="bf16")
    learner, began = Learner(mind, config, tokens=True), time.time()
    lesson = Lap(
        index=0, phase="life", episodes=0, episodes_after=0, steps=STRIDE, stages=("world",),
        policy_moves=False, exam=False, checkpoint=False, progress=0.0,
    )  # fmt: skip

    def progress() -> float:
        return learner.steps / s.steps if s.steps else (time.time() - began) / (60 * s.minutes)

    for number in range(1, s.looks + 1):
        while (now := progress()) < number / s.looks:
            learner.learn(memory, lesson._replace(progress=now))
        yield learner.steps, time.time() - began


@torch.no_grad()
def shown_posture(mind: Mind, held: HeldOut, latent: Tensor, cost: Tensor) -> float:
    """Dreamed ÷ real fall where a dream draws all but the joints' tokens."""
    context, dynamics = mind.config.imagination.context, mind.dynamics
    joints, action = mind.codec.tokens["proprioception"], held.episodes.action.to(latent.device)
    found = find_removals(held.episodes.mark.to(latent.device), context)
    real = stretches(latent, action, cost, *found, context)
    _, cache = recall(dynamics, real.latent[:, :context], real.action[:, : context - 1], DREAM_CONTROL_STEPS)
    now = real.latent[:, context - 1]
    for t in range(context - 1, context - 1 + DREAM_CONTROL_STEPS):
        hidden, _ = dynamics.step(now, real.action[:, t], cache, t)
        after = real.latent[:, t + 1]
        now = draw(dynamics.logits(hidden, now, after))
        now[:, joints] = after[:, joints]
    before = real.efe[:, context - 1]
    return float((before - efe(mind, now)).mean() / (before - real.efe[:, -1]).mean())


def look(mind: Mind, held: HeldOut) -> str:
    """Gate 4, in a line."""
    latent = latents(mind, held.episodes.observation)
    cost = efe(mind, latent)
    found = dreamed_removal(mind, held, latent, cost, efe_gap_nats(mind, held.pairs))
    shown = shown_posture(mind, held, latent, cost)
    ahead = foresight_nats(mind, latent, held.episodes.action.to(latent.device))
    told = {name: "unknown" if value is None else f"{value:.2f}" for name, value in found.items()}
    gone = {
        where: f"{told[f'dreamed_gone_where_{where}']} ({told[f'seen_gone_where_{where}']})"
        for where in ("removed", "kept")
    }
    return (
        f"next frame {ahead:.2f} nats; dreamed ÷ real fall {told['dreamed_fall_ratio']} "
        f"(n = {found['removals_found']}), contrast {told['dreamed_fall_contrast']}; "
        f"not seen where it came off {gone['removed']}, where it stayed {gone['kept']}; "
        f"shown the posture {shown:.2f} of the fall"
    )


def main(s: Settings) -> None:
    """Gather, then learn and look."""
    torch.manual_seed(s.seed)
    loaded = load_weights(s.mind, s.device)
    if "proprioception" not in loaded.mind.codec.tokens:
        raise SystemExit(f"{s.mind} has no joint tokens of their own: give a mind of preset swift or ideal.")
    world = replace(loaded.world, threads=s.threads)
    data = lived(world, loaded.mind, s)
    removed = int((~data["mark"][:, -1]).sum())
    print(f"{world.ablation or 'pixels'}; {len(data['mark'])} episodes, {removed} removals", flush=True)
    if not s.minutes:
        return
    mind = beginner(loaded, s)
    held = hold_out(world, IndicatorConfig(everyday_episodes=s.held_out), s.device)
    for steps, seconds in learn(mind, remember(data, mind, s), s):
        print(f"{steps} steps, {seconds:.0f} s: {look(mind, held)}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
