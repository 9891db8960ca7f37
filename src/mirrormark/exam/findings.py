"""What an exam found, in words for whoever reads it first: from results.json alone, numbers never typed."""

from typing import Any, NamedTuple

from mirrormark.exam.conditions import EXAM, YOKED, names, title
from mirrormark.exam.verdict import QUESTIONS, REQUIRED


class _Words(NamedTuple):
    noun: str
    told: str


_CONTROLS = {
    "absent": _Words("no mirror", "without one in {rate}"),
    "covered": _Words("covered mirror", "before a covered one in {rate}"),
    "sham": _Words("sham mark", "a sham mark, which it cannot see, in {rate}"),
    "untrained": _Words("untrained agent", "an untrained agent took it off in {rate}"),
    "iid": _Words("i.i.d. actions", "i.i.d. actions did in {rate} of {n}"),
    "babbling": _Words("motor babbling", "random motor babbling did in {rate} of {n}"),
    YOKED: _Words(
        "yoked site", "an invisible place elsewhere on the body was touched in {rate} of the same runs"
    ),
}


def _words(name: str) -> _Words:
    """Controls that others have registered go by their titles."""
    return _CONTROLS.get(name, _Words(title(name), f"with “{title(name)}” in {{rate}}"))


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
    told = [f"With a mirror it took the mark off in {_percent(exam)} of {exam['n']} runs{seeds}"]
    for name in (*names("negative"), YOKED):
        if (found := _found(results, name)) is not None:
            told.append(_words(name).told.format(rate=_percent(found), n=f"{found['n']:,}"))
    return "; ".join(told) + "."


def answer(results: dict[str, Any], question: str) -> str:
    """yes, no, or how far an open question got: which controls were beaten, and which were not run."""
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


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
