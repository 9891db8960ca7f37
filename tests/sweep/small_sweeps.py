"""Sweeps small enough for tests: the smoke preset cut to two iterations, and a folder with made-up runs in
it."""

import json
import time
from pathlib import Path
from typing import Any

from mirrormark.sweep.plan import Folder, Job
from mirrormark.sweep.spec import Spec, parse

QUICK: dict[str, Any] = {
    "training.schedule.episodes": 8,
    "training.schedule.episodes_per_iteration": 4,
    "training.schedule.tokenizer_iterations": 1,
    "training.schedule.tokenizer_steps_per_iteration": 2,
    "training.schedule.steps_per_iteration": 2,
    "training.schedule.policy_from_episode": 0,
    "training.schedule.evaluate_every_episodes": 100,
    "training.schedule.checkpoint_every_iterations": 1,
    "training.evaluation.babbling_episodes": 4,
    "training.evaluation.pairs": 4,
    "training.pool_episodes": 8,
}


def described(**more: Any) -> dict[str, Any]:
    """A spec as TOML gives it: 2 seeds × 2 settings of the shortest life."""
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
    status = {"state": state, "pid": 1, "host": host, "iteration": 1, "episodes": 4, "updated_s": time.time()}
    (run / "status.json").write_text(json.dumps(status))


def pretend_examined(folder: Folder, job: Job) -> None:
    exam = folder.exam(job.name)
    exam.mkdir(parents=True, exist_ok=True)
    (exam / "provenance.json").write_text("{}")
