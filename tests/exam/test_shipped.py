"""Agents that come with the package: found by their body's name, wherever a run or checkpoint may be
named."""

from dataclasses import replace
from pathlib import Path

import pytest

from mirrormark.exam import candidates
from mirrormark.training import weights
from mirrormark.training.checkpoint import CheckpointError
from mirrormark.training.evaluation import behave
from mirrormark.training.weights import describe, save_snapshot

SHIPPED = ("infant",)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that ships a (tiny, untrained) infant, used from an empty folder."""
    candidate = candidates.untrained("smoke")
    metadata = describe(candidate.agent, candidate.setup, seed=3, episodes=64)
    save_snapshot(tmp_path / "weights", "infant", candidate.agent, metadata)
    monkeypatch.setattr(weights, "SHIPPED", tmp_path / "weights")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def test_a_shipped_agent_goes_by_its_bodys_name(package: Path):
    assert weights.shipped("infant") == package / "weights" / "infant" and weights.shipped("arm") is None
    found = candidates.load(Path("infant"))
    assert (found.name, found.training_seed, found.folder) == ("shipped-infant@episodes-64", 3, None)


def test_a_path_of_that_name_comes_first(package: Path):
    candidate = candidates.untrained("smoke")
    save_snapshot(Path(), "infant", candidate.agent, describe(candidate.agent, candidate.setup, seed=8))
    assert candidates.load(Path("infant")).training_seed == 8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("arm", "no trained agent is shipped for the arm"),
        ("runs/infant", "does not exist"),
        ("elf", "not exist"),
    ],
)
def test_what_is_not_shipped_is_one_sentence(package: Path, name: str, message: str):
    with pytest.raises(CheckpointError, match=message):
        candidates.load(Path(name))


@pytest.mark.parametrize("body", SHIPPED)
def test_what_this_version_ships_can_be_loaded(body: str):
    """Weights in the package are whole, fit this version and are of the body they are named after."""
    assert candidates.load(Path(body)).setup.body == body
    place = weights.shipped(body)
    assert place is not None and sum(file.stat().st_size for file in place.iterdir()) <= 14e6


@pytest.mark.slow
@pytest.mark.parametrize("body", SHIPPED)
def test_what_is_shipped_reaches_when_it_sees_the_mark(body: str):
    """In the same development worlds, before a mirror and before a bare wall."""
    found, seed = candidates.load(Path(body)), 7000
    rates = {}
    for kind in ("present", "absent"):
        envs = found.setup.make_envs(32, "cpu", replace(found.setup.mirror, kind=kind))
        rates[kind] = behave(found.agent, envs, seed)
    assert rates["present"].removal_rate > rates["absent"].removal_rate + 0.15, rates
    assert rates["present"].removal_rate > rates["present"].yoked_rate + 0.1, rates
