"""The run folder."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mirrormark.config import (
    AgentConfig,
    GridTokenizerConfig,
    PaperAgentConfig,
    SwiftAgentConfig,
    SymbolicTokenizerConfig,
)
from mirrormark.presets import PRESETS
from mirrormark.training.run_folder import (
    RunError,
    RunFolder,
    from_json,
    list_runs,
    read_lines,
    to_json,
    versions,
)


@dataclass(frozen=True)
class Inner:
    size: int = 3
    ranges: tuple[float, ...] = (0.1, 0.2)


@dataclass(frozen=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None
    pair: tuple[int, str] = (1, "a")
    name: str | None = None


@pytest.mark.parametrize("config", [Outer(), Outer(Inner(5, ()), Inner(2), (2, "b"), "n")])
def test_configurations_survive_json(config):
    assert from_json(Outer, json.loads(json.dumps(to_json(config)))) == config


def test_unknown_fields_are_refused():
    with pytest.raises(RunError, match=r"config\.inner.*colour"):
        from_json(Outer, {"inner": {"colour": 1}})


CONFIG = {"preset": "smoke", "body": "infant", "seed": 1}
CONFIG |= {part: to_json(getattr(PRESETS["smoke"], part)) for part in ("env", "agent", "training")}
OTHER = CONFIG | {"training": CONFIG["training"] | {"replay_episodes": 5}}


@pytest.mark.parametrize(
    "config",
    [PaperAgentConfig(), SwiftAgentConfig(), SwiftAgentConfig(tokenizer=SymbolicTokenizerConfig())],
    ids=["paper", "swift", "symbolic"],
)
def test_which_of_several_configurations_it_is_survives_json(config):
    found = from_json(AgentConfig, json.loads(json.dumps(to_json(config))))
    assert found == config and type(found.tokenizer) is type(config.tokenizer)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"kind": "dreamer"}, r"agent\.kind is 'dreamer': this version knows paper, swift\."),
        ({"kind": "paper", "codec": {}}, r"agent has fields this version does not know: codec\."),
        ({"kind": "swift", "tokenizer": {"cells": 3}}, r"agent\.tokenizer has fields .*: cells\."),
        ({"kind": "swift", "world_model": 7}, r"agent\.world_model is 7: it must be an object"),
    ],
)
def test_what_fits_no_configuration_is_one_sentence(value, sentence):
    with pytest.raises(RunError, match=sentence):
        from_json(AgentConfig, value, "agent")


def test_without_a_kind_the_smallest_that_knows_all_fields_is_meant():
    assert (
        type(from_json(GridTokenizerConfig | SymbolicTokenizerConfig, {"bins": 8})) is SymbolicTokenizerConfig
    )


@pytest.mark.parametrize(
    "change",
    [
        {"agent": None, "mind": {}},
        {"training": {"learner": {}}},
        {"agent": {"kind": "paper", "memory_trace": 0.97}},
        {"training": {"replay_episodes": 64}},  # a field is missing that this version would have written
    ],
)
def test_a_run_of_an_earlier_version_is_one_sentence(tmp_path, change):
    RunFolder.create(tmp_path / "a", CONFIG | change)
    with pytest.raises(
        RunError, match=r"a was written by an earlier version of mirrormark: start a new run\."
    ):
        RunFolder.reopen(tmp_path / "a", CONFIG)


GARBAGE = (b"\xff\xfe\x00\x80", b"null", b"[]", b"", b"{")


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_damaged_status_counts_as_killed_and_the_run_can_be_resumed(tmp_path, garbage):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    (run.path / "status.json").write_bytes(garbage)
    assert run.status()["state"] == "killed" and run.status()["iteration"] == 0
    RunFolder.reopen(tmp_path / "a", CONFIG)
    (run.path / "status.json").write_text('{"state": "running", "host": 3, "updated_s": "now"}')
    assert run.status()["state"] == "killed"


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_damaged_configuration_is_one_sentence_with_its_file(tmp_path, garbage):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    (run.path / "config.json").write_bytes(garbage)
    with pytest.raises(RunError, match=r"a/config\.json is damaged: put a copy back, or start a new run"):
        RunFolder.reopen(tmp_path / "a", CONFIG)


@pytest.mark.parametrize("garbage", [*GARBAGE, b'{"loss": 3}'])
@pytest.mark.parametrize("where", [0, 2, 4])
def test_a_bad_line_costs_no_other(tmp_path, garbage, where):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    good = [b'{"iteration": %d}' % i for i in range(4)]
    lines = [*good[:where], garbage, *good[where:]]
    (run.path / "metrics.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    complaints = run.drop_after(3)
    assert [row["iteration"] for row in read_lines(run.path / "metrics.jsonl")] == [0, 1, 2]
    torn = garbage == b"" or (where == 4 and garbage != b'{"loss": 3}')
    assert len(complaints) == (not torn)
    assert torn or "a/metrics.jsonl: 1 damaged line left out." in complaints[0]


def test_one_damaged_run_hides_no_other(tmp_path):
    for name in "abcd":
        RunFolder.create(tmp_path / name, CONFIG).append("evaluations.jsonl", {"iteration": 1})
    (tmp_path / "a" / "config.json").write_bytes(b"\xff\xfe")
    (tmp_path / "b" / "status.json").write_text("null")
    (tmp_path / "c" / "evaluations.jsonl").write_bytes(b"\xff\n[]\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")  # somebody else's
    rows = {Path(row["name"]).name: row for row in list_runs(tmp_path)}
    assert list(rows) == list("abcd")
    assert rows["a"]["state"] == "damaged" and "config.json is damaged" in rows["a"]["note"]
    assert rows["b"]["state"] == "killed" and rows["c"]["last_evaluation"] is None
    assert rows["d"]["last_evaluation"] == {"iteration": 1}


def test_a_folder_with_another_run_is_refused(tmp_path):
    RunFolder.create(tmp_path / "a", CONFIG)
    with pytest.raises(RunError, match=r"already holds a run.*--resume"):
        RunFolder.create(tmp_path / "a", CONFIG)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "precious").write_text("")
    with pytest.raises(RunError, match="not an empty folder"):
        RunFolder.create(tmp_path / "b", CONFIG)


def test_resume_wants_the_same_configuration(tmp_path):
    RunFolder.create(tmp_path / "a", CONFIG)
    assert RunFolder.reopen(tmp_path / "a", CONFIG).config() == CONFIG
    with pytest.raises(RunError, match=r"training\.replay_episodes was 64, now 5"):
        RunFolder.reopen(tmp_path / "a", OTHER)
    with pytest.raises(RunError, match=r"was started with preset smoke: give --preset smoke") as mistake:
        RunFolder.reopen(tmp_path / "a", OTHER | {"preset": "swift"})
    assert "replay_episodes" not in str(mistake.value)
    with pytest.raises(RunError, match="holds no run"):
        RunFolder.reopen(tmp_path / "nowhere", CONFIG)


def test_a_run_that_is_being_trained_cannot_be_resumed(tmp_path):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    status = run.status() | {"state": "running", "pid": other.pid}
    (run.path / "status.json").write_text(json.dumps(status))
    with pytest.raises(RunError, match=f"process {other.pid}"):
        RunFolder.reopen(tmp_path / "a", CONFIG)
    other.kill()
    assert other.wait() != 0
    assert run.status()["state"] == "killed"
    RunFolder.reopen(tmp_path / "a", CONFIG)


def test_a_process_that_is_starting_is_not_doubled_either(tmp_path):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (run.path / "status.json").write_text(
            json.dumps(run.status() | {"state": "starting", "pid": other.pid})
        )
        with pytest.raises(RunError, match=f"process {other.pid}"):
            RunFolder.reopen(tmp_path / "a", CONFIG)
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("state", ["running", "starting"])
def test_a_run_that_came_from_another_machine_can_be_resumed(tmp_path, state):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    status = run.status() | {"state": state, "host": "gpu-box", "pid": 1}
    (run.path / "status.json").write_text(json.dumps(status | {"updated_s": time.time()}))
    assert run.status()["state"] == state  # perhaps a shared disk, and it lives there
    RunFolder.reopen(tmp_path / "a", CONFIG)
    (run.path / "status.json").write_text(json.dumps(status | {"updated_s": time.time() - 3600}))
    assert run.status()["state"] == "killed"
    RunFolder.reopen(tmp_path / "a", CONFIG)


HOLDER = """
import sys
from pathlib import Path
from mirrormark.training.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).held():
    print("held", flush=True)
    input()
"""


def test_one_process_holds_the_folder_until_it_ends(tmp_path):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    with pytest.raises(RunError, match=f"process {other.pid} on "), run.held():
        pass
    other.kill()
    other.wait()
    with run.held():
        assert (run.path / "lock").read_text().startswith(f"{os.getpid()} on ")


def as_if_run_by(pid: int, run: RunFolder) -> None:
    (run.path / "status.json").write_text(json.dumps(run.status() | {"state": "running", "pid": pid}))


def test_a_stranger_with_the_number_of_a_dead_run_does_not_keep_it(tmp_path):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    with run.held():
        pass
    as_if_run_by(1, run)  # always lives, and is not ours to ask after
    assert run.status()["state"] == "killed"
    RunFolder.reopen(run.path, CONFIG)
    with run.held():  # as `train` asks: from within
        RunFolder.reopen(run.path, CONFIG)
    (run.path / "lock").unlink()
    assert run.status()["state"] == "running"


def test_without_locks_the_process_number_tells(tmp_path, monkeypatch):
    def unknown(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    run = RunFolder.create(tmp_path / "a", CONFIG)
    monkeypatch.setattr("fcntl.flock", unknown)
    with run.held():
        as_if_run_by(1, run)
        assert run.status()["state"] == "running"


def test_a_held_folder_is_running_whatever_number_it_tells(tmp_path):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    as_if_run_by(2**22 - 1, run)  # in a container, say
    assert run.status()["state"] == "running"
    other.kill()
    other.wait()
    assert run.status()["state"] == "killed"


def test_whoever_asks_for_a_moment_does_not_keep_the_folder(tmp_path):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    with open(run.path / "lock", "a+") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        letting_go = threading.Timer(0.05, asking.close)
        letting_go.start()
        with run.held():
            letting_go.join()


def test_a_folder_with_nothing_but_a_lock_is_free(tmp_path):
    with RunFolder(tmp_path / "a").held():
        RunFolder.create(tmp_path / "a", CONFIG)


def test_lines_are_dropped_at_once_or_not_at_all(tmp_path, monkeypatch):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    for iteration in range(5):
        run.append("metrics.jsonl", {"iteration": iteration})

    def fails(*_):
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        with pytest.raises(OSError, match="no space"):
            run.drop_after(3)
    assert [row["iteration"] for row in read_lines(run.path / "metrics.jsonl")] == [0, 1, 2, 3, 4]
    assert not list(run.path.glob(".writing-*"))


def test_lines_after_the_checkpoint_and_torn_lines_are_dropped(tmp_path):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    for iteration in range(5):
        run.append("metrics.jsonl", {"iteration": iteration})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 5, "lo')
    assert len(read_lines(run.path / "metrics.jsonl")) == 5
    run.drop_after(3)
    assert read_lines(run.path / "metrics.jsonl") == [{"iteration": 0}, {"iteration": 1}, {"iteration": 2}]


def test_what_is_not_finite_is_null(tmp_path):
    run = RunFolder.create(tmp_path / "a", CONFIG)
    run.append(
        "evaluations.jsonl", {"iteration": 1, "gap": float("nan"), "range": float("inf"), "note": None}
    )
    assert (
        run.path / "evaluations.jsonl"
    ).read_text() == '{"iteration": 1, "gap": null, "range": null, "note": null}\n'


def test_runs_are_listed_with_their_state(tmp_path):
    RunFolder.create(tmp_path / "x" / "a", CONFIG).note("finished", iteration=9, episodes=90)
    run = RunFolder.create(tmp_path / "b", CONFIG | {"seed": 2})
    run.append("evaluations.jsonl", {"iteration": 4, "removal_rate": 0.25})
    run.note("interrupted", iteration=5, episodes=50)
    rows = list_runs(tmp_path)
    assert [(r["seed"], r["state"], r["iteration"]) for r in rows] == [
        (2, "interrupted", 5),
        (1, "finished", 9),
    ]
    assert rows[0]["last_evaluation"]["removal_rate"] == 0.25 and rows[1]["last_evaluation"] is None


def test_the_commit_is_that_of_the_source_and_not_of_a_checkout_around_it(tmp_path, monkeypatch):
    def git(*words: str) -> str:
        metadata = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", *metadata, *words], cwd=tmp_path, check=True, capture_output=True)
        return done.stdout.decode().strip()

    installed = tmp_path / "venv" / "run.py"
    installed.parent.mkdir()
    installed.write_text("")
    (tmp_path / ".gitignore").write_text("venv\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "another project")
    monkeypatch.setattr("mirrormark.training.run_folder.__file__", str(installed))
    assert versions()["commit"] is None
    git("add", "-f", "venv/run.py")
    git("commit", "-m", "its own")
    assert versions()["commit"] == git("rev-parse", "HEAD")


def test_versions_are_kept_and_the_command_without_a_machines_paths(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/home/someone/.venv/bin/mirrormark", "train", "--seed", "1"])
    run = RunFolder.create(tmp_path / "a", CONFIG)
    kept = json.loads((run.path / "versions.json").read_text())
    assert kept["torch"] and kept["python"] and "commit" in kept
    assert kept["command"] == ["mirrormark", "train", "--seed", "1"]
