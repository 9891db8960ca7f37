"""Sweeps small enough for tests: the smoke preset cut to two iterations, and folders with made-up runs."""

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "exam"))

from synthetic_tables import make

from mirrormark.exam import tables
from mirrormark.exam.protocol import Tables
from mirrormark.exam.results import SCHEMA, dump
from mirrormark.sweep.folder import Folder, Job
from mirrormark.sweep.spec import Spec, parse

QUICK: dict[str, Any] = {
    "training.schedule.episodes": 8,
    "training.schedule.episodes_per_iteration": 4,
    "training.schedule.steps_per_iteration": 2,
    "training.schedule.policy_from_episode": 0,
    "training.schedule.evaluate_every_episodes": 100,
    "training.schedule.checkpoint_every_iterations": 1,
    "training.tokenizer_phase.iterations": 1,
    "training.tokenizer_phase.steps_per_iteration": 2,
    "training.tokenizer_phase.buffer_episodes": 8,
    "training.evaluation.babbling_episodes": 4,
    "training.evaluation.pairs": 4,
}


def described(**more: Any) -> dict[str, Any]:
    """A spec as TOML gives it: 2 seeds × 2 settings of the shortest training."""
    return {
        "preset": "smoke",
        "seeds": 2,
        "overrides": dict(QUICK),
        "grid": {"env.tone_scale": [0.5, 1.0]},
        "exam": {"runs": 2, "chance_runs": 4, "only": ["mirror", "absent"]},
        "resources": {"tries": 3},
    } | more


def spec(**more: Any) -> Spec:
    return parse(described(**more))


def write_toml(path: Path, found: dict[str, Any]) -> Path:
    """A spec as a file; JSON's scalars and lists are TOML's too, but for NaN."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in found.items() if not isinstance(value, dict)]
    for name, value in found.items():
        if isinstance(value, dict):
            lines += [f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(one)}" for key, one in value.items())]
    path.write_text("\n".join(lines).replace("NaN", "nan") + "\n")
    return path


def fake_train(folder: Folder, job: Job, state: str = "finished", **facts: Any) -> None:
    """A run folder as a train command leaves it, without the training."""
    run = folder.run(job.name)
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.json").write_text(json.dumps({"preset": "smoke", "ablation": None} | facts))
    status = {
        "state": state,
        "pid": 1,
        "host": "elsewhere",
        "iteration": 1,
        "episodes": 4,
        "updated_s": time.time(),
    }
    (run / "status.json").write_text(json.dumps(status))


def fake_exam(place: Path, name: str, seed: int, rate: float, eye: str = "pixels") -> None:
    """An exam folder as an exam command leaves it, without the exam. Seeds of a setting differ a little;
    chance is the same in every exam, as in truth."""
    place.mkdir(parents=True)
    rates = {"mirror": rate + 0.03 * seed, "absent": 0.1, "iid": 0.1, "babbling": 0.2}
    found = make(rates, seeds=(seed,), runs=40, chance_runs=50, eye=eye)
    found = Tables(*(one.assign(run=one["run"].where(one["run"] == "chance", name)) for one in found))
    tables.write(found.episodes, place / "episodes.parquet", tables.EPISODES)
    tables.write(found.steps, place / "steps.parquet", tables.STEPS)
    settings = {"runs": 40, "first_exam_seed": 0, "chance_runs": 50, "mode": "sample"}
    dump({"schema": SCHEMA, "settings": settings, "reach_m": 0.035}, place / "results.json")
    (place / "provenance.json").write_text("{}")
