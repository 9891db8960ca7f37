"""Progress and estimates: only what was measured."""

import io
import json
import os

import pytest
from rich.console import Console
from small_sweeps import described, pretend_examined, pretend_trained, spec, write_toml

from mirrormark.life.schedule import Schedule, ScheduleConfig
from mirrormark.sweep import commands, estimate, journal, status
from mirrormark.sweep.journal import Entry
from mirrormark.sweep.plan import Folder, plan


def lived(folder, job, seconds: list[float], phases: list[str], **point) -> None:
    run = folder.run(job.name)
    rows = [{"lap": i, "phase": p, "seconds": s} for i, (s, p) in enumerate(zip(seconds, phases))]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "exams.jsonl").write_text(json.dumps({"lap": 1, "episodes": 4} | point) + "\n")


def test_seconds_a_lap_survive_a_restart(tmp_path):
    folder, job = Folder(tmp_path), plan(spec())[0]
    pretend_trained(folder, job)
    lived(folder, job, [4.0, 6.0, 9.0, 2.0, 4.0], ["codec", "life", "life", "life", "life"])
    assert estimate.lap_seconds(folder.run(job.name)) == {"codec": 4.0, "life": (2 + 3 + 2 + 2) / 4}


def test_time_left_is_unknown_where_a_phase_was_never_timed():
    schedule = Schedule(ScheduleConfig(episodes=100, episodes_per_lap=10, codec_laps=5))
    assert estimate.left_s(schedule, 0, {"codec": 2.0}) is None
    assert estimate.left_s(schedule, 0, {"codec": 2.0, "life": 3.0}) == 5 * 2 + 10 * 3
    assert estimate.left_s(schedule, 7, {"life": 3.0}) == 8 * 3
    assert estimate.left_s(schedule, 15, {}) == 0


def test_the_table_tells_stage_indicators_and_time_left(tmp_path):
    folder, one = Folder(tmp_path), spec()
    jobs = plan(one)
    journal.claim(folder, one, jobs)
    done, training, waiting, failed = jobs
    pretend_trained(folder, done)
    lived(folder, done, [4.0, 6.0, 8.0], ["codec", "life", "life"], removal_rate=0.25, efe_gap_nats=3.5)
    pretend_examined(folder, done)
    journal.write(folder, done.name, Entry("finished", seconds={"train": 9.0, "exam": 5.0}))
    pretend_trained(folder, training, "running")  # on another machine, after one lap of three
    lived(folder, training, [2.0], ["codec"])
    journal.write(folder, failed.name, Entry("failed", 3, "train: exit 1; no room"))
    found = {one.job.name: one for one in status.standings(jobs, folder)}
    assert found[done.name].stage == "finished" and found[done.name].indicators["removal_rate"] == 0.25
    assert found[training.name].stage == "world+self_prior+policy" and found[training.name].laps == "1/3"
    assert found[training.name].left_s is None  # its own life laps and exam were never timed
    # Another setting, same body: codec (4+2)/2, life 2 a lap, exam 5.
    assert found[waiting.name].stage == "waiting" and found[waiting.name].left_s == 3 + 2 * 2 + 5
    assert found[failed.name].stage == "failed" and "no room" in found[failed.name].note
    out = io.StringIO()
    Console(file=out, width=200).print(status.table(list(found.values())))
    assert "4 runs: 1 finished, 2 open, 1 failed" in out.getvalue() and "0.25" in out.getvalue()


def test_a_failed_or_finished_sweep_has_nothing_left():
    assert status.summary([], workers=2) == "0 runs: 0 finished, 0 open, 0 failed"


def test_runs_shows_a_sweep_and_still_shows_plain_runs(tmp_path, capsys):
    folder, one = Folder(tmp_path / "s"), spec()
    journal.claim(folder, one, plan(one))
    commands.runs(folder.path)
    assert "tone_scale-1.0-infant-seed1" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    commands.runs(tmp_path / "empty")
    assert "No runs below" in capsys.readouterr().out
    with pytest.raises(ValueError, match="is no folder"):
        commands.runs(tmp_path / "none")


def test_a_dry_run_tells_everything_and_leaves_nothing(tmp_path, capsys):
    path = write_toml(tmp_path / "s.toml", described())
    commands.sweep(path, out=tmp_path / "out", dry_run=True)
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("infant-seed") == 4 and "training unknown, exams unknown; disk unknown" in told
    assert os.listdir(tmp_path) == ["s.toml"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"resources": {"cpus": 4096}}, "resources.cpus is 4096"), ({}, "is taken")],
    ids=["cores", "folder"],
)
def test_a_dry_run_refuses_what_a_run_would(tmp_path, change, sentence):
    path = write_toml(tmp_path / "spec.toml", described(**change))
    out = tmp_path / "out" if change else tmp_path  # which holds the spec
    with pytest.raises(ValueError, match=sentence):
        commands.sweep(path, out=out, dry_run=True)


def test_a_dry_run_extrapolates_what_the_folder_has_shown(tmp_path, capsys):
    folder, one = Folder(tmp_path / "out"), spec()
    jobs = plan(one)
    journal.claim(folder, one, jobs)
    pretend_trained(folder, jobs[0])
    lived(folder, jobs[0], [4.0, 14.0, 24.0], ["codec", "life", "life"])
    pretend_examined(folder, jobs[0])
    (folder.exam(jobs[0].name) / "big").write_bytes(bytes(7_000_000))
    journal.write(folder, jobs[0].name, Entry("finished", seconds={"exam": 5.0}))
    path = write_toml(tmp_path / "s.toml", described())
    commands.sweep(path, out=folder.path, dry_run=True)
    told = " ".join(capsys.readouterr().out.split())
    assert "training 96 s".replace("96 s", "2 min") in told and "exams 20 s; disk 28 MB" in told
    assert f"│ {jobs[0].name}" in told


def test_commands_are_printed_one_line_a_run(tmp_path, capsys):
    path = write_toml(tmp_path / "s.toml", described())
    commands.sweep(path, out=tmp_path / "out", commands=True)
    assert len(capsys.readouterr().out.splitlines()) == 4
    commands.runs(tmp_path / "out")
    assert "4 runs: 0 finished, 4 open" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "unknown"), (7, "7 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_times_in_words(seconds, words):
    assert estimate.in_words(seconds) == words
