"""Made-up exams that obey the tables' schema: the truth behind them is known, so measures can be checked."""

import numpy as np
import pandas as pd

from mirrormark.exam import conditions
from mirrormark.exam.tables import EPISODES, KEYS, STEPS, check

CONTROL_STEPS = 100
RATES = {
    "mirror": 0.75,
    "absent": 0.1,
    "covered": 0.12,
    "sham": 0.1,
    "untrained": 0.15,
    "iid": 0.13,
    "babbling": 0.2,
    "oracle": 0.98,
    "delayed-1s": 0.5,
}


def make(
    rates: dict[str, float] | None = None,
    seeds: tuple[int, ...] = (0,),
    runs: int = 80,
    chance_runs: int = 1000,
    *,
    eye: str = "pixels",
    fall_nats: float = 12.0,
    drift_nats: float = 0.0,
    first_exam_seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """G starts at 80, falls by `fall_nats` at removal and by `drift_nats` evenly over every run."""
    rng = np.random.default_rng(7)
    episodes, steps = [], []
    for condition, rate in (RATES if rates is None else rates).items():
        has_agent = conditions.get(condition).per_agent
        for seed in seeds if has_agent else (-1,):
            count = runs if has_agent or condition == "oracle" else chance_runs
            rows = _episodes(rng, condition, seed, count, rate, has_agent).assign(eye=eye)
            rows["exam_seed"] += first_exam_seed
            episodes.append(rows)
            steps.append(_steps(rng, rows, has_agent, fall_nats, drift_nats))
    return (
        check(pd.concat(episodes, ignore_index=True), EPISODES, "episodes"),
        check(pd.concat(steps, ignore_index=True), STEPS, "steps"),
    )


def _episodes(rng, condition, seed, n, rate, has_agent):
    world = np.arange(n)
    removed = rng.random(n) < rate
    side = np.array(["left", "middle", "right"])[world % 3]
    return pd.DataFrame(
        {
            "run": f"seed-{seed}" if has_agent else "chance",
            "checkpoint": "last" if has_agent else "-",
            "body": "infant",
            "condition": condition,
            "training_seed": seed,
            "exam_seed": world,
            "episode": 0,
            "tone": "flexor",
            "removed": removed,
            "removed_s": np.where(removed, rng.uniform(1.0, 4.0, n).round(2), np.nan),
            "hand": np.where(side == "left", "left", "right"),
            "site": np.where(world % 2, "head_geom", "chest_geom"),
            "region": np.where(world % 2, "head", "chest"),
            "side": side,
            "site_x_m": 0.07,
            "site_y_m": np.array([0.04, 0.0, -0.04])[world % 3],
            "site_z_m": 0.1,
            "mark_px_start": rng.integers(0, 25, n) if has_agent else -1,
            "yoked_touched": rng.random(n) < 0.1,
        }
    )


def _steps(rng, episodes, has_agent, fall_nats, drift_nats):
    n = len(episodes)
    t_s = (0.05 * np.arange(CONTROL_STEPS)).round(6)[None]
    removed_s = episodes["removed_s"].to_numpy()[:, None]
    removed = np.isfinite(removed_s)
    near = np.where(removed, 0.01, 0.07)
    reach_by_s = np.where(removed, removed_s - 0.5, 2.0)
    distance = near + (0.12 - near) * np.clip(1 - t_s / reach_by_s, 0, 1)
    gone = t_s >= removed_s
    noise = rng.normal(0, 2.0, (n, CONTROL_STEPS))
    g = 80 - fall_nats * gone - drift_nats * t_s / t_s[0, -1] + noise
    steps = episodes.loc[np.repeat(np.arange(n), CONTROL_STEPS), list(KEYS)]
    return steps.assign(
        t_s=np.tile(t_s[0], n),
        distance_m=(distance + 0.002 * rng.random((n, CONTROL_STEPS))).ravel(),
        yoked_distance_m=0.1,
        expected_free_energy_nats=g.ravel() if has_agent else np.nan,
        mirror_share_of_view=0.6 if has_agent else np.nan,
        mark_px=np.where(gone, 0.0, 15.0).ravel() if has_agent else np.nan,
        mark_in_view=1.0 if has_agent else np.nan,
    )
