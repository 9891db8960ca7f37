"""How long does a mark last that nobody takes off: in the world, and in a mind's dreams of the same actions?

    python experiments/fading.py infant [--episodes 256]

Of held-out everyday episodes whose mark stays on, those stretches are taken whose present frame shows it: G
is nearer to what a mark makes of it than to what it is without. Told for each of the next 30 control steps:
in what share of them G says so still. And of all steps: how often a mark that was seen is not seen a step
later, and one that was not is seen again. In the world that is what arms cover, and what a codec does not say
of a mark that is there; what a dream has beyond it fades. Last, of frames with so many pixels of the mark:
in what share G says that there is one. (`keeping_up.py` asks the like of the policy's own episodes.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro
from torch import Tensor

from mirrormark.life.held_out import HeldOut, IndicatorConfig, Pairs, efe, hold_out, latents
from mirrormark.life.indicators import efe_gap_nats
from mirrormark.life.rollout import encode
from mirrormark.life.weights import load_weights
from mirrormark.mind.dream import replay_dream
from mirrormark.mind.mind import Mind

STEPS = 30
PRESENTS = (30, 45, 60)
"""Frames of an episode from which on it is dreamed."""
PIXELS = (1, 3, 6, 10, 15, 25)


@dataclass(frozen=True)
class Settings:
    """Which mind, how many episodes."""

    mind: tyro.conf.Positional[Path]
    episodes: int = 256
    threads: int | None = None
    seed: int = 0


def turns(seen: Tensor) -> tuple[float, float]:
    """Of seen (N, T) bool: how often a mark that is seen is not a step later, and the other way round."""
    before, after = seen[:, :-1], seen[:, 1:]
    return float((~after[before]).float().mean()), float(after[~before].float().mean())


@torch.no_grad()
def by_size(mind: Mind, pairs: Pairs) -> list[tuple[str, int, float]]:
    """Pixels of the mark, how many pairs of frames, share whose G differs by more than half of the gap."""
    pixels = pairs.mask.flatten(1).sum(1)
    with_mark, without = (
        efe(mind, encode(mind, side, False)) for side in (pairs.with_mark, pairs.without_mark)
    )
    told = with_mark - without > efe_gap_nats(mind, pairs) / 2
    found = []
    for low, high in zip(PIXELS, (*PIXELS[1:], 10**6)):
        rows = (pixels >= low) & (pixels < high)
        name = f"{low} to {high - 1}" if high < 10**6 else f"{low} or more"
        found.append((name, int(rows.sum()), float(told[rows].float().mean())))
    return found


@torch.no_grad()
def stretches(mind: Mind, held: HeldOut) -> tuple[Tensor, Tensor]:
    """Whether a mark that stays on is seen, (N, STEPS + 1): in the world, in dreams."""
    context = mind.config.imagination.context
    latent = latents(mind, held.episodes.observation)
    cost, kept = efe(mind, latent), held.episodes.mark.all(1)
    bound = cost[~held.episodes.marked].mean() + efe_gap_nats(mind, held.pairs) / 2
    latent, action, seen = latent[kept], held.episodes.action[kept], cost[kept] > bound
    world_sees, dream_sees = [], []
    for now in PRESENTS:
        past, ahead = slice(now - context + 1, now), slice(now, now + STEPS)
        dreamed = replay_dream(
            mind.dynamics,
            latent[:, past.start : now + 1],
            action[:, past],
            action[:, ahead],
            mind.config.imagination.temperature,
        )
        shows = seen[:, now]
        world_sees.append(seen[shows, now : now + STEPS + 1])
        dream_sees.append(efe(mind, dreamed[shows]) > bound)
    return torch.cat(world_sees), torch.cat(dream_sees)


def main(s: Settings) -> None:
    """The two side by side."""
    torch.manual_seed(s.seed)
    loaded = load_weights(s.mind)
    setup = replace(loaded.world, threads=s.threads)
    held = hold_out(setup, IndicatorConfig(everyday_episodes=s.episodes, pairs=2_048), "cpu")
    world, dream = stretches(loaded.mind, held)
    print(f"{setup.ablation or 'pixels'}; {len(world)} stretches")
    for step in (1, 2, 5, 10, 20, 30):
        shares = (float(sees[:, step].float().mean()) for sees in (world, dream))
        print(
            f"after {step:2d} steps: seen in {next(shares):.2f} of the world's, {next(shares):.2f} of dreams"
        )
    for name, sees in (("world", world), ("dreams", dream)):
        lost, back = turns(sees)
        print(
            f"{name}: lost in {lost:.3f} of the steps in which it was seen, back in {back:.3f} of the others"
        )
    if "vision" in held.pairs.with_mark:
        for pixels, pairs, share in by_size(loaded.mind, held.pairs):
            print(f"{pixels} pixels of the mark ({pairs} frames): told in {share:.2f}")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
