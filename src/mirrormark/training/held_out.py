"""Babbling episodes that nobody learns from, and paired frames with and without the mark: what indicators
look at, and what an agent makes of it.

No part of the agent ever gets these pairs, masks or labels.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.acting import encode, to_tensors
from mirrormark.agent.agent import Agent
from mirrormark.config import EvaluationConfig
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS, MirrorMarkEnvs
from mirrormark.envs.senses import Device
from mirrormark.training.env_config import EnvConfig, babbling_of
from mirrormark.training.replay_buffer import Episodes
from mirrormark.training.rollout import EpisodePlan, collect

HELD_OUT_SEED = 2**62
"""First seed of the held-out episodes; lives draw theirs below it."""
_PAIR_EVERY_CONTROL_STEPS = 10


class Pairs(NamedTuple):
    """The same moments seen with and without the mark, only where the mark is seen."""

    with_mark: dict[str, Tensor]
    without_mark: dict[str, Tensor]
    mask: Tensor  # (N, 64, 64) bool: pixels of the mark


class HeldOut(NamedTuple):
    """Motor babbling that nobody learned from."""

    episodes: Episodes
    pairs: Pairs
    removal_rate: float  # chance: marked babbling episodes in which the mark came off
    yoked_rate: float  # the same for an invisible place elsewhere
    distance_m: float  # nearer hand to mark, mean over frames


def hold_out(setup: EnvConfig, config: EvaluationConfig, device: torch.device | str) -> HeldOut:
    """Roll out the held-out episodes and take pairs on the way; the same for every agent of this setup."""
    device = torch.device(device)
    n = config.babbling_episodes
    envs = setup.make_envs(n, eye_device(setup, device))
    watch = _Watch(envs, config.pairs)
    plan = EpisodePlan(HELD_OUT_SEED + np.arange(n), np.arange(n) % 4 != 0, n, np.zeros(n, np.int64))
    episodes = collect(watch, babbling_of(setup, envs), plan, None)  # type: ignore[arg-type]
    episodes = episodes._replace(observation=to_tensors(episodes.observation, device))
    worn = plan.marked
    return HeldOut(
        episodes,
        watch.pairs(device),
        removal_rate=float(watch.info["mark_removed"][worn].mean()),
        yoked_rate=float(watch.info["yoked_touched"][worn].mean()),
        distance_m=float(np.nanmean(watch.distances)),
    )


def eye_device(setup: EnvConfig, device: torch.device) -> Device:
    """Where the eye looks best for an agent on that device."""
    return "cuda" if device.type == "cuda" and "vision" in setup.senses else "cpu"


class _Watch:
    """Worlds that remember pairs, distances and the last info of an episode."""

    def __init__(self, envs: MirrorMarkEnvs, most_pairs: int) -> None:
        self._envs, self.n, self.actions = envs, envs.n, envs.actions
        self._each = -(-most_pairs // (EPISODE_CONTROL_STEPS // _PAIR_EVERY_CONTROL_STEPS))
        self._pairs: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []
        self._masks: list[np.ndarray] = []
        self.distances: list[np.ndarray] = []
        self._t = 0

    def reset(self, **options: Any) -> tuple[dict, dict]:
        return self._envs.reset(**options)

    def step(self, action: np.ndarray) -> tuple:
        observation, reward, terminated, truncated, self.info = self._envs.step(action)
        self._t += 1
        self.distances.append(self.info["hand_mark_distance_m"])
        if self._t % _PAIR_EVERY_CONTROL_STEPS == 0:
            if "vision" in observation:  # a GPU eye has few frames: pairs would be painted over this one
                observation = observation | {"vision": torch.as_tensor(observation["vision"]).clone()}
            self._take_pairs(observation)
        return observation, reward, terminated, truncated, self.info

    def _take_pairs(self, observation: dict[str, Any]) -> None:
        found = self._envs.paired_frames()
        seeing = "vision" if "vision" in observation else "cell"
        shown, hidden = (torch.as_tensor(found[k]).cpu() for k in ("with_mark", "without_mark"))
        mask = np.asarray(found["mark_mask"])
        seen = np.flatnonzero(mask.reshape(self.n, -1).any(1) & ~self.info["unstable"])
        # A different stretch of worlds each time, so that few pairs still come from many episodes.
        seen = np.roll(seen, -self._t * self._each)[: self._each]
        rest = {k: torch.as_tensor(v)[seen].cpu() for k, v in observation.items() if k != seeing}
        rest = {k: v.clone() for k, v in rest.items()}
        self._pairs.append((rest | {seeing: shown[seen]}, rest | {seeing: hidden[seen]}))
        self._masks.append(mask[seen])

    def pairs(self, device: torch.device) -> Pairs:
        def joined(side: int) -> dict[str, Tensor]:
            sides = [pair[side] for pair in self._pairs]
            return {k: torch.cat([part[k] for part in sides]).to(device) for k in sides[0]}

        mask = torch.from_numpy(np.concatenate(self._masks)).to(device)
        return Pairs(joined(0), joined(1), mask)


@torch.no_grad()
def efe(agent: Agent, tokens: Tensor) -> Tensor:
    """G of tokens (..., K), in pieces."""
    flat = tokens.reshape(-1, tokens.shape[-1])
    return torch.cat([agent.expected_free_energy(part) for part in flat.split(8192)]).reshape(
        tokens.shape[:-1]
    )


@torch.no_grad()
def encode_in_pieces(agent: Agent, observation: dict[str, Tensor]) -> Tensor:
    """(N, L, ...) observations -> (N, L, K), in pieces."""
    names = list(observation)
    lead = observation[names[0]].shape[:2]
    flat = {name: value.flatten(0, 1) for name, value in observation.items()}
    pieces = torch.arange(lead[0] * lead[1]).split(4096)
    encodings = [
        encode(agent, {name: flat[name][rows[0] : rows[-1] + 1] for name in names}, False) for rows in pieces
    ]
    return torch.cat(encodings).unflatten(0, lead)
