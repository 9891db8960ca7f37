"""Which agents the exam takes, and what it says of those it cannot take."""

import re
from pathlib import Path

import pytest

from mirrormark.exam import candidates
from mirrormark.exam.conditions import EXAM
from mirrormark.exam.run import Settings, take_exam
from mirrormark.training.weights import describe, save_snapshot


@pytest.fixture(scope="module")
def agent() -> candidates.Candidate:
    return candidates.untrained("smoke")


def run_at(folder: Path, agent: candidates.Candidate, seed: int = 0) -> Path:
    """A run folder with one snapshot."""
    metadata = describe(agent.agent, agent.setup, preset="smoke", seed=seed)
    save_snapshot(folder / "snapshots", "episodes-1", agent.agent, metadata)
    (folder / "config.json").write_text("{}")
    return folder


def test_two_agents_of_one_name_are_refused(agent: candidates.Candidate, tmp_path: Path):
    """Parts are kept by name: the second would be given the first one's runs."""
    two = [candidates.load(run_at(tmp_path / place / "run", agent, k)) for k, place in enumerate("ab")]
    assert [one.training_seed for one in two] == [0, 1]
    with pytest.raises(ValueError, match="two agents are called run@episodes-1"):
        take_exam(two, tmp_path / "exam", Settings(runs=1, chance_runs=1, conditions=(EXAM,)))


def test_a_name_that_nobody_has_is_answered_with_those_that_are_shipped():
    with pytest.raises(ValueError, match=r"dog does not exist: .* Shipped agents .*: infant"):
        candidates.load(Path("dog"))


def test_a_folder_of_runs_is_answered_with_a_run(agent: candidates.Candidate, tmp_path: Path):
    run = run_at(tmp_path / "runs" / "first", agent)
    with pytest.raises(ValueError, match=f"folder of runs: give one of them, such as {re.escape(str(run))}"):
        candidates.load(tmp_path / "runs")


def test_a_folder_of_snapshots_is_not_taken_for_one_of_them(agent: candidates.Candidate, tmp_path: Path):
    run = run_at(tmp_path / "run", agent)
    with pytest.raises(ValueError, match=f"several agents: give the run, {re.escape(str(run))}, or one"):
        candidates.load(run / "snapshots")


def test_a_damaged_snapshot_says_what_to_do(agent: candidates.Candidate, tmp_path: Path):
    run = run_at(tmp_path / "run", agent)
    next((run / "snapshots" / "episodes-1").glob("*.safetensors")).write_bytes(b"")
    with pytest.raises(ValueError, match=r"is damaged: .* Copy it again, or give another"):
        candidates.load(run)
