"""One self-contained HTML report of an exam, from its folder: verdict first, then what it rests on."""

import base64
import json
import shlex
from concurrent.futures import Executor
from html import escape
from pathlib import Path
from typing import Any

from mirrormark.exam import conditions
from mirrormark.exam.crossing import POSTURES
from mirrormark.exam.results import load
from mirrormark.show import figures, film, style
from mirrormark.show.figures import Caption
from mirrormark.show.page import method, page, part, plural

_WIDE = ("removal", "fig3a", "fig5-erasure", "fig5-crossing", "fig5-dream", "fig5-samples")
"""Figures that scroll sideways on a phone instead of shrinking until nobody can read them."""


def write(directory: Path, helpers: Executor | None = None) -> Path:
    """Draw the figures and the film anew, with helpers all at a time, and write DIRECTORY/report.html."""
    results = load(directory / "results.json")
    filmed = helpers.submit(_shoot, directory, results) if helpers else None
    drawn = {caption.name: caption for caption in figures.draw(directory, helpers)}
    if filmed:
        filmed.result()
    else:
        _shoot(directory, results)
    path = directory / "report.html"
    title = f"Mirror-mark exam: {results['body']}"
    path.write_text(page(escape(title), _body(results, drawn, directory)), encoding="utf-8")
    return path


def _shoot(directory: Path, results: dict[str, Any]) -> None:
    recording = figures.stored(directory, results, "recording.npz")
    if recording:
        film.write(recording, directory / "film.mp4", results["label"])


def _body(results: dict[str, Any], drawn: dict[str, Caption], directory: Path) -> str:
    def shown(*names: str) -> str:
        return "".join(_figure(drawn[name], directory) for name in names if name in drawn)

    sections = [
        _heading(results),
        _verdict(results),
        "<h2>Removal beside its controls</h2>" + shown("removal") + _comparisons(results),
    ]
    if "fig4a" in drawn:
        sections.append("<h2>Over training</h2>" + shown("fig4b", "fig4a"))
    sections += [
        "<h2>Runs</h2>"
        + _film(results, directory)
        + shown("fig3a", "distance", "first-touch", "failures")
        + _groups(results),
        "<h2>Expected free energy before and after removal</h2>"
        + _free_energy(results)
        + shown("fig3c", "fig3b"),
        "<h2>What the self-prior has learned</h2>"
        + _probes(results["probes"])
        + shown("fig5-samples", "fig5-erasure", "fig5-crossing", "fig5-dream"),
        "<h2>Method</h2>" + method(results) + _coverage(results) + _provenance(results, directory),
    ]
    return "\n".join(sections)


def _heading(results: dict[str, Any]) -> str:
    label = f'<p><span class="label">{escape(results["label"])}</span></p>' if results["label"] else ""
    seeds = len(results["minds"])
    minds = ", ".join(f"{mind['run']} ({mind['checkpoint']})" for mind in results["minds"])
    return (
        f"<h1>Mirror-mark exam: {escape(results['body'])}, {escape(results['tone'])} tone</h1>"
        f'<p class="quiet">{seeds} training seed{"s" if seeds > 1 else ""}: {escape(minds)}</p>{label}'
    )


def _verdict(results: dict[str, Any]) -> str:
    verdict = results["verdict"]
    answers = "".join(
        f"<tr><td>{escape(question)}</td><td class='n'>{_yes(answer)}</td></tr>"
        for question, answer in verdict["answers"].items()
    )
    caveats = "".join(f"<p class='quiet'>{escape(caveat)}</p>" for caveat in verdict["caveats"])
    head = results["headline"]
    effect = (
        f"<p>Removal at the mark minus touches at the yoked site: <b>{_points(head['difference'])}</b> "
        f"({_range(head['interval'], _points)}; {_p(head['p'])}, n={head['n']}; {head['method']}).</p>"
    )
    return (
        f'<div class="verdict {verdict["status"].replace(" ", "-")}">'
        f'<p class="word">{escape(verdict["status"])}</p>'
        f"<p>{escape(verdict['sentence'])}</p>{effect}{caveats}</div>"
        f"<table><tr><th>It …</th><th></th></tr>{answers}</table>"
    )


def _comparisons(results: dict[str, Any]) -> str:
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


def _groups(results: dict[str, Any]) -> str:
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


def _free_energy(results: dict[str, Any]) -> str:
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


def _probes(found: dict[str, Any] | None) -> str:
    if not found:
        return "<p>No probes: this mind has no pixels.</p>"
    erased = found["mark_erased"]["through the self-prior"]
    painted = found["mark_painted"]["reconstructed"]
    sentence = (
        f"a marked frame passed through the self-prior loses {100 * erased:.0f}% of the mark that its"
        " reconstruction shows"
        if erased is not None
        else f"the codec paints only {100 * painted:.0f}% of the mark: there is nothing that could be erased"
    )
    rad, rms = found["proprioception_from_vision_rad"], found["vision_from_proprioception_rms"]
    rows = "".join(
        f"<tr><td>{name}</td><td class='n'>{rad[name]:.3f} rad</td><td class='n'>{rms[name]:.3f}</td></tr>"
        for name in ("self-prior", "encoder only", "chance")
    )
    return (
        f"<p>On {found['frames']} paired everyday frames of {escape(found['run'])}: {sentence}. "
        f"G is {found['g_gap_nats']:.2f} nats higher with the mark than without.</p>"
        "<table><tr><th>One sense from the other</th><th>joint angles from vision</th>"
        f"<th>vision from joint angles (RMS, 0..1)</th></tr>{rows}</table>"
        f"<p class='small'>{_CROSSING[found['proprioception_from_vision']]}</p>"
    )


_CROSSING = {
    "chosen": f"""This codec tells vision given the angles, so angles cannot be filled in from vision alone:
they are chosen among {POSTURES} postures of the same run, a control step apart, the true one among them.
Self-prior: the choice that makes the whole most familiar. Encoder only: the one whose reconstruction is
nearest to the picture. Vision from angles: the self-prior draws the vision tokens; encoder only leaves them
silent.""",
    "completed": """The missing sense is blanked before encoding. Self-prior: every token drawn anew given the
encoded ones before it (as in the public code). Encoder only: decoded as encoded. Chance: another frame's.""",
}


def _coverage(results: dict[str, Any]) -> str:
    rows = "; ".join(
        f"{100 * c['covered']:.1f}% with {c['seeds']} × {c['runs_per_seed']} runs"
        for c in results["coverage"]
    )
    return f"<p>Simulated coverage of our 95% intervals at this exam's rate, seeds × runs: {rows}.</p>"


def _provenance(results: dict[str, Any], directory: Path) -> str:
    path = directory / "provenance.json"
    found = json.loads(path.read_text()) if path.is_file() else {"sittings": [], "versions": {}, "minds": []}
    weights = sorted({mind["posture_precision"] for mind in found["minds"]} - {1.0})
    weighed = f" In G the joint angles' tokens count {' or '.join(f'{w:g}' for w in weights)}, all others 1."
    settings = results["settings"]
    seeds = f"{settings['first_exam_seed']}–{settings['first_exam_seed'] + settings['runs'] - 1}"
    commands = "\n".join(
        dict.fromkeys(shlex.join(["mirrormark", *s["command"][1:]]) for s in found["sittings"])
    )
    kept = {name: value for name, value in found["versions"].items() if name not in ("command", "host")}
    versions = ", ".join(f"{name} {value}" for name, value in kept.items())
    training = ", ".join(str(mind["training_seed"]) for mind in results["minds"])
    return (
        f"<p>Trained with seed {training}; examined in worlds {seeds}; chance: {settings['chance_runs']} "
        f"runs; actions: {escape(settings['mode'])}.{weighed if weights else ''}</p>"
        f"<p class='small'>{escape(versions)}</p><pre>{escape(commands)}</pre>"
    )


def _figure(caption: Caption, directory: Path) -> str:
    """The SVG itself, its ink turned into the page's text colour."""
    svg = (directory / "figures" / f"{caption.name}.svg").read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :].replace(style.INK, "currentColor")
    svg = _own_names(svg, caption.name)
    inner = f"<div class='scroll'>{svg}</div>" if caption.name in _WIDE else svg
    words = f"<b>{escape(caption.title)}.</b> {escape(caption.text)}"
    return f"<figure>{inner}<figcaption>{words}</figcaption></figure>"


def _own_names(svg: str, name: str) -> str:
    """Ids are shared by all figures on a page: give each figure its own."""
    for mark in ('id="', 'href="#', "url(#"):
        svg = svg.replace(mark, f"{mark}{name}-")
    return svg


def _which_runs(labels: list[str]) -> str:
    words = [{"failed": "a failed"}.get(label, f"the {label}") for label in labels]
    told = ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else words[0]
    return told[0].upper() + told[1:] + " run"


def _film(results: dict[str, Any], directory: Path) -> str:
    path = directory / "film.mp4"
    if not path.is_file():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    runs = [str(run) for run in figures.stored(directory, results, "recording.npz")["label"]]
    label = f" {results['label']}." if results["label"] else ""
    return (
        f'<figure><video controls loop muted playsinline style="max-width:{14 * len(runs)}rem"'
        f' src="data:video/mp4;base64,{data}"></video><figcaption>'
        f"<b>{_which_runs(runs)} of {escape(results['shown']['run'])}.</b>"
        f" From outside, through the eye, and G; red: removal.{escape(label)}"
        "</figcaption></figure>"
    )


def _yes(answer: bool | None) -> str:
    return {
        True: "<b class='yes'>yes</b>",
        False: "<b class='no'>no</b>",
        None: "open: a control was not run",
    }[answer]


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
