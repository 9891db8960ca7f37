"""Can a policy learn to reach in a mind's dreams, if its cost were right? A bound of dream and optimiser.

    python experiments/in_dreams.py MIND [--site mark | yoked] [--laps 30] [--updates 100] ...

A trained mind keeps its codec and its sequence model; policy and value begin anew. They learn in dreams only,
by the package's own objective (E11), from pasts in which the mark is on, of episodes that this policy lives;
only the cost is exchanged: how far the nearer hand is from the mark, in cm, computed from the bins of the
dreamed joint angles. No mind is ever told that: it lives here, outside the package, and nothing is shipped.

--site mark   the distance to the mark: seeing it in the mirror tells where to go
--site yoked  the distance to an invisible place drawn like the mark: what is learned without seeing the goal

One line a lap: policy updates, mean dreamed distance (cm) at the dream's first and last step, entropy, and in
held-out worlds the share of marks removed, of yoked sites touched and the mean distance to the mark, once
with the policy's noise and once without.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
import tyro
from torch import Tensor

from mirrormark.life.descent import Descent, DescentConfig
from mirrormark.life.held_out import HELD_OUT_SEED
from mirrormark.life.rollout import Actor, encode
from mirrormark.life.setup import WorldSetup, movement_of
from mirrormark.life.weights import find, load_weights, read, rebuild
from mirrormark.mind.mind import Mind
from mirrormark.mind.objective import behaviour_objective
from mirrormark.mind.quantise import bin_centre
from mirrormark.world import kinematics
from mirrormark.world.mark import Patches
from mirrormark.world.movement import Movement
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS, Worlds


@dataclass(frozen=True)
class Settings:
    """Which mind, how long."""

    mind: tyro.conf.Positional[Path]
    """A snapshot, a run, or a body with a shipped mind."""
    site: Literal["mark", "yoked"] = "mark"
    laps: int = 30
    updates: int = 100
    """Of policy and value in a lap."""
    episodes: int = 128
    """Marked episodes gathered in a lap, the first one's by everyday movement, then by the policy."""
    dreams: int = 192
    learning_rate: float = 3e-4
    """Of the policy."""
    value_rate: float = 3e-3
    device: str = "cpu"
    seed: int = 0


class Past(NamedTuple):
    """A lap's episodes."""

    latent: Tensor  # (N, L, K)
    action: Tensor  # (N, L, A)
    worn: Tensor  # (N, L) bool: the mark is on
    body: np.ndarray  # (N,) of the goal: its MuJoCo body, its place and turn there
    pos: np.ndarray  # (N, 3)
    mat: np.ndarray  # (N, 3, 3)


class Ruler:
    """Nearer hand to goal, from dreamed joint angles."""

    def __init__(self, mind: Mind, worlds: Worlds) -> None:
        self.worlds, self.bins = worlds, mind.config.codec.bins
        self.joints = mind.codec.tokens["proprioception"]
        self.rest = worlds.physics.qpos(worlds.physics.rest(1))

    def cm(self, latent: Tensor, past: Past, rows: np.ndarray) -> Tensor:
        """latent (B, T, K), of the episodes `rows` (B,) -> (B, T)."""
        scene, steps = self.worlds.scene, latent.shape[1]
        place = bin_centre(latent[..., self.joints].flatten(0, 1), self.bins).float().cpu().numpy()
        low, high = scene.range_rad.T
        qpos = np.repeat(self.rest, len(place), 0)
        qpos[:, scene.qpos_adr] = low + (place + 1) / 2 * (high - low)
        xpos, xmat = kinematics.poses(self.worlds.tree, qpos)
        goal = Patches(scene, self.worlds.mark, len(place))
        goal.body, goal.pos, goal.mat = (np.repeat(part[rows], steps, 0) for part in past[3:])
        goal.measure(xpos, xmat)
        metres = torch.from_numpy(goal.distance_m.min(1)).float().reshape(latent.shape[:2])
        return 100 * metres.to(latent.device)


def fresh(path: Path, device: str) -> tuple[Mind, WorldSetup]:
    """The mind with a policy and a value that have learned nothing, and its world."""
    loaded, about = load_weights(path), read(find(path))[0]
    mind, new = loaded.mind, rebuild(about)
    mind.policy, mind.value, mind.ema.value = new.policy, new.value, new.ema.value
    return mind.to(device).eval(), loaded.world


@torch.no_grad()
def live(
    mind: Mind, worlds: Worlds, seeds: list[int], movement: Movement | None, mode: Literal["sample", "mean"]
) -> tuple[list[Tensor], list[np.ndarray], list[dict]]:
    """Marked episodes: latents, actions and infos of every control step (an info more)."""
    observation, info = worlds.reset(seed=seeds, marked=True)
    actor = Actor(mind, worlds.n, mode)
    actor.begin(seeds[0] % 2**31)
    if movement is not None:
        movement.begin(seeds)
    latents, actions, infos = [], [], [info]
    for _ in range(EPISODE_CONTROL_STEPS):
        latents.append(encode(mind, observation, mode == "sample"))
        actions.append(actor.act_on(latents[-1]) if movement is None else movement.act(observation))
        observation, _, _, _, info = worlds.step(actions[-1])
        infos.append(info)
    return latents, actions, infos


def gather(mind: Mind, worlds: Worlds, movement: Movement | None, s: Settings, lap: int) -> Past:
    """A lap's episodes, with where the goal is."""
    seeds = np.random.default_rng((s.seed, lap)).integers(0, 2**62, worlds.n).tolist()
    latents, actions, infos = live(mind, worlds, seeds, movement, "sample")
    goal = worlds.patch if s.site == "mark" else worlds.yoked
    worn = torch.from_numpy(np.stack([info["mark_present"] for info in infos[:-1]], 1))
    action = torch.from_numpy(np.stack(actions, 1)).float().to(mind.device)
    return Past(torch.stack(latents, 1), action, worn, goal.body.copy(), goal.pos.copy(), goal.mat.copy())


def joined(pasts: list[Past]) -> Past:
    """All laps' episodes as one."""
    latent, action, worn, *goal = zip(*pasts)
    body, pos, mat = (np.concatenate(part) for part in goal)
    return Past(torch.cat(latent), torch.cat(action), torch.cat(worn), body, pos, mat)


class Learner:
    """Policy and value in dreams."""

    def __init__(self, mind: Mind, ruler: Ruler, s: Settings) -> None:
        self.mind, self.ruler, self.s = mind, ruler, s
        for part in (mind.policy, mind.value):
            part.requires_grad_(True)
        self.policy = Descent(mind.policy.parameters(), DescentConfig(s.learning_rate, optimiser="adam"))
        self.value = Descent(mind.value.parameters(), DescentConfig(s.value_rate, optimiser="adam"))
        self.rng = np.random.default_rng(s.seed)

    def update(self, past: Past, moments: np.ndarray) -> dict[str, float]:
        """One dream, one step of both. moments (M, 2): episode and frame of every possible present."""
        context = self.mind.config.imagination.context
        row, now = moments[self.rng.integers(len(moments), size=self.s.dreams)].T
        frames = torch.from_numpy(now[:, None] + np.arange(1 - context, 1))
        rows = torch.from_numpy(row)[:, None]
        dreamed = self.mind.dream(past.latent[rows, frames], past.action[rows, frames[:, :-1]])
        cost = self.ruler.cm(dreamed.latent[:, 1:], past, row)
        policy, value = behaviour_objective(self.mind, dreamed, cost)
        for descent, objective in ((self.policy, policy), (self.value, value)):
            descent.forget()
            objective.loss.backward()
            descent.take(objective.loss)
        self.mind.update_ema(self_prior=False, value=True)
        told = {"first": cost[:, 0].mean(), "last": cost[:, -1].mean(), "entropy": policy.metrics["entropy"]}
        return {name: float(number) for name, number in told.items()}


def exam(mind: Mind, worlds: Worlds) -> str:
    """In worlds that nobody learned from."""
    seeds, rows = [HELD_OUT_SEED + i for i in range(worlds.n)], []
    for mode in ("sample", "mean"):
        _, _, infos = live(mind, worlds, seeds, None, mode)
        far = 100 * np.nanmean([info["hand_mark_distance_m"] for info in infos])
        removed, touched = (infos[-1][name].mean() for name in ("mark_removed", "yoked_touched"))
        rows.append(f"{mode}: removed {removed:.2f} yoked {touched:.2f} {far:.1f} cm")
    return ", ".join(rows)


def main(s: Settings) -> None:
    """Laps of gathering and dreaming."""
    torch.manual_seed(s.seed)
    mind, setup = fresh(s.mind, s.device)
    eye: Literal["cpu", "cuda"] = "cuda" if s.device.startswith("cuda") else "cpu"
    worlds, began = setup.worlds(s.episodes, eye), time.time()
    learner, movement, pasts = Learner(mind, Ruler(mind, worlds), s), movement_of(setup, worlds), []
    context = mind.config.imagination.context
    print("Told the true distance to the", s.site, "| untrained:", exam(mind, worlds), flush=True)
    for lap in range(s.laps):
        pasts.append(gather(mind, worlds, None if lap else movement, s, lap))
        past = joined(pasts)
        moments = past.worn.nonzero().numpy()
        moments = moments[moments[:, 1] >= context - 1]
        rows = [learner.update(past, moments) for _ in range(s.updates)]
        told = " ".join(f"{name} {np.mean([row[name] for row in rows]):.2f}" for name in rows[0])
        done = f"{(lap + 1) * s.updates} updates, {time.time() - began:.0f} s"
        print(f"{done}: dreamed {told} | {exam(mind, worlds)}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
