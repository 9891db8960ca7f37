"""Passed is hard to get, and the reason for not passing is named."""

import pytest
from synthetic_tables import RATES, make

from mirrormark.envs.senses import ABLATION
from mirrormark.exam import conditions, measures, verdict
from mirrormark.exam.protocol import Tables
from mirrormark.exam.results import results
from mirrormark.exam.statistics import Interval
from mirrormark.exam.verdict import DEVELOPMENT, REQUIRED, judge


def verdict_of(
    rates, *, symbolic=False, development=False, seeds=(0,), chance_runs=1000, without=(), **options
):
    episodes, _ = make(rates, seeds=seeds, chance_runs=chance_runs)
    by_name = {name: measures.rate(runs) for name, runs in episodes.groupby("condition")}
    controls = {name: by_name[name] for name in conditions.names("negative") if name in by_name}
    controls["yoked"] = measures.rate(episodes[episodes["condition"] == "mirror"], "yoked_touched")
    return judge(
        by_name["mirror"],
        {k: v for k, v in controls.items() if k not in without},
        symbolic=symbolic,
        development=development,
        **options,
    )


def test_passed():
    judged = verdict_of(RATES)
    assert judged.passed and judged.sentence.startswith("Passed")
    assert all(judged.answers.values())
    assert "n=80 runs, 1 training seed" in judged.sentence and "One training seed only" in judged.caveats[0]


@pytest.mark.parametrize(
    ("interval", "shown"), [((0.576, 0.921), "57–93%"), ((0.29, 0.57), "29–57%"), ((0.0, 1.0), "0–100%")]
)
def test_bounds_are_rounded_outwards(interval, shown):
    found = measures.Rate(0.5, Interval(*interval), 40, 80, (), "")
    assert f"95% interval {shown}," in judge(found, {}, symbolic=False).sentence


def test_three_seeds_carry_no_caveat():
    assert verdict_of(RATES, seeds=(0, 1, 2)).caveats == ()


@pytest.mark.parametrize("control", ["absent", "covered", "sham", "untrained", "iid", "babbling"])
def test_one_control_as_good_as_the_exam_is_enough_to_fail(control):
    judged = verdict_of(RATES | {control: 0.75})
    assert judged.status == "not passed" and conditions.title(control) in judged.sentence
    assert [criterion.control for criterion in judged.criteria if not criterion.beaten] == [control]


def test_a_leak_that_needs_no_mirror_is_found():
    """An agent that knows where the mark is removes it, and removes it as often without a mirror."""
    judged = verdict_of(RATES | {"mirror": 0.98, "absent": 0.98, "covered": 0.98, "sham": 0.98})
    assert judged.status == "not passed"
    assert judged.answers["beats random movement"] is True
    assert judged.answers["needs the mirror"] is False
    assert judged.answers["needs the mark to be seen"] is False


def test_the_symbolic_eye_can_never_pass():
    judged = verdict_of(RATES, symbolic=True)
    assert judged.status == "ablation" and not judged.passed and ABLATION in judged.sentence


def test_development_seeds_can_never_pass():
    judged = verdict_of(RATES, development=True)
    assert judged.status == "development" and not judged.passed and DEVELOPMENT in judged.sentence
    assert verdict_of(RATES | {"absent": 0.75}, development=True).status == "not passed"


@pytest.mark.parametrize("control", REQUIRED)
def test_a_missing_control_leaves_it_open(control):
    judged = verdict_of(RATES, without=(control,))
    assert judged.status == "incomplete" and f"{conditions.title(control)} not run" in judged.sentence
    assert list(judged.answers.values()).count(None) == 1 and False not in judged.answers.values()


def test_a_control_that_was_lost_says_no_even_if_its_fellow_was_not_run():
    judged = verdict_of(RATES | {"absent": 0.75}, without=("covered",))
    assert judged.answers["needs the mirror"] is False


def test_chance_needs_a_thousand_runs():
    judged = verdict_of(RATES, chance_runs=400)
    assert judged.status == "incomplete" and "fewer than 1000" in judged.sentence


def test_without_an_untrained_agent_passed_says_so():
    untrained_given = {"untrained_given": False, "without": ("untrained",)}
    judged = verdict_of(RATES, **untrained_given)
    assert judged.passed and judged.status == "passed, untrained not given"
    assert judged.sentence.startswith("Passed, untrained not given: ") and judged.answers["learned"] is None
    assert verdict_of(RATES | {"absent": 0.75}, **untrained_given).status == "not passed"
    assert verdict_of(RATES, untrained_given=False, without=("untrained", "sham")).status == "incomplete"
    whole = results(
        Tables(*make({k: v for k, v in RATES.items() if k != "untrained"})),
        SETTINGS,
        0.02,
        left_out={"untrained": "no untrained agent was given"},
    )
    assert verdict.word(whole) == "passed, untrained not given"


def test_every_negative_control_is_required():
    assert set(REQUIRED) == set(conditions.names("negative")) | {conditions.YOKED}


SETTINGS = {"runs": 80, "first_exam_seed": 0, "chance_runs": 200, "mode": "sample"}


def results_of(*ran: str, **options) -> dict:
    rates = {name: rate for name, rate in RATES.items() if name in ("mirror", *ran)}
    return results(Tables(*make(rates, seeds=(0,), runs=80, **options)), SETTINGS, 0.02)


@pytest.fixture(scope="module")
def short() -> dict:
    return results_of("absent", "babbling", chance_runs=200)


def percent(found: dict) -> str:
    return f"{100 * found['rate']:.0f}%"


def test_a_short_exam_leads_with_what_was_found_and_says_what_was_left_out(short):
    first, second = verdict.lead(short)
    ran = short["conditions"]
    assert first == (
        f"With a mirror it took the mark off in {percent(ran['mirror'])} of 80 runs; without one in"
        f" {percent(ran['absent'])}; random motor babbling did in {percent(ran['babbling'])} of 200; an"
        f" invisible place elsewhere on the body was touched in {percent(short['yoked'])} of the same runs."
    )
    left = "covered mirror, sham mark, untrained agent and i.i.d. actions were left out"
    assert second == f"A short exam: {left}, so no verdict."
    assert verdict.word(short) == "short exam" and short["verdict"]["status"] == "incomplete"


def test_an_open_question_names_what_was_beaten_and_what_was_not_run(short):
    no_mirror = percent(short["conditions"]["absent"])
    assert verdict.answer(short, "needs the mirror") == (
        f"so far yes (no mirror {no_mirror}); covered mirror not run"
    )
    assert verdict.answer(short, "learned") == "open: untrained agent not run"
    assert verdict.answer(short, "goes to the mark, not just anywhere") == "yes"


def test_a_whole_exam_keeps_its_verdict():
    whole = results_of(*REQUIRED, chance_runs=1000)
    first, second = verdict.lead(whole)
    assert second == whole["verdict"]["sentence"] and verdict.word(whole) == "passed"
    assert first.count(";") == len(REQUIRED) and "of 1,000" in first


def test_what_could_not_be_had_is_no_short_exam(short):
    """Not the reader's choice: a body without a mirror that covers."""
    ran = {name: short["conditions"]["absent"] for name in REQUIRED if name != "covered"}
    found = short | {"conditions": short["conditions"] | ran, "left_out": {"covered": "no cloth"}}
    assert verdict.word(found) == "incomplete" and verdict.lead(found)[1] == found["verdict"]["sentence"]


def test_a_control_of_ones_own_goes_by_its_title(short, monkeypatch):
    monkeypatch.setattr(conditions, "_conditions", dict(conditions._conditions))
    conditions.register(conditions.Condition("slow", "mirror 2 s late", "negative", mirror="delayed"))
    found = short | {"conditions": short["conditions"] | {"slow": {"rate": 0.05, "n": 80}}}
    assert "with “mirror 2 s late” in 5%" in verdict.finding(found)
