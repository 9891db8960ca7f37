"""Three runs of the exam kept whole: the median, the best and a failed one, as the agent saw them and from
outside."""

# pandas ships no exact types for what indexing and grouping return.
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false, reportAttributeAccessIssue=false

import io
from dataclasses import replace

import numpy as np
import pandas as pd

from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS
from mirrormark.envs.senses import joined, picture
from mirrormark.exam.conditions import Condition
from mirrormark.exam.protocol import Recording, Tables
from mirrormark.training.env_config import EnvConfig

OUTSIDE_PX = 240
"""Side of the third person's picture."""

SENSE = "sense/"
"""Before the names of the senses among the recording's arrays."""


def senses_of(recording: dict[str, np.ndarray], run: int) -> dict[str, np.ndarray]:
    """The observations of one recorded run, each (T, …)."""
    found = {name.removeprefix(SENSE): value for name, value in recording.items() if name.startswith(SENSE)}
    return {name: value[run] for name, value in found.items()}


def to_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """An .npz file's content: arrays by name and nothing else (before NumPy 2.2 an option such as
    allow_pickle became one of them)."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data)) as stored:
        return dict(stored)


def choose(episodes: pd.DataFrame, nearest_m: np.ndarray) -> dict[str, int]:
    """Row of the median removal, of the soonest and of the failed run whose hand came nearest; figures of one
    run show the first of them."""
    removed = episodes[episodes["removed"]].sort_values(["removed_s", "exam_seed"])
    failed = np.flatnonzero(~episodes["removed"].to_numpy())
    chosen: dict[str, int] = {}
    if len(removed) > 1:
        chosen["median"] = int(removed.index[len(removed) // 2])
    if len(removed):
        chosen["best"] = int(removed.index[0])
    if len(failed):
        chosen["failed"] = int(failed[np.argmin(nearest_m[failed])])
    return chosen


def keep_three(
    setup: EnvConfig, condition: Condition, found: Tables, recording: Recording
) -> dict[str, np.ndarray]:
    """Arrays for `recording.npz`, first axis the chosen runs, second time: pictures, G, distance, actions."""
    n = len(found.episodes)
    distance, g = (
        found.steps[name].to_numpy().reshape(n, EPISODE_CONTROL_STEPS)
        for name in ("distance_m", "expected_free_energy_nats")
    )
    chosen = choose(found.episodes, distance.min(1))
    rows = np.array(list(chosen.values()))
    return {
        "label": np.array(list(chosen)),
        "exam_seed": recording.seeds[rows],
        "removed_s": found.episodes["removed_s"].to_numpy()[rows],
        "expected_free_energy_nats": g[rows],
        "distance_m": distance[rows],
        "actions": recording.actions[rows],
        "outside": _replay(setup, condition, recording, rows),
    } | {f"{SENSE}{name}": values[rows].cpu().numpy() for name, values in recording.senses.items()}


def _replay(setup: EnvConfig, condition: Condition, recording: Recording, rows: np.ndarray) -> np.ndarray:
    """The runs again by their recorded actions, seen from outside: seed and actions determine a run."""
    envs = condition.make_envs(replace(setup, senses=("proprioception",)), len(rows))
    envs.reset(seed=recording.seeds[rows].tolist(), marked=True, sham=condition.sham)
    states = []
    for step in range(EPISODE_CONTROL_STEPS):
        states.append(envs.sim_state())
        envs.step(recording.actions[rows, step])
    frames = [
        picture(envs.scene, joined([state.only(k) for state in states]), "world", OUTSIDE_PX, OUTSIDE_PX)
        for k in range(len(rows))
    ]
    return np.stack(frames)
