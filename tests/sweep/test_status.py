"""Progress and estimates: only what was measured; damage to one run hides no other."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from small_sweeps import fake_exam, fake_train, spec

from mirrormark.config import ScheduleConfig, TokenizerPhaseConfig, TrainingConfig
from mirrormark.sweep import status
from mirrormark.sweep.folder import Folder
from mirrormark.sweep.run import claim
from mirrormark.sweep.spec import plan
from mirrormark.sweep.status import Pace, Seen, write_progress
from mirrormark.training.schedule import Schedule


def records(folder, job, seconds: list[float], phases: list[str], **point) -> None:
    run = folder.run(job.name)
    rows = [{"iteration": i, "phase": p, "seconds": s} for i, (s, p) in enumerate(zip(seconds, phases))]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "evaluations.jsonl").write_text(json.dumps({"iteration": 1, "episodes": 4} | point) + "\n")


def test_seconds_an_iteration_survive_a_restart(tmp_path):
    folder, job = Folder(tmp_path), plan(spec())[0]
    fake_train(folder, job)
    records(folder, job, [4.0, 6.0, 9.0, 2.0, 4.0], ["tokenizer", *["training"] * 4])
    found = status.iteration_seconds(folder.run(job.name))
    assert found == {"tokenizer": 4.0, "training": (2 + 3 + 2 + 2) / 4}


def test_time_left_is_unknown_where_a_phase_was_never_timed():
    config = TrainingConfig(ScheduleConfig(episodes=100, episodes_per_iteration=10), TokenizerPhaseConfig(5))
    schedule = Schedule(config, tokenizer_learns=True)
    both, late = Pace(1, {"tokenizer": 2.0, "training": 3.0}), Pace(1, {"training": 3.0})
    assert status.left_s(schedule, 0, Pace(1, {"tokenizer": 2.0})) is None
    assert status.left_s(schedule, 0, Pace()) is None
    assert status.left_s(schedule, 0, both) == 5 * 2 + 10 * 3
    assert status.left_s(schedule, 7, late) == 8 * 3
    assert status.left_s(schedule, 15, Pace()) == 0


@pytest.fixture
def four(tmp_path):
    """One job finished, one in training, one waiting, one failed."""
    folder, one = Folder(tmp_path), spec()
    jobs = plan(one)
    claim(folder, one, jobs)
    done, training, _, failed = jobs
    fake_train(folder, done)
    records(
        folder,
        done,
        [4.0, 6.0, 8.0],
        ["tokenizer", "training", "training"],
        removal_rate=0.25,
        efe_gap_nats=3.5,
    )
    fake_exam(folder.exam(done.name), done.name, done.seed, 0.5)
    fake_train(folder, training, "running")  # on another machine, after one iteration of three
    records(folder, training, [2.0], ["tokenizer"])
    seen = {
        done.name: Seen(seconds={"train": 9.0, "exam": 5.0}),
        failed.name: Seen(3, True, "exit 1; no room"),
    }
    write_progress(folder, seen)
    return folder, jobs


def test_the_table_tells_stage_indicators_and_time_left(four):
    folder, jobs = four
    done, training, waiting, failed = status.standings(jobs, folder)
    assert done.stage == "finished" and done.indicators["removal_rate"] == 0.25
    assert training.stage == "world_model+self_prior+policy" and training.iterations == "1/3"
    # Of the same body: first phase (4+2)/2, then 2 an iteration, exam 5.
    assert training.left_s == 2 * 2 + 5
    assert waiting.stage == "waiting" and waiting.left_s == 3 + 2 * 2 + 5
    assert failed.stage == "failed" and "no room" in failed.note
    out = io.StringIO()
    Console(file=out, width=200).print(status.table([done, training, waiting, failed]))
    assert "4 runs: 1 finished, 2 open, 1 failed" in out.getvalue() and "0.25" in out.getvalue()


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"{}", b'{"a"', bytes(range(128, 256))])
@pytest.mark.parametrize("file", ["status.json", "metrics.jsonl", "evaluations.jsonl"])
def test_one_damaged_run_hides_no_other(four, capsys, file, content):
    folder, jobs = four
    (folder.run(jobs[1].name) / file).write_bytes(content)
    status.runs(folder.path)
    told = capsys.readouterr().out
    assert all(job.name in told for job in jobs) and "0.25" in told and "no room" in told


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'{"a": {"b": 1}}', bytes(range(128, 256))])
def test_a_damaged_progress_file_is_only_forgotten(four, content):
    folder, jobs = four
    folder.progress.write_bytes(content)
    assert [one.stage for one in status.standings(jobs, folder)][::3] == ["finished", "waiting"]


def test_a_damaged_plan_is_one_sentence(four):
    folder, jobs = four
    whole = folder.plan.read_text()
    folder.plan.write_text(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"sweep\.json is damaged: delete it, and give the same"):
        status.runs(folder.path)
    folder.plan.unlink()
    claim(folder, spec(), jobs)
    assert folder.plan.read_text() == whole


def test_plain_runs_are_listed_too_and_a_damaged_one_hides_no_other(tmp_path, capsys, monkeypatch):
    status.runs(tmp_path)
    assert "No runs below" in capsys.readouterr().out
    with pytest.raises(ValueError, match="is no folder"):
        status.runs(tmp_path / "none")
    monkeypatch.chdir(tmp_path)  # short names, so that no line is broken
    folder, jobs = Folder(Path()), plan(spec(seeds=6, grid={}))
    for job in jobs:
        fake_train(folder, job)
    for job, content in zip(jobs, (b"null", b"[1]", b'{"state"', bytes(range(128, 256)))):
        (folder.run(job.name) / "status.json").write_bytes(content)
    (folder.run(jobs[4].name) / "config.json").write_bytes(bytes(range(128, 256)))
    status.runs(Path("runs"))
    told = capsys.readouterr().out
    assert all(job.name in told for job in jobs) and told.count("finished") == 1


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "unknown"), (7, "7 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_times_in_words(seconds, words):
    assert status.in_words(seconds) == words
