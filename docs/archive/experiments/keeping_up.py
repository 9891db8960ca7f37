"""Does the sequence model know what the policy does now? Of marks that stay on in the policy's own episodes:
how often do they come out of sight and back in the world, and in dreams of the same actions; and what changes
when the sequence model alone learns a little from other such episodes.

    python experiments/keeping_up.py MIND --steps 200

Told apart by G: a mark is seen where G lies above 5 nats (the shipped infant: about 13 with it, 3 without).
Nothing here is part of a life; that marks are present is looked at to choose episodes whose mark stays on.
"""

import argparse
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.life.held_out import efe
from mirrormark.life.objectives import token_objective
from mirrormark.life.rollout import Actor
from mirrormark.life.weights import Loaded, load_weights
from mirrormark.mind.dream import replay_dream
from mirrormark.mind.mind import Mind
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS

SEEN_NATS = 5.0
LOOKED_AT = range(45, 75, 6)
AHEAD_CONTROL_STEPS = 24


class Lived(NamedTuple):
    """Marked episodes moved by the policy."""

    latent: Tensor  # (N, L, K)
    action: Tensor  # (N, L, A)
    kept: Tensor  # (N,) bool: the mark was on to the end


def lived(loaded: Loaded, n: int, first_seed: int) -> Lived:
    worlds, actor = loaded.world.worlds(n), Actor(loaded.mind, n)
    actor.begin(first_seed)
    observation, info = worlds.reset(seed=list(range(first_seed, first_seed + n)), marked=np.ones(n, bool))
    latents, actions = [], []
    for _ in range(EPISODE_CONTROL_STEPS):
        actions.append(torch.from_numpy(actor.act(observation)))
        latents.append(actor.latent)
        observation, _, _, _, info = worlds.step(actions[-1].numpy())
    kept = torch.from_numpy(info["mark_present"].copy())
    return Lived(torch.stack(latents, 1), torch.stack(actions, 1), kept)


def seen(mind: Mind, latent: Tensor) -> Tensor:
    return efe(mind, latent) > SEEN_NATS


def moves(name: str, before: Tensor, after: Tensor) -> str:
    """Shares of steps in which a seen mark goes out of sight, and an unseen one comes back."""
    lost, back = (before & ~after).sum() / before.sum(), (~before & after).sum() / (~before).sum()
    return f"{name}: lost {lost:.2f}, back {back:.2f}"


@torch.no_grad()
def compare(mind: Mind, real: Lived) -> str:
    """World against one-step and longer dreams of the same actions, and the cost of the next frame."""
    mind.eval()
    torch.manual_seed(0)
    latent, action, context = real.latent[real.kept], real.action[real.kept], mind.config.imagination.context
    visible = seen(mind, latent)
    before, after, dreamed, later, really = [], [], [], [], []
    for now in LOOKED_AT:
        past = latent[:, now - context + 1 : now + 1], action[:, now - context + 1 : now]
        ahead = action[:, now : now + AHEAD_CONTROL_STEPS]
        dream = seen(mind, replay_dream(mind.dynamics, *past, ahead))
        before.append(visible[:, now])
        after.append(visible[:, now + 1])
        dreamed.append(dream[:, 1])
        later.append(dream[:, 4:])
        really.append(visible[:, now + 4 : now + AHEAD_CONTROL_STEPS + 1])
    then = torch.cat(before)
    shares = f"seen 4 to 24 steps ahead: world {torch.cat(really).float().mean():.2f}"
    shares += f", dream {torch.cat(later).float().mean():.2f}"
    frames = slice(EPISODE_CONTROL_STEPS - 60, None)
    cost, _ = token_objective(mind, real.latent[:, frames], real.action[:, frames])
    one_step = moves("world", then, torch.cat(after)), moves("dream", then, torch.cat(dreamed))
    return "; ".join((*one_step, shares, f"next frame {cost.metrics['dynamics']:.2f} nats"))


def learn(
    mind: Mind, lately: Lived, steps: int, rate: float = 2e-4, batch: int = 16, frames: int = 48
) -> None:
    """The sequence model alone, on the policy's newest episodes."""
    mind.train()
    mind.codec.eval()
    mind.dynamics.requires_grad_(True)
    adam = torch.optim.AdamW(mind.dynamics.parameters(), rate, betas=(0.9, 0.99))
    for _ in range(steps):
        rows, start = (
            torch.randint(len(lately.kept), (batch,)),
            int(torch.randint(EPISODE_CONTROL_STEPS - frames, ())),
        )
        window = slice(start, start + frames)
        objective, _ = token_objective(mind, lately.latent[rows, window], lately.action[rows, window])
        adam.zero_grad()
        objective.loss.backward()
        torch.nn.utils.clip_grad_norm_(mind.dynamics.parameters(), 1.0)
        adam.step()


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("mind", help="a snapshot, or the name of a shipped mind")
    ask.add_argument("--steps", type=int, default=200, help="of the sequence model, between two looks")
    ask.add_argument("--looks", type=int, default=2, help="after the first one")
    ask.add_argument("--episodes", type=int, default=384, help="to learn from; 96 others are looked at")
    got = ask.parse_args()
    loaded = load_weights(got.mind)
    real, lately = lived(loaded, 96, 7000), lived(loaded, got.episodes, 20_000)
    print(f"{int(real.kept.sum())} of 96 marks stay on", flush=True)
    print(f"as it is: {compare(loaded.mind, real)}", flush=True)
    for turn in range(1, got.looks + 1):
        learn(loaded.mind, lately, got.steps)
        print(f"after {turn * got.steps} steps: {compare(loaded.mind, real)}", flush=True)


main()
