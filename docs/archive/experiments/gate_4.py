"""What does it take for a sequence model to foresee a removal? Gate 4 by itself.

    python experiments/gate_4.py MIND [--episodes 8192] [--minutes 20] [--posture 0.1] [--goes-on] ...

MIND's codec sees and its self-prior says what G is (one with the symbolic eye is an ablation: told where the
mark is seen). A sequence model, a new one or MIND's own, learns from everyday episodes alone, all of them
marked, without the rest of a life: the most removals for the least work. Every look tells, of held-out
episodes, what the next frame costs, and gate 4's measures: how far G falls in the dream where the mark came
off in the world, in shares of the real fall; how much farther than where it stayed on (contrast); in what
share of dreams no mark is seen, where it came off and where it stayed on (in brackets: the world's own). Then
the same fall in dreams that are shown the real posture of every step: what is left then is what the model
does not know of marks, or nobody can. Last fall and contrast of episodes that it learned from: far above the
others, they are known by heart, and more data would help; equal, it has not learned enough.

Gathering is most of the time. Its laps are kept one by one, so that many processes can do it at once:

    W="python experiments/gate_4.py MIND --data FOLDER --threads 1 --minutes 0"
    seq 0 15 | xargs -P 16 -I@ $W --share @ 16
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numba
import numpy as np
import torch
import tyro
from safetensors.torch import load_file, save
from torch import Tensor

from mirrormark.life.checkpoint import replace_bytes
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
    data: Path
    """Folder in which the laps are kept for the next question; those that are missing are gathered."""
    share: tuple[int, int] = (0, 1)
    """Gather only laps whose number, divided by the second, leaves the first: 0 16, 1 16, ... 15 16."""
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


def lived(world: WorldSetup, mind: Mind, s: Settings) -> list[Path]:
    """Everyday episodes with a mark, lap by lap; those of our share that are missing are gathered now."""
    if not 0 <= s.share[0] < s.share[1]:
        raise SystemExit(f"--share is {s.share[0]} {s.share[1]}: give a number from 0 on and a larger one.")
    s.data.mkdir(parents=True, exist_ok=True)
    laps = {lap: s.data / f"lap-{lap:05d}.safetensors" for lap in range(max(1, round(s.episodes / LAP)))}
    (mine, of), missing = s.share, [lap for lap, place in laps.items() if not place.exists()]
    ours = [lap for lap in missing if lap % of == mine]
    if ours:
        worlds = world.worlds(LAP, eye_device(world, mind.device))
        movement, sight, began = movement_of(world, worlds), Sight(mind, False), time.time()
        for done, lap in enumerate(ours, 1):
            rng = np.random.default_rng((s.seed, 0x67617465, lap))
            plan = Recipe(rng.integers(0, 2**62, LAP), np.ones(LAP, bool), LAP, np.zeros(LAP, np.int64))
            found = gather(worlds, movement, plan, None, sight)
            latent = found.observation["latent"].to("cpu", torch.uint8)
            part = {"latent": latent, "action": found.action.half(), "mark": found.mark}
            replace_bytes(laps[lap], save(part))
            print(f"gathered {done} of {len(ours)} laps, {time.time() - began:.0f} s", flush=True)
    return list(laps.values())


def joined(laps: list[Path]) -> dict[str, Tensor]:
    """Tokens (N, L, K), actions (N, L, A), where the mark is on (N, L)."""
    missing = sum(not place.exists() for place in laps)
    if missing:
        raise SystemExit(f"{missing} of {len(laps)} laps are missing in {laps[0].parent}: gather them first.")
    parts = [load_file(place) for place in laps]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def whole(data: dict[str, Tensor]) -> Episodes:
    """As episodes that everyday movement moves from their first frame on."""
    n = len(data["mark"])
    marked, policy = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
    let_go = torch.zeros(n, dtype=torch.int64)
    return Episodes({"latent": data["latent"]}, data["action"], data["mark"], policy, marked, let_go)


def remember(data: dict[str, Tensor], mind: Mind, s: Settings) -> Memory:
    """All of them, as a life remembers: in one of its four groups."""
    n, length = data["mark"].shape
    fields = {"latent": ((mind.spec.K,), torch.uint8)}
    room = MemoryConfig(capacity_episodes=4 * n, curious_share=s.curious)
    memory = Memory(fields, mind.actions, length, room, s.device, torch.float16)
    memory.extend(whole(data))
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


def look(mind: Mind, held: HeldOut, known: Episodes) -> str:
    """Gate 4, in a line."""
    latent, gap = latents(mind, held.episodes.observation), efe_gap_nats(mind, held.pairs)
    cost = efe(mind, latent)
    found = dreamed_removal(mind, held, latent, cost, gap)
    by_heart = known.observation["latent"].long()
    learned = dreamed_removal(mind, held._replace(episodes=known), by_heart, efe(mind, by_heart), gap)
    shown = shown_posture(mind, held, latent, cost)
    ahead = foresight_nats(mind, latent, held.episodes.action.to(latent.device))
    told, own = (
        {name: "unknown" if value is None else f"{value:.2f}" for name, value in which.items()}
        for which in (found, learned)
    )
    gone = {
        where: f"{told[f'dreamed_gone_where_{where}']} ({told[f'seen_gone_where_{where}']})"
        for where in ("removed", "kept")
    }
    return (
        f"next frame {ahead:.2f} nats; dreamed ÷ real fall {told['dreamed_fall_ratio']} "
        f"(n = {found['removals_found']}), contrast {told['dreamed_fall_contrast']}; "
        f"not seen where it came off {gone['removed']}, where it stayed {gone['kept']}; "
        f"shown the posture {shown:.2f} of the fall; of episodes it learned from {own['dreamed_fall_ratio']} "
        f"(n = {learned['removals_found']}), contrast {own['dreamed_fall_contrast']}"
    )


def main(s: Settings) -> None:
    """Gather, then learn and look."""
    torch.manual_seed(s.seed)
    if s.threads:
        numba.set_num_threads(min(s.threads, numba.get_num_threads()))
    loaded = load_weights(s.mind, s.device)
    if "proprioception" not in loaded.mind.codec.tokens:
        raise SystemExit(f"{s.mind} has no joint tokens of their own: give a mind of preset swift or ideal.")
    world = replace(loaded.world, threads=s.threads)
    laps = lived(world, loaded.mind, s)
    if not s.minutes:
        return
    data = joined(laps)
    removed = int((~data["mark"][:, -1]).sum())
    print(f"{world.ablation or 'pixels'}; {len(data['mark'])} episodes, {removed} removals", flush=True)
    mind = beginner(loaded, s)
    held = hold_out(world, IndicatorConfig(everyday_episodes=s.held_out), s.device)
    some = {name: value[: s.held_out].to(s.device) for name, value in data.items()}
    known = whole(some | {"action": some["action"].float()})
    for steps, seconds in learn(mind, remember(data, mind, s), s):
        print(f"{steps} steps, {seconds:.0f} s: {look(mind, held, known)}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
