"""The real command with a life so small that tests can live it."""

import os
import sys
from pathlib import Path

import pytest
import torch

from mirrormark.train_command import train
from mirrormark.training import checkpoint
from mirrormark.training.recorder import Records

COMMAND = [str(Path(sys.executable).with_name("mirrormark")), "train"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "NUMBA_NUM_THREADS": "2"}
TINY = [
    "--life.schedule.episodes=12", "--life.schedule.episodes-per-lap=4", "--life.schedule.steps-per-lap=2",
    "--life.schedule.world-from-episode=0", "--life.schedule.self-prior-from-episode=0",
    "--life.schedule.policy-from-episode=4", "--life.schedule.exam-every-episodes=8",
    "--life.schedule.checkpoint-every-laps=1", "--life.learner.world-sequences=2",
    "--life.learner.world-frames=20", "--life.learner.self-prior-frames=4", "--life.learner.dreams=2",
    "--life.learner.lived=2", "--life.indicators.everyday-episodes=4", "--life.indicators.pairs=4",
    "--life.indicators.policy-episodes=4",
    "--life.memory.capacity-episodes=32", "--device=cpu", "--mind.dynamics.width=48",
    "--mind.dynamics.layers=1", "--mind.dynamics.ffn=32", "--mind.self-prior.width=48",
    "--mind.self-prior.layers=1", "--mind.self-prior.ffn=32",
]  # fmt: skip
FIRST = [
    "--life.schedule.codec-laps=1", "--life.schedule.codec-first-episodes=4",
    "--life.schedule.codec-steps-per-lap=2", "--life.learner.codec-frames=4", "--life.pool-episodes=8",
]  # fmt: skip


def bytes_of(run: Path) -> dict:
    """Everything in the last checkpoint, flat, as bytes."""
    flat = {}

    def walk(name, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}.{key}", inner)
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                walk(f"{name}.{i}", inner)
        elif isinstance(value, torch.Tensor):
            data = value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
            flat[name] = (value.dtype, tuple(value.shape), data)
        else:
            flat[name] = value

    name, tree, complaints = checkpoint.load_newest(run / "checkpoints")
    assert complaints == []
    walk(name, tree)
    return flat


class Stop(Exception):
    pass


def stopped_at(lap: int, words: list[str], monkeypatch) -> None:
    """Run the command until that lap's records are written, then drop dead."""
    real = Records.__call__

    def until(self, this, life, metrics):
        real(self, this, life, metrics)
        if this.index == lap:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Records, "__call__", until)
        with pytest.raises(Stop):
            train(words)
