"""Memory does not grow, however long a training run is."""

import gc
import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tiny_trainers import newborn, symbolic

from mirrormark.training.recorder import Recorder
from mirrormark.training.run_folder import RunFolder
from mirrormark.training.trainer import run_iterations


def tensors() -> int:
    gc.collect()
    return sum(1 for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def seen_in(
    tmp_path: Path, iterations: int, looked_at: tuple[int, ...], evaluate_every_iterations: int
) -> dict[int, tuple[int, float]]:
    """Tensors and resident memory after those iterations of a whole run: episodes by babbling and policy,
    train steps, evaluations, snapshots, pictures, metrics and checkpoints."""
    preset = symbolic()
    schedule = replace(
        preset.training.schedule,
        episodes=4 * iterations,
        steps_per_iteration=1,
        evaluate_every_episodes=4 * evaluate_every_iterations,
        checkpoint_every_iterations=10,
    )
    trainer = newborn(replace(preset, training=replace(preset.training, schedule=schedule)))
    seen = {}

    def look(iteration, *_):
        if iteration.index in looked_at:
            seen[iteration.index] = (tensors(), resident_mb())

    run = RunFolder.create(tmp_path / "run", {"preset": "tiny"})
    with Recorder(run, trainer, "tiny", Console(file=io.StringIO())) as records:
        run_iterations(trainer, (records, look))
    assert (
        len(list(run.snapshots.iterdir())) >= iterations // evaluate_every_iterations
        and len(list(run.checkpoints.iterdir())) == 2
    )
    return seen


def test_tensors_alive_after_many_iterations_are_those_alive_after_a_few(tmp_path):
    seen = seen_in(tmp_path, 22, (10, 21), evaluate_every_iterations=10)
    assert seen[21][0] <= seen[10][0]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_does_not_grow_over_a_thousand_iterations(tmp_path):
    seen = seen_in(tmp_path, 1000, (200, 999), evaluate_every_iterations=50)
    assert seen[999][0] <= seen[200][0]
    assert seen[999][1] < seen[200][1] + 20
