"""The spec file: what it means, and one sentence for every mistake in it."""

import pytest
from small_sweeps import described, write_toml

from mirrormark.sweep.spec import parse, read


def test_a_file_is_read_whole(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        'preset = "smoke"\nseeds = [3, 5]\nbodies = ["infant", "arm"]\n'
        "[overrides]\nlife.schedule.steps-per-iteration = 7\nworld.senses = ['cell', 'proprioception']\n"
        '[grid]\n"env.tone_scale" = [0.5, 1]\n[resources]\ngpus = 1\n[exam]\nonly = ["mirror"]\n'
    )
    found = read(path)
    assert found.seeds == (3, 5) and found.bodies == ("infant", "arm")
    assert found.overrides == {
        "training.schedule.steps_per_iteration": 7,
        "env.senses": ("cell", "proprioception"),
    }
    assert found.grid == {"env.tone_scale": (0.5, 1)}
    assert found.resources.gpus == 1.0 and found.device == "cuda" and found.exam.only == ("mirror",)


def test_a_number_of_seeds_counts_from_zero():
    assert parse(described(seeds=8)).seeds == tuple(range(8))
    assert parse(described()).device == "cpu"


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
            {"grid": {"training.pool_episodes": [8, 9]}},
            r"training\.pool_episodes stands in overrides and in grid",
        ),
        ({"overrides": {"x": [[1]]}}, r"x is \[\[1\]\]"),
        ({"overrides": 3}, r"overrides is 3: write it as a table, \[overrides\]"),
        ({"exam": {"runs": 0}}, r"exam\.runs is 0: give at least 1"),
        ({"exam": {"runs": "many"}}, r"exam\.runs is 'many': give a value of type int"),
        ({"exam": {"mode": "best"}}, "choose sample or mean"),
        ({"resources": {"tries": 0}}, r"resources\.tries is 0"),
        ({"resources": {"gpus": -1}}, "cannot be negative"),
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
