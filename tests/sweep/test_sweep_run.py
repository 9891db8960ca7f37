"""The command before anything runs: whose folder it is, dry runs, plain commands for other schedulers."""

import os
import subprocess

import pytest
from small_sweeps import described, fake_train, spec, write_toml

from mirrormark.sweep import run, status
from mirrormark.sweep.folder import Folder
from mirrormark.sweep.run import check, claim
from mirrormark.sweep.spec import plan
from mirrormark.sweep.status import Seen, write_progress


def test_a_sweep_is_read_back_as_it_was_planned(tmp_path):
    folder, one = (
        Folder(tmp_path / "s"),
        spec(overrides={"training.cuda_graph": True}, grid={"agent.drive": ["self_prior", "none"]}),
    )
    claim(folder, one, plan(one))
    assert status.jobs_of(folder) == plan(one)


def test_a_taken_folder_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"is taken: .* choose another --out"):
        claim(Folder(tmp_path), spec(), plan(spec()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_another_sweep_is_refused_and_says_where_it_differs(tmp_path):
    folder = Folder(tmp_path / "s")
    claim(folder, spec(), plan(spec()))
    other = spec(overrides=described()["overrides"] | {"training.schedule.episodes": 12})
    with pytest.raises(ValueError, match=r"holds another sweep .*episodes=8.*episodes=12"):
        check(folder, plan(other))
    with pytest.raises(ValueError, match=r"tone_scale-0\.5-infant-seed1, which this spec lacks"):
        check(folder, plan(spec(seeds=1)))


def test_more_seeds_and_other_resources_may_join(tmp_path):
    folder = Folder(tmp_path / "s")
    claim(folder, spec(), plan(spec()))
    more = spec(seeds=3, resources={"tries": 9})
    claim(folder, more, plan(more))
    assert len(status.jobs_of(folder)) == 6


def test_a_second_driver_is_refused_until_the_first_has_ended(tmp_path):
    folder = Folder(tmp_path)
    with (
        run._only_driver(folder),
        pytest.raises(ValueError, match="another driver"),
        run._only_driver(folder),
    ):
        pass
    with run._only_driver(folder):
        pass


def test_a_dry_run_tells_everything_and_leaves_nothing(tmp_path, capsys):
    path = write_toml(tmp_path / "s.toml", described())
    run.sweep(path, out=tmp_path / "out", dry_run=True)
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("infant-seed") == 4 and "training unknown, exams unknown; disk unknown" in told
    assert os.listdir(tmp_path) == ["s.toml"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"resources": {"cpus": 4096}}, "resources.cpus is 4096"),
        ({"overrides": {"training.tokenizer_phase.source": "nowhere"}}, "nowhere does not exist"),
        ({"overrides": {"env.tone_scale": float("nan")}}, "tone_scale is nan"),
        ({}, "is taken"),
    ],
    ids=["cores", "tokenizer", "nan", "folder"],
)
def test_a_dry_run_refuses_what_cannot_work(tmp_path, change, sentence):
    path = write_toml(tmp_path / "spec.toml", described(**change))
    with pytest.raises(ValueError, match=sentence):
        run.sweep(path, out=tmp_path / "out" if change else tmp_path, dry_run=True)


def test_a_dry_run_extrapolates_what_the_folder_has_shown(tmp_path, capsys):
    folder, one = Folder(tmp_path / "out"), spec()
    jobs = plan(one)
    claim(folder, one, jobs)
    fake_train(folder, jobs[0])
    rows = ((4.0, "tokenizer"), (14.0, "training"), (24.0, "training"))
    lines = [f'{{"iteration": {i}, "phase": "{p}", "seconds": {s}}}\n' for i, (s, p) in enumerate(rows)]
    (folder.run(jobs[0].name) / "metrics.jsonl").write_text("".join(lines))
    folder.exam(jobs[0].name).mkdir(parents=True)
    (folder.exam(jobs[0].name) / "provenance.json").write_text("{}")
    (folder.exam(jobs[0].name) / "big").write_bytes(bytes(7_000_000))
    write_progress(folder, {jobs[0].name: Seen(seconds={"exam": 5.0})})
    run.sweep(write_toml(tmp_path / "s.toml", described()), out=folder.path, dry_run=True)
    told = " ".join(capsys.readouterr().out.split())
    assert "training 2 min, exams 20 s; disk 28 MB" in told


def test_commands_are_printed_one_line_a_run(tmp_path, capsys):
    run.sweep(write_toml(tmp_path / "s.toml", described()), out=tmp_path / "out", commands=True)
    assert len(capsys.readouterr().out.splitlines()) == 4
    status.runs(tmp_path / "out")
    assert "4 runs: 0 finished, 4 open" in capsys.readouterr().out


def test_a_printed_line_trains_then_examines_and_run_again_goes_on_where_it_stopped(tmp_path):
    """A stand-in for `mirrormark` notes its words."""
    folder, job = Folder(tmp_path / "a b"), plan(spec())[1]
    stand_in = tmp_path / "mirrormark"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$*" "$OMP_NUM_THREADS" >> "$NOTES"\n')
    stand_in.chmod(0o755)

    def noted() -> list[str]:
        notes = tmp_path / "notes"
        notes.unlink(missing_ok=True)
        variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NOTES": str(notes)}
        subprocess.run(["bash", "-c", folder.line(job)], env=variables, check=True)
        return notes.read_text().splitlines()

    train, exam = (" ".join(folder.words(job, step)) for step in ("train", "exam"))
    assert noted() == [train, "1", exam, "1"]
    folder.run(job.name).mkdir(parents=True)
    (folder.run(job.name) / "config.json").write_text("{}")
    assert noted()[0] == f"{train} --resume"
    (folder.run(job.name) / "status.json").write_text('{\n "state": "finished"\n}')
    assert noted() == [exam, "1"]
