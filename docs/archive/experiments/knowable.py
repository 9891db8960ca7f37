"""How well could a dream know that a mark comes off? What gate 4 could measure, for the symbolic eye.

    python experiments/knowable.py MIND [--episodes 512] [--sites 20000] [--worlds 96]

MIND has the symbolic eye (preset ideal; ablation: told where the mark is seen). Its cells are coarse: a mark
that was seen in the same cells might have sat elsewhere, where the same hand would have missed it. For every
removal in everyday life, other sites are drawn as marks are, the same actions are done again, and those
sites are kept that would have been seen in the same cells as long as a dream looks back (its context). A
dream that knew all physics and geometry could not tell them apart: what becomes of them is what it could
foretell, if it foretells things as often as they happen. (One that drops every mark would measure more.)

Sites are tried near the real one first, then from twice as far, and so on, evenly, until those that look
alike no longer reach the edge.

Printed: as in life/dreamed.py, how far G falls from ten control steps before the removal to ten after it,
in the world, in the mind's own dream and in the best one; and in what share the mark is then off.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import tyro

from mirrormark.life.dreamed import DREAM_CONTROL_STEPS, find_removals
from mirrormark.life.held_out import HELD_OUT_SEED, efe
from mirrormark.life.rollout import encode
from mirrormark.life.setup import movement_of
from mirrormark.life.weights import Loaded, load_weights
from mirrormark.mind.dream import replay_dream
from mirrormark.world.mark import Site, draw_site
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS, Worlds


@dataclass(frozen=True)
class Settings:
    """Which mind, how exactly."""

    mind: tyro.conf.Positional[Path]
    episodes: int = 512
    """Marked episodes of everyday movement."""
    sites: int = 20_000
    """Drawn once, as marks are."""
    worlds: int = 96
    """So many of them are tried at once."""
    first_m: float = 0.01
    """How far from the real one they are at first,"""
    last_m: float = 0.32
    """and at most: hidden marks may be anywhere."""
    seed: int = 0


class Life(NamedTuple):
    """Everyday episodes."""

    seeds: list[int]
    latent: torch.Tensor  # (N, L, K)
    action: np.ndarray  # (N, L - 1, A)
    on: np.ndarray  # (N, L) bool
    places: np.ndarray  # (N, 3) of the mark in the room, as the episode begins


class Alike(NamedTuple):
    """What became of marks that could not have been told apart."""

    latent: torch.Tensor  # (n, K) in the end: the real joints, and the cell as it would have been
    off: np.ndarray  # (n,) bool
    within_m: float  # how far away they were looked for
    at_edge: bool  # some of them as far away as that: there may be more


def live(loaded: Loaded, s: Settings) -> Life:
    """Everyday life, and where its marks were."""
    worlds = loaded.world.worlds(s.episodes)
    seeds = [HELD_OUT_SEED + s.seed * s.episodes + i for i in range(s.episodes)]
    observation, info = worlds.reset(seed=seeds, marked=True)
    movement = movement_of(loaded.world, worlds)
    movement.begin(seeds)
    place = worlds.patch
    body = np.arange(worlds.n), place.body
    places = worlds.xpos[body] + np.einsum("nij,nj->ni", worlds.xmat[body], place.pos)
    latents, actions, on = [encode(loaded.mind, observation)], [], [info["mark_present"]]
    for _ in range(EPISODE_CONTROL_STEPS):
        actions.append(movement.act(observation))
        observation, _, _, _, info = worlds.step(actions[-1])
        latents.append(encode(loaded.mind, observation))
        on.append(info["mark_present"])
    return Life(seeds, torch.stack(latents, 1), np.stack(actions, 1), np.stack(on, 1), places)


def draw_sites(worlds: Worlds, s: Settings) -> list[Site]:
    """As marks are drawn."""
    rng = np.random.default_rng((s.seed, 0x73697465))
    return [draw_site(worlds.scene, worlds.mark, rng) for _ in range(s.sites)]


class Elsewhere:
    """The same episode, marked elsewhere."""

    def __init__(self, loaded: Loaded, life: Life, s: Settings) -> None:
        self.mind, self.life, self.s = loaded.mind, life, s
        self.worlds = loaded.world.worlds(s.worlds)
        self.sites = draw_sites(self.worlds, s)
        self.body = np.array([site.body for site in self.sites])
        self.pos = np.stack([site.pos for site in self.sites])
        self.cell = loaded.mind.codec.tokens["cell"]
        self.rng = np.random.default_rng((s.seed, 0x6E656172))

    def again(self, row: int, last: int, within_m: float) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
        """Cells (n, last) of frames 1 to last, whether each mark is off then (n,), how far each is away."""
        worlds, n = self.worlds, self.worlds.n
        worlds.reset(seed=[self.life.seeds[row]] * n, marked=True)
        places = worlds.xpos[0][self.body] + np.einsum("nij,nj->ni", worlds.xmat[0][self.body], self.pos)
        away = np.linalg.norm(places - self.life.places[row], axis=1)
        chosen = self.rng.permutation(np.flatnonzero(away <= within_m))[:n]
        for world, site in enumerate(chosen):
            worlds.stick(world, self.sites[site])
        cells, info = [], {}
        for t in range(last):
            observation, _, _, _, info = worlds.step(np.repeat(self.life.action[row, t][None], n, 0))
            cells.append(torch.from_numpy(observation["cell"][: len(chosen)]).long())
        return torch.cat(cells, 1), info["mark_removed"][: len(chosen)], away[chosen]

    def alike(self, row: int, present: int, context: int) -> Alike:
        """What could not be told apart from the dream's context."""
        last, first, within_m = present + DREAM_CONTROL_STEPS, max(present - context, 0), self.s.first_m
        seen = self.life.latent[row, first + 1 : present + 1, self.cell].flatten()
        while True:
            cells, off, away = self.again(row, last, within_m)
            same = (cells[:, first:present] == seen).all(1).numpy()
            at_edge = bool((away[same] > 0.7 * within_m).any())  # half of the disc lies beyond
            if not at_edge or within_m >= self.s.last_m:
                break
            within_m *= 2
        end = self.life.latent[row, last].repeat(int(same.sum()), 1)
        end[:, self.cell] = cells[same, -1:]
        return Alike(end, off[same], within_m, at_edge)


def main(s: Settings) -> None:
    """The best dream and the mind's own, beside the world."""
    loaded = load_weights(s.mind)
    mind, context = loaded.mind, loaded.mind.config.imagination.context
    if "cell" not in mind.codec.tokens:
        raise SystemExit(f"{s.mind} sees pixels: give a mind of preset ideal.")
    torch.manual_seed(s.seed)
    life = live(loaded, s)
    rows, presents = find_removals(torch.from_numpy(life.on), context)
    elsewhere, cost = Elsewhere(loaded, life, s), efe(mind, life.latent)
    names = ("world", "dream", "best dream")
    falls: dict[str, list[float]] = {name: [] for name in names}
    gone: dict[str, list[float]] = {name: [] for name in names}
    tried = []
    for row, present in zip(rows.tolist(), presents.tolist()):
        tried.append(elsewhere.alike(row, present, context))
        if not len(tried[-1].off):
            continue
        before, last = cost[row, present], present + DREAM_CONTROL_STEPS
        dreamed = own_dream(loaded, life, row, present, context)
        nothing = mind.spec.classes[elsewhere.cell][0] - 1
        ends = (life.latent[row : row + 1, last], dreamed, tried[-1].latent)
        offs = (
            ~life.on[row, last],
            (dreamed[:, elsewhere.cell] == nothing).float().mean(),
            tried[-1].off.mean(),
        )
        for name, end, off in zip(names, ends, offs):
            falls[name].append(float(before - efe(mind, end).mean()))
            gone[name].append(float(off))
    real = np.array(falls["world"])
    print(loaded.world.ablation)
    print(
        f"{len(rows)} removals in {s.episodes} episodes; of {len(real)} other sites look alike, "
        f"{np.median([len(a.off) for a in tried]):.0f} in the median, looked for within "
        f"{100 * np.median([a.within_m for a in tried]):.0f} cm; of {sum(a.at_edge for a in tried)} "
        f"there may be more beyond {100 * s.last_m:.0f} cm"
    )
    for name in names:
        fall = np.array(falls[name])
        low, high = interval(fall, real)
        print(
            f"{name}: G falls by {fall.mean():.2f} nats, {fall.mean() / real.mean():.2f} of the real fall "
            f"[{low:.2f}, {high:.2f}]; off (dream: not seen) in {np.mean(gone[name]):.2f}"
        )


def own_dream(loaded: Loaded, life: Life, row: int, present: int, context: int) -> torch.Tensor:
    """What the mind itself makes of the real actions: 32 dreams' last latents."""
    past, action = slice(present - context + 1, present + 1), torch.from_numpy(life.action[row]).float()
    return replay_dream(
        loaded.mind.dynamics,
        life.latent[row, past].repeat(32, 1, 1),
        action[past.start : present].repeat(32, 1, 1),
        action[present : present + DREAM_CONTROL_STEPS].repeat(32, 1, 1),
    )[:, -1]


def interval(fall: np.ndarray, real: np.ndarray) -> tuple[float, float]:
    """95% of the ratio of means, by resampled removals."""
    chosen = np.random.default_rng(0).integers(len(real), size=(2_000, len(real)))
    low, high = np.percentile(fall[chosen].mean(1) / real[chosen].mean(1), (2.5, 97.5))
    return float(low), float(high)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
