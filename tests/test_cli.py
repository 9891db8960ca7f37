"""The command line as a newcomer meets it: the real command, in a process of its own."""

import importlib
import json
import subprocess
import sys
import time

import pytest

import mirrormark
from mirrormark.cli import COMMANDS


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mirrormark", *arguments], capture_output=True, text=True, check=False
    )


def test_help_lists_every_command_at_once():
    start = time.perf_counter()
    done = run("--help")
    assert done.returncode == 0 and time.perf_counter() - start < 10
    assert all(name in done.stdout for name in COMMANDS)
    assert "takes a short exam" in done.stdout, "what the demo does"


def test_version():
    assert run("--version").stdout.strip() == mirrormark.__version__


def test_an_unknown_command_lists_the_known_ones():
    done = run("fly")
    assert done.returncode == 2 and "'fly' is no command" in done.stderr and "exam" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name):
    done = run(*name.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert f"mirrormark {name}" in done.stdout


def test_commands_point_to_functions_of_today():
    for place, _ in COMMANDS.values():
        module, name = place.split(":")
        assert callable(getattr(importlib.import_module(module), name)), place


def test_the_arms_exam_is_one_sentence_while_no_arm_is_shipped(tmp_path):
    done = run("exam", "arm", "--out", str(tmp_path / "exam"))
    assert done.returncode == 2 and "no trained agent is shipped for the arm" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "exam").exists()


def test_a_mistake_is_one_sentence_without_traceback():
    done = run("demo", "--control-steps", "0")
    assert done.returncode == 2 and "control_steps is 0" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["demo", "--film"], ["exam", "--preset", "smoke"]])
def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, command):
    (tmp_path / "file").write_text("mine")
    done = run(*command, "--out", str(tmp_path / "file" / "x"))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "Not a directory" in done.stderr and "--out" in done.stderr and done.stderr.count("\n") == 1


def test_the_demo_makes_a_film_and_a_sheet(tmp_path):
    done = run("demo", "--film", "--out", str(tmp_path), "--control-steps", "2")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "infant.mp4").stat().st_size > 1000 and (tmp_path / "infant.png").stat().st_size > 1000
    assert str(tmp_path) in done.stdout.replace("\n", "")


def test_bench_chance_counts_episodes_and_writes_json(tmp_path):
    out = tmp_path / "chance.json"
    done = run("bench", "chance", "--episodes", "8", "--oracle-episodes", "4", "--out", str(out))
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())
    assert [row["agent"] for row in rows] == ["iid", "held", "goal", "bouts", "oracle"]
    assert all(row["low"] <= row["removed"] <= row["high"] for row in rows)
    assert rows[-1]["removed"] > 0.5


def test_bench_world_prints_rates(tmp_path):
    out = tmp_path / "world.json"
    done = run("bench", "world", "--n", "2", "--seconds", "0.2", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert all(row["control_steps_per_s"] > 0 for row in json.loads(out.read_text())["rows"])
