"""Checkpoints: round trip, damage, a full disk, a kill in mid-save."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from mirrormark.training import checkpoint
from mirrormark.training.checkpoint import CheckpointError


def tree() -> dict:
    generator = torch.Generator().manual_seed(0)
    return {
        "weights": {
            "w": torch.randn(64, 33, generator=generator),
            "half": torch.ones(5, dtype=torch.bfloat16),
        },
        "optimiser": [{"step": torch.tensor(3.0), "exp_avg": torch.randn(64, 33, generator=generator)}],
        "replay": torch.randint(0, 255, (40, 7, 11), dtype=torch.uint8, generator=generator),
        "empty": torch.zeros(0, 4),
        "iteration": 7,
        "ratio": 0.1,
        "name": "x",
        "none": None,
    }


def assert_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_same(x, y)
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b)
    else:
        assert a == b


@pytest.mark.parametrize("part_bytes", [300, 1000, 10_000_000])
def test_round_trip_whatever_the_part_size(tmp_path, part_bytes):
    path = checkpoint.save(tmp_path, "iteration-1", tree(), part_bytes=part_bytes)
    assert_same(checkpoint.load(path), tree())
    sizes = [p.stat().st_size for p in path.glob("*.safetensors")]
    assert len(sizes) > 1 or part_bytes == 10_000_000


def test_default_parts_are_small_enough_to_move(tmp_path):
    path = checkpoint.save(tmp_path, "iteration-1", {"replay": torch.zeros(5000, 10_000, dtype=torch.uint8)})
    sizes = [p.stat().st_size for p in path.glob("*.safetensors")]
    assert max(sizes) <= 16 * 2**20 and sum(sizes) > 48_000_000


def test_the_last_two_are_kept(tmp_path):
    for iteration in range(4):
        checkpoint.save(tmp_path, f"iteration-{iteration:08d}", {"iteration": iteration})
    assert checkpoint.names(tmp_path) == ["iteration-00000002", "iteration-00000003"]


def test_nothing_is_pickled(tmp_path):
    with pytest.raises(TypeError, match=r"root\.bad"):
        checkpoint.save(tmp_path, "iteration-1", {"bad": object()})


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "truncated":
        data = data[: len(data) // 2]
    elif how == "flipped bit":
        data[len(data) * 2 // 3] ^= 4
    path.write_bytes(bytes(data))
    if how == "missing":
        path.unlink()


@pytest.mark.parametrize("how", ["truncated", "flipped bit", "missing"])
@pytest.mark.parametrize("file", ["part-00001.safetensors", "manifest.json"])
def test_damage_is_found_and_the_one_before_is_used(tmp_path, how, file):
    checkpoint.save(tmp_path, "iteration-1", {"iteration": 1}, part_bytes=300)
    newest = checkpoint.save(tmp_path, "iteration-2", tree(), part_bytes=300)
    damage(newest / file, how)
    with pytest.raises(CheckpointError, match="iteration-2"):
        checkpoint.load(newest)
    name, found, complaints = checkpoint.load_newest(tmp_path)
    assert (name, found) == ("iteration-1", {"iteration": 1}) and len(complaints) == 1


def test_no_checkpoint_at_all_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="none has been written yet"):
        checkpoint.load_newest(tmp_path / "nowhere")


def test_a_pickle_is_refused(tmp_path):
    path = checkpoint.save(tmp_path, "iteration-1", {"w": torch.ones(3)})
    torch.save({"w": torch.ones(3)}, path / "part-00000.safetensors")
    with pytest.raises(CheckpointError):
        checkpoint.load(path)


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, "iteration-1", {"iteration": 1})
    real = checkpoint.write_bytes

    def full(path, data):
        if path.name == "part-00001.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, data)

    monkeypatch.setattr(checkpoint, "write_bytes", full)
    with pytest.raises(CheckpointError, match=r"No space left.*last good one is iteration-1"):
        checkpoint.save(tmp_path, "iteration-2", tree(), part_bytes=300)
    assert [p.name for p in tmp_path.iterdir()] == ["iteration-1"]
    assert checkpoint.load_newest(tmp_path)[1] == {"iteration": 1}


SAVER = """
import sys, torch
from pathlib import Path
from mirrormark.training import checkpoint
iteration = 0
while True:
    iteration += 1
    tree = {"iteration": iteration, "w": torch.full((400, 300), iteration)}
    checkpoint.save(Path(sys.argv[1]), f"iteration-{iteration:08d}", tree, part_bytes=20_000)
    print(iteration, flush=True)
"""


def test_a_kill_in_mid_save_leaves_a_valid_checkpoint(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    saved = [int(process.stdout.readline()) for _ in range(3)][-1]
    deadline = time.monotonic() + 20
    while not list(tmp_path.glob(".writing-*/part-*")) and time.monotonic() < deadline:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, found, complaints = checkpoint.load_newest(tmp_path)
    assert found["iteration"] >= saved and complaints == [] and (found["w"] == found["iteration"]).all()
    checkpoint.save(tmp_path, f"iteration-{found['iteration'] + 1:08d}", {"iteration": -1})
    assert not list(tmp_path.glob(".writing-*"))
