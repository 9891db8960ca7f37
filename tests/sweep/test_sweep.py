"""The real command with real Ray: from a spec to a report, through kills of workers and of the driver."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from small_sweeps import QUICK, described, write_toml

from mirrormark.life import checkpoint
from mirrormark.life.run import Run, list_runs, read_lines
from mirrormark.sweep import journal
from mirrormark.sweep.commands import sweep
from mirrormark.sweep.engine_ray import installed
from mirrormark.sweep.plan import Folder
from mirrormark.sweep.work import environment

MIRRORMARK = [sys.executable, "-m", "mirrormark"]
ENVIRONMENT = os.environ | environment(1)
LONG = QUICK | {"life.schedule.episodes": 40}
ENGINES = [pytest.param("ray", marks=pytest.mark.skipif(not installed(), reason="no Ray here")), "processes"]


def command(tmp_path: Path, engine: str, **more: Any) -> list[str]:
    path = write_toml(tmp_path / "spec.toml", described(**more))
    return [*MIRRORMARK, "sweep", str(path), "--out", str(tmp_path / "out"), "--engine", engine]


def finish(words: list[str]) -> str:
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def started(words: list[str], log: Path) -> Iterator[subprocess.Popen]:
    with open(log, "a") as out:
        process = subprocess.Popen(words, env=ENVIRONMENT, stdout=out, stderr=out)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def until(true: Callable[[], Any], what: str, limit_s: float = 240) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, f"waited {limit_s} s for {what}"
        time.sleep(0.02)


def laps(run: Path) -> int:
    return len(read_lines(run / "metrics.jsonl"))


def what_it_lived(run: Path) -> tuple[Any, ...]:
    """All that a run came to: checksums of its last checkpoint, and its records without the clock."""
    newest = checkpoint.names(run / "checkpoints")[-1]
    parts = sorted((run / "checkpoints" / newest).glob("*.safetensors"))
    assert parts
    rows = read_lines(run / "metrics.jsonl") + read_lines(run / "exams.jsonl")
    clocks = ("seconds", "steps_per_s", "gather_seconds", "learn_seconds")
    timeless = [{k: v for k, v in row.items() if k not in clocks} for row in rows]
    return newest, [part.read_bytes() for part in parts], timeless


def undisturbed(folder: Folder, name: str, place: Path) -> tuple[Any, ...]:
    """The same train command by itself."""
    job = next(job for job in journal.jobs_of(folder) if job.name == name)
    finish([*MIRRORMARK, "train", *job.train, "--out", str(place)])
    return what_it_lived(place)


@pytest.mark.skipif(not installed(), reason="no Ray here")
def test_two_seeds_and_two_settings_from_spec_to_report_with_ray(tmp_path, capsys):
    words = command(
        tmp_path, "ray", overrides=QUICK | {"life.schedule.episodes": 4}, exam={"runs": 2, "only": ["mirror"]}
    )
    said = finish(words)
    out = Folder(tmp_path / "out")
    assert said.count(": trained") == said.count(": examined") == 4 and "4 runs with ray" in said
    assert [run["state"] for run in list_runs(out.path)] == ["finished"] * 4
    table = pd.read_parquet(out.path / "runs.parquet")
    exams = table[(table["kind"] == "exam") & (table["condition"] == "mirror")]
    assert exams.groupby(["setting", "training_seed"]).size().tolist() == [2, 2, 2, 2]
    results = json.loads((out.path / "results.json").read_text())
    assert len(results["groups"]) == 2 and len(results["comparisons"]) == 1 and not results["failed"]
    assert "4 of 4 runs examined" in (out.path / "report.html").read_text()

    before = {path: path.stat().st_mtime_ns for path in (out.path / "runs").rglob("*.safetensors")}
    logs = {path: path.stat().st_size for path in (out.path / "logs").iterdir()}
    assert len(before) >= 4 and len(logs) == 4
    (out.path / "report.html").unlink()
    sweep(
        tmp_path / "spec.toml", out=out.path
    )  # a second time: nothing is repeated, the report is written again
    assert "trained" not in capsys.readouterr().out and (out.path / "report.html").exists()
    assert before == {path: path.stat().st_mtime_ns for path in (out.path / "runs").rglob("*.safetensors")}
    assert logs == {path: path.stat().st_size for path in (out.path / "logs").iterdir()}


def test_a_mistake_is_one_sentence_without_traceback(tmp_path):
    words = command(tmp_path, "processes", resources={"cpus": 4096})
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.startswith("mirrormark sweep: resources.cpus is 4096, but this machine has")
    assert not (tmp_path / "out").exists()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("engine", "victim"), [("ray", "command"), ("ray", "worker"), ("processes", "command")]
)
def test_a_killed_worker_goes_on_from_its_checkpoint_to_the_same_end(engine, victim, tmp_path):
    words = command(tmp_path, engine, seeds=1, grid={}, overrides=LONG)
    out, name = Folder(tmp_path / "out"), "base-infant-seed0"
    run = out.run(name)
    with started(words, tmp_path / "said.txt") as driver:
        for turn in range(2):
            until(lambda: laps(run) >= 3 + 3 * turn, "laps")  # noqa: B023
            pid = Run(run).status()["pid"]
            os.kill(pid if victim == "command" else parent_of(pid), signal.SIGKILL)
            until(lambda: Run(run).status()["state"] == "killed", "the kill")
        assert driver.wait(400) == 0, (tmp_path / "said.txt").read_text()
    entry = journal.read(out, name)
    assert entry.state == "finished" and entry.failures == 2
    assert ("its worker died" if victim == "worker" else "killed by signal 9") in entry.reason
    assert what_it_lived(run) == undisturbed(out, name, tmp_path / "alone")
    assert out.log(name).read_text().count("$ mirrormark train") == 3


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_driver_leaves_nothing_behind_and_the_next_goes_on(engine, tmp_path):
    words = command(tmp_path, engine, grid={}, overrides=LONG, resources={"workers": 1})
    out = Folder(tmp_path / "out")
    first, second = (out.run(f"base-infant-seed{seed}") for seed in (0, 1))
    with started(words, tmp_path / "said.txt") as driver:
        until(lambda: laps(first) >= 3, "laps")
        driver.kill()
    until(lambda: Run(first).status()["state"] == "killed", "the end of its command", 20)
    assert laps(second) == 0  # one at a time
    with started(words, tmp_path / "said.txt") as driver:
        until(lambda: laps(second) >= 3, "laps of the next run")
        driver.kill()
    lived, log = what_it_lived(first), out.log(first.name).read_text()
    finish(words)
    assert what_it_lived(first) == lived == undisturbed(out, first.name, tmp_path / "alone")
    assert out.log(first.name).read_text().count("train --preset") == log.count("train --preset") == 2
    assert out.log(second.name).read_text().count("--resume") == 1
    assert all(journal.read(out, run.name).state == "finished" for run in (first, second))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_lets_every_run_save(engine, tmp_path):
    words = command(tmp_path, engine, seeds=1, grid={}, overrides=LONG)
    run = Folder(tmp_path / "out").run("base-infant-seed0")
    with started(words, tmp_path / "said.txt") as driver:
        until(lambda: laps(run) >= 2, "laps")
        driver.send_signal(signal.SIGINT)
        assert driver.wait(150) == 130
    assert Run(run).status()["state"] == "interrupted"
    _, tree, _ = checkpoint.load_newest(run / "checkpoints")
    assert tree["next_lap"] == laps(run)
    said = (tmp_path / "said.txt").read_text()
    assert "the same command goes on from there" in said and "Traceback" not in said
    finish(words)
    assert Run(run).status()["state"] == "finished"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not installed(), reason="no Ray here")
def test_a_run_that_cannot_succeed_is_failed_with_its_log_and_the_others_finish(tmp_path):
    """A window longer than the dynamics bears is only found out by the run itself."""
    grid = {"life.learner.world_frames": [16, 200]}
    words = command(tmp_path, "ray", seeds=1, grid=grid, resources={"tries": 2})
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 2 and "1 of 2 runs failed" in done.stderr and "Traceback" not in done.stderr
    out = Folder(tmp_path / "out")
    good, bad = (journal.read(out, f"world_frames-{frames}-infant-seed0") for frames in (16, 200))
    assert good.state == "finished" and bad.state == "failed" and bad.failures == 2
    assert "200" in bad.reason and "200" in out.log("world_frames-200-infant-seed0").read_text()
    assert "1 of 2 runs examined, 1 failed" in (out.path / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_mind_without_cost_is_examined_beside_its_twin(tmp_path):
    words = command(tmp_path, "processes", seeds=1, grid={"cost": ["self_prior", "none"]}, overrides=QUICK)
    finish(words)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [group["setting"] for group in results["groups"]] == ["cost-self_prior", "cost-none"]
    assert "without the self-prior's cost" in results["groups"][1]["label"]
    assert results["groups"][1]["n"] == 2 and len(results["comparisons"]) == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_printed_commands_fill_the_folder_and_the_sweep_only_collects(tmp_path):
    words = command(tmp_path, "processes", seeds=1, grid={})
    (line,) = finish([*words, "--commands"]).splitlines()
    variables = ENVIRONMENT | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", line], env=variables, check=True, timeout=200, capture_output=True)
    said = finish(words)
    assert "trained" not in said and "Report:" in said
    assert "1 of 1 runs examined" in (tmp_path / "out" / "report.html").read_text()
