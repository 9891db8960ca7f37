"""Made-up exams that obey the tables' schema: the truth behind them is known, so measures can be checked."""

import numpy as np
import pandas as pd

from mirrormark.exam import conditions
from mirrormark.exam.tables import EPISODES, STEPS, check

CONTROL_STEPS = 100
RATES = {
    "mirror": 0.75,
    "absent": 0.1,
    "covered": 0.12,
    "sham": 0.1,
    "untrained": 0.15,
    "iid": 0.13,
    "everyday": 0.2,
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
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """G starts at 80, falls by `fall_nats` at removal and by `drift_nats` evenly over every run."""
    rng = np.random.default_rng(7)
    episodes, steps = [], []
    for condition, rate in (RATES if rates is None else rates).items():
        minded = conditions.get(condition).per_mind
        for seed in seeds if minded else (-1,):
            count = runs if minded or condition == "oracle" else chance_runs
            for world in range(count):
                run, curve = _run(rng, condition, seed, world, rate, minded, fall_nats, drift_nats)
                episodes.append(run | {"eye": eye})
                steps.append(curve)
    return check(pd.DataFrame(episodes), EPISODES, "episodes"), check(pd.concat(steps), STEPS, "steps")


def _run(rng, condition, seed, world, rate, minded, fall_nats, drift_nats):
    removed = bool(rng.random() < rate)
    removed_s = round(rng.uniform(1.0, 4.0), 2) if removed else np.nan
    side = ("left", "middle", "right")[world % 3]
    keys = {
        "run": f"seed-{seed}" if minded else "chance",
        "checkpoint": "last" if minded else "-",
        "body": "infant",
        "condition": condition,
        "training_seed": seed,
        "exam_seed": world,
        "episode": 0,
    }
    t_s = (0.05 * np.arange(CONTROL_STEPS)).round(6)
    near = 0.01 if removed else 0.07
    reach_by_s = removed_s - 0.5 if removed else 2.0
    distance = (
        near + (0.12 - near) * np.clip(1 - t_s / max(reach_by_s, 0.1), 0, 1) + 0.002 * rng.random(t_s.size)
    )
    noise = rng.normal(0, 2.0, t_s.size)
    g = 80 - fall_nats * (t_s >= removed_s) - drift_nats * t_s / t_s[-1] + noise if minded else np.nan
    hand = {"left": "left", "right": "right"}.get(side, "right")
    row = keys | {
        "tone": "flexor",
        "removed": removed,
        "removed_s": removed_s,
        "hand": hand,
        "site": "head_geom" if world % 2 else "chest_geom",
        "side": side,
        "site_x_m": 0.07,
        "site_y_m": {"left": 0.04, "middle": 0.0, "right": -0.04}[side],
        "site_z_m": 0.1,
        "mark_px_start": int(rng.integers(0, 25)) if minded else -1,
        "yoked_touched": bool(rng.random() < 0.1),
    }
    seen = np.where(t_s >= removed_s, 0.0, 15.0) if minded else np.nan
    curve = pd.DataFrame(keys, index=range(CONTROL_STEPS)).assign(
        t_s=t_s,
        distance_m=distance,
        yoked_distance_m=0.1,
        expected_free_energy_nats=g,
        mirror_share_of_view=0.6 if minded else np.nan,
        mark_px=seen,
        mark_in_view=1.0 if minded else np.nan,
    )
    return row, curve
