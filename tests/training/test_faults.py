"""What a run must survive, or end with one sentence: kills, signals, a full disk, NaN, broken physics."""

import errno
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny_commands import COMMAND, ENVIRONMENT, bytes_of, stopped_at, words

from mirrormark.train_command import train
from mirrormark.training import checkpoint
from mirrormark.training.recorder import Recorder
from mirrormark.training.run_folder import list_runs, read_lines
from mirrormark.training.weights import load_weights


@pytest.fixture(autouse=True)
def _as_it_was():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def killed_and_resumed(tmp_path: Path, times: int) -> None:
    """SIGKILL at random moments; each time a valid checkpoint is there and the run goes on from it."""
    out = tmp_path / "run"
    asked = [*COMMAND, *words("smoke"), "--training.schedule.episodes=400", "--out", str(out)]
    moments = random.Random(0)
    for turn in range(times):
        process = subprocess.Popen(asked + ["--resume"] * bool(turn), env=ENVIRONMENT, stdout=subprocess.PIPE)
        deadline = time.monotonic() + 90
        iterations = len(read_lines(out / "metrics.jsonl"))
        while len(read_lines(out / "metrics.jsonl")) <= iterations and time.monotonic() < deadline:
            time.sleep(0.02)
            assert process.poll() is None, process.stdout.read().decode() if process.stdout else ""
        time.sleep(moments.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert list_runs(tmp_path)[0]["state"] == "killed"
        _, tree, complaints = checkpoint.load_newest(out / "checkpoints")
        assert complaints == [] and tree["next_iteration"] >= turn
    on_policy = [row["iteration"] for row in read_lines(out / "metrics.jsonl")]
    assert (
        on_policy == list(range(len(on_policy))) and len(on_policy) >= times
    )  # every iteration once, none missing


def test_three_kills_lose_nothing(tmp_path):
    killed_and_resumed(tmp_path, 3)


@pytest.mark.slow
def test_twenty_kills_lose_nothing(tmp_path):
    killed_and_resumed(tmp_path, 20)


DOOMED = """
import os, signal, sys
from mirrormark import cli
from mirrormark.training import checkpoint, recorder, run_folder, trainer

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def rewrites(old, new):
    return die() if str(new).endswith("metrics.jsonl") else real(old, new)

real, moment = os.replace, sys.argv.pop(1)
if moment == "status of a new run":
    run_folder.RunFolder.note = die
elif moment == "first checkpoint":
    recorder.Recorder.save = die
elif moment == "second iteration":
    recorder.Recorder.evaluate = die
elif moment == "loading":
    trainer.Trainer.load_state = die
elif moment == "rewriting metrics":
    os.replace = rewrites
cli.main()
"""


@pytest.mark.slow
def test_kills_in_start_up_and_in_a_resume_do_not_change_the_run(tmp_path):
    """Weights, optimisers, memory and random numbers end bitwise as in the run that nobody touched."""
    asked = words("symbolic")
    straight, out = tmp_path / "straight", tmp_path / "run"
    subprocess.run([*COMMAND, *asked, "--out", str(straight)], env=ENVIRONMENT, check=True)
    moments = ["status of a new run", "first checkpoint", "second iteration", "loading", "rewriting metrics"]
    for turn, moment in enumerate(moments):
        resumed = [*asked, "--out", str(out), *["--resume"] * bool(turn)]
        killed = subprocess.run(
            [sys.executable, "-c", DOOMED, moment, "train", *resumed], env=ENVIRONMENT, capture_output=True
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
        assert list_runs(out)[0]["state"] == "killed"
        if turn >= 2:
            assert [row["iteration"] for row in read_lines(out / "metrics.jsonl")] == [0, 1]
    subprocess.run([*COMMAND, *asked, "--out", str(out), "--resume"], env=ENVIRONMENT, check=True)
    whole, pieces = bytes_of(straight), bytes_of(out)
    assert [name for name in whole if whole[name] != pieces.get(name)] == [] and len(whole) == len(pieces)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_finishes_the_iteration_and_saves_run_and_agent(tmp_path, number):
    out = tmp_path / "run"
    asked = [*COMMAND, *words("symbolic"), "--training.schedule.episodes=4000"]
    asked += ["--training.schedule.checkpoint-every-iterations=1000", "--out", str(out)]
    process = subprocess.Popen(
        asked, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 60
    while len(read_lines(out / "metrics.jsonl")) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "Interrupted" in said and "Traceback" not in said
    assert list_runs(tmp_path)[0]["state"] == "interrupted"
    _, tree, _ = checkpoint.load_newest(out / "checkpoints")
    rows = read_lines(out / "metrics.jsonl")
    assert tree["next_iteration"] == len(rows)
    kept = load_weights(out / "snapshots" / f"episodes-{rows[-1]['episodes']:08d}")
    assert kept.metadata["iteration"] == rows[-1]["iteration"]
    saved = tree["learner"]["agent"]["policy.network.6.bias"]
    assert torch.equal(kept.agent.policy.network[-1].bias, saved.bfloat16().float())


def test_a_full_disk_stops_the_run_with_a_sentence(tmp_path, monkeypatch):
    asked = [*words("symbolic"), "--out", str(tmp_path / "run")]
    stopped_at(0, asked, monkeypatch)
    real = checkpoint.write_bytes

    def full(path, data):
        if path.name.startswith("part-") and "checkpoints" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_bytes", full)
        with pytest.raises(ValueError, match=r"No space left.*last good one is iteration-00000001"):
            train([*asked, "--resume"])
    assert list_runs(tmp_path)[0]["state"] == "failed"
    train([*asked, "--resume"])
    assert list_runs(tmp_path)[0]["state"] == "finished"


def test_what_is_missing_is_not_called_a_full_disk(tmp_path, monkeypatch):
    def cannot(*_):
        raise OSError("No plug-in writes PNG")

    asked = [*words("symbolic"), "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "__call__", cannot)
        with pytest.raises(ValueError, match=r"No plug-in writes PNG\. Mend that, then go on with --resume"):
            train(asked)
    assert list_runs(tmp_path)[0]["state"] == "failed"
    train([*asked, "--resume"])
    assert list_runs(tmp_path)[0]["state"] == "finished"


FULL = """
import resource, sys
from mirrormark import cli
from mirrormark.training import recorder

real = recorder.Recorder.__call__

def fill(self, iteration, *rest):
    if iteration.index == 1:  # from here on no file can grow, not even status.json
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    real(self, iteration, *rest)

recorder.Recorder.__call__ = fill
cli.main()
"""


def test_where_nothing_at_all_can_be_written_one_sentence_is_said(tmp_path):
    asked = [*words("symbolic"), "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", FULL, "train", *asked], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "File too large. Make room, then go on with --resume." in done.stderr
    assert list_runs(tmp_path)[0]["state"] == "killed"  # the last word on the disk is "running"
    train([*asked, "--resume"])
    assert list_runs(tmp_path)[0]["state"] == "finished"


BROKEN = """
import sys
from mirrormark import cli
from mirrormark.training import commands, nan, trainer

def not_finite(*_):
    raise nan.NotFinite(3, 20, None)

def unstable(*_):
    raise trainer.UnstableEnvs("Iteration 0: the physics broke in 4 of 4 environments.")

commands.run_iterations = {"nan": not_finite, "physics": unstable}[sys.argv.pop(1)]
cli.main()
"""


@pytest.mark.parametrize(
    ("fault", "sentence"), [("nan", "20 train steps in a row were not finite"), ("physics", "physics broke")]
)
def test_a_run_that_cannot_go_on_ends_with_one_sentence(fault, sentence, tmp_path):
    asked = [*words("symbolic"), "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, fault, "train", *asked],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert list_runs(tmp_path)[0]["state"] == "failed"


def test_two_processes_cannot_share_a_folder(tmp_path):
    """While one resumes, another --resume is refused, from start-up on."""
    out = tmp_path / "run"
    asked = [*words("symbolic"), "--training.schedule.episodes=4000", "--out", str(out)]
    first = subprocess.Popen([*COMMAND, *asked], env=ENVIRONMENT, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (out / "status.json").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    try:
        with pytest.raises(ValueError, match=f"is being trained by process {first.pid}"):
            train([*asked, "--resume"])
    finally:
        first.kill()
        first.wait()


def test_good_lines_after_a_bad_one_survive_a_resume_which_tells_of_it(tmp_path, monkeypatch, capsys):
    asked = [*words("symbolic"), "--out", str(tmp_path / "run")]
    stopped_at(1, asked, monkeypatch)
    file = tmp_path / "run" / "metrics.jsonl"
    file.write_bytes(b"\xff\xfe broken\n" + file.read_bytes() + b'{"iteration": 2, "lo')
    (tmp_path / "run" / "status.json").write_text("[]")
    train([*asked, "--resume"])
    assert [row["iteration"] for row in read_lines(file)] == [0, 1, 2]
    # Rich may break a long path anywhere.
    assert "metrics.jsonl:1damagedlineleftout." in "".join(capsys.readouterr().out.split())
