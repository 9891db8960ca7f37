"""Helpers beside the exam. They are forked before threads start: each exam runs in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mirrormark.exam import candidates, commands
from mirrormark.exam.run import Settings

CONDITIONS = ("mirror", "absent", "untrained", "iid", "oracle")
SCRIPT = f"""
import os, signal, sys, torch
from pathlib import Path
from mirrormark.exam import commands, workers
from mirrormark.exam.run import Settings
from mirrormark.report import report

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
workers.CORES_EACH = 1
torch.set_num_threads(1)
out, runs, first = Path(sys.argv[1]), int(sys.argv[2]), os.getpid()

def load():
    if "broken" in sys.argv and os.getpid() != first:
        raise RuntimeError("no agent here")
    return commands.load_examinees((), (), "smoke", None, "cpu")

with workers.worker_pool(load, "cuda") as helpers:
    assert helpers is not None
    print("begun", flush=True)
    commands.examine(load(), out, Settings(runs, 0, 4, conditions={CONDITIONS}), None, helpers)
    report.write(out, helpers)
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="helpers need Linux's fork")


def begin(out: Path, runs: int, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(out), str(runs), *more]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, start_new_session=True, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("alone") / "exam"
    commands.examine([candidates.untrained("smoke")], out, Settings(3, 0, 4, conditions=CONDITIONS))
    return out


def test_with_helpers_the_exam_finds_the_same_and_none_is_left(alone, tmp_path):
    process = begin(tmp_path / "exam", 3)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0 and "helper failed" not in errors, errors
    assert (tmp_path / "exam" / "results.json").read_bytes() == (alone / "results.json").read_bytes()
    assert (tmp_path / "exam" / "report.html").exists() and any((tmp_path / "exam").glob("film-*.mp4"))
    assert _gone(process.pid)


def test_what_helpers_cannot_do_is_done_without_them_and_said(alone, tmp_path):
    process = begin(tmp_path / "exam", 3, "broken")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "a helper failed (RuntimeError('no agent here')" in errors
    assert (tmp_path / "exam" / "results.json").read_bytes() == (alone / "results.json").read_bytes()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_helpers_end_with_the_exam(tmp_path, how):
    process = begin(tmp_path / "exam", 300)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    time.sleep(1)
    if how == signal.SIGINT:
        os.killpg(process.pid, how)  # as Ctrl-C does
    else:
        process.send_signal(how)
    process.wait(timeout=30)
    assert process.returncode != 0 and _gone(process.pid)


def _gone(session: int) -> bool:
    """Whether every process of a session ends within some seconds."""
    for _ in range(100):
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.2)
    return False
