"""The real command with a training run so small that tests can live it."""

import os
import sys
from pathlib import Path

import pytest
import torch

from mirrormark.train_command import train
from mirrormark.training import checkpoint
from mirrormark.training.recorder import Recorder

COMMAND = [str(Path(sys.executable).with_name("mirrormark")), "train"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "NUMBA_NUM_THREADS": "2"}
TINY = [
    "--training.schedule.episodes=12", "--training.schedule.episodes-per-iteration=4", "--training.schedule.steps-per-iteration=2",
    "--training.schedule.world-model-from-episode=0", "--training.schedule.self-prior-from-episode=0",
    "--training.schedule.policy-from-episode=4", "--training.schedule.evaluate-every-episodes=8",
    "--training.schedule.checkpoint-every-iterations=1", "--training.learner.sequences=2",
    "--training.learner.sequence-frames=20", "--training.learner.self-prior-frames=4", "--training.learner.dreams=2",
    "--training.learner.on-policy-windows=2", "--training.evaluation.babbling-episodes=4", "--training.evaluation.pairs=4",
    "--training.evaluation.policy-episodes=4",
    "--training.replay.capacity-episodes=32", "--device=cpu", "--agent.world-model.width=48",
    "--agent.world-model.layers=1", "--agent.world-model.ffn=32", "--agent.self-prior.width=48",
    "--agent.self-prior.layers=1", "--agent.self-prior.ffn=32",
]  # fmt: skip
FIRST = [
    "--training.schedule.tokenizer-iterations=1", "--training.schedule.tokenizer-first-episodes=4",
    "--training.schedule.tokenizer-steps-per-iteration=2", "--training.learner.tokenizer-frames=4", "--training.pool-episodes=8",
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


def stopped_at(iteration: int, words: list[str], monkeypatch) -> None:
    """Run the command until that iteration's records are written, then drop dead."""
    real = Recorder.__call__

    def until(self, this, trainer, metrics):
        real(self, this, trainer, metrics)
        if this.index == iteration:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "__call__", until)
        with pytest.raises(Stop):
            train(words)
