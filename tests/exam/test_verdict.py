"""Passed is hard to get, and the reason for not passing is named."""

import pytest
from synthetic_tables import RATES, make

from mirrormark.envs.senses import ABLATION
from mirrormark.exam import conditions, measures
from mirrormark.exam.statistics import Interval
from mirrormark.exam.verdict import DEVELOPMENT, REQUIRED, judge


def verdict_of(rates, *, symbolic=False, development=False, seeds=(0,), chance_runs=1000, without=()):
    episodes, _ = make(rates, seeds=seeds, chance_runs=chance_runs)
    by_name = {name: measures.rate(runs) for name, runs in episodes.groupby("condition")}
    controls = {name: by_name[name] for name in conditions.names("negative") if name in by_name}
    controls["yoked"] = measures.rate(episodes[episodes["condition"] == "mirror"], "yoked_touched")
    return judge(
        by_name["mirror"],
        {k: v for k, v in controls.items() if k not in without},
        symbolic=symbolic,
        development=development,
    )


def test_passed():
    verdict = verdict_of(RATES)
    assert verdict.passed and verdict.sentence.startswith("Passed")
    assert all(verdict.answers.values())
    assert "n=80 runs, 1 training seed" in verdict.sentence and "One training seed only" in verdict.caveats[0]


@pytest.mark.parametrize(
    ("interval", "told"), [((0.576, 0.921), "57–93%"), ((0.29, 0.57), "29–57%"), ((0.0, 1.0), "0–100%")]
)
def test_bounds_are_rounded_outwards(interval, told):
    found = measures.Rate(0.5, Interval(*interval), 40, 80, (), "")
    assert f"95% interval {told}," in judge(found, {}, symbolic=False).sentence


def test_three_seeds_carry_no_caveat():
    assert verdict_of(RATES, seeds=(0, 1, 2)).caveats == ()


@pytest.mark.parametrize("control", ["absent", "covered", "sham", "untrained", "iid", "babbling"])
def test_one_control_as_good_as_the_exam_is_enough_to_fail(control):
    verdict = verdict_of(RATES | {control: 0.75})
    assert verdict.status == "not passed" and conditions.title(control) in verdict.sentence
    assert [criterion.control for criterion in verdict.criteria if not criterion.beaten] == [control]


def test_a_leak_that_needs_no_mirror_is_told_apart():
    """An agent told where the mark is removes it, and removes it as often without a mirror."""
    verdict = verdict_of(RATES | {"mirror": 0.98, "absent": 0.98, "covered": 0.98, "sham": 0.98})
    assert verdict.status == "not passed"
    assert verdict.answers["beats random movement"] is True
    assert verdict.answers["needs the mirror"] is False
    assert verdict.answers["needs the mark to be seen"] is False


def test_the_symbolic_eye_can_never_pass():
    verdict = verdict_of(RATES, symbolic=True)
    assert verdict.status == "ablation" and not verdict.passed and ABLATION in verdict.sentence


def test_development_seeds_can_never_pass():
    verdict = verdict_of(RATES, development=True)
    assert verdict.status == "development" and not verdict.passed and DEVELOPMENT in verdict.sentence
    assert verdict_of(RATES | {"absent": 0.75}, development=True).status == "not passed"


@pytest.mark.parametrize("control", REQUIRED)
def test_a_missing_control_leaves_it_open(control):
    verdict = verdict_of(RATES, without=(control,))
    assert verdict.status == "incomplete" and f"{conditions.title(control)} not run" in verdict.sentence
    assert list(verdict.answers.values()).count(None) == 1 and False not in verdict.answers.values()


def test_a_control_that_was_lost_says_no_even_if_its_fellow_was_not_run():
    verdict = verdict_of(RATES | {"absent": 0.75}, without=("covered",))
    assert verdict.answers["needs the mirror"] is False


def test_chance_needs_a_thousand_runs():
    verdict = verdict_of(RATES, chance_runs=400)
    assert verdict.status == "incomplete" and "fewer than 1000" in verdict.sentence


def test_every_negative_control_is_required():
    assert set(REQUIRED) == set(conditions.names("negative")) | {conditions.YOKED}
