"""Jobs and their commands: every combination once, in words that `mirrormark train` understands."""

import shlex
import subprocess
from pathlib import Path

import pytest
from small_sweeps import QUICK, spec

from mirrormark.sweep.plan import Folder, as_words, asked, commands, plan


def test_every_combination_is_one_job_with_its_own_folder():
    jobs = plan(
        spec(
            bodies=["infant", "arm"],
            grid={"env.tone_scale": [0.5, 1.0], "training.frozen_tokenizer": [True, False]},
        )
    )
    assert len(jobs) == len({job.name for job in jobs}) == 2 * 2 * 4
    assert jobs[0].name == "tone_scale-0.5_tokens-true-infant-seed0"
    assert {(job.body, job.seed, *job.values.values()) for job in jobs} == {
        (body, seed, scale, tokens)
        for body in ("infant", "arm")
        for seed in (0, 1)
        for scale in (0.5, 1.0)
        for tokens in (True, False)
    }


def test_a_jobs_words_mean_what_the_spec_says():
    """Read back by the train command's own parser."""
    for job in plan(spec()):
        config = asked(job.train)
        assert config.env.tone_scale == job.values["env.tone_scale"]
        assert config.training.schedule.episodes == QUICK["training.schedule.episodes"]
        assert config.env.threads == 1


def test_threads_follow_the_cores_of_a_run():
    job = plan(spec(resources={"cpus": 2}))[0]
    assert asked(job.train).env.threads == 2 == Folder(Path("x")).trained(job, False).threads


def test_switches_and_lists_become_words():
    assert as_words("training.frozen_tokenizer", False) == ["--training.no-frozen-tokenizer"]
    assert as_words("training.frozen_tokenizer", True) == ["--training.frozen-tokenizer"]
    assert as_words("agent.tokenizer.levels", (5, 5)) == ["--agent.tokenizer.levels", "5", "5"]
    assert not asked(
        ("--preset", "smoke", *as_words("training.frozen_tokenizer", False))
    ).training.frozen_tokenizer


def test_no_grid_is_one_setting():
    assert [job.name for job in plan(spec(grid={}))] == ["base-infant-seed0", "base-infant-seed1"]


def test_fields_with_the_same_last_name_keep_their_whole_names():
    grid = {
        "training.learner.world_model.learning_rate": [1e-3],
        "training.learner.policy.learning_rate": [1e-4, 2e-4],
    }
    names = {job.setting for job in plan(spec(grid=grid))}
    assert names == {
        f"training.learner.world_model.learning_rate-0.001_life.learner.policy.learning_rate-{rate}"
        for rate in (1e-4, 2e-4)
    }


def test_a_agent_without_cost_is_examined_beside_its_twin():
    jobs = {job.name: job for job in plan(spec(grid={"cost": ["self_prior", "none"]}))}
    job = jobs["cost-none-infant-seed1"]
    assert job.beside == "cost-self_prior-infant-seed1" and job.beside in jobs
    words = Folder(Path("/x")).examined(job).words
    assert words[1:3] == (f"/x/runs/{job.beside}", f"/x/runs/{job.name}") and "costless" in words
    with pytest.raises(ValueError, match=r'write cost = \["self_prior", "none"\] in \[grid\]'):
        plan(spec(grid={"cost": ["none"]}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"overrides": {"training.scedule.episodes": 3}},
            r"training\.scedule\.episodes is no field .* life has schedule",
        ),
        ({"overrides": {"training.schedule": 3}}, r"training\.schedule is a group of fields"),
        ({"overrides": {"training.frozen_tokenizer.x": 3}}, r"training\.frozen_tokenizer is a single value"),
        ({"overrides": {"env.body": "arm"}}, "chosen by the field bodies"),
        ({"overrides": {"training.schedule.episodes": 0}}, r"schedule\.episodes is 0: give at least 1"),
        (
            {"overrides": {"training.schedule.episodes": "many"}},
            r"training\.schedule\.episodes: invalid literal .*'many'",
        ),
        ({"grid": {"training.learner.precision": ["fp32", "fp3"]}}, "invalid choice 'fp3'"),
        ({"bodies": ["octopus"]}, "octopus"),
        ({"exam": {"only": ["mirror", "moon"]}}, "condition 'moon' is unknown"),
        ({"exam": {"only": ["absent"]}}, "exam.only lacks 'mirror'"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_runs(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(spec(**change))


def test_printed_commands_are_the_jobs_own(tmp_path):
    """A stand-in for `mirrormark` notes its words; run again, the line resumes or only examines."""
    folder, job = Folder(tmp_path / "a b"), plan(spec())[1]
    line = commands([job], folder)[0]
    stand_in = tmp_path / "mirrormark"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$*" >> "$NOTES"\necho "$OMP_NUM_THREADS" >> "$NOTES"\n')
    stand_in.chmod(0o755)

    def noted() -> list[str]:
        notes = tmp_path / "notes"
        notes.unlink(missing_ok=True)
        variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NOTES": str(notes)}
        subprocess.run(["bash", "-c", line], env=variables, check=True)
        return notes.read_text().splitlines()

    train, exam = folder.trained(job, False).words, folder.examined(job).words
    assert noted() == [" ".join(train), "1", " ".join(exam), "1"]
    folder.run(job.name).mkdir(parents=True)
    (folder.run(job.name) / "config.json").write_text("{}")
    assert noted()[0] == " ".join(folder.trained(job, True).words)
    (folder.run(job.name) / "status.json").write_text('{\n "state": "finished"\n}')
    assert noted() == [" ".join(exam), "1"]
    assert shlex.split(line)  # quotes are closed, whatever the folder is called
