"""One self-contained HTML report of an exam, from its folder: verdict first, then what it rests on."""

import base64
import json
import shlex
from concurrent.futures import Executor
from html import escape
from pathlib import Path
from typing import Any

from mirrormark.exam.results import load
from mirrormark.report import figures, film, sections, style
from mirrormark.report.figures import Caption
from mirrormark.report.page import GLOSSARY, method, page

_WIDE = ("removal", "fig3a", "fig5-erasure", "fig5-crossing", "fig5-dream", "fig5-samples")
"""Figures that scroll sideways on a phone instead of shrinking until nobody can read them."""


def write(directory: Path, helpers: Executor | None = None) -> Path:
    """Draw the figures and the film anew, with helpers all at a time, and write DIRECTORY/report.html."""
    results = load(directory / "results.json")
    filmed = helpers.submit(_shoot, directory, results) if helpers else None
    drawn = {caption.name: caption for caption in figures.draw(directory, helpers)}
    unfilmed = filmed.result() if filmed else _shoot(directory, results)
    path = directory / "report.html"
    title = f"Mirror-mark exam: {results['body']}"
    path.write_text(page(escape(title), _body(results, drawn, directory, unfilmed)), encoding="utf-8")
    return path


def _shoot(directory: Path, results: dict[str, Any]) -> str | None:
    """Film the recorded runs. What hinders it, in a sentence, or None: a report without a film is better
    than none."""
    recording = figures.stored(directory, results, "recording.npz")
    try:
        if recording:
            film.write(recording, directory / "film.mp4", results["label"])
    except film.NoFilm as reason:
        return str(reason)
    return None


def _body(
    results: dict[str, Any], drawn: dict[str, Caption], directory: Path, unfilmed: str | None = None
) -> str:
    def shown(*names: str) -> str:
        return "".join(_figure(drawn[name], directory) for name in names if name in drawn)

    told = [
        sections.heading(results),
        sections.verdict(results) + GLOSSARY,
        "<h2>Removal beside its controls</h2>" + shown("removal") + sections.comparisons(results),
    ]
    if "fig4a" in drawn:
        told.append("<h2>Over training</h2>" + shown("fig4b", "fig4a"))
    told += [
        "<h2>Runs</h2>"
        + (f"<p>{escape(unfilmed)}</p>" if unfilmed else _film(results, directory))
        + shown("fig3a", "distance", "first-touch", "failures")
        + sections.groups(results),
        "<h2>Expected free energy before and after removal</h2>"
        + sections.free_energy(results)
        + shown("fig3c", "fig3b"),
        "<h2>What the self-prior has learned</h2>"
        + sections.probes(results["probes"])
        + shown("fig5-samples", "fig5-erasure", "fig5-crossing", "fig5-dream"),
        "<h2>Method</h2>" + method(results) + sections.coverage(results) + _provenance(results, directory),
    ]
    return "\n".join(told)


def _provenance(results: dict[str, Any], directory: Path) -> str:
    path = directory / "provenance.json"
    found = json.loads(path.read_text()) if path.is_file() else {"sessions": [], "versions": {}, "agents": []}
    weights = sorted({a["posture_precision"] for a in found["agents"] if "posture_precision" in a} - {1.0})
    weighed = f" In G the joint angles' tokens count {' or '.join(f'{w:g}' for w in weights)}, all others 1."
    settings = results["settings"]
    seeds = f"{settings['first_exam_seed']}–{settings['first_exam_seed'] + settings['runs'] - 1}"
    commands = "\n".join(
        dict.fromkeys(shlex.join(["mirrormark", *s["command"][1:]]) for s in found["sessions"])
    )
    kept = {name: value for name, value in found["versions"].items() if name not in ("command", "host")}
    versions = ", ".join(f"{name} {value}" for name, value in kept.items())
    training = ", ".join(str(agent["training_seed"]) for agent in results["agents"])
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
    recording = figures.stored(directory, results, "recording.npz")
    runs = [str(run) for run in recording["label"]]
    unseen = figures.unseen_at_first(directory, results, recording["exam_seed"].tolist())
    label = f" {results['label']}." if results["label"] else ""
    return (
        f'<figure><video controls loop muted playsinline style="max-width:{14 * len(runs)}rem"'
        f' src="data:video/mp4;base64,{data}"></video><figcaption>'
        f"<b>{_which_runs(runs)} of {escape(results['shown']['run'])}.</b>"
        f" From outside, through the eye, and G; red: removal.{escape(unseen + label)}"
        "</figcaption></figure>"
    )
