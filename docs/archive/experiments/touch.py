"""Does a dream know what takes a mark off? A hand at it for ten control steps does, most often hiding it.
From a past that ends some steps before a real removal, dream the real actions until just after it, then rest,
so that nothing hides the place: is the mark still seen? And where a touch ended too early to take it off?

    python experiments/touch.py MIND --episodes 192

Told apart by G: a mark is seen where G lies above 5 nats. Nothing here is part of a life; when a mark came
off, and for how long it was touched, is looked at to choose the pasts.
"""

import argparse
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.life.held_out import efe
from mirrormark.life.rollout import Actor
from mirrormark.life.weights import Loaded, load_weights
from mirrormark.mind.dream import replay_dream
from mirrormark.mind.mind import Mind
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS

SEEN_NATS = 5.0
AFTER, REST, LOOK = 2, 20, 5
"""Control steps dreamed past the event, of rest behind it, and looked at in the end."""
LONG_TOUCH_SIM_STEPS = 20


class Lived(NamedTuple):
    """Marked episodes moved by the policy."""

    latent: Tensor  # (N, L, K)
    action: Tensor  # (N, L, A)
    worn: Tensor  # (N,) control steps until the mark came off, L where it did not
    touched: Tensor  # (N, L) physics steps for which a hand has been at the mark


def lived(loaded: Loaded, n: int, first_seed: int) -> Lived:
    worlds, actor = loaded.world.worlds(n), Actor(loaded.mind, n)
    actor.begin(first_seed)
    observation, info = worlds.reset(seed=list(range(first_seed, first_seed + n)), marked=np.ones(n, bool))
    latents, actions, present, touched = [], [], [], []
    for _ in range(EPISODE_CONTROL_STEPS):
        actions.append(torch.from_numpy(actor.act(observation)))
        latents.append(actor.latent)
        present.append(torch.from_numpy(info["mark_present"].copy()))
        touched.append(torch.from_numpy(worlds.patch.held_sim_steps.copy()))
        observation, _, _, _, info = worlds.step(actions[-1].numpy())
    worn = torch.stack(present, 1).sum(1)
    return Lived(torch.stack(latents, 1), torch.stack(actions, 1), worn, torch.stack(touched, 1))


def removals(real: Lived) -> list[tuple[int, int]]:
    """(episode, frame) at which the mark is off for the first time."""
    return [(i, int(t)) for i, t in enumerate(real.worn) if t < EPISODE_CONTROL_STEPS]


def broken_off(real: Lived) -> list[tuple[int, int]]:
    """(episode, frame) at which a touch of four to nine control steps has ended, and the mark is on."""
    ended = (real.touched[:, 1:] == 0) & (real.touched[:, :-1] >= LONG_TOUCH_SIM_STEPS)
    found = ((i, t + 1) for i, t in ended.nonzero().tolist())
    return [(i, t) for i, t in found if t < real.worn[i] - 1]


@torch.no_grad()
def still_seen(mind: Mind, real: Lived, seen: Tensor, events: list[tuple[int, int]], before: int) -> str:
    """Share of dreams in which the mark is seen after the rest; of events whose past shows it."""
    context, last = mind.config.imagination.context, EPISODE_CONTROL_STEPS - AFTER
    fits = [
        (i, t - before)
        for i, t in events
        if t - before >= context - 1 and t < last and seen[i, t - before - context + 1 : t - before + 1].any()
    ]
    if not fits:
        return "none"
    row, now = torch.tensor(fits).T
    past = now[:, None] + torch.arange(1 - context, 1)
    ahead = real.action[row[:, None], now[:, None] + torch.arange(before + AFTER)]
    rest = torch.zeros(len(row), REST, ahead.shape[-1])
    torch.manual_seed(0)
    dreamed = replay_dream(
        mind.dynamics,
        real.latent[row[:, None], past],
        real.action[row[:, None], past[:, :-1]],
        torch.cat((ahead, rest), 1),
    )
    return f"{(efe(mind, dreamed[:, -LOOK:]) > SEEN_NATS).float().mean():.2f} (n = {len(row)})"


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("mind", help="a snapshot, or the name of a shipped mind")
    ask.add_argument("--episodes", type=int, default=192)
    got = ask.parse_args()
    loaded = load_weights(got.mind)
    mind, real = loaded.mind.eval(), lived(loaded, got.episodes, 300_000)
    seen = efe(mind, real.latent) > SEEN_NATS
    off, kept = removals(real), broken_off(real)
    print(f"{len(off)} marks come off in {got.episodes} episodes; {len(kept)} long touches end too early")
    for before in (0, 2, 4, 6, 8, 10):
        told = (still_seen(mind, real, seen, events, before) for events in (off, kept))
        print(f"{before:3d} steps before: seen after {' where it came off, '.join(told)} where it stayed on")


main()
