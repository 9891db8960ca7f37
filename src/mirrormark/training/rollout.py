"""Environments and agent make episodes."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.acting import Actor, encode
from mirrormark.agent.agent import Agent
from mirrormark.envs.babbling import Babbling
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS, MirrorMarkEnvs
from mirrormark.training.replay_buffer import Episodes

FRAMES_PER_EPISODE = EPISODE_CONTROL_STEPS + 1
"""The reset's frame and one after each control step."""
_HANDOVER_CONTROL_STEPS = (16, 76)
"""When a policy that lets go does so: late enough to have done something, early enough for what follows."""


class EpisodePlan(NamedTuple):
    """How one iteration's episodes are made: the first `random` environments by motor babbling, the rest by
    the policy."""

    seeds: np.ndarray  # (n,) int64
    marked: np.ndarray  # (n,) bool
    random: int
    handover: np.ndarray  # (n,) int64: control step from which on motor babbling moves the body


def plan_episodes(
    n: int,
    iteration: int,
    seed: int,
    policy_share: float,
    marked_share: float = 0.5,
    handover_share: float = 0.0,
) -> EpisodePlan:
    """`policy_share` by the policy, of which `handover_share` only until some control step, the rest random;
    `marked_share` of each marked; fresh seeds for every iteration, from one tree (D21)."""
    rng = np.random.default_rng((seed, iteration, 0x6C6170))
    seeds = rng.integers(0, 2**62, n)
    random = n - int(n * policy_share)
    hands_over = rng.random(n) < handover_share
    handover = np.where(hands_over, rng.integers(*_HANDOVER_CONTROL_STEPS, n), FRAMES_PER_EPISODE)
    handover[:random] = 0
    # The same share in both parts, spread evenly; odd numbers are evened out over neighbouring iterations.
    turn = np.concatenate([np.arange(random), np.arange(n - random)]) + iteration
    marked = np.floor((turn + 1) * marked_share) > np.floor(turn * marked_share)
    return EpisodePlan(seeds, marked, random, handover)


def collect(
    envs: MirrorMarkEnvs,
    babbling: Babbling,
    plan: EpisodePlan,
    actor: Actor | None,
    frozen: Agent | None = None,
) -> Episodes:
    """Whole episodes from reset to the last frame; environments whose physics broke are left out.

    actor: begun for the n - plan.random last environments (None when there are none). frozen: an agent whose
    tokenizer learns no more; its tokens are stored instead of observations.
    """
    n, threads = envs.n, torch.get_num_threads()
    observation, info = envs.reset(seed=plan.seeds.tolist(), marked=plan.marked)
    babbling.begin(plan.seeds.tolist())
    frames: list[dict[str, Tensor]] = []
    actions = np.zeros((n, FRAMES_PER_EPISODE, envs.actions), np.float32)
    mark = np.zeros((n, FRAMES_PER_EPISODE), np.bool_)
    whole = np.ones(n, np.bool_)
    for t in range(FRAMES_PER_EPISODE):
        tokens = encode(frozen, observation) if frozen else None
        frames.append(_copies(observation) if tokens is None else {"tokens": tokens})
        mark[:, t] = info["mark_present"]
        if t == EPISODE_CONTROL_STEPS:
            break
        actions[:, t] = babbling.act(observation)
        if actor:
            rows = slice(plan.random, None)
            seen = encode(actor.agent, _part(observation, rows)) if tokens is None else tokens[rows]
            acts = t < plan.handover[rows]
            actions[rows, t][acts] = actor.act_on(seen)[acts]
        observation, _, _, _, info = envs.step(actions[:, t])
        whole &= ~info["unstable"]
    torch.set_num_threads(threads)  # numba's OpenMP layer has set its own number for torch as well
    kept = torch.from_numpy(np.flatnonzero(whole))
    stacked = {name: torch.stack([frame[name] for frame in frames], 1) for name in frames[0]}
    return Episodes(
        observation={name: value[kept.to(value.device)] for name, value in stacked.items()},
        action=torch.from_numpy(actions)[kept],
        mark=torch.from_numpy(mark)[kept],
        policy=(torch.arange(len(whole)) >= plan.random)[kept],
        marked=torch.from_numpy(plan.marked)[kept],
        handover=torch.from_numpy(plan.handover)[kept],
    )


def _copies(observation: dict[str, Any]) -> dict[str, Tensor]:
    """Copies: the eye may paint a later frame into the same memory."""
    return {name: torch.as_tensor(value).clone() for name, value in observation.items()}


def _part(observation: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {name: value[rows] for name, value in observation.items()}
