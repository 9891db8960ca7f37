"""The five gates of learning, each a cheap number that predicts the next (shared design notes, learning.md).

1 the codec sees the mark            mark_recovery
2 the self-prior tells it apart      efe_gap_nats
3 the mark matters more than posture efe_gap_per_posture_range
4 the dream contains removal         dreamed_fall_nats against real_fall_nats; dreamed_fall_contrast
5 the policy reaches                 removal_rate and distance_m against everyday movement

They look at labels, pairs and masks that no part of the mind ever gets. Held-out episodes have seeds of their
own: no life is lived on them.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.agent import Mind
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS, Worlds
from mirrormark.training.evaluation_dreams import dream_optimism_nats, dreamed_removal, foresight_nats
from mirrormark.training.held_out import HELD_OUT_SEED, HeldOut, Pairs, efe, latents
from mirrormark.training.rollout import Actor, encode

_EXAM_SEED = HELD_OUT_SEED + 2**40
_WINDOW_CONTROL_STEPS = 20
"""One second: how long a familiar way of sitting must last to count (gate 3)."""


# Gates 1 and 2 ------------------------------------------------------------------------------------------


@torch.no_grad()
def mark_recovery(mind: Mind, pairs: Pairs) -> float:
    """Gate 1: 1 − squared error on the mark's pixels ÷ the error of painting no mark there.

    The symbolic eye has no pixels: the share of pairs whose cell survives the codec.
    """
    if "vision" not in pairs.with_mark:
        seen = mind.decode(encode(mind, pairs.with_mark, sample=False))["cell"]
        return float((seen == pairs.with_mark["cell"]).float().mean())
    error = blank = 0.0
    for rows in torch.arange(len(pairs.mask)).split(256):
        part = {name: value[rows] for name, value in pairs.with_mark.items()}
        painted = mind.decode(encode(mind, part, sample=False))["vision"]
        target = mind.codec.targets(part)["vision"]
        bare = mind.codec.targets({name: value[rows] for name, value in pairs.without_mark.items()})["vision"]
        mask = pairs.mask[rows].unsqueeze(-1)
        error += float(((painted.float() - target) ** 2 * mask).sum())
        blank += float(((bare - target) ** 2 * mask).sum())
    return 1 - error / max(blank, 1e-12)


def efe_gap_nats(mind: Mind, pairs: Pairs) -> float:
    """Gate 2: mean G(marked) − G(unmarked) over the pairs."""
    shown = efe(mind, encode(mind, pairs.with_mark, sample=False))
    hidden = efe(mind, encode(mind, pairs.without_mark, sample=False))
    return float((shown - hidden).mean())


# Gate 3 -------------------------------------------------------------------------------------------------


def posture_range_nats(unmarked_efe: Tensor) -> float:
    """What sitting in the most familiar way gains: mean G − 5th percentile of G over 1 s windows. (N, L)
    -> nats."""
    windows = unmarked_efe.unfold(1, _WINDOW_CONTROL_STEPS, 1).mean(-1)
    return float(unmarked_efe.mean() - torch.quantile(windows.flatten().float(), 0.05))


# Gate 5 -------------------------------------------------------------------------------------------------


class Behaviour(NamedTuple):
    """What the policy does with marks."""

    removal_rate: float
    yoked_rate: float
    distance_m: float
    distance_p05_m: float  # 5th and 95th percentile of episodes' means: Fig. 4a's band
    distance_p95_m: float
    efe_nats: float
    efe_worn_nats: float  # while the mark is on: as low as without one, it is hidden
    dream_optimism_nats: float


def behave(mind: Mind, worlds: Worlds, seed: int = _EXAM_SEED) -> Behaviour:
    """Gate 5: one marked episode in every world, actions sampled."""
    threads = torch.get_num_threads()
    actor = Actor(mind, worlds.n)
    actor.begin(seed % 2**31)
    observation, info = worlds.reset(
        seed=list(range(seed, seed + worlds.n)), marked=np.ones(worlds.n, np.bool_)
    )
    distance, seen, acted, worn = [], [], [], []
    for _ in range(EPISODE_CONTROL_STEPS):
        acted.append(actor.act(observation))
        seen.append(actor.latent)
        worn.append(info["mark_present"].copy())
        observation, _, _, _, info = worlds.step(acted[-1])
        distance.append(info["hand_mark_distance_m"])
    torch.set_num_threads(threads)  # see rollout.gather
    latent, action = torch.stack(seen, 1), torch.from_numpy(np.stack(acted, 1)).to(mind.device)
    cost = efe(mind, latent)
    low_m, high_m = np.nanpercentile(np.nanmean(distance, axis=0), (5, 95))
    return Behaviour(
        float(info["mark_removed"].mean()),
        float(info["yoked_touched"].mean()),
        float(np.nanmean(distance)),
        float(low_m),
        float(high_m),
        float(cost.mean()),
        float(cost[torch.from_numpy(np.stack(worn, 1)).to(cost.device)].mean()),
        dream_optimism_nats(mind, latent, action, cost),
    )


# All of them --------------------------------------------------------------------------------------------


def indicators(mind: Mind, held: HeldOut, worlds: Worlds | None) -> dict[str, float | None]:
    """Every gate's number, None where it cannot be told. worlds: for gate 5; None leaves it out (before
    there is a policy)."""
    mind.eval()
    seen = len(held.pairs.mask) > 0  # not before a mirror that is covered or away
    found: dict[str, float | None] = {"mark_recovery": mark_recovery(mind, held.pairs) if seen else None}
    gap = efe_gap_nats(mind, held.pairs) if seen else None
    latent = latents(mind, held.episodes.observation)
    cost = efe(mind, latent)
    unmarked = cost[(~held.episodes.marked).to(cost.device)]
    posture = posture_range_nats(unmarked)
    found |= {
        "efe_gap_nats": gap,
        "posture_range_nats": posture,
        "efe_gap_per_posture_range": None if gap is None else gap / max(posture, 1e-6),
        "efe_everyday_nats": float(unmarked.mean()),
    }
    found["foresight_nats"] = foresight_nats(mind, latent, held.episodes.action.to(latent.device))
    found |= dreamed_removal(mind, held, latent, cost, gap)
    if worlds is not None:
        done = behave(mind, worlds)
        found |= {
            "removal_rate": done.removal_rate,
            "yoked_rate": done.yoked_rate,
            "distance_m": done.distance_m,
            "distance_p05_m": done.distance_p05_m,
            "distance_p95_m": done.distance_p95_m,
            "efe_policy_nats": done.efe_nats,
            "efe_worn_nats": done.efe_worn_nats,
            "dream_optimism_nats": done.dream_optimism_nats,
        }
    return found | {
        "chance_removal_rate": held.removal_rate,
        "chance_yoked_rate": held.yoked_rate,
        "chance_distance_m": held.distance_m,
    }
