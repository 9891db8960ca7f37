"""The engines' own promises: limits, endings, and nothing that outlives its starter."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mirrormark.sweep import engine_ray
from mirrormark.sweep.engine_processes import Processes, fitting
from mirrormark.sweep.engine_ray import Ray, fit_on_nodes
from mirrormark.sweep.spec import Resources
from mirrormark.sweep.work import Work, environment


@pytest.mark.parametrize(
    ("resources", "cpus", "gpus", "fit"),
    [
        (Resources(), 8, 0, 8),
        (Resources(cpus=3), 8, 0, 2),
        (Resources(workers=2), 8, 0, 2),
        (Resources(gpus=1), 16, 4, 4),
        (Resources(gpus=0.5), 16, 4, 8),
        (Resources(gpus=0.4), 16, 1, 2),
        (Resources(gpus=2), 16, 5, 2),
        (Resources(cpus=4, gpus=1), 8, 4, 2),
    ],
)
def test_as_many_runs_as_fit(resources, cpus, gpus, fit):
    assert fitting(resources, cpus, gpus, "this machine has") == fit


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        (Resources(cpus=64), "resources.cpus is 64, but this machine has 8: ask for less"),
        (Resources(gpus=1), "resources.gpus is 1, but this machine has 0: ask for less"),
        (Resources(workers=9), "resources.workers is 9, but only 8 runs of 1 cpus and 0 gpus fit"),
    ],
)
def test_more_than_there_is_is_one_sentence(resources, sentence):
    with pytest.raises(ValueError) as mistake:
        fitting(resources, 8, 0, "this machine has")
    assert str(mistake.value).startswith(sentence)


def test_on_a_cluster_a_run_must_fit_on_one_machine():
    nodes = [{"CPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}, {}]
    assert fit_on_nodes(Resources(cpus=4), nodes) == 3
    assert fit_on_nodes(Resources(cpus=4, gpus=1), nodes) == 2
    with pytest.raises(ValueError, match="largest machine has 8"):
        fit_on_nodes(Resources(cpus=12), nodes)


def test_slots_have_their_own_gpus(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("mirrormark.sweep.engine_processes.gpus_here", lambda: 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)

    def seen(gpus: float) -> list[str]:
        engine = Processes(Resources(gpus=gpus))
        return [engine._devices(slot) for slot in range(engine.workers)]

    assert seen(1) == ["0", "1", "2", "3"]
    assert seen(2) == ["0,1", "2,3"]
    assert seen(0.5) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert set(seen(0)) == {""}  # a run that asked for none sees none
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3,GPU-7f,5")  # others are not ours to use
    assert seen(1) == ["2", "3", "GPU-7f", "5"] and seen(2) == ["2,3", "GPU-7f,5"]
    assert seen(0.5)[:4] == ["2", "2", "3", "3"] and set(seen(0)) == {""}


def test_without_ray_the_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setattr(engine_ray, "installed", lambda: False)
    with pytest.raises(ValueError, match=r'pip install "mirrormark\[sweep\]", or use --engine processes'):
        Ray(Resources())


def test_ray_too_says_what_there_is_not_before_it_starts():
    with pytest.raises(ValueError, match=r"resources\.cpus is 4096, but this machine has"):
        Ray(Resources(cpus=4096))
    assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()


def test_every_run_is_told_to_use_few_threads():
    assert environment(2)["OMP_NUM_THREADS"] == environment(2)["NUMBA_NUM_THREADS"] == "2"
    assert environment(1)["OMP_WAIT_POLICY"] == "PASSIVE"


def test_processes_end_as_they_end(tmp_path):
    engine = Processes(Resources(workers=1))
    good = Work("a", "train", ("--version",), tmp_path / "logs" / "a.log")
    bad = Work("b", "train", ("fly",), tmp_path / "logs" / "b.log")
    engine.submit(good)
    engine.submit(bad)
    ended = {}
    deadline = time.monotonic() + 60
    while len(ended) < 2 and time.monotonic() < deadline:
        ended |= {one.work.job: one for one in engine.wait(1.0)}
    engine.close()
    assert ended["a"].how == "exit 0" and ended["b"].how == "exit 2" and ended["a"].seconds > 0
    assert "'fly' is no command" in bad.log.read_text() and bad.log.read_text().startswith("$ mirrormark fly")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the driver waits instead")
def test_a_command_dies_with_its_starter(tmp_path):
    leash = Path(engine_ray.__file__).with_name("leash.py")
    starter = f"""
        import os, subprocess, sys, time
        held = [sys.executable, "-c", "import time; time.sleep(60)"]
        print(subprocess.Popen([sys.executable, "{leash}", str(os.getpid()), *held]).pid, flush=True)
        time.sleep(60)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(starter)], stdout=subprocess.PIPE)
    assert process.stdout
    held = int(process.stdout.readline())
    stat = Path(f"/proc/{held}/stat")
    time.sleep(0.5)
    assert stat.exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 10
    while (
        stat.exists()
        and stat.read_text().rpartition(")")[2].split()[0] != "Z"
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert time.monotonic() < deadline


def test_the_bench_times_bare_commands_and_the_sweep_with_the_same_clock(tmp_path, monkeypatch, capsys):
    """Commands that take a known time: what is left over is the sweep's own."""
    from mirrormark.sweep import bench, journal
    from mirrormark.sweep.journal import Entry
    from mirrormark.sweep.plan import Folder, plan
    from mirrormark.sweep.spec import read

    def call(words):
        if words[0] != "sweep":
            return 10.0
        folder, spec = Folder(Path(words[3])), read(Path(words[1]))
        journal.claim(folder, spec, plan(spec))
        for job in plan(spec):
            journal.write(folder, job.name, Entry("finished", seconds={"train": 12.0, "exam": 8.0}))
        return 44.0 / spec.resources.workers

    monkeypatch.setattr(bench, "_call", call)
    out = tmp_path / "bench.json"
    bench.bench_sweep(engines=("processes",), out=out)
    said = capsys.readouterr().out
    assert "2 runs as bare commands: 40.0 s" in said
    assert "1 at a time: 44.0 s, 164 runs an hour; 4.0 s (10%) beyond its commands" in said
    assert "2 at a time: 22.0 s, 327 runs an hour" in said
    assert [row["commands_s"] for row in json.loads(out.read_text())["rows"]] == [40.0, 40.0]
