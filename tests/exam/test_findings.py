"""What is read first: the numbers beside their controls, in words."""

import json
from pathlib import Path

import pytest
from synthetic_tables import RATES, make

from mirrormark.exam import conditions, findings
from mirrormark.exam.protocol import Tables
from mirrormark.exam.results import results
from mirrormark.exam.verdict import REQUIRED

SETTINGS = {"runs": 80, "first_exam_seed": 0, "chance_runs": 200, "mode": "sample"}
STORED = Path(__file__).parents[2] / "docs" / "results" / "infant" / "results.json"


def found(*ran: str, **options) -> dict:
    rates = {name: rate for name, rate in RATES.items() if name in ("mirror", *ran)}
    return results(Tables(*make(rates, seeds=(0,), runs=80, **options)), SETTINGS, 0.02)


@pytest.fixture(scope="module")
def short() -> dict:
    return found("absent", "babbling", chance_runs=200)


def percent(told: dict) -> str:
    return f"{100 * told['rate']:.0f}%"


def test_a_short_exam_leads_with_what_was_found_and_says_what_was_left_out(short):
    first, second = findings.lead(short)
    ran = short["conditions"]
    assert first == (
        f"With a mirror it took the mark off in {percent(ran['mirror'])} of 80 runs; without one in"
        f" {percent(ran['absent'])}; random motor babbling did in {percent(ran['babbling'])} of 200; an"
        f" invisible place elsewhere on the body was touched in {percent(short['yoked'])} of the same runs."
    )
    left = "covered mirror, sham mark, untrained agent and i.i.d. actions were left out"
    assert second == f"A short exam: {left}, so no verdict."
    assert findings.word(short) == "short exam" and short["verdict"]["status"] == "incomplete"


def test_an_open_question_tells_how_far_it_got(short):
    no_mirror = percent(short["conditions"]["absent"])
    assert findings.answer(short, "needs the mirror") == (
        f"so far yes (no mirror {no_mirror}); covered mirror not run"
    )
    assert findings.answer(short, "learned") == "open: untrained agent not run"
    assert findings.answer(short, "goes to the mark, not just anywhere") == "yes"


def test_a_whole_exam_keeps_its_verdict():
    whole = found(*REQUIRED, chance_runs=1000)
    first, second = findings.lead(whole)
    assert second == whole["verdict"]["sentence"] and findings.word(whole) == "passed"
    assert first.count(";") == len(REQUIRED) and "of 1,000" in first


def test_what_could_not_be_had_is_no_short_exam(short):
    """Not the reader's choice: a body without a mirror that covers."""
    ran = {name: short["conditions"]["absent"] for name in REQUIRED if name != "covered"}
    told = short | {"conditions": short["conditions"] | ran, "left_out": {"covered": "no cloth"}}
    assert findings.word(told) == "incomplete" and findings.lead(told)[1] == told["verdict"]["sentence"]


def test_stored_results_can_be_told():
    stored = json.loads(STORED.read_text())
    assert findings.lead(stored)[0].startswith(
        f"With a mirror it took the mark off in {percent(stored['conditions']['mirror'])} of"
    )


def test_a_control_of_ones_own_goes_by_its_title(short, monkeypatch):
    monkeypatch.setattr(conditions, "_conditions", dict(conditions._conditions))
    conditions.register(conditions.Condition("slow", "mirror 2 s late", "negative", mirror="delayed"))
    told = short | {"conditions": short["conditions"] | {"slow": {"rate": 0.05, "n": 80}}}
    assert "with “mirror 2 s late” in 5%" in findings.finding(told)
