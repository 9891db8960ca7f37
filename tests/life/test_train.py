"""The real command: every preset for a few steps, resuming bit for bit, faults, and mistakes in the input."""

import errno
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny_lives import born, symbolic

from mirrormark.life import checkpoint
from mirrormark.life.records import Records
from mirrormark.life.run import list_runs, read_lines
from mirrormark.training import train
from mirrormark.world.senses import ABLATION

COMMAND = [str(Path(sys.executable).with_name("mirrormark")), "train"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "NUMBA_NUM_THREADS": "2"}
TINY = [
    "--life.schedule.episodes=12", "--life.schedule.episodes-per-lap=4", "--life.schedule.steps-per-lap=2",
    "--life.schedule.world-from-episode=0", "--life.schedule.self-prior-from-episode=0",
    "--life.schedule.policy-from-episode=4", "--life.schedule.exam-every-episodes=8",
    "--life.schedule.checkpoint-every-laps=1", "--life.learner.world-sequences=2",
    "--life.learner.world-frames=20", "--life.learner.self-prior-frames=4", "--life.learner.dreams=2",
    "--life.indicators.everyday-episodes=4", "--life.indicators.pairs=4",
    "--life.indicators.policy-episodes=4",
    "--life.memory.capacity-episodes=32", "--device=cpu", "--mind.dynamics.width=48",
    "--mind.dynamics.layers=1", "--mind.dynamics.ffn=32", "--mind.self-prior.width=48",
    "--mind.self-prior.layers=1", "--mind.self-prior.ffn=32",
]  # fmt: skip
FIRST = [
    "--life.schedule.codec-laps=1", "--life.schedule.codec-first-episodes=4",
    "--life.schedule.codec-steps-per-lap=2", "--life.learner.codec-frames=4", "--life.pool-episodes=8",
]  # fmt: skip
GATES = ("mark_recovery", "efe_gap_nats", "efe_gap_per_posture_range", "removal_rate", "distance_m")


@pytest.fixture(autouse=True)
def _as_it_was():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


@pytest.mark.parametrize("preset", ["smoke", "ideal", "laptop", "swift", "paper", "paper-code"])
def test_every_preset_lives_for_a_few_steps(preset, tmp_path, capsys):
    words = TINY + (FIRST if preset in ("smoke", "laptop", "swift") else [])
    # The same kinds of nets, narrower: these presets are sized for a GPU.
    if preset in ("swift", "paper", "paper-code"):
        words += ["--mind.codec.channels=4", "--mind.codec.posture-width=32", "--mind.codec.embedding=128"]
    train(["--preset", preset, "--out", str(tmp_path / "run"), *words])
    rows = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert {"dynamics", "G_everyday", "policy", "value_loss"} <= set(rows[-1])
    assert rows[-1]["refused_steps"] == 0
    exam = read_lines(tmp_path / "run" / "exams.jsonl")[-1]
    assert set(GATES) <= set(exam)
    assert (tmp_path / "run" / "snapshots" / exam["snapshot"] / "manifest.json").exists()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["preset"] == preset and list_runs(tmp_path)[0]["state"] == "finished"
    told = ABLATION in capsys.readouterr().out
    assert told == (exam["ablation"] == ABLATION) == (config["ablation"] == ABLATION) == (preset == "ideal")


def bytes_of(run: Path) -> dict:
    """Everything in the last checkpoint, flat, as bytes."""
    flat = {}

    def walk(name, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}.{key}", inner)
        elif isinstance(value, list):
            for i, inner in enumerate(value):
                walk(f"{name}.{i}", inner)
        elif isinstance(value, torch.Tensor):
            data = value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
            flat[name] = (value.dtype, tuple(value.shape), data)
        else:
            flat[name] = value

    name, tree, complaints = checkpoint.load_newest(run / "checkpoints")
    assert complaints == []
    walk(name, tree)
    return flat


class Stop(Exception):
    pass


def stopped_at(lap: int, words: list[str], monkeypatch) -> None:
    """Run the command until that lap's records are written, then drop dead."""
    real = Records.__call__

    def until(self, this, life, metrics):
        real(self, this, life, metrics)
        if this.index == lap:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(Records, "__call__", until)
        with pytest.raises(Stop):
            train(words)


@pytest.mark.parametrize(("preset", "lap"), [("smoke", 0), ("smoke", 2), ("ideal", 1), ("paper", 1)])
def test_resuming_is_bitwise(preset, lap, tmp_path, monkeypatch):
    words = ["--preset", preset, *TINY]
    if preset == "smoke":
        words += ["--life.schedule.codec-laps=2", "--life.schedule.codec-first-episodes=4", *FIRST[2:]]
        words += ["--life.schedule.codec-episodes-per-lap=4"]
    if preset == "paper":
        words += ["--mind.codec.channels=4", "--mind.codec.embedding=128"]
    train([*words, "--out", str(tmp_path / "straight")])
    half = [*words, "--out", str(tmp_path / "halves")]
    stopped_at(lap, half, monkeypatch)
    torch.manual_seed(99)  # whatever state the next process starts in
    train([*half, "--resume"])
    straight, halves = bytes_of(tmp_path / "straight"), bytes_of(tmp_path / "halves")
    assert [name for name in straight if straight[name] != halves.get(name)] == []
    assert len(straight) == len(halves) > 50

    def kept(folder: str) -> list[dict]:
        rows = read_lines(tmp_path / folder / "metrics.jsonl") + read_lines(tmp_path / folder / "exams.jsonl")
        return [{k: v for k, v in row.items() if k not in ("seconds", "steps_per_s")} for row in rows]

    assert kept("straight") == kept("halves")


def test_the_same_seed_lives_the_same_life_and_another_does_not(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        train(["--preset", "ideal", *TINY, "--seed", str(seed), "--out", str(tmp_path / name)])
    a, b, c = (bytes_of(tmp_path / name) for name in "abc")
    assert a == b and a != c


def killed_and_resumed(tmp_path: Path, times: int) -> None:
    """SIGKILL at random moments; each time a valid checkpoint is there and the run goes on from it."""
    out = tmp_path / "run"
    words = [*COMMAND, "--preset", "smoke", *TINY, *FIRST, "--life.schedule.episodes=400", "--out", str(out)]
    moments = random.Random(0)
    for turn in range(times):
        process = subprocess.Popen(words + ["--resume"] * bool(turn), env=ENVIRONMENT, stdout=subprocess.PIPE)
        deadline = time.monotonic() + 90
        laps = len(read_lines(out / "metrics.jsonl"))
        while len(read_lines(out / "metrics.jsonl")) <= laps and time.monotonic() < deadline:
            time.sleep(0.02)
            assert process.poll() is None, process.stdout.read().decode() if process.stdout else ""
        time.sleep(moments.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert list_runs(tmp_path)[0]["state"] == "killed"
        _, tree, complaints = checkpoint.load_newest(out / "checkpoints")
        assert complaints == [] and tree["next_lap"] >= turn
    lived = [row["lap"] for row in read_lines(out / "metrics.jsonl")]
    assert lived == list(range(len(lived))) and len(lived) >= times  # every lap once, none missing


def test_three_kills_lose_nothing(tmp_path):
    killed_and_resumed(tmp_path, 3)


@pytest.mark.slow
def test_twenty_kills_lose_nothing(tmp_path):
    killed_and_resumed(tmp_path, 20)


def test_ctrl_c_finishes_the_lap_saves_and_resumes(tmp_path):
    out = tmp_path / "run"
    words = [*COMMAND, "--preset", "ideal", *TINY, "--life.schedule.episodes=4000", "--out", str(out)]
    process = subprocess.Popen(
        words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 60
    while len(read_lines(out / "metrics.jsonl")) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "Interrupted" in said and "Traceback" not in said
    assert list_runs(tmp_path)[0]["state"] == "interrupted"
    _, tree, _ = checkpoint.load_newest(out / "checkpoints")
    assert tree["next_lap"] == len(read_lines(out / "metrics.jsonl"))


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, capsys, monkeypatch):
    words = ["--preset", "ideal", *TINY, "--out", str(tmp_path / "run")]
    stopped_at(1, words, monkeypatch)
    newest = tmp_path / "run" / "checkpoints" / checkpoint.names(tmp_path / "run" / "checkpoints")[-1]
    part = newest / "part-00000.safetensors"
    part.write_bytes(part.read_bytes()[:-100])
    train([*words, "--resume"])
    said = " ".join(capsys.readouterr().out.split())
    assert "is damaged" in said and "Going back to lap-00000001" in said
    assert list_runs(tmp_path)[0]["state"] == "finished"


def test_another_torch_version_is_said(tmp_path, capsys, monkeypatch):
    words = ["--preset", "ideal", *TINY, "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.9.0")
        stopped_at(0, words, monkeypatch)
    train([*words, "--resume"])
    assert "saved by torch 2.9.0" in " ".join(capsys.readouterr().out.split())


def test_a_changed_configuration_is_refused(tmp_path, monkeypatch):
    words = ["--preset", "ideal", *TINY, "--out", str(tmp_path / "run")]
    stopped_at(0, words, monkeypatch)
    with pytest.raises(ValueError, match=r"life\.learner\.dreams was 2, now 3"):
        train([*words, "--resume", "--life.learner.dreams=3"])
    with pytest.raises(ValueError, match="already holds a run"):
        train(words)


def test_a_full_disk_stops_the_run_with_a_sentence(tmp_path, monkeypatch):
    words = ["--preset", "ideal", *TINY, "--out", str(tmp_path / "run")]
    stopped_at(0, words, monkeypatch)
    real = checkpoint.write_bytes

    def full(path, data):
        if path.name.startswith("part-") and "checkpoints" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_bytes", full)
        with pytest.raises(ValueError, match=r"No space left.*last good one is lap-00000001"):
            train([*words, "--resume"])
    assert list_runs(tmp_path)[0]["state"] == "failed"
    train([*words, "--resume"])
    assert list_runs(tmp_path)[0]["state"] == "finished"


def test_memory_does_not_grow_over_laps():
    """Tensors alive after many laps are those alive after a few."""
    life = born(symbolic())

    def alive() -> int:
        gc.collect()
        return sum(1 for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))

    counts = []
    for index in range(20):
        life.live(life.schedule.lap(1)._replace(index=index))
        counts.append(alive() if index in (4, 19) else 0)
    assert counts[19] <= counts[4]


@pytest.mark.slow
def test_memory_does_not_grow_over_a_thousand_laps():
    """Resident memory, with the same few episodes remembered again and again."""
    life = born(symbolic())
    lap = life.schedule.lap(1)._replace(steps=1)
    episodes = life.gather(lap)

    def resident_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    for index in range(1_000):
        life.memory.extend(episodes)
        life.learner.learn(life.memory, lap)
        if index == 100:
            early = resident_mb()
    assert resident_mb() < early + 20


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--preset", "huge"], "choose smoke, ideal, laptop, swift, paper, paper-code"),
        (["--preset", "smoke", "--life.schedule.episodes=0"], r"schedule\.episodes"),
        (["--preset", "smoke", "--seed=-1"], "--seed"),
        (["--preset", "smoke", "--body", "octopus"], "octopus"),
        (["--preset", "smoke", "--life.learner.diet-marked-share=2"], "diet_marked_share"),
        (["--preset", "smoke", "--life.learner.world-frames=200"], "world_frames is 200"),
    ],
)
def test_a_mistake_is_one_sentence_before_any_work(words, sentence, tmp_path):
    done = subprocess.run(
        [*COMMAND, *words, "--out", str(tmp_path / "run")], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    assert re.search(sentence, " ".join((done.stderr + done.stdout).replace("│", " ").split()))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_where_there_is_none_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="finds no CUDA GPU"):
        train(["--preset", "smoke", "--device", "cuda", "--out", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()
