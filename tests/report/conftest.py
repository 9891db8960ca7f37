"""Made-up exams for figures and report: the tables that tests/exam makes up, saved as an exam saves them."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "exam"))

from synthetic_tables import make

from mirrormark.exam import history, tables
from mirrormark.exam.protocol import Tables
from mirrormark.exam.results import dump, results
from mirrormark.training.checkpoint import write_json

PROBES = {
    "run": "seed-0",
    "frames": 40,
    "mark_painted": {"reconstructed": 0.6, "through the self-prior": 0.1, "surprising tokens redrawn": 0.2},
    "mark_erased": {"through the self-prior": 0.83, "surprising tokens redrawn": 0.67},
    "g_gap_nats": 6.1,
    "proprioception_from_vision": "chosen",
    "proprioception_from_vision_rad": {"encoder only": 0.3, "self-prior": 0.2, "chance": 0.4},
    "vision_from_proprioception_rms": {"encoder only": 0.15, "self-prior": 0.12, "chance": 0.25},
}
SETTINGS = {"runs": 40, "first_exam_seed": 0, "chance_runs": 1000, "mode": "sample"}


@pytest.fixture(scope="session")
def save_exam():
    """Saves a made-up exam into a folder; three seeds, trained, filmed, probed."""

    def save(folder: Path, **options) -> Path:
        options = {"seeds": (0, 1, 2), "runs": 40} | options
        episodes, steps = make(**options)
        part = folder / "parts" / "seed-0@last"
        part.mkdir(parents=True)
        tables.write(episodes, folder / "episodes.parquet", tables.EPISODES)
        tables.write(steps, folder / "steps.parquet", tables.STEPS)
        pixels = options.get("eye", "pixels") == "pixels"
        dump(
            results(Tables(episodes, steps), SETTINGS, 0.02, PROBES if pixels else None),
            folder / "results.json",
        )
        _save_history(folder, options["seeds"])
        _save_pictures(part, pixels)
        write_json(
            folder / "provenance.json",
            {
                "sessions": [{"command": ["x", "exam", "runs/a b"]}],
                "versions": {"mirrormark": "0.1.0"},
                "agents": [{"posture_precision": 0.05}],
            },
        )
        return folder

    return save


def _save_history(folder: Path, seeds: tuple[int, ...]) -> None:
    rows = [
        dict.fromkeys(history.TRAINING, 0.2)
        | {"run": f"seed-{s}", "training_seed": s, "episodes": e, "n": 80, "chance_distance_m": 0.07}
        | {"removal_rate": 0.2 + 0.02 * s + e / 1e5, "distance_m": 0.08 - e / 1e6}
        | {"distance_p05_m": 0.02, "distance_p95_m": 0.12}
        for s in seeds
        for e in range(0, 50_000, 10_000)
    ]
    tables.write(pd.DataFrame(rows), folder / "training.parquet", history.TRAINING)
    t_s = 0.05 * np.arange(100)
    curves = [
        pd.DataFrame(
            {"run": "seed-0", "snapshot": name, "which": which, "t_s": t_s, "removed_s": 2.0}
        ).assign(expected_free_energy_nats=80 - fall * (t_s >= 2.0))
        for which, name, fall in (("first", "episodes-1", 1.0), ("last", "episodes-9", 12.0))
    ]
    tables.write(pd.concat(curves), folder / "scored.parquet", history.SCORED)


def _save_pictures(part: Path, pixels: bool) -> None:
    rng = np.random.default_rng(0)
    seen = {"sense/vision": rng.integers(0, 255, (3, 100, 64, 64, 3), np.uint8)} if pixels else {}
    np.savez(
        part / "recording.npz",
        label=np.array(["median", "best", "failed"]),
        exam_seed=np.array([3, 5, 9]),
        removed_s=np.array([1.2, 2.4, np.nan]),
        expected_free_energy_nats=80 + rng.normal(0, 2, (3, 100)),
        outside=rng.integers(100, 140, (3, 100, 240, 240, 3), np.uint8),
        **seen,
    )
    rows = (
        "samples",
        "erasure/real, marked",
        "erasure/through the self-prior",
        "crossing/real",
        "dream/real",
    )
    if pixels:
        np.savez(part / "probes.npz", **{row: rng.integers(0, 255, (8, 64, 64, 3), np.uint8) for row in rows})
