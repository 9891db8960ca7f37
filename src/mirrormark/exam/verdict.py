"""The verdict: passed or not, and by which control it failed; and both in words, from results.json alone.
Bounds are rounded outwards."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from mirrormark.envs.senses import ABLATION
from mirrormark.exam.conditions import EXAM, YOKED, names, title
from mirrormark.exam.measures import Rate

Status = Literal[
    "passed", "passed, untrained not given", "not passed", "incomplete", "ablation", "development"
]

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
        return self.status.startswith("passed")


def judge(
    exam: Rate,
    controls: dict[str, Rate],
    *,
    symbolic: bool,
    development: bool = False,
    untrained_given: bool = True,
) -> Verdict:
    """Passed = the lower bound of removal exceeds the upper bound of every negative control.

    untrained_given: whether the agent offers an untrained one; where it does not, that question stays open
    and "passed" says so.
    """
    criteria = tuple(
        Criterion(name, found.interval.high, exam.interval.low > found.interval.high)
        for name, found in controls.items()
    )
    beaten = {criterion.control: criterion.beaten for criterion in criteria}
    answers = {
        question: _answer([beaten.get(name) for name in needed]) for question, needed in QUESTIONS.items()
    }
    lost = [criterion.control for criterion in criteria if not criterion.beaten]
    required = [name for name in REQUIRED if name != "untrained" or untrained_given]
    missing = [name for name in required if name not in beaten]
    thin = [name for name in ("iid", "babbling") if name in controls and controls[name].n < CHANCE_RUNS]
    status = _status(symbolic, development, lost, missing, thin, untrained_given)
    sentence = _sentence(status, exam, controls, lost, missing, thin)
    return Verdict(status, sentence, exam.interval.low, criteria, answers, _caveats(exam))


def _answer(beaten: list[bool | None]) -> bool | None:
    """False if one control was not beaten, else None if one was not run."""
    return False if False in beaten else None if None in beaten else True


def _status(
    symbolic: bool,
    development: bool,
    lost: list[str],
    missing: list[str],
    thin: list[str],
    untrained_given: bool,
) -> Status:
    if symbolic:
        return "ablation"
    if lost:
        return "not passed"
    if missing or thin:
        return "incomplete"
    if development:
        return "development"
    return "passed" if untrained_given else "passed, untrained not given"


def _sentence(
    status: Status,
    exam: Rate,
    controls: dict[str, Rate],
    lost: list[str],
    missing: list[str],
    thin: list[str],
) -> str:
    found = f"the mark was removed in {_in_words(exam)}"
    if status == "ablation":
        return f"{ABLATION}; {found}. This can never be called passed."
    if status == "development":
        return f"{DEVELOPMENT}; {found}, above every negative control. Examine seeds below 1000 to report."
    if status.startswith("passed"):
        return f"{status.capitalize()}: {found}, above the upper bound of every negative control."
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
        f" {len(controls)} negative controls (highest: {title(worst)}, {_in_words(controls[worst])})."
    )


def _in_words(found: Rate) -> str:
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


class _Control(NamedTuple):
    noun: str
    phrase: str


_CONTROLS = {
    "absent": _Control("no mirror", "without one in {rate}"),
    "covered": _Control("covered mirror", "before a covered one in {rate}"),
    "sham": _Control("sham mark", "a sham mark, which it cannot see, in {rate}"),
    "untrained": _Control("untrained agent", "an untrained agent took it off in {rate}"),
    "iid": _Control("i.i.d. actions", "i.i.d. actions did in {rate} of {n}"),
    "babbling": _Control("motor babbling", "random motor babbling did in {rate} of {n}"),
    YOKED: _Control(
        "yoked site", "an invisible place elsewhere on the body was touched in {rate} of the same runs"
    ),
}


def _words(name: str) -> _Control:
    """Controls that users have registered go by their titles."""
    return _CONTROLS.get(name, _Control(title(name), f"with “{title(name)}” in {{rate}}"))


def lead(results: dict[str, Any]) -> tuple[str, str]:
    """The two sentences that come first: what was found beside its controls, and what follows from it."""
    return finding(results), _consequence(results)


def word(results: dict[str, Any]) -> str:
    """The verdict in a word or two; where controls were not asked for, the exam was short."""
    return "short exam" if _short(results) else results["verdict"]["status"]


def finding(results: dict[str, Any]) -> str:
    """Removal with a mirror, and the same of every negative control that was run."""
    exam, agents = results["conditions"][EXAM], len(results["agents"])
    seeds = f" ({agents} training seeds)" if agents > 1 else ""
    parts = [f"With a mirror it took the mark off in {_percent(exam)} of {exam['n']} runs{seeds}"]
    for name in (*names("negative"), YOKED):
        if (found := _found(results, name)) is not None:
            parts.append(_words(name).phrase.format(rate=_percent(found), n=f"{found['n']:,}"))
    return "; ".join(parts) + "."


def answer(results: dict[str, Any], question: str) -> str:
    """yes, no, or for an open question which controls were beaten, and which were not run."""
    known = results["verdict"]["answers"][question]
    if known is not None:
        return "yes" if known else "no"
    run = {name: _found(results, name) for name in QUESTIONS[question]}
    beaten = [f"{_words(name).noun} {_percent(found)}" for name, found in run.items() if found]
    lacking = _listed([_words(name).noun for name, found in run.items() if not found]) + " not run"
    return f"so far yes ({_listed(beaten)}); {lacking}" if beaten else f"open: {lacking}"


def _consequence(results: dict[str, Any]) -> str:
    if not _short(results):
        return results["verdict"]["sentence"]
    missing = _missing(results)
    were = "was" if len(missing) == 1 else "were"
    nouns = _listed([_words(name).noun for name in missing])
    return f"A short exam: {nouns} {were} left out, so no verdict."


def _short(results: dict[str, Any]) -> bool:
    """Nothing was lost, but controls are missing that this body and mirror could have had."""
    could = set(_missing(results)) - set(results["left_out"])
    return results["verdict"]["status"] == "incomplete" and bool(could)


def _missing(results: dict[str, Any]) -> list[str]:
    return [name for name in REQUIRED if _found(results, name) is None]


def _found(results: dict[str, Any], name: str) -> dict[str, Any] | None:
    return results[YOKED] if name == YOKED else results["conditions"].get(name)


def _percent(found: dict[str, Any]) -> str:
    return f"{100 * found['rate']:.0f}%"


def agents_in_words(results: dict[str, Any]) -> list[str]:
    """The exam's version, then a line for each agent: what it knows beyond the senses, and what it learned
    from. Every output carries them."""
    lines = [f"Mirror-mark exam, version {results['exam_version']}."]
    for agent in results["agents"]:
        steps, minutes = agent["environment_steps"], agent["gpu_minutes"]
        learned = [
            f"{steps:,} environment steps" if steps is not None else "an unknown number of environment steps",
            f"{minutes:,.0f} GPU minutes" if minutes is not None else "unknown GPU minutes",
        ]
        knows = ", ".join(agent["privileged"]) or "nothing"
        lines.append(f"{agent['run']}: privileged: {knows}; learned by {' and '.join(learned)}.")
    return lines


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
