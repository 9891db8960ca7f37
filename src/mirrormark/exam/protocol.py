"""One condition of the exam: all its worlds in one batch, from reset to the last step, into two tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from mirrormark.envs.mirror_mark import ACTION_REPEAT_SIM_STEPS, EPISODE_CONTROL_STEPS, MirrorMarkEnvs
from mirrormark.envs.scene import TIMESTEP_S
from mirrormark.exam import tables
from mirrormark.exam.agents import ExamAgent, TrainedAgent
from mirrormark.exam.view import mark_in_view

CONTROL_STEP_S = TIMESTEP_S * ACTION_REPEAT_SIM_STEPS
MIDDLE_M = 0.01
"""Marks this near the body's midline belong to neither side (ours)."""


@dataclass(frozen=True)
class RunKey:
    """What names the runs of one condition in the tables."""

    run: str
    checkpoint: str
    body: str
    condition: str
    training_seed: int
    tone: str
    eye: str


class Tables(NamedTuple):
    episodes: pd.DataFrame
    steps: pd.DataFrame


class Recording(NamedTuple):
    """What replaying, filming and scoring anew need of a condition's runs."""

    seeds: NDArray[np.int64]  # (N,)
    actions: NDArray[np.float32]  # (N, T, A)
    senses: dict[str, torch.Tensor]  # (N, T, …) what was sensed before each action, where the agent lives


def run_condition(
    envs: MirrorMarkEnvs,
    agent: ExamAgent,
    seeds: Sequence[int],
    keys: RunKey,
    *,
    sham: bool = False,
    view_every: int = 1,
    record: bool = False,
) -> tuple[Tables, Recording | None]:
    """Row k of a run's steps is the frame at k control steps, which the player's k-th action answers.

    `view_every`: measure what the eye sees in every so-manieth frame (it costs as much as seeing); 0: never.
    `record`: also keep everything that was sensed and done.
    """
    if len(seeds) != envs.n:
        raise ValueError(f"seeds: {len(seeds)} seeds for {envs.n} worlds; give one for each.")
    envs.measure_view = view_every > 0
    observation, info = envs.reset(seed=list(seeds), marked=True, sham=sham)
    agent.begin(envs, seeds)
    log = _Log(envs, info, record)
    for step in range(EPISODE_CONTROL_STEPS):
        action = agent.act(observation)
        log.frame(step, observation, info, action)
        envs.measure_view = view_every > 0 and (step + 1) % view_every == 0
        observation, _, _, _, info = envs.step(action)
        log.outcome(step, info)
    log.know(agent)
    return log.tables(keys, seeds), log.recording(seeds) if record else None


class _Log:
    """Collects a condition's runs as arrays (n, T)."""

    def __init__(self, envs: MirrorMarkEnvs, info: dict[str, Any], record: bool) -> None:
        n = envs.n
        self._envs, self._start, self._record = envs, info, record
        self._columns: dict[str, list[np.ndarray]] = {
            name: [] for name in tables.STEPS if name not in tables.KEYS
        }
        self._senses: dict[str, list[torch.Tensor]] = {sense.name: [] for sense in envs.senses}
        self._actions: list[np.ndarray] = []
        self._removed_s = np.full(n, np.nan)
        self._hand = np.asarray(info["nearest_hand"]).copy()
        self._nearest_m = np.full(n, np.inf)
        self._yoked = np.zeros(n, np.bool_)
        self._whole = np.ones(n, np.bool_)  # a world whose physics broke keeps what it had until then

    def frame(self, step: int, observation: dict, info: dict, action: np.ndarray) -> None:
        n = self._envs.n
        unseen = np.full(n, np.nan)
        row = {
            "t_s": np.full(n, round(step * CONTROL_STEP_S, 6)),
            "distance_m": info["hand_mark_distance_m"],
            "yoked_distance_m": info["yoked_distance_m"],
            "expected_free_energy_nats": unseen,
            "mirror_share_of_view": info.get("mirror_share_of_view", unseen),
            "mark_px": info.get("mark_px", unseen),
            "mark_in_view": mark_in_view(self._envs) if "mark_px" in info else unseen,
        }
        for name, values in row.items():
            self._columns[name].append(np.asarray(values, float))
        if self._record:
            for name, values in observation.items():  # a copy: the eye may paint the next frame over it
                self._senses[name].append(torch.as_tensor(values).clone())
            self._actions.append(np.asarray(action, np.float32))

    def know(self, agent: ExamAgent) -> None:
        """What the player thought of the frames it acted on; a player without an agent has no G."""
        if isinstance(agent, TrainedAgent):
            self._columns["expected_free_energy_nats"] = list(agent.expected_free_energy().T)

    def outcome(self, step: int, info: dict) -> None:
        self._whole &= ~info["unstable"]
        now = self._whole & info["mark_removed"] & np.isnan(self._removed_s)
        self._removed_s[now] = round((step + 1) * CONTROL_STEP_S, 6)
        nearer = self._whole & np.isnan(self._removed_s) & (info["hand_mark_distance_m"] < self._nearest_m)
        self._nearest_m[nearer] = info["hand_mark_distance_m"][nearer]
        self._hand[nearer] = info["nearest_hand"][nearer]
        self._hand[now] = info["removing_hand"][now]
        self._yoked |= self._whole & info["yoked_touched"]

    def tables(self, keys: RunKey, seeds: Sequence[int]) -> Tables:
        n, scene, start = self._envs.n, self._envs.scene, self._start
        site = start["mark_site_m"]
        side = np.where(np.abs(site[:, 1]) <= MIDDLE_M, "middle", np.where(site[:, 1] > 0, "left", "right"))
        episodes = pd.DataFrame(vars(keys), index=range(n)).assign(
            exam_seed=list(seeds),
            episode=0,
            removed=~np.isnan(self._removed_s),
            removed_s=self._removed_s,
            hand=[_hand_name(scene.body.hands[hand]) for hand in self._hand],
            site=[scene.body.mark_surfaces[k].geom for k in start["mark_surface"]],
            side=side,
            site_x_m=site[:, 0],
            site_y_m=site[:, 1],
            site_z_m=site[:, 2],
            mark_px_start=start.get("mark_px", np.full(n, -1)),
            yoked_touched=self._yoked,
        )
        steps = episodes.loc[np.repeat(np.arange(n), EPISODE_CONTROL_STEPS), list(tables.KEYS)].assign(
            **{name: np.stack(values, 1).ravel() for name, values in self._columns.items()}
        )
        return Tables(
            tables.check(episodes, tables.EPISODES, "episodes"),
            tables.check(steps.reset_index(drop=True), tables.STEPS, "steps"),
        )

    def recording(self, seeds: Sequence[int]) -> Recording:
        senses = {name: torch.stack(values, 1) for name, values in self._senses.items()}
        return Recording(np.asarray(seeds, np.int64), np.stack(self._actions, 1), senses)


def _hand_name(geom: str) -> str:
    """The infant's hands are called by their side; another body's by its geom."""
    return {"r": "right", "l": "left", "right": "right", "left": "left"}.get(geom.split("_")[0], geom)
