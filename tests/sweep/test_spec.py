"""The spec file: what it means, the jobs that it makes, and one sentence for every mistake in it."""

import re
import tomllib
from pathlib import Path

import pytest
from small_sweeps import QUICK, described, spec, write_toml

from mirrormark.sweep.spec import Resources, as_words, asked, device, fitting, parse, plan, read


def test_a_file_is_read_whole(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        'preset = "smoke"\nseeds = [3, 5]\nbodies = ["infant", "arm"]\n'
        "[overrides]\ntraining.schedule.steps-per-iteration = 7\nenv.senses = ['cell', 'proprioception']\n"
        '[grid]\n"env.tone_scale" = [0.5, 1]\n[resources]\ngpus = 1\n[exam]\nonly = ["mirror"]\n'
    )
    found = read(path)
    assert found.seeds == (3, 5) and found.bodies == ("infant", "arm")
    assert found.overrides == {
        "training.schedule.steps_per_iteration": 7,
        "env.senses": ("cell", "proprioception"),
    }
    assert found.grid == {"env.tone_scale": (0.5, 1)}
    assert found.resources.gpus == 1.0 and device(found) == "cuda" and found.exam.only == ("mirror",)


def test_the_spec_in_the_docs_is_one():
    page = (Path(__file__).parents[2] / "docs" / "sweep.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    jobs = plan(parse(tomllib.loads(example)))
    assert len(jobs) == 8 * 2 * 2 and {job.beside is None for job in jobs} == {True, False}


def test_a_number_of_seeds_counts_from_zero():
    assert parse(described(seeds=8)).seeds == tuple(range(8))
    assert device(parse(described())) == "cpu"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 3}, r"seed is no field of a sweep: it has preset, seeds, bodies"),
        ({"exam": {"run": 3}}, r"exam\.run is no field of a sweep: exam\. has runs, chance_runs"),
        ({"resources": {"cpu": 3}}, r"resources\.cpu is no field .* has cpus, gpus, workers, tries"),
        ({"preset": "huge"}, "preset is 'huge': choose smoke"),
        ({"seeds": []}, r"seeds is \[\]"),
        ({"seeds": [1, 1]}, r"seeds is \[1, 1\]"),
        ({"seeds": [True]}, "different whole numbers"),
        ({"seeds": -1}, "seeds is -1"),
        ({"bodies": "infant"}, "bodies is 'infant': give a list"),
        ({"bodies": ["arm", "arm"]}, "bodies names one thing twice"),
        ({"grid": {"env.tone_scale": 0.5}}, r"grid\.env\.tone_scale is 0\.5: give the list"),
        ({"grid": {"env.tone_scale": [1, 1]}}, "lists one value twice"),
        (
            {"grid": {"training.evaluation.pairs": [8, 9]}},
            r"training\.evaluation\.pairs stands in overrides and in grid",
        ),
        ({"overrides": {"x": [[1]]}}, r"x is \[\[1\]\]"),
        ({"overrides": 3}, r"overrides is 3: write it as a table, \[overrides\]"),
        ({"exam": {"runs": 0}}, r"exam\.runs is 0: give at least 1"),
        ({"exam": {"runs": "many"}}, r"exam\.runs is 'many': give a value of type int"),
        ({"exam": {"mode": "best"}}, "choose sample or mean"),
        ({"resources": {"tries": 0}}, r"resources\.tries is 0: give at least 1"),
        ({"resources": {"gpus": -1}}, r"resources\.gpus is -1: give at least 0"),
        ({"seeds": 1_000_000_000}, "seeds is 1000000000: a sweep has 10,000 runs at most"),
        ({"seeds": 200, "grid": {"x": list(range(60))}}, "make 12,000 runs: a sweep has 10,000 at most"),
        (
            {"overrides": {"env.tone_scale": float("nan")}},
            r"env\.tone_scale is nan: give a finite number",
        ),
        ({"grid": {"env.tone_scale": [1, float("inf")]}}, "inf: give a finite number"),
    ],
)
def test_a_mistake_is_one_sentence(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(described(**change))


def test_a_missing_field_or_file_is_said(tmp_path):
    with pytest.raises(ValueError, match="seeds is missing"):
        parse({"preset": "smoke"})
    with pytest.raises(ValueError, match="does not exist"):
        read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("seeds = = 3")
    with pytest.raises(ValueError, match="is no TOML file"):
        read(tmp_path / "bad.toml")


def test_what_the_tests_write_is_what_they_mean(tmp_path):
    assert read(write_toml(tmp_path / "s.toml", described())) == parse(described())


# Jobs


def test_every_combination_is_one_job_with_its_own_folder():
    jobs = plan(
        spec(
            bodies=["infant", "arm"],
            grid={"env.tone_scale": [0.5, 1.0], "env.biased_noise": [True, False]},
        )
    )
    assert len(jobs) == len({job.name for job in jobs}) == 2 * 2 * 4
    assert jobs[0].name == "tone_scale-0.5_biased_noise-true-infant-seed0"
    assert {(job.body, job.seed, *job.values.values()) for job in jobs} == {
        (body, seed, scale, noise)
        for body in ("infant", "arm")
        for seed in (0, 1)
        for scale in (0.5, 1.0)
        for noise in (True, False)
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
    assert asked(job.train).env.threads == 2 == job.threads


def test_switches_and_lists_become_words():
    assert as_words("training.cuda_graph", False) == ["--training.no-cuda-graph"]
    assert as_words("training.cuda_graph", True) == ["--training.cuda-graph"]
    assert as_words("agent.tokenizer.levels", (5, 5)) == ["--agent.tokenizer.levels", "5", "5"]
    assert not asked(("--preset", "smoke", *as_words("training.cuda_graph", False))).training.cuda_graph


def test_no_grid_is_one_setting():
    assert [job.name for job in plan(spec(grid={}))] == ["base-infant-seed0", "base-infant-seed1"]


def test_fields_with_the_same_last_name_keep_their_whole_names():
    world_model, policy = (f"training.optim.{one}.learning_rate" for one in ("world_model", "policy"))
    grid = {world_model: [1e-3], policy: [1e-4, 2e-4]}
    names = {job.setting for job in plan(spec(grid=grid))}
    assert names == {f"{world_model}-0.001_{policy}-{rate}" for rate in (1e-4, 2e-4)}


def test_an_agent_without_drive_is_examined_beside_its_twin():
    jobs = {job.name: job for job in plan(spec(grid={"agent.drive": ["self_prior", "none"]}))}
    job = jobs["drive-none-infant-seed1"]
    assert job.beside == "drive-self_prior-infant-seed1" and job.beside in jobs
    assert "costless" in job.exam and asked(job.train).agent.drive == "none"
    assert jobs[job.beside].beside is None and "costless" not in jobs[job.beside].exam


@pytest.mark.parametrize(
    "change", [{"grid": {"agent.drive": ["none"]}}, {"overrides": {"agent.drive": "none"}}]
)
def test_an_agent_without_drive_and_without_a_twin_is_refused(change):
    with pytest.raises(ValueError, match=r'write agent\.drive = \["self_prior", "none"\] in \[grid\]'):
        plan(spec(**change))


def test_another_body_takes_its_own_tone():
    config = asked(plan(spec(bodies=["arm"], overrides={"env.tone": "flexor"}))[0].train)
    assert (config.env.body, config.env.tone) == ("arm", None)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"overrides": {"training.scedule.episodes": 3}},
            "Unrecognized options: --training.scedule.episodes=3",
        ),
        ({"overrides": {"training.schedule": 3}}, "Unrecognized options: --training.schedule=3"),
        (
            {"overrides": {"seed": 3}},
            r"seed is no field of a preset: they begin with env\., agent\., training\.",
        ),
        ({"overrides": {"env.body": "arm"}}, "chosen by the field bodies"),
        ({"overrides": {"training.schedule.episodes": 0}}, r"schedule\.episodes is 0: give at least 1"),
        (
            {"overrides": {"training.schedule.episodes": "many"}},
            r"training\.schedule\.episodes: invalid literal .*'many'",
        ),
        ({"grid": {"training.precision": ["fp32", "fp3"]}}, "invalid choice 'fp3'"),
        ({"bodies": ["octopus"]}, "octopus"),
        ({"overrides": {"training.tokenizer_phase.source": "nowhere"}}, "nowhere does not exist"),
        ({"grid": {"training.batch.sequence_frames": [16, 200]}}, "batch.sequence_frames is 200"),
        ({"exam": {"only": ["mirror", "moon"]}}, "condition 'moon' is unknown"),
        ({"exam": {"only": ["absent"]}}, "exam.only lacks 'mirror'"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_runs(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        plan(spec(**change))


@pytest.mark.parametrize(
    ("resources", "machines", "fit"),
    [
        (Resources(cpus=3), [(8, 0)], 2),
        (Resources(workers=2), [(8, 0)], 2),
        (Resources(gpus=0.5), [(16, 4)], 8),
        (Resources(gpus=0.4), [(16, 1)], 2),
        (Resources(gpus=2), [(16, 5)], 2),
        (Resources(cpus=4, gpus=1), [(8, 4)], 2),
        (Resources(cpus=4), [(4, 0), (8, 2), (0, 0)], 3),
        (Resources(cpus=4, gpus=1), [(4, 0), (8, 2)], 2),
    ],
)
def test_as_many_runs_as_fit(resources, machines, fit):
    assert fitting(resources, machines, "this machine has") == fit


@pytest.mark.parametrize(
    ("resources", "sentence"),
    [
        (Resources(cpus=64), "resources.cpus is 64, but this machine has 8: ask for less"),
        (Resources(gpus=1), "resources.gpus is 1, but this machine has 0: ask for less"),
        (Resources(workers=9), "resources.workers is 9, but only 8 runs of 1 cpus and 0 gpus fit"),
    ],
)
def test_more_than_there_is_is_one_sentence(resources, sentence):
    with pytest.raises(ValueError) as mistake:
        fitting(resources, [(8, 0)], "this machine has")
    assert str(mistake.value).startswith(sentence)
