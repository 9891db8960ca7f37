"""How well could a dream know that a mark comes off? The best gate 4 could measure, for the symbolic eye.

    python experiments/knowable.py MIND [--episodes 512] [--sites 20000] [--worlds 128]

MIND has the symbolic eye (preset ideal; ablation: told where the mark is seen). Its cells are coarse: a mark
that was seen in the same cells might have sat elsewhere, where the same hand would have missed it. For every
removal in everyday life, other sites are drawn as marks are, the same actions are done again, and those
sites are kept that would have been seen in the same cells as long as a dream looks back. A dream that knew
all physics and all geometry could not tell them apart, and what becomes of them is what it could foretell at
best. Two bounds: sites alike in the dream's context, and alike from the episode's first step on.

Printed: as in life/indicators.py, how far G falls from ten control steps before the removal to ten after it,
in the world, in the mind's own dream and in the best one; and in what share the mark is then off.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import tyro

from mirrormark.life.held_out import HELD_OUT_SEED
from mirrormark.life.indicators import DREAM_CONTROL_STEPS, efe, find_removals
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
    worlds: int = 128
    """The nearest so many of them are tried for a removal."""
    within_m: float = 0.08
    """And no farther than this: marks farther away are seen in other cells."""
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

    def near(self, row: int) -> np.ndarray:
        """The sites nearest to the real one of an episode that has just begun."""
        xpos, xmat = self.worlds.xpos[0], self.worlds.xmat[0]
        places = xpos[self.body] + np.einsum("nij,nj->ni", xmat[self.body], self.pos)
        away = np.linalg.norm(places - self.life.places[row], axis=1)
        nearest = away.argsort()[: self.s.worlds]
        return nearest[away[nearest] <= self.s.within_m]

    def again(self, row: int, last: int) -> tuple[torch.Tensor, np.ndarray]:
        """Cells (n, last) of frames 1 to last, and whether each mark is off then (n,)."""
        worlds, n = self.worlds, self.worlds.n
        worlds.reset(seed=[self.life.seeds[row]] * n, marked=True)
        chosen = self.near(row)
        for world, site in enumerate(chosen):
            worlds.stick(world, self.sites[site])
        cells, info = [], {}
        for t in range(last):
            observation, _, _, _, info = worlds.step(np.repeat(self.life.action[row, t][None], n, 0))
            cells.append(torch.from_numpy(observation["cell"][: len(chosen)]).long())
        return torch.cat(cells, 1), info["mark_removed"][: len(chosen)]

    def alike(self, row: int, present: int, context: int) -> tuple[Alike, Alike]:
        """What could not be told apart: from the dream's context, and from all that was seen."""
        last = present + DREAM_CONTROL_STEPS
        cells, off = self.again(row, last)
        seen = self.life.latent[row, 1 : present + 1, self.cell].flatten()
        found = []
        for first in (max(present - context, 0), 0):
            same = (cells[:, first:present] == seen[first:]).all(1).numpy()
            end = self.life.latent[row, last].repeat(int(same.sum()), 1)
            end[:, self.cell] = cells[same, -1:]
            found.append(Alike(end, off[same]))
        return found[0], found[1]


def main(s: Settings) -> None:
    """Both bounds and the mind itself, beside the world."""
    loaded = load_weights(s.mind)
    mind, context = loaded.mind, loaded.mind.config.imagination.context
    if "cell" not in mind.codec.tokens:
        raise SystemExit(f"{s.mind} sees pixels: give a mind of preset ideal.")
    torch.manual_seed(s.seed)
    life = live(loaded, s)
    rows, presents = find_removals(torch.from_numpy(life.on), context)
    elsewhere, cost = Elsewhere(loaded, life, s), efe(mind, life.latent)
    names = ("world", "dream", "best, by its context", "best, by all that was seen")
    falls: dict[str, list[float]] = {name: [] for name in names}
    gone: dict[str, list[float]] = {name: [] for name in names}
    counts = []
    for row, present in zip(rows.tolist(), presents.tolist()):
        before, last = cost[row, present], present + DREAM_CONTROL_STEPS
        context_alike, all_alike = elsewhere.alike(row, present, context)
        counts.append(len(all_alike.off))
        if not counts[-1]:
            continue
        past = slice(present - context + 1, present + 1)
        action = torch.from_numpy(life.action[row : row + 1]).float()
        dreamed = replay_dream(
            mind.dynamics,
            life.latent[row : row + 1, past].repeat(32, 1, 1),
            action[:, present - context + 1 : present].repeat(32, 1, 1),
            action[:, present:last].repeat(32, 1, 1),
        )[:, -1]
        nothing = mind.spec.classes[elsewhere.cell][0] - 1
        ends = (life.latent[row : row + 1, last], dreamed, context_alike.latent, all_alike.latent)
        offs = (~life.on[row, last], (dreamed[:, elsewhere.cell] == nothing).float().mean())
        for name, end in zip(names, ends):
            falls[name].append(float(before - efe(mind, end).mean()))
        for name, off in zip(names, (*offs, context_alike.off.mean(), all_alike.off.mean())):
            gone[name].append(float(off))
    real = np.array(falls["world"])
    print(loaded.world.ablation)
    print(f"{len(rows)} removals in {s.episodes} episodes, {len(real)} with other sites that look alike ")
    print(f"(median {np.median(counts):.0f} of {s.worlds})")
    for name in names:
        fall = np.array(falls[name])
        low, high = interval(fall, real)
        print(
            f"{name}: G falls by {fall.mean():.2f} nats, {fall.mean() / real.mean():.2f} of the real fall "
            f"[{low:.2f}, {high:.2f}]; off (dream: not seen) in {np.mean(gone[name]):.2f}"
        )


def interval(fall: np.ndarray, real: np.ndarray) -> tuple[float, float]:
    """95% of the ratio of means, by resampled removals."""
    chosen = np.random.default_rng(0).integers(len(real), size=(2_000, len(real)))
    low, high = np.percentile(fall[chosen].mean(1) / real[chosen].mean(1), (2.5, 97.5))
    return float(low), float(high)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
