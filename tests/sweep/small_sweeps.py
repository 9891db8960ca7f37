"""Sweeps small enough for tests: the smoke preset cut to two laps, and a folder with made-up runs in it."""

import json
import time
from pathlib import Path
from typing import Any

from mirrormark.sweep.plan import Folder, Job
from mirrormark.sweep.spec import Spec, parse

QUICK: dict[str, Any] = {
    "life.schedule.episodes": 8,
    "life.schedule.episodes_per_lap": 4,
    "life.schedule.codec_laps": 1,
    "life.schedule.codec_steps_per_lap": 2,
    "life.schedule.steps_per_lap": 2,
    "life.schedule.policy_from_episode": 0,
    "life.schedule.exam_every_episodes": 100,
    "life.schedule.checkpoint_every_laps": 1,
    "life.indicators.everyday_episodes": 4,
    "life.indicators.pairs": 4,
    "life.pool_episodes": 8,
}


def described(**more: Any) -> dict[str, Any]:
    """A spec as TOML gives it: 2 seeds × 2 settings of the shortest life."""
    return {
        "preset": "smoke",
        "seeds": 2,
        "overrides": dict(QUICK),
        "grid": {"world.tone_scale": [0.5, 1.0]},
        "exam": {"runs": 2, "chance_runs": 4, "only": ["mirror", "absent"]},
        "resources": {"tries": 3},
    } | more


def spec(**more: Any) -> Spec:
    return parse(described(**more))


def write_toml(path: Path, found: dict[str, Any]) -> Path:
    """A spec as a file; JSON's scalars and lists are TOML's too."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in found.items() if not isinstance(value, dict)]
    for name, value in found.items():
        if isinstance(value, dict):
            lines += [f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(one)}" for key, one in value.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def pretend_trained(
    folder: Folder, job: Job, state: str = "finished", host: str = "elsewhere", **facts: Any
) -> None:
    """A run folder as a train command leaves it, without the training."""
    run = folder.run(job.name)
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.json").write_text(json.dumps({"preset": "smoke", "ablation": None} | facts))
    status = {"state": state, "pid": 1, "host": host, "lap": 1, "episodes": 4, "updated_s": time.time()}
    (run / "status.json").write_text(json.dumps(status))


def pretend_examined(folder: Folder, job: Job) -> None:
    exam = folder.exam(job.name)
    exam.mkdir(parents=True, exist_ok=True)
    (exam / "provenance.json").write_text("{}")
