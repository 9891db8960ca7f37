"""The exam with agent and eye on a GPU."""

import subprocess
import sys

import numpy as np
import pytest

from mirrormark.exam import candidates, commands, tables
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.run import Settings

pytestmark = pytest.mark.gpu


def test_an_exam_on_the_gpu_has_all_its_numbers_and_repeats_itself(tmp_path):
    candidate = candidates.untrained("smoke", device="cuda")
    settings = Settings(
        runs=3, chance_runs=2, conditions=(EXAM, "absent", "delayed-0.5s", "untrained", "iid")
    )
    for name in ("first", "second"):
        found = commands.examine([candidate], tmp_path / name, settings)
    assert found["conditions"][EXAM]["n"] == 3 and found["probes"]["frames"] > 20
    steps = tables.read(tmp_path / "first" / "steps.parquet", tables.STEPS)
    seen = steps[steps["condition"] == EXAM]
    assert np.isfinite(seen[["expected_free_energy_nats", "mark_px", "distance_m"]].to_numpy()).all()
    with np.load(tmp_path / "first" / "parts" / candidate.name / "recording.npz") as kept:
        assert kept["sense/vision"].shape[1:] == (100, 64, 64, 3) and kept["sense/vision"].std() > 10
    first, second = ((tmp_path / name / "results.json").read_bytes() for name in ("first", "second"))
    assert first == second


def test_the_command_with_its_helpers_finds_what_one_process_finds(tmp_path):
    names = (EXAM, "absent", "untrained", "iid")
    candidate = candidates.untrained("smoke", device="cuda")
    commands.examine([candidate], tmp_path / "alone", Settings(runs=3, chance_runs=2, conditions=names))
    command = [sys.executable, "-m", "mirrormark", "exam", "--preset", "smoke", "--device", "cuda"]
    command += ["--out", str(tmp_path / "helped"), "--runs", "3", "--chance-runs", "2", "--only", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "helper failed" not in done.stderr
    alone, helped = ((tmp_path / name / "results.json").read_bytes() for name in ("alone", "helped"))
    assert alone == helped
