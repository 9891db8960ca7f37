"""Indicators of learning, each a cheap number that predicts the next.

mark_recovery                 the tokenizer sees the mark
efe_gap_nats                  the self-prior sets it apart
efe_gap_per_posture_range     the mark matters more than posture
dreamed_fall_nats             imagination contains removal (beside real_fall_nats and dreamed_fall_contrast)
removal_rate, distance_m      the policy reaches (beside motor babbling)

They look at labels, pairs and masks that no part of the agent ever gets. Held-out episodes have seeds of
their own: nothing is trained on them.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.acting import Actor, encode
from mirrormark.agent.agent import Agent
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS, MirrorMarkEnvs
from mirrormark.training.evaluation_dreams import dream_optimism_nats, dreamed_removal, foresight_nats
from mirrormark.training.held_out import HELD_OUT_SEED, HeldOut, Pairs, efe, encode_in_pieces

_EVALUATION_SEED = HELD_OUT_SEED + 2**40
_WINDOW_CONTROL_STEPS = 20
"""One second: how long a familiar way of sitting must last to count (efe_gap_per_posture_range)."""


# mark_recovery and efe_gap_nats ---------------------------------------------------------------------------


@torch.no_grad()
def mark_recovery(agent: Agent, pairs: Pairs) -> float:
    """1 − squared error on the mark's pixels ÷ the error of painting no mark there.

    The symbolic eye has no pixels: the share of pairs whose cell survives the tokenizer.
    """
    if "vision" not in pairs.with_mark:
        seen = agent.decode(encode(agent, pairs.with_mark, sample=False))["cell"]
        return float((seen == pairs.with_mark["cell"]).float().mean())
    error = blank = 0.0
    for rows in torch.arange(len(pairs.mask)).split(256):
        part = {name: value[rows] for name, value in pairs.with_mark.items()}
        painted = agent.decode(encode(agent, part, sample=False))["vision"]
        target = agent.tokenizer.targets(part)["vision"]
        bare = agent.tokenizer.targets({name: value[rows] for name, value in pairs.without_mark.items()})[
            "vision"
        ]
        mask = pairs.mask[rows].unsqueeze(-1)
        error += float(((painted.float() - target) ** 2 * mask).sum())
        blank += float(((bare - target) ** 2 * mask).sum())
    return 1 - error / max(blank, 1e-12)


def efe_gap_nats(agent: Agent, pairs: Pairs) -> float:
    """efe_gap_nats: mean G(marked) − G(unmarked) over the pairs."""
    shown = efe(agent, encode(agent, pairs.with_mark, sample=False))
    hidden = efe(agent, encode(agent, pairs.without_mark, sample=False))
    return float((shown - hidden).mean())


# efe_gap_per_posture_range --------------------------------------------------------------------------------


def posture_range_nats(unmarked_efe: Tensor) -> float:
    """What sitting in the most familiar way gains: mean G − 5th percentile of G over 1 s windows. (N, L)
    -> nats."""
    windows = unmarked_efe.unfold(1, _WINDOW_CONTROL_STEPS, 1).mean(-1)
    return float(unmarked_efe.mean() - torch.quantile(windows.flatten().float(), 0.05))


# removal_rate ---------------------------------------------------------------------------------------------


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


def behave(agent: Agent, envs: MirrorMarkEnvs, seed: int = _EVALUATION_SEED) -> Behaviour:
    """removal_rate: one marked episode in every world, actions sampled."""
    threads = torch.get_num_threads()
    actor = Actor(agent, envs.n)
    actor.begin(seed % 2**31)
    observation, info = envs.reset(seed=list(range(seed, seed + envs.n)), marked=np.ones(envs.n, np.bool_))
    distance, seen, acted, worn = [], [], [], []
    for _ in range(EPISODE_CONTROL_STEPS):
        acted.append(actor.act(observation))
        seen.append(actor.tokens)
        worn.append(info["mark_present"].copy())
        observation, _, _, _, info = envs.step(acted[-1])
        distance.append(info["hand_mark_distance_m"])
    torch.set_num_threads(threads)  # see rollout.collect
    tokens, action = torch.stack(seen, 1), torch.from_numpy(np.stack(acted, 1)).to(agent.device)
    cost = efe(agent, tokens)
    low_m, high_m = np.nanpercentile(np.nanmean(distance, axis=0), (5, 95))
    return Behaviour(
        float(info["mark_removed"].mean()),
        float(info["yoked_touched"].mean()),
        float(np.nanmean(distance)),
        float(low_m),
        float(high_m),
        float(cost.mean()),
        float(cost[torch.from_numpy(np.stack(worn, 1)).to(cost.device)].mean()),
        dream_optimism_nats(agent, tokens, action, cost),
    )


# All of them --------------------------------------------------------------------------------------------


def indicators(agent: Agent, held: HeldOut, envs: MirrorMarkEnvs | None) -> dict[str, float | None]:
    """All of them, None where one cannot be measured. envs: for removal_rate; None leaves it out (before
    there is a policy)."""
    agent.eval()
    seen = len(held.pairs.mask) > 0  # not before a mirror that is covered or away
    found: dict[str, float | None] = {"mark_recovery": mark_recovery(agent, held.pairs) if seen else None}
    gap = efe_gap_nats(agent, held.pairs) if seen else None
    tokens = encode_in_pieces(agent, held.episodes.observation)
    cost = efe(agent, tokens)
    unmarked = cost[(~held.episodes.marked).to(cost.device)]
    posture = posture_range_nats(unmarked)
    found |= {
        "efe_gap_nats": gap,
        "posture_range_nats": posture,
        "efe_gap_per_posture_range": None if gap is None else gap / max(posture, 1e-6),
        "efe_babbling_nats": float(unmarked.mean()),
    }
    found["foresight_nats"] = foresight_nats(agent, tokens, held.episodes.action.to(tokens.device))
    found |= dreamed_removal(agent, held, tokens, cost, gap)
    if envs is not None:
        done = behave(agent, envs)
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
