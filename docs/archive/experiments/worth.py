"""Is removing worth its way? G along scripted reaches, under what a mind has learned to be familiar.

    python experiments/worth.py SNAPSHOT [--worlds 48] [--first-seed 1000]

The oracle knows where the mark is: it lives in the exam and here, and no mind ever learns from it. Three ways
through the same worlds are compared: the scripted reach (limp from the removal on), the policy, and everyday
movement; of each the mean G per control step, discounted as the mind discounts it.
"""

import argparse
import json

import numpy as np
import torch

from mirrormark.exam.oracle import Oracle
from mirrormark.life.held_out import efe
from mirrormark.life.rollout import Actor, encode
from mirrormark.life.setup import movement_of
from mirrormark.life.weights import load_weights
from mirrormark.mind.mind import Mind
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS


@torch.no_grad()
def of_posture(mind: Mind, latents: torch.Tensor) -> torch.Tensor:
    """The share of G that the joints' tokens bear."""
    joints = mind.codec.tokens["proprioception"]
    parts = [mind.self_prior.per_token_log_prob(row)[:, joints].sum(-1) for row in latents]
    return -torch.stack(parts)


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("snapshot")
    ask.add_argument("--worlds", type=int, default=48)
    ask.add_argument("--first-seed", type=int, default=1000)
    ask.add_argument("--who", nargs="*", default=["oracle", "policy", "everyday"])
    got = ask.parse_args()
    loaded = load_weights(got.snapshot)
    mind, seeds = loaded.mind, list(range(got.first_seed, got.first_seed + got.worlds))
    worlds = loaded.world.worlds(got.worlds)
    discount = mind.config.imagination.discount ** np.arange(EPISODE_CONTROL_STEPS + 1)
    for who in got.who:
        torch.manual_seed(0)
        observation, info = worlds.reset(seed=seeds, marked=True)
        oracle, actor, movement = Oracle(worlds), Actor(mind, worlds.n), movement_of(loaded.world, worlds)
        oracle.begin()
        actor.begin(0)
        movement.begin(seeds)
        latent, worn = [encode(mind, observation)], [info["mark_present"]]
        for _ in range(EPISODE_CONTROL_STEPS):
            if who == "oracle":
                action = oracle.act() * info["mark_present"][:, None]
            else:
                action = actor.act_on(latent[-1]) if who == "policy" else movement.act(observation)
            observation, _, _, _, info = worlds.step(action)
            latent.append(encode(mind, observation))
            worn.append(info["mark_present"])
        latents = torch.stack(latent, 1)
        cost, posture = efe(mind, latents).numpy(), of_posture(mind, latents).numpy()
        mark = np.stack(worn, 1)
        removed = ~mark[:, -1]
        off = mark.sum(1)  # the first frame without the mark
        around = {}
        for shift in (-20, -10, -5, -1, 0, 5, 10, 20, 40):
            rows = removed & (off + shift >= 0) & (off + shift < cost.shape[1])
            if rows.any():
                now = rows, off[rows] + shift
                around[shift] = [round(float(part[now].mean()), 1) for part in (cost, posture)]
        row = {
            "who": who,
            "removed": float(removed.mean()),
            "mean G": round(float(cost.mean()), 2),
            "discounted mean G": round(float((cost * discount).sum(1).mean() / discount.sum()), 2),
            "G in the last second": round(float(cost[:, -20:].mean()), 1),
            "G, and G of posture, around the removal by control step": around,
            "worth: G of runs with and without removal": [
                round(float(cost[rows].mean()), 1) if rows.any() else None for rows in (removed, ~removed)
            ],
        }
        print(json.dumps(row), flush=True)


main()
