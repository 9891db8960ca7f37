"""The five gates of learning, each a cheap number that predicts the next (shared design notes, learning.md).

1 the codec sees the mark            mark_recovery
2 the self-prior tells it apart      efe_gap_nats
3 the mark matters more than posture efe_gap_per_posture_range
4 the dream contains removal         dreamed_fall_nats against real_fall_nats
5 the policy reaches                 removal_rate and distance_m against everyday movement

They look at labels, pairs and masks that no part of the mind ever gets. Held-out episodes have seeds of their
own: no life is lived on them.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.life.held_out import HELD_OUT_SEED, HeldOut, Pairs
from mirrormark.life.rollout import Actor, encode
from mirrormark.mind.dream import replay_dream
from mirrormark.mind.latent import pick
from mirrormark.mind.mind import Mind
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS, Worlds

_EXAM_SEED = HELD_OUT_SEED + 2**40
_WINDOW_CONTROL_STEPS = 20
"""One second: how long a familiar way of sitting must last to count (gate 3)."""
_BEFORE_REMOVAL_CONTROL_STEPS = 10
DREAM_CONTROL_STEPS = 20
_GATE_4 = (
    "real_fall_nats",
    "dreamed_fall_nats",
    "dreamed_fall_ratio",
    "dreamed_gone_where_removed",
    "dreamed_gone_where_kept",
    "seen_gone_where_removed",
    "seen_gone_where_kept",
)


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


@torch.no_grad()
def efe(mind: Mind, latent: Tensor) -> Tensor:
    """G of latents (..., K), in pieces."""
    flat = latent.reshape(-1, latent.shape[-1])
    return torch.cat([mind.expected_free_energy(part) for part in flat.split(8192)]).reshape(
        latent.shape[:-1]
    )


@torch.no_grad()
def latents(mind: Mind, observation: dict[str, Tensor]) -> Tensor:
    """(N, L, ...) observations -> (N, L, K), in pieces."""
    names = list(observation)
    lead = observation[names[0]].shape[:2]
    flat = {name: value.flatten(0, 1) for name, value in observation.items()}
    pieces = torch.arange(lead[0] * lead[1]).split(4096)
    codes = [
        encode(mind, {name: flat[name][rows[0] : rows[-1] + 1] for name in names}, False) for rows in pieces
    ]
    return torch.cat(codes).unflatten(0, lead)


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


# Gate 4 -------------------------------------------------------------------------------------------------


class Removals(NamedTuple):
    """Stretches of episodes around a removal, and stretches of the same times where the mark stayed on."""

    latent: Tensor  # (N, context + 20, K)
    action: Tensor  # (N, context + 19, A)
    efe: Tensor  # (N, context + 20)


def stretches(
    latent: Tensor, action: Tensor, cost: Tensor, rows: Tensor, present: Tensor, context: int
) -> Removals:
    """Real frames from `context` - 1 before the present frame to 20 after it."""
    steps = present[:, None] + torch.arange(1 - context, DREAM_CONTROL_STEPS + 1, device=present.device)
    return Removals(
        latent[rows[:, None], steps], action[rows[:, None], steps[:, :-1]], cost[rows[:, None], steps]
    )


def find_removals(mark: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Rows and present frames (ten control steps before the mark came off) with room for context and
    dream."""
    worn = mark.sum(1)  # the mark is on from the start until it comes off: its frames are the first ones
    removed = (worn > 0) & (worn < mark.shape[1])
    present = worn - _BEFORE_REMOVAL_CONTROL_STEPS
    fits = (present >= context - 1) & (present + DREAM_CONTROL_STEPS < mark.shape[1])
    rows = (removed & fits).nonzero().flatten()
    return rows, present[rows]


@torch.no_grad()
def dreamed_removal(
    mind: Mind, held: HeldOut, latent: Tensor, cost: Tensor, gap_nats: float
) -> dict[str, float | None]:
    """Gate 4: with the real actions, does the mark go in the dream where it went in the world, and only
    there? None: cannot be told, because no removal was found or G did not fall in the world either."""
    context = mind.config.imagination.context
    mark, action = held.episodes.mark.to(latent.device), held.episodes.action.to(latent.device)
    rows, present = find_removals(mark, context)
    found: dict[str, float | None] = {"removals_found": len(rows), **dict.fromkeys(_GATE_4)}
    if not len(rows):
        return found
    gone = stretches(latent, action, cost, rows, present, context)
    kept_rows = mark.all(1).nonzero().flatten()
    dreamed = _dream_on(mind, gone, context)
    real_fall = (gone.efe[:, context - 1] - gone.efe[:, -1]).mean()
    dreamed_fall = (gone.efe[:, context - 1] - efe(mind, dreamed)).mean()
    found["real_fall_nats"], found["dreamed_fall_nats"] = float(real_fall), float(dreamed_fall)
    if real_fall > 0:
        found["dreamed_fall_ratio"] = float(dreamed_fall / real_fall)
    before = gone.efe[:, context - 1]
    found["dreamed_gone_where_removed"] = _share_gone(mind, dreamed, before, gap_nats)
    found["seen_gone_where_removed"] = _share_gone(mind, gone.latent[:, -1], before, gap_nats)
    if len(kept_rows):
        # The same present frames, in turn, so that time in the episode tells nothing apart.
        again = torch.arange(len(kept_rows), device=rows.device) % len(present)
        kept = stretches(latent, action, cost, kept_rows, present[again], context)
        stayed = _dream_on(mind, kept, context)
        before = kept.efe[:, context - 1]
        found["dreamed_gone_where_kept"] = _share_gone(mind, stayed, before, gap_nats)
        found["seen_gone_where_kept"] = _share_gone(mind, kept.latent[:, -1], before, gap_nats)
    return found


def _dream_on(mind: Mind, real: Removals, context: int) -> Tensor:
    past, ahead = real.action[:, : context - 1], real.action[:, context - 1 :]
    temperature = mind.config.imagination.temperature
    return replay_dream(mind.dynamics, real.latent[:, :context], past, ahead, temperature)[:, -1]


def _share_gone(mind: Mind, dreamed: Tensor, before: Tensor, gap_nats: float) -> float:
    """Symbolic eye: no cell is seen. Pixels: G fell by more than half of the gap that a mark makes."""
    place = mind.codec.tokens.get("cell")
    if place is not None:
        return float((dreamed[:, place] == mind.spec.classes[place][0] - 1).float().mean())
    return float((before - efe(mind, dreamed) > gap_nats / 2).float().mean())


@torch.no_grad()
def foresight_nats(mind: Mind, latent: Tensor, action: Tensor) -> float:
    """What the next frame of an unknown everyday life costs the sequence model (E9 on held-out episodes): far
    above the training loss, it has learned its memories by heart. latent (N, L, K), action (N, L, A)."""
    frames = mind.config.imagination.context + DREAM_CONTROL_STEPS
    costs = []
    for seen, acted in zip(latent[:, :frames].split(32), action[:, : frames - 1].split(32)):
        hidden = mind.dynamics(seen[:, :-1], acted)
        table = mind.dynamics.logits(hidden, seen[:, :-1], seen[:, 1:])
        costs.append(-pick(table, seen[:, 1:]).sum(-1).flatten())
    return float(torch.cat(costs).mean())


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


@torch.no_grad()
def dream_optimism_nats(mind: Mind, latent: Tensor, action: Tensor, cost: Tensor) -> float:
    """Gate 4 where the policy goes: from the middle of its own episodes on, with the actions that it took, by
    how much the dreamed G of the next second lies below the real one. latent (N, L, K), action (N, L, A),
    cost (N, L)."""
    context, now = mind.config.imagination.context, latent.shape[1] // 2
    past, ahead = slice(now - context + 1, now), slice(now, now + DREAM_CONTROL_STEPS)
    temperature = mind.config.imagination.temperature
    seen = latent[:, past.start : now + 1]
    dreamed = replay_dream(mind.dynamics, seen, action[:, past], action[:, ahead], temperature)[:, 1:]
    return float((cost[:, ahead.start + 1 : ahead.stop + 1] - efe(mind, dreamed)).mean())


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
    found: dict[str, float | None] = {"mark_recovery": mark_recovery(mind, held.pairs)}
    gap = efe_gap_nats(mind, held.pairs)
    latent = latents(mind, held.episodes.observation)
    cost = efe(mind, latent)
    unmarked = cost[(~held.episodes.marked).to(cost.device)]
    posture = posture_range_nats(unmarked)
    found |= {
        "efe_gap_nats": gap,
        "posture_range_nats": posture,
        "efe_gap_per_posture_range": gap / max(posture, 1e-6),
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
