"""The report's sections in words and tables, each from what results.json holds."""

from html import escape
from typing import Any

from mirrormark.exam import conditions
from mirrormark.exam.probes import POSTURES
from mirrormark.exam.verdict import agents_in_words, answer, lead, word
from mirrormark.report.page import part, plural


def heading(results: dict[str, Any]) -> str:
    label = f'<p><span class="label">{escape(results["label"])}</span></p>' if results["label"] else ""
    seeds = len(results["agents"])
    known = "<br>".join(escape(line) for line in agents_in_words(results))
    agents = ", ".join(f"{agent['run']} ({agent['checkpoint']})" for agent in results["agents"])
    return (
        f"<h1>Mirror-mark exam: {escape(results['body'])}, {escape(results['tone'])} tone</h1>"
        f'<p class="quiet">{seeds} training seed{"s" if seeds > 1 else ""}: {escape(agents)}'
        f"<br>{known}</p>{label}"
    )


def verdict(results: dict[str, Any]) -> str:
    verdict = results["verdict"]
    answers = "".join(
        f"<tr><td>{escape(question)}</td><td class='words'>{_answer(results, question)}</td></tr>"
        for question in verdict["answers"]
    )
    caveats = "".join(f"<p class='quiet'>{escape(caveat)}</p>" for caveat in verdict["caveats"])
    head = results["headline"]
    effect = (
        f"<p>Removal at the mark minus touches at the yoked site: <b>{_points(head['difference'])}</b> "
        f"({_range(head['interval'], _points)}; {_p(head['p'])}, n={head['n']}; {head['method']}).</p>"
    )
    found = "".join(f"<p>{escape(sentence)}</p>" for sentence in lead(results))
    return (
        f'<div class="verdict {verdict["status"].partition(",")[0].replace(" ", "-")}">'
        f'<p class="word">{escape(word(results))}</p>'
        f"{found}{effect}{caveats}</div>"
        f"<table><tr><th>It …</th><th></th></tr>{answers}</table>"
    )


def comparisons(results: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(conditions.title(c['control']))}</td><td class='n'>{_points(c['difference'])}</td>"
        f"<td class='n'>{_range(c['interval'], _points)}</td><td class='n'>{_p(c['p_holm'])}</td>"
        f"<td class='n'>{c['n']}</td></tr>"
        for c in results["comparisons"]
    )
    missing = "".join(
        f"<p class='small'>Left out: {escape(conditions.title(name))}, because {escape(reason)}.</p>"
        for name, reason in results["left_out"].items()
    )
    methods = " | ".join(dict.fromkeys(c["method"] for c in results["comparisons"]))
    return (
        "<div class='scroll'><table><tr><th>Removal minus …</th><th>points</th><th>95% interval</th>"
        f"<th>Holm</th><th>n</th></tr>{rows}</table></div>"
        f"<p class='small'>Percentage points. Intervals, tests and what n counts: {escape(methods)}.</p>"
        f"{missing}"
    )


def groups(results: dict[str, Any]) -> str:
    by_site = [(f"on the {part(site)}", found) for site, found in results["by_site"].items()]
    groups = by_site + list(results["by_visibility"].items())
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td class='n'>{100 * g['rate']:.0f}%</td>"
        f"<td class='n'>{_range(g['interval'], _percent)}</td><td class='n'>{g['n']}</td></tr>"
        for name, g in groups
    )
    touch = results["first_touch"]
    median = f"{touch['median_s']:.2f} s" if touch["median_s"] is not None else "not reached"
    return (
        f"<p>First touch: {touch['touched']} of {touch['n']} runs, median {median} (Kaplan–Meier).</p>"
        f"<table><tr><th>Mark</th><th>removed</th><th>95% interval</th><th>n</th></tr>{rows}</table>"
    )


def free_energy(results: dict[str, Any]) -> str:
    found = results["free_energy"]
    if found is None:
        return "<p>No run has a removal with time before and after it: nothing to compare.</p>"
    shift, matched = found["shift"], found["matched"]
    rank = f", rank correlation {shift['rank_biserial']:.2f}" if shift["rank_biserial"] is not None else ""
    text = (
        f"<p>{_mean(found, 'before')} nats before, {_mean(found, 'after')} after "
        f"({'mean ± SD of ' if found['pairs'] > 1 else ''}{plural(found['pairs'], 'run')}). "
        f"Shift {_effect(shift)}{rank}.</p>"
        f"<p class='quiet'>{escape(found['speaks_of'][:1].upper() + found['speaks_of'][1:])}.</p>"
    )
    if matched is None:
        return text + f"<p>No control of matched time: {escape(found['matched_missing'])}.</p>"
    return text + (
        f"<p>Time alone changed G by {found['matched_control']:.2f} nats in runs without removal; with that "
        f"taken out the shift is {_effect(matched)}.</p>"
    )


def _mean(found: dict[str, Any], when: str) -> str:
    mean, sd = found[f"{when}_mean"], found[f"{when}_sd"]
    return f"{mean:.2f}" if sd is None else f"{mean:.2f} ± {sd:.2f}"


def _effect(found: dict[str, Any]) -> str:
    return (
        f"<b>{found['estimate']:.2f} nats</b> ({_range(found['interval'], _nats)}; {_p(found['p'])},"
        f" n={plural(found['n'], found['unit'].removesuffix('s'))}; {escape(found['method'])})"
    )


def probes(found: dict[str, Any] | None) -> str:
    if not found:
        return "<p>No probes: they need an agent of this package that sees pixels.</p>"
    erased = found["mark_erased"]["through the self-prior"]
    painted = found["mark_painted"]["reconstructed"]
    sentence = (
        f"a marked frame passed through the self-prior loses {100 * erased:.0f}% of the mark that its"
        " reconstruction shows"
        if erased is not None
        else f"the tokenizer paints only {100 * painted:.0f}% of the mark: there is nothing that could be erased"
    )
    rad, rms = found["proprioception_from_vision_rad"], found["vision_from_proprioception_rms"]
    rows = "".join(
        f"<tr><td>{name}</td><td class='n'>{rad[name]:.3f} rad</td><td class='n'>{rms[name]:.3f}</td></tr>"
        for name in ("self-prior", "encoder only", "chance")
    )
    return (
        f"<p>On {found['frames']} paired babbling frames of {escape(found['run'])}: {sentence}. "
        f"G is {found['g_gap_nats']:.2f} nats higher with the mark than without.</p>"
        "<table><tr><th>One sense from the other</th><th>joint angles from vision</th>"
        f"<th>vision from joint angles (RMS, 0..1)</th></tr>{rows}</table>"
        f"<p class='small'>{_CROSSING[found['proprioception_from_vision']]}</p>"
    )


_CROSSING = {
    "chosen": f"""This tokenizer tells vision given the angles, so angles cannot be filled in from vision alone:
they are chosen among {POSTURES} postures of the same run, a control step apart, the true one among them.
Self-prior: the choice that makes the whole most familiar. Encoder only: the one whose reconstruction is
nearest to the picture. Vision from angles: the self-prior draws the vision tokens; encoder only leaves them
silent.""",
    "completed": """The missing sense is blanked before encoding. Self-prior: every token drawn anew given the
encoded ones before it (as in the public code). Encoder only: decoded as encoded. Chance: another frame's.""",
}


def coverage(results: dict[str, Any]) -> str:
    rows = "; ".join(
        f"{100 * c['covered']:.1f}% with {c['seeds']} × {c['runs_per_seed']} runs"
        for c in results["coverage"]
    )
    return f"<p>Simulated coverage of our 95% intervals at this exam's rate, seeds × runs: {rows}.</p>"


def _answer(results: dict[str, Any], question: str) -> str:
    words = answer(results, question)
    return f"<b class='{words}'>{words}</b>" if words in ("yes", "no") else escape(words)


def _points(value: float) -> str:
    return f"{100 * value:+.0f}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%"


def _nats(value: float) -> str:
    return f"{value:.2f}"


def _range(interval: list[float | None], form: Any) -> str:
    low, high = interval
    return f"{'−∞' if low is None else form(low)} to {'∞' if high is None else form(high)}"


def _p(value: float | None) -> str:
    if value is None:
        return "no test possible"
    return f"p={value:.2g}" if value >= 1e-4 else f"p={value:.0e}"
