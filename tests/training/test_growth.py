"""Memory does not grow, however long a life is."""

import gc
import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tiny_trainers import born, symbolic

from mirrormark.training.recorder import Records
from mirrormark.training.run_folder import Run
from mirrormark.training.trainer import live


def tensors() -> int:
    gc.collect()
    return sum(1 for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def lived(
    tmp_path: Path, laps: int, looked_at: tuple[int, ...], exam_every_laps: int
) -> dict[int, tuple[int, float]]:
    """Tensors and resident memory after those laps of a whole life: rollouts by movement and policy, train
    steps, exams, snapshots, pictures, metrics and checkpoints."""
    preset = symbolic()
    schedule = replace(
        preset.life.schedule, episodes=4 * laps, steps_per_lap=1, exam_every_episodes=4 * exam_every_laps,
        checkpoint_every_laps=10,
    )  # fmt: skip
    life = born(replace(preset, life=replace(preset.life, schedule=schedule)))
    seen = {}

    def look(lap, *_):
        if lap.index in looked_at:
            seen[lap.index] = (tensors(), resident_mb())

    run = Run.create(tmp_path / "run", {"preset": "tiny"})
    with Records(run, life, "tiny", Console(file=io.StringIO())) as records:
        live(life, (records, look))
    assert (
        len(list(run.snapshots.iterdir())) >= laps // exam_every_laps
        and len(list(run.checkpoints.iterdir())) == 2
    )
    return seen


def test_tensors_alive_after_many_laps_are_those_alive_after_a_few(tmp_path):
    seen = lived(tmp_path, 22, (10, 21), exam_every_laps=10)
    assert seen[21][0] <= seen[10][0]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_does_not_grow_over_a_thousand_laps(tmp_path):
    seen = lived(tmp_path, 1000, (200, 999), exam_every_laps=50)
    assert seen[999][0] <= seen[200][0]
    assert seen[999][1] < seen[200][1] + 20
