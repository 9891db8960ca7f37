"""`mirrormark demo` with a shipped agent (a tiny stand-in) and without one."""

import sys
from pathlib import Path

import pytest

from mirrormark.exam import candidates
from mirrormark.exam.results import load
from mirrormark.report import demo as demos
from mirrormark.training import weights
from mirrormark.training.weights import describe, save_snapshot


def test_a_shipped_agent_takes_a_short_exam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    candidate = candidates.untrained("smoke")
    metadata = describe(candidate.agent, candidate.setup, seed=3, episodes=64)
    save_snapshot(tmp_path / "weights", "infant", candidate.agent, metadata)
    monkeypatch.setattr(weights, "SHIPPED", tmp_path / "weights")
    monkeypatch.setattr(demos, "CHANCE_RUNS", 8)
    out = tmp_path / "demo"
    old = out / "exam"
    old.mkdir(parents=True)
    (old / "exam.json").write_text("{}")  # an earlier demo, of another version
    demos.demo(out, runs=2)
    printed = capsys.readouterr().out
    assert "The shipped infant takes a short exam" in printed and "Not passed" in printed
    for line in ("mirror and mark", "no mirror", "motor babbling", "yoked site"):
        assert line in printed
    assert f"report: {old / 'report.html'}" in printed and "mirrormark exam infant" in printed
    assert "With a mirror it took the mark off in" in printed
    assert (old / "report.html").stat().st_size > 100_000 and any(old.glob("film-*.mp4"))
    found = load(old / "results.json")
    assert set(found["conditions"]) == set(demos.CONDITIONS) and found["shown"]["run"] == "shipped-infant"
    assert found["settings"]["first_exam_seed"] == 0


def test_what_is_no_exam_is_not_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    candidate = candidates.untrained("smoke")
    save_snapshot(tmp_path / "weights", "infant", candidate.agent, describe(candidate.agent, candidate.setup))
    monkeypatch.setattr(weights, "SHIPPED", tmp_path / "weights")
    (tmp_path / "exam").mkdir()
    (tmp_path / "exam" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="empty folder"):
        demos.demo(tmp_path, runs=1)
    assert (tmp_path / "exam" / "notes.txt").read_text() == "mine"


def test_without_an_agent_it_says_so_and_shows_the_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr(weights, "SHIPPED", tmp_path / "none")
    demos.demo(tmp_path / "demo", body="arm", control_steps=2)
    assert "No trained agent is shipped for the arm" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {"arm.mp4", "arm.png", "arm-portrait.png"}


def test_hints_name_the_program_as_it_can_be_called_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert demos.called() == ".venv/bin/python -m mirrormark"
    (folder / "mirrormark").touch(mode=0o755)
    assert demos.called() == ".venv/bin/mirrormark"
    monkeypatch.chdir(tmp_path.parent)
    assert demos.called() == f"{tmp_path.name}/.venv/bin/mirrormark"
    monkeypatch.setenv("PATH", str(folder))
    assert demos.called() == "mirrormark"
