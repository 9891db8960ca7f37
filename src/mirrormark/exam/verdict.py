"""The verdict: passed or not, and by which control it failed. It never rounds in our favour."""

import math
from dataclasses import dataclass
from typing import Literal

from mirrormark.envs.senses import ABLATION
from mirrormark.exam.conditions import title
from mirrormark.exam.measures import Rate

Status = Literal["passed", "not passed", "incomplete", "ablation", "development"]

DEVELOPMENT = "development seeds: used for choosing, not for reporting"
"""On every output of an exam in worlds in which weights are chosen."""
DEVELOPMENT_FROM_SEED = 1000
"""Weights are chosen in worlds from this exam seed on, and reported in those below it."""
CHANCE_RUNS = 1000
"""Fewest runs of random actions behind a "passed"."""

QUESTIONS = {
    "needs the mirror": ("absent", "covered"),
    "needs the mark to be seen": ("sham",),
    "goes to the mark, not just anywhere": ("yoked",),
    "learned": ("untrained",),
    "beats random movement": ("iid", "babbling"),
}
"""What a verdict answers, and by which controls."""
REQUIRED = tuple(control for controls in QUESTIONS.values() for control in controls)
"""Negative controls without which nothing can be called passed."""


@dataclass(frozen=True)
class Criterion:
    """One negative control against the exam."""

    control: str
    upper: float
    beaten: bool
    """The lower bound of removal lies above this control's upper bound."""


@dataclass(frozen=True)
class Verdict:
    status: Status
    sentence: str
    lower: float
    criteria: tuple[Criterion, ...]
    answers: dict[str, bool | None]
    """Each question and whether all its controls were beaten; None where that is open: one was not run."""
    caveats: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.status == "passed"


def judge(exam: Rate, controls: dict[str, Rate], *, symbolic: bool, development: bool = False) -> Verdict:
    """Passed = the lower bound of removal exceeds the upper bound of every negative control."""
    criteria = tuple(
        Criterion(name, found.interval.high, exam.interval.low > found.interval.high)
        for name, found in controls.items()
    )
    beaten = {criterion.control: criterion.beaten for criterion in criteria}
    answers = {
        question: _answer([beaten.get(name) for name in needed]) for question, needed in QUESTIONS.items()
    }
    lost = [criterion.control for criterion in criteria if not criterion.beaten]
    missing = [name for name in REQUIRED if name not in beaten]
    thin = [name for name in ("iid", "babbling") if name in controls and controls[name].n < CHANCE_RUNS]
    status = _status(symbolic, development, lost, missing, thin)
    sentence = _sentence(status, exam, controls, lost, missing, thin)
    return Verdict(status, sentence, exam.interval.low, criteria, answers, _caveats(exam))


def _answer(beaten: list[bool | None]) -> bool | None:
    """One that was not beaten says no, whatever the others, which may not have been run (None), would say."""
    return False if False in beaten else None if None in beaten else True


def _status(
    symbolic: bool, development: bool, lost: list[str], missing: list[str], thin: list[str]
) -> Status:
    if symbolic:
        return "ablation"
    if lost:
        return "not passed"
    if missing or thin:
        return "incomplete"
    return "development" if development else "passed"


def _sentence(
    status: Status,
    exam: Rate,
    controls: dict[str, Rate],
    lost: list[str],
    missing: list[str],
    thin: list[str],
) -> str:
    found = f"the mark was removed in {_percent(exam)}"
    if status == "ablation":
        return f"{ABLATION}; {found}. This can never be called passed."
    if status == "development":
        return f"{DEVELOPMENT}; {found}, above every negative control. Examine seeds below 1000 to report."
    if status == "passed":
        return f"Passed: {found}, above the upper bound of every negative control."
    if status == "incomplete":
        lacking = (
            f"{'; '.join(map(title, missing))} not run"
            if missing
            else f"fewer than {CHANCE_RUNS} runs of {'; '.join(map(title, thin))}"
        )
        return f"Incomplete: {found}, but nothing can be called passed with {lacking}."
    worst = max(lost, key=lambda name: controls[name].interval.high)
    return (
        f"Not passed: {found}, and its lower bound does not exceed the upper bound of {len(lost)} of"
        f" {len(controls)} negative controls (highest: {title(worst)}, {_percent(controls[worst])})."
    )


def _percent(found: Rate) -> str:
    """With its interval in whole percents that hold it: neither our lower nor a control's upper bound is
    flattered."""
    ends = [round(100 * end, 6) for end in found.interval]  # 100 × 0.29 is not quite 29
    low, high = math.floor(ends[0]), math.ceil(ends[1])
    return f"{100 * found.rate:.0f}% of runs (95% interval {low}–{high}%, {found.caption})"


def _caveats(exam: Rate) -> tuple[str, ...]:
    if len(exam.seeds) > 1:
        return ()
    return (
        "One training seed only: the interval speaks of this checkpoint, not of another seed's learning.",
    )
