"""One page over a whole sweep, from its table and results.json."""

from html import escape
from pathlib import Path
from typing import Any

from mirrormark.exam import conditions
from mirrormark.report import style
from mirrormark.report.page import page
from mirrormark.sweep import figures
from mirrormark.sweep.results import INDICATORS

_METHOD = """
<p>Every run is one <code>mirrormark train</code> and one <code>mirrormark exam</code>; the tables of
each exam lie in <code>exams/</code>, and <code>mirrormark report exams/RUN</code> draws its own report.
Rates: Student's t on seed means, never narrower than Wilson's; one seed: Wilson's. Settings are compared
on the training seeds that both have, one difference a seed (one seed: world by world, Newcombe and exact
McNemar); p-values are Holm-corrected over all comparisons of this page. Spread: standard deviation,
lowest and highest of the seeds' rates. Curves: the median over seeds between two order statistics; fewer
than six seeds cannot give a 95% interval of a median, so then the band is their whole range and its true
confidence stands in the caption.</p>
"""


def write(results: dict[str, Any], directory: Path) -> Path:
    """Draw the figures and write DIRECTORY/report.html."""
    groups = results["groups"]
    with style.styled():
        drawn = {"settings": figures.settings(groups)}
        drawn |= {name: figures.learning(groups, name) for name in INDICATORS}
        made = [name for name, figure in drawn.items() if figure is not None]
        for name in made:
            style.save(drawn[name], directory / "figures", name)  # type: ignore[arg-type]
    path = directory / "report.html"
    path.write_text(page("Mirror-mark sweep", _body(results, made, directory)), encoding="utf-8")
    return path


def _body(results: dict[str, Any], made: list[str], directory: Path) -> str:
    groups, failed = results["groups"], results["failed"]
    examined = sum(len(group["examined"]) for group in groups)
    labels = dict.fromkeys(group["label"] for group in groups if group["label"])
    sections = [
        "<h1>Mirror-mark sweep</h1>",
        f"<p class='quiet'>{examined} of {len(results['jobs'])} runs examined, {len(failed)} failed.</p>",
        *(f'<p><span class="label">{escape(label)}</span></p>' for label in labels),
        "<h2>Settings side by side</h2>",
        _figure("settings", _settings_caption(groups), directory) if "settings" in made else "",
        _groups(groups),
        _comparisons(results["comparisons"]),
        "<h2>Learning curves</h2>",
        *(_figure(name, _curve_caption(groups, name), directory) for name in made if name != "settings"),
        "<h2>Against the controls</h2>",
        *(_controls(group) for group in groups if group["controls"]),
        _failed(failed),
        f"<h2>Method</h2>{_METHOD}",
    ]
    return "\n".join(sections)


def _name(group: dict[str, Any]) -> str:
    label = f" <span class='label'>{escape(group['label'])}</span>" if group["label"] else ""
    return f"{escape(group['setting'])}, {escape(group['body'])}{label}"


def _groups(groups: list[dict[str, Any]]) -> str:
    rows = ""
    for group in groups:
        if group["rate"] is None:
            none = f"none of {len(group['seeds'])} runs examined"
            rows += f"<tr><td>{_name(group)}</td><td colspan='5'>{none}</td></tr>"
            continue
        spread = group["spread"]
        sd = (
            "one seed"
            if spread["sd"] is None
            else f"{100 * spread['sd']:.1f} ({_range(spread['lowest'], spread['highest'])})"
        )
        status = group["verdict"]["status"] if group["verdict"] else "control"
        rows += (
            f"<tr><td>{_name(group)}</td><td class='n'>{100 * group['rate']:.0f}%</td>"
            f"<td class='n'>{_range(*group['interval'])}</td><td class='n'>{sd}</td>"
            f"<td class='n'>{len(group['examined'])} of {len(group['seeds'])}</td>"
            f"<td>{escape(status)}</td></tr>"
        )
    return (
        "<div class='scroll'><table><tr><th>Setting</th><th>removed</th><th>95% interval</th>"
        f"<th>spread of seeds</th><th>seeds</th><th>verdict</th></tr>{rows}</table></div>"
    )


def _comparisons(found: list[dict[str, Any]]) -> str:
    if not found:
        return "<p>One setting a body: nothing to compare.</p>"
    rows = "".join(
        f"<tr><td>{escape(c['setting'])} minus {escape(c['minus'])}, {escape(c['body'])}</td>"
        f"<td class='n'>{100 * c['difference']:+.0f}</td><td class='n'>{_range(*c['interval'])}</td>"
        f"<td class='n'>{_p(c['p'])}</td><td class='n'>{_p(c['p_holm'])}</td><td class='n'>{c['n']}</td></tr>"
        for c in found
    )
    methods = " | ".join(dict.fromkeys(c["method"] for c in found))
    return (
        "<div class='scroll'><table><tr><th>Removal of …</th><th>points</th><th>95% interval</th><th>p</th>"
        f"<th>Holm</th><th>n</th></tr>{rows}</table></div><p class='small'>{escape(methods)}.</p>"
    )


def _controls(group: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>minus {escape(conditions.title(c['control']))}</td>"
        f"<td class='n'>{100 * c['difference']:+.0f}</td>"
        f"<td class='n'>{_range(*c['interval'])}</td><td class='n'>{_p(c['p_holm'])}</td>"
        f"<td class='n'>{c['n']}</td></tr>"
        for c in group["controls"]
    )
    return (
        f"<h3>{_name(group)}</h3><p>{escape(group['verdict']['sentence'])}</p><div class='scroll'><table>"
        "<tr><th>Removal</th><th>points</th><th>95% interval</th><th>Holm</th><th>n</th></tr>"
        f"{rows}</table></div>"
    )


def _failed(failed: list[dict[str, str]]) -> str:
    if not failed:
        return ""
    rows = "".join(
        ""
        f"<tr><td>{escape(one['job'])}</td><td>{escape(one['reason'])}</td><td><code>{escape(one['log'])}</code></td></tr>"
        for one in failed
    )
    return f"<h2>Failed</h2><table><tr><th>Run</th><th>why</th><th>log</th></tr>{rows}</table>"


def _settings_caption(groups: list[dict[str, Any]]) -> str:
    return f"Removal in the exam. {_labelled(groups)}"


def _curve_caption(groups: list[dict[str, Any]], indicator: str) -> str:
    points = [point for group in groups for point in group["curves"].get(indicator, [])]
    seeds, held = ({point[key] for point in points} for key in ("seeds", "confidence"))
    return (
        f"{figures.TITLES[indicator].capitalize()}: median over {_span(seeds, '{:.0f}')} seeds; band: "
        f"{_span({100 * one for one in held}, '{:.0f}')}% interval of the median. {_labelled(groups)}"
    )


def _labelled(groups: list[dict[str, Any]]) -> str:
    return " ".join(f"{g['setting']}, {g['body']}: {g['label']}." for g in groups if g["label"])


def _span(values: set[float], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low}–{high}"


def _figure(name: str, caption: str, directory: Path) -> str:
    """The SVG itself, in the page's text colour; ids are shared by a page, so each figure gets its own."""
    svg = (directory / "figures" / f"{name}.svg").read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :].replace(style.INK, "currentColor")
    for mark in ('id="', 'href="#', "url(#"):
        svg = svg.replace(mark, f"{mark}{name}-")
    return f"<figure><div class='scroll'>{svg}</div><figcaption>{escape(caption)}</figcaption></figure>"


def _range(low: float | None, high: float | None) -> str:
    ends = ["unknown" if end is None else f"{100 * end:.0f}" for end in (low, high)]
    return f"{ends[0]} to {ends[1]}"


def _p(value: float | None) -> str:
    if value is None:
        return "no test possible"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
