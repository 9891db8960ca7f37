"""The real command at so small a size that a test can wait for it."""

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
    "--training.schedule.episodes=12", "--training.schedule.episodes-per-iteration=4",
    "--training.schedule.steps-per-iteration=2", "--training.schedule.world-model-from-episode=0",
    "--training.schedule.self-prior-from-episode=0", "--training.schedule.policy-acts-from-episode=4",
    "--training.schedule.policy-from-episode=4", "--training.schedule.evaluate-every-episodes=8",
    "--training.schedule.checkpoint-every-iterations=1", "--training.batch.sequences=2",
    "--training.batch.sequence-frames=24", "--training.batch.self-prior-frames=64",
    "--training.batch.imagined=2",
    "--training.evaluation.babbling-episodes=4", "--training.evaluation.pairs=4",
    "--training.evaluation.policy-episodes=4", "--training.replay-episodes=32", "--device=cpu",
    "--agent.world-model.width=32", "--agent.world-model.layers=1", "--agent.world-model.heads=2",
    "--agent.world-model.ffn=32", "--agent.self-prior.width=16", "--agent.self-prior.layers=1",
    "--agent.self-prior.heads=2", "--agent.self-prior.ffn=32",
]  # fmt: skip
"""Every preset knows these."""
SHORT_PAST = [
    "--agent.acting-context=0",
    "--agent.imagination.context=4",
    "--agent.expected-g.control-steps=4",
]
"""swift's: what fits into 24 frames."""
NARROW = {"paper": ["--agent.tokenizer.channels=4", "--agent.tokenizer.embedding=128"],
          "swift": ["--agent.tokenizer.channels=4", "--agent.tokenizer.posture-width=32"]}  # fmt: skip
"""Tokenizers sized for a CPU."""
PHASE = [
    "--training.tokenizer-phase.iterations=1", "--training.tokenizer-phase.first-episodes=4",
    "--training.tokenizer-phase.episodes-per-iteration=4", "--training.tokenizer-phase.steps-per-iteration=2",
    "--training.tokenizer-phase.buffer-episodes=8", "--training.batch.tokenizer-frames=4",
]  # fmt: skip
"""A phase of the tokenizer of one iteration."""
WORDS = {
    "smoke": [*TINY, *PHASE],
    "symbolic": TINY,
    "laptop": [*TINY, *SHORT_PAST],
    "swift": [*TINY, *SHORT_PAST, *PHASE, *NARROW["swift"]],
    "swift-arm": [*TINY, *SHORT_PAST, *PHASE, *NARROW["swift"]],
    "paper": [*TINY, *NARROW["paper"]],
    "paper-code": [*TINY, *NARROW["paper"]],
    "paper-quick": [*TINY, *NARROW["paper"]],
}


def words(preset: str) -> list[str]:
    """The preset at toy size."""
    return ["--preset", preset, *WORDS[preset]]


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


def stopped_at(iteration: int, asked: list[str], monkeypatch) -> None:
    """Run the command until that iteration's records are written, then drop dead."""
    real = Recorder.__call__

    def until(self, this, trainer, metrics):
        real(self, this, trainer, metrics)
        if this.index == iteration:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "__call__", until)
        with pytest.raises(Stop):
            train(asked)
