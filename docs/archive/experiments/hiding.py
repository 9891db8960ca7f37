"""Is taking the mark off worth more than hiding it? What each way costs, under another everyday life.

    python experiments/hiding.py SNAPSHOT [--movement held bouts] [--worlds 40]

Three ways through the same marked worlds: sitting (no torque at all), the scripted reach of the exam's
oracle (limp from the removal on; it knows where the mark is, lives in the exam and here, and no mind ever
learns from it), and hiding: as the snapshot's policy covers the mark, then for ever as in its frames in which
the mark is on and not one pixel of it is seen. Of every frame the vision tokens' surprise is the snapshot's;
the joints' is learned here, from each everyday movement asked about, by a small self-prior on joint bins.
Then, for several precisions of posture, the discounted sum of G, each way's last state going on for ever.
"""

import argparse
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.exam.oracle import Oracle
from mirrormark.life.rollout import Actor, Sight, encode, gather, recipe
from mirrormark.life.setup import build_mind, movement_of
from mirrormark.life.weights import Loaded, load_weights
from mirrormark.mind.mind import Mind
from mirrormark.mind.objective import self_prior_objective
from mirrormark.presets import PRESETS
from mirrormark.world.movement import MovementConfig
from mirrormark.world.senses import SYMBOLIC_SENSES
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS

PRECISIONS = (0.05, 0.15, 0.25, 0.4, 0.6, 1.0)
DISCOUNT = 0.99
SETTLED = 30  # control steps after which a body that does nothing has come to rest
COVERED = 15  # control steps after which a policy that hides the mark has it covered


class Way(NamedTuple):
    """What happened, frame by frame, (worlds, steps)."""

    joints: Tensor  # (worlds, steps, joints): their bins
    vision: Tensor  # surprise of the vision tokens, nats
    worn: Tensor  # the mark is on
    seen_px: Tensor


@torch.no_grad()
def walk(loaded: Loaded, who: str, n: int, first_seed: int) -> Way:
    """One way through the worlds."""
    mind, worlds = loaded.mind.eval(), loaded.world.worlds(n, measure_view=True)
    observation, info = worlds.reset(seed=list(range(first_seed, first_seed + n)), marked=True)
    oracle, actor = Oracle(worlds), Actor(mind, n)
    oracle.begin()
    actor.begin(0)
    frames, worn, seen = [], [], []
    for _ in range(EPISODE_CONTROL_STEPS):
        frames.append(encode(mind, observation))
        worn.append(info["mark_present"].copy())
        seen.append(info["mark_px"].copy())
        action = np.zeros((n, worlds.actions), np.float32)
        if who == "oracle":
            action = oracle.act() * info["mark_present"][:, None]
        elif who == "hide":
            action = actor.act_on(frames[-1])
        observation, _, _, _, info = worlds.step(action)
    latent, joints = torch.stack(frames, 1), mind.codec.tokens["proprioception"]
    surprise = -torch.stack([mind.self_prior.per_token_log_prob(row) for row in latent])
    surprise[..., joints] = 0
    worn_, seen_ = (torch.from_numpy(np.stack(part, 1)) for part in (worn, seen))
    return Way(latent[..., joints], surprise.sum(-1), worn_, seen_)


def familiar(loaded: Loaded, kind: str, episodes: int = 1024, steps: int = 700) -> tuple[Mind, float]:
    """A mind whose self-prior knows the postures of that everyday life, and how often it removes marks."""
    movement = MovementConfig(kind=kind)  # type: ignore[arg-type]
    setup = replace(loaded.world, movement=movement, senses=SYMBOLIC_SENSES, mirrorless_share=0.0)
    worlds = setup.worlds(episodes // 4)
    torch.manual_seed(0)
    ideal = PRESETS["ideal"].mind
    bins = replace(ideal.codec, bins=loaded.mind.config.codec.bins)
    mind, lived = build_mind(replace(ideal, codec=bins), worlds), []
    for lap in range(4):
        plan = recipe(worlds.n, lap, 11, 0.0)
        lived.append(gather(worlds, movement_of(setup, worlds), plan, None, Sight(mind, replays=False)))
    removed = torch.cat([~part.mark[part.marked][:, -1] for part in lived])
    latent = torch.cat([part.observation["latent"][~part.marked] for part in lived]).flatten(0, 1).long()
    adam = torch.optim.Adam(mind.self_prior.parameters(), 2e-3)
    falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.01, steps)
    for _ in range(steps):
        loss = self_prior_objective(mind, latent[torch.randint(len(latent), (384,))]).loss
        adam.zero_grad()
        loss.backward()
        adam.step()
        falling.step()
        mind.update_ema(value=False)
    return mind, float(removed.float().mean())


@torch.no_grad()
def of_posture(mind: Mind, joints: Tensor) -> Tensor:
    """Surprise of the joints' tokens, which are the first of both codecs."""
    nothing = torch.zeros_like(joints[..., :1])  # the eye's own token comes last and is not asked about
    latent = torch.cat((joints, nothing), -1).long()
    parts = [mind.self_prior.per_token_log_prob(row)[:, : joints.shape[-1]].sum(-1) for row in latent]
    return -torch.stack(parts)


def report(ways: dict[str, Way], mind: Mind) -> None:
    """Prints what each way costs."""
    step = torch.arange(EPISODE_CONTROL_STEPS)
    posture = {name: of_posture(mind, way.joints) for name, way in ways.items()}
    gone, hiding = ways["oracle"].worn.sum(1, keepdim=True), ways["hide"]
    late = {
        "sit": (step >= SETTLED).expand_as(ways["sit"].worn),
        "hide": hiding.worn & (hiding.seen_px == 0) & (step >= COVERED),
        "oracle": ~ways["oracle"].worn & (step > gone + SETTLED // 2),
    }
    last, until = {}, {"sit": len(step), "hide": COVERED, "oracle": len(step)}
    for name, rows in late.items():
        last[name] = float(posture[name][rows].mean()), float(ways[name].vision[rows].mean())
        print(f"  in the end, {name}: posture {last[name][0]:.1f}, vision {last[name][1]:.1f} nats")
    for p in PRECISIONS:
        sums = {}
        for name, way in ways.items():
            t = until[name]
            cost = (p * posture[name] + way.vision)[:, :t] * DISCOUNT ** step[:t]
            for_ever = DISCOUNT**t / (1 - DISCOUNT) * (p * last[name][0] + last[name][1])
            sums[name] = float(cost.sum(1).mean()) + for_ever
        told = ", ".join(f"{name} {total:.0f}" for name, total in sums.items())
        print(
            f"  precision {p:.2f}: {told}; removing saves {sums['sit'] - sums['oracle']:+.0f} against "
            f"sitting, {sums['hide'] - sums['oracle']:+.0f} against hiding"
        )


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("snapshot")
    ask.add_argument("--movement", nargs="+", default=["held", "bouts"])
    ask.add_argument("--worlds", type=int, default=40)
    ask.add_argument("--first-seed", type=int, default=7000)
    got = ask.parse_args()
    loaded = load_weights(got.snapshot)
    ways = {who: walk(loaded, who, got.worlds, got.first_seed) for who in ("sit", "hide", "oracle")}
    for kind in got.movement:
        mind, chance = familiar(loaded, kind)
        print(f"{kind}: removes {chance:.2f} of marks by chance", flush=True)
        report(ways, mind)


main()
