"""Real Ray Tune under the real command: failures, kills of workers and of the driver, Ctrl-C.

Most of it with stand-ins for the train and exam commands (fake_command), one slow test with the real ones.
"""

import contextlib
import hashlib
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
from small_sweeps import QUICK, described, fake_exam, write_toml

from mirrormark.sweep.folder import Folder
from mirrormark.sweep.spec import parse, plan

pytest.importorskip("ray")
HERE = Path(__file__).parent


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(HERE / "fake_command"), os.environ.get("PYTHONPATH")]))
    fakes = {"FAKE_S": "0.2", "FAKE_EXAMS": str(tmp_path / "exams")}
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | fakes | more


def command(tmp_path: Path, **more: Any) -> list[str]:
    """The sweep's command; exams that its stand-in will find finished."""
    found = described(**more)
    for job in plan(parse(found)):
        fake_exam(tmp_path / "exams" / job.name, job.name, job.seed, 0.5)
    path = write_toml(tmp_path / "spec.toml", found)
    return [sys.executable, "-m", "mirrormark", "sweep", str(path), "--out", str(tmp_path / "out")]


def finish(words: list[str], variables: dict[str, str]) -> str:
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def started(words: list[str], said: Path, variables: dict[str, str]) -> Iterator[subprocess.Popen]:
    with open(said, "w") as out:
        process = subprocess.Popen(words, env=variables, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def until(true: Callable[[], Any], what: str, limit_s: float = 120) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, f"waited {limit_s} s for {what}"
        time.sleep(0.02)


def iterations(run: Path) -> int:
    path = run / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def pids(folder: Folder, job: str) -> list[int]:
    lines = folder.log(job).read_text().splitlines()
    return [int(line.removeprefix("pid ")) for line in lines if line.startswith("pid ")]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listening(pid: int) -> set[str]:
    """Addresses at which the processes of this session listen."""
    sockets = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            words = row.split()
            if words[3] == "0A":
                sockets[f"socket:[{words[9]}]"] = words[1].partition(":")[0]
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(process.name)) == pid:
                found |= {sockets.get(os.readlink(file), "") for file in (process / "fd").iterdir()}
    return found - {""}


def test_a_failure_is_told_and_hides_no_other_run_and_after_a_killed_worker_its_run_goes_on(tmp_path):
    grid = {"agent.drive": ["none", "self_prior"]}  # which is examined beside the other, and so comes second
    words, out = command(tmp_path, grid=grid, resources={"tries": 2}), Folder(tmp_path / "out")
    bad, beside_bad = "drive-self_prior-infant-seed0", "drive-none-infant-seed0"
    killed, second = "drive-self_prior-infant-seed1", "drive-none-infant-seed1"
    said = tmp_path / "said.txt"
    with started(words, said, environment(tmp_path, FAKE_FAIL=bad, FAKE_S="0.05")) as driver:
        until(lambda: iterations(out.run(killed)) >= 2, "iterations")
        (pid,) = pids(out, killed)
        worker = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(worker, signal.SIGKILL)
        assert not out.run(second).exists()
        assert driver.wait(200) == 2
    told = said.read_text()
    assert f"{bad}: failed after 2 tries: train: exit 1; no such luck" in told and "Traceback" not in told
    assert f"{killed}: its worker died" in told and "tried again from its last checkpoint (1 of 2" in told
    assert f"{beside_bad}: failed after 0 tries: {bad}, beside which it is examined, has failed" in told
    assert f"2 of 4 runs failed ({beside_bad}, {bad})" in told
    assert [job for job in (killed, second, bad, beside_bad) if out.examined(job)] == [killed, second]
    assert iterations(out.run(killed)) in (50, 49) and len(pids(out, killed)) == 3  # two tries and one exam
    assert "2 of 4 runs examined" in " ".join((out.path / "report.html").read_text().split())


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a command outlives its worker, and is waited for"
)
def test_after_a_killed_driver_the_same_command_goes_on_and_ctrl_c_lets_every_run_save(tmp_path):
    words, out = command(tmp_path, seeds=1, grid={}), Folder(tmp_path / "out")
    run, said = out.run("base-infant-seed0"), tmp_path / "said.txt"
    with started(words, said, environment(tmp_path)) as driver:
        until(lambda: iterations(run) >= 2, "iterations")
        assert listening(driver.pid) <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 alone
        driver.kill()
        (pid,) = pids(out, run.name)
        until(lambda: not alive(pid), "the end of its command", 30)
    before = iterations(run)
    assert before < 50
    with started(words, said, environment(tmp_path)) as driver:
        until(lambda: iterations(run) > before, "iterations")
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does
        assert driver.wait(100) == 130
    told = said.read_text()
    assert json.loads((run / "status.json").read_text())["state"] == "interrupted" and "trained" not in told
    assert told.count("Stopping: each run finishes its iteration and saves") == 1 and "Traceback" not in told
    assert told.count("Give the same command again to go on from here") == 1
    done, weights = json.loads((run / "checkpoint.json").read_text())
    assert before < done < 50 and iterations(run) in (done, done - 1)  # killed between checkpoint and line
    expected = "0"
    for index in range(done):
        expected = hashlib.sha256(f"{expected} {index}".encode()).hexdigest()
    assert weights == expected


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_with_the_real_commands_weights_and_tables_after_kills_are_those_of_an_undisturbed_sweep(tmp_path):
    longer = QUICK | {"training.schedule.episodes": 40}
    words, out = command(tmp_path, grid={}, overrides=longer), Folder(tmp_path / "out")
    bare = {name: value for name, value in environment(tmp_path).items() if name != "FAKE_S"}
    run = out.run("base-infant-seed0")
    with started(words, tmp_path / "said.txt", bare) as driver:
        until(lambda: iterations(run) >= 3, "iterations")
        driver.kill()
    with started(words, tmp_path / "said.txt", bare) as driver:
        until(lambda: iterations(run) >= 6, "iterations")
        os.killpg(driver.pid, signal.SIGINT)
        assert driver.wait(300) == 130
    finish(words, bare)
    assert out.log(run.name).read_text().count("--resume") >= 1
    finish([*words[:-1], str(tmp_path / "alone")], bare)
    alone, ours = tmp_path / "alone", out.path
    weights = [
        {
            path.relative_to(place): path.read_bytes()
            for path in place.glob("runs/*/checkpoints/**/*.safetensors")
        }
        for place in (alone, ours)
    ]
    assert weights[0] and weights[0] == weights[1]
    assert (alone / "results.json").read_text() == (ours / "results.json").read_text()
    pd.testing.assert_frame_equal(*(pd.read_parquet(place / "runs.parquet") for place in (alone, ours)))
