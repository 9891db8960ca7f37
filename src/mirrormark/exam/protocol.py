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
from mirrormark.exam.agents import ConditionAgent

EXAM_VERSION = "1"
"""Raised when worlds, conditions, scoring or verdict change so that old and new numbers do not compare."""
CONTROL_STEP_S = TIMESTEP_S * ACTION_REPEAT_SIM_STEPS
MIDDLE_M = 0.01
"""Marks this near the body's midline belong to neither side (ours)."""


@dataclass(frozen=True)
class RunKey:
    """The columns that name the runs of one condition in the tables."""

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
    """What replaying, filming and rescoring a condition's runs need."""

    seeds: NDArray[np.int64]  # (N,)
    actions: NDArray[np.float32]  # (N, T, A)
    senses: dict[str, torch.Tensor]  # (N, T, …) the observation before each action, on the eye's device


def run_condition(
    envs: MirrorMarkEnvs,
    agent: ConditionAgent,
    seeds: Sequence[int],
    keys: RunKey,
    *,
    sham: bool = False,
    view_every: int = 1,
    record: bool = False,
) -> tuple[Tables, Recording | None]:
    """The rollout loop. Row k of a run's steps is the frame at k control steps, to which the agent's k-th
    action is the answer.

    `view_every`: measure the eye's view in one of so many frames (it costs as much as rendering); 0: never.
    `record`: also keep every observation and action.
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
    log.free_energy(agent.free_energy())
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
        self._stable = np.ones(n, np.bool_)  # a world whose physics diverged keeps what it had until then

    def frame(self, step: int, observation: dict, info: dict, action: np.ndarray) -> None:
        unknown = np.full(self._envs.n, np.nan)
        row = {
            "t_s": np.full(self._envs.n, round(step * CONTROL_STEP_S, 6)),
            "distance_m": info["hand_mark_distance_m"],
            "yoked_distance_m": info["yoked_distance_m"],
            "expected_free_energy_nats": unknown,
            "mirror_share_of_view": info.get("mirror_share_of_view", unknown),
            "mark_px": info.get("mark_px", unknown),
            "mark_in_view": mark_in_view(self._envs) if "mark_px" in info else unknown,
        }
        for name, values in row.items():
            self._columns[name].append(np.asarray(values, float))
        if self._record:
            for name, values in observation.items():  # a copy: the eye may paint the next frame over it
                self._senses[name].append(torch.as_tensor(values).clone())
            self._actions.append(np.asarray(action, np.float32))

    def free_energy(self, nats: np.ndarray | None) -> None:
        """G (n, T) of the frames acted on; None: this agent has none."""
        if nats is not None:
            self._columns["expected_free_energy_nats"] = list(nats.T)

    def outcome(self, step: int, info: dict) -> None:
        self._stable &= ~info["unstable"]
        now = self._stable & info["mark_removed"] & np.isnan(self._removed_s)
        self._removed_s[now] = round((step + 1) * CONTROL_STEP_S, 6)
        nearer = self._stable & np.isnan(self._removed_s) & (info["hand_mark_distance_m"] < self._nearest_m)
        self._nearest_m[nearer] = info["hand_mark_distance_m"][nearer]
        self._hand[nearer] = info["nearest_hand"][nearer]
        self._hand[now] = info["removing_hand"][now]
        self._yoked |= self._stable & info["yoked_touched"]

    def tables(self, keys: RunKey, seeds: Sequence[int]) -> Tables:
        n, scene, start = self._envs.n, self._envs.scene, self._start
        site_m = start["mark_site_m"]
        y_m = site_m[:, 1]
        sites = [scene.body.mark_surfaces[k].geom for k in start["mark_surface"]]
        episodes = pd.DataFrame(vars(keys), index=range(n)).assign(
            exam_seed=list(seeds),
            episode=0,
            removed=~np.isnan(self._removed_s),
            removed_s=self._removed_s,
            hand=[_hand_name(scene.body.hands[hand]) for hand in self._hand],
            site=sites,
            region=[tables.region(site) for site in sites],
            side=np.where(np.abs(y_m) <= MIDDLE_M, "middle", np.where(y_m > 0, "left", "right")),
            site_x_m=site_m[:, 0],
            site_y_m=y_m,
            site_z_m=site_m[:, 2],
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
    """The infant's hands are named by their side; another body's by its geom."""
    return {"r": "right", "l": "left", "right": "right", "left": "left"}.get(geom.split("_")[0], geom)


class ReflectedMark(NamedTuple):
    """Where the reflected centre of each mark lies, occluded or not: geometry only, for scoring runs. For
    mirrors that reflect nothing: where it would lie."""

    field: NDArray[np.float64]  # (n, 2) right and up in the field of view; its edges are at -1 and 1
    pane: NDArray[np.float64]  # (n, 2) right and up on the pane, in the same way
    ahead: NDArray[np.bool_]  # (n,)


def reflected_mark(envs: MirrorMarkEnvs) -> ReflectedMark:
    """Where the eye would see the mark's centre if nothing stood before it."""
    scene, index = envs.scene, np.arange(envs.n)
    body, pane = envs.mark_state.body, scene.pane
    mark = envs.xpos[index, body] + np.einsum("nij,nj->ni", envs.xmat[index, body], envs.mark_state.pos)
    normal = pane.mat[:, 2]
    image = mark - 2.0 * ((mark - pane.centre) @ normal)[:, None] * normal
    head = envs.xmat[:, scene.eye_body_id]
    eye = envs.xpos[:, scene.eye_body_id] + head @ scene.eye_pos_m
    ray = image - eye
    # Into the camera's frame: x right, y up, looking along -z.
    seen = np.einsum("nji,nj->ni", head @ scene.eye_mat, ray)
    depth = np.maximum(-seen[:, 2], 1e-9)
    field = seen[:, :2] / (np.tan(scene.eye_fovy_rad / 2) * depth)[:, None]
    along = ((pane.centre - eye) @ normal) / (ray @ normal)
    crossing = (eye + along[:, None] * ray - pane.centre) @ pane.mat[:, :2]
    return ReflectedMark(field, crossing / pane.half, seen[:, 2] < 0)


def mark_in_view(envs: MirrorMarkEnvs) -> NDArray[np.bool_]:
    """Whether the reflected centre of the mark falls on the pane and into the field of view, (n,)."""
    mark = reflected_mark(envs)
    return mark.ahead & (np.abs(mark.field) <= 1).all(1) & (np.abs(mark.pane) <= 1).all(1)
