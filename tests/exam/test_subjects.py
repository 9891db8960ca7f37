"""Which minds the exam takes, and what it says of those it cannot take."""

from pathlib import Path

import pytest

from mirrormark.exam import subjects
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.sitting import Settings, sit
from mirrormark.life.weights import describe, save_snapshot


@pytest.fixture(scope="module")
def mind() -> subjects.Subject:
    return subjects.untrained("smoke")


def run_at(folder: Path, mind: subjects.Subject, seed: int = 0) -> Path:
    """A run folder with one snapshot."""
    about = describe(mind.mind, mind.setup, preset="smoke", seed=seed)
    save_snapshot(folder / "snapshots", "episodes-1", mind.mind, about)
    (folder / "config.json").write_text("{}")
    return folder


def test_two_minds_of_one_name_are_refused(mind: subjects.Subject, tmp_path: Path):
    """Parts are kept by name: the second would be given the first one's runs."""
    two = [subjects.load(run_at(tmp_path / place / "run", mind, k)) for k, place in enumerate("ab")]
    assert [one.training_seed for one in two] == [0, 1]
    with pytest.raises(ValueError, match="two minds are called run@episodes-1"):
        sit(two, tmp_path / "exam", Settings(runs=1, chance_runs=1, conditions=(EXAM,)))
