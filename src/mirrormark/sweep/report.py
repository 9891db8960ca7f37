"""One page over a whole sweep, from its results.json: figures, tables, verdicts, failures."""

from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mirrormark.exam import conditions
from mirrormark.report import style
from mirrormark.report.page import page
from mirrormark.sweep.results import INDICATORS

TITLES = {
    "removal_rate": "runs with the mark removed",
    "distance_m": "nearer hand to mark (m)",
    "efe_gap_nats": "G with mark minus without (nats)",
    "mark_recovery": "mark kept by the tokenizer (share)",
}
_COLOURS = (style.EXAM, style.CONTROL, style.AFTER, style.REMOVAL, style.REPORTED, style.QUIET)

_PAGE = """
{%- macro name(g) %}{{ g.setting }}, {{ g.body }}
  {%- if g.label %} <span class="label">{{ g.label }}</span>{% endif %}{% endmacro -%}
{%- macro figure(one) %}<figure><div class="scroll">{{ one.svg }}</div>
<figcaption>{{ one.caption }}</figcaption></figure>{% endmacro -%}
{%- macro effects(what, rows, p) %}<div class="scroll"><table><tr><th>{{ what }}</th><th>points</th>
<th>95% interval</th>{% if p %}<th>p</th>{% endif %}<th>Holm</th><th>n</th></tr>
{% for c in rows %}<tr><td>{{ c.named }}</td><td class="n">{{ "%+.0f"|format(100 * c.difference) }}</td>
<td class="n">{{ c.interval|range }}</td>{% if p %}<td class="n">{{ c.p|p_value }}</td>{% endif %}
<td class="n">{{ c.p_holm|p_value }}</td><td class="n">{{ c.n }}</td></tr>
{% endfor %}</table></div>{% endmacro -%}

<h1>Mirror-mark sweep</h1>
<p class="quiet">{{ groups|sum("examined", [])|length }} of {{ jobs|length }} runs examined,
{{ failed|length }} failed.</p>
{% for label in labels %}<p><span class="label">{{ label }}</span></p>
{% endfor %}
<h2>Settings side by side</h2>
{% if "settings" in figures %}{{ figure(figures.settings) }}{% endif %}
<div class="scroll"><table><tr><th>Setting</th><th>removed</th><th>95% interval</th><th>spread of seeds</th>
<th>seeds</th><th>verdict</th></tr>
{% for g in groups %}<tr><td>{{ name(g) }}</td>
{%- if g.rate is none %}<td colspan="5">none of {{ g.seeds|length }} runs examined</td></tr>
{% else %}<td class="n">{{ "%.0f"|format(100 * g.rate) }}%</td><td class="n">{{ g.interval|range }}</td>
<td class="n">{% if g.spread.sd is none %}one seed{% else %}{{ "%.1f"|format(100 * g.spread.sd) }}
({{ (g.spread.lowest, g.spread.highest)|range }}){% endif %}</td>
<td class="n">{{ g.examined|length }} of {{ g.seeds|length }}</td>
<td class="words">{{ g.verdict.status if g.verdict else "control" }}</td></tr>
{% endif %}{% endfor %}</table></div>
{% if comparisons %}{{ effects("Removal of …", comparisons, true) }}
<p class="small">{{ comparisons|map(attribute="method")|unique|join(" | ") }}.</p>
{% else %}<p>One setting a body: nothing to compare.</p>{% endif %}
<h2>Learning curves</h2>
{% for one in curves if one in figures %}{{ figure(figures[one]) }}
{% else %}<p>No run has been evaluated yet.</p>{% endfor %}
<h2>Against the controls</h2>
{% for g in groups if g.controls %}<h3>{{ name(g) }}</h3><p>{{ g.verdict.sentence }}</p>
{{ effects("Removal", g.controls, false) }}
{% endfor %}
{% if failed %}<h2>Failed</h2><table><tr><th>Run</th><th>why</th><th>log</th></tr>
{% for one in failed %}<tr><td>{{ one.job }}</td><td class="words">{{ one.reason }}</td>
<td><code>{{ one.log }}</code></td></tr>
{% endfor %}</table>{% endif %}
<h2>Method</h2>
<p>Every run is one <code>mirrormark train</code> and one <code>mirrormark exam</code>; the tables of each
exam lie in <code>exams/</code>, and <code>mirrormark report exams/RUN</code> draws its own report. Rates:
Student's t on seed means, never narrower than Wilson's; one seed: Wilson's. Settings are compared on the
training seeds that both have, one difference a seed (one seed: world by world, Newcombe and exact McNemar);
p-values are Holm-corrected over all comparisons of this page. Spread: standard deviation, lowest and highest
of the seeds' rates. Curves: the median over seeds between two order statistics; fewer than six seeds cannot
give a 95% interval of a median, so then the band is their whole range and its true confidence stands in the
caption.</p>
"""


def write(results: dict[str, Any], directory: Path) -> None:
    """Draw the figures and write DIRECTORY/report.html."""
    groups, comparisons = results["groups"], results["comparisons"]
    drawn: dict[str, dict[str, Any]] = {}
    with style.styled():
        _draw(drawn, "settings", _settings(groups), f"Removal in the exam. {_labelled(groups)}", directory)
        for name in INDICATORS:
            _draw(drawn, name, learning(groups, name), _curve_caption(groups, name), directory)
    for row in comparisons:
        row["named"] = f"{row['setting']} minus {row['minus']}, {row['body']}"
    for row in (row for group in groups for row in group["controls"]):
        row["named"] = f"minus {conditions.title(row['control'])}"
    environment = Environment(autoescape=True)
    environment.filters |= {"range": _range, "p_value": _p}
    labels = list(dict.fromkeys(group["label"] for group in groups if group["label"]))
    body = environment.from_string(_PAGE).render(results, figures=drawn, curves=INDICATORS, labels=labels)
    (directory / "report.html").write_text(page("Mirror-mark sweep", body), encoding="utf-8")


def _range(ends: tuple[float | None, float | None]) -> str:
    return " to ".join("unknown" if end is None else f"{100 * end:.0f}" for end in ends)


def _p(value: float | None) -> str:
    if value is None:
        return "no test possible"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


# Figures


def _draw(drawn: dict, name: str, figure: Figure | None, caption: str, directory: Path) -> None:
    """Files of the figure, and its SVG for the page: in the page's text colour, with ids of its own."""
    if figure is None:
        return
    style.save(figure, directory / "figures", name)
    svg = (directory / "figures" / f"{name}.svg").read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :].replace(style.INK, "currentColor")
    for mark in ('id="', 'href="#', "url(#"):
        svg = svg.replace(mark, f"{mark}{name}-")
    drawn[name] = {"svg": Markup(svg), "caption": caption}


def _labelled(groups: list[dict[str, Any]]) -> str:
    return " ".join(f"{g['setting']}, {g['body']}: {g['label']}." for g in groups if g["label"])


def _curve_caption(groups: list[dict[str, Any]], indicator: str) -> str:
    points = [point for group in groups for point in group["curves"].get(indicator, [])]
    seeds, held = (
        sorted({f * point[key] for point in points}) for key, f in (("seeds", 1), ("confidence", 100))
    )
    over, band = ("–".join(dict.fromkeys(f"{one:.0f}" for one in (s[:1] + s[-1:]))) for s in (seeds, held))
    words = f"median over {over} seeds; band: {band}% interval of the median"
    return f"{TITLES[indicator].capitalize()}: {words}. {_labelled(groups)}"


def colours(count: int) -> list[str]:
    """The reports' own; more settings than it has colours are spread over a map for colour-blind eyes too."""
    if count <= len(_COLOURS):
        return list(_COLOURS[:count])
    return [to_hex(colormaps["viridis"](x)) for x in np.linspace(0, 0.92, count)]


def _settings(groups: list[dict[str, Any]]) -> Figure | None:
    """Removal of each setting: interval, and a dot a seed."""
    rows = [group for group in groups if group["rate"] is not None]
    if not rows:
        return None
    figure, (axes,) = style.new(7.0, 0.9 + 0.42 * len(rows))
    for y, (group, colour) in enumerate(zip(reversed(rows), reversed(colours(len(rows))))):
        axes.plot(group["interval"], [y, y], color=colour, linewidth=2.4, clip_on=False)
        dots = [seed["successes"] / seed["n"] for seed in group["by_seed"]]
        axes.plot(dots, [y + 0.25] * len(dots), "o", color=colour, markersize=2.8, alpha=0.7, clip_on=False)
        axes.plot(group["rate"], y, "o", color=colour, markersize=6, clip_on=False)
        words = f"{100 * group['rate']:.0f}%  n={group['n']}, {len(dots)} seed{'s' if len(dots) > 1 else ''}"
        axes.annotate(words, (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [f"{group['setting']}, {group['body']}" for group in reversed(rows)])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.tick_params(axis="y", length=0)
    style.percent_axis(axes)
    axes.set_xlabel("runs in which the mark was removed, 95% interval; small dots: training seeds")
    return figure


def learning(groups: list[dict[str, Any]], indicator: str) -> Figure | None:
    """Median over seeds at each evaluation, with its interval; a line a setting."""
    rows = [group for group in groups if group["curves"].get(indicator)]
    if not rows:
        return None
    figure, (axes,) = style.new(6.4, 3.2)
    ends = []
    for group, colour in zip(rows, colours(len(rows))):
        points, keys = group["curves"][indicator], ("episodes", "median", "low", "high")
        x, median, low, high = (np.array([point[key] for point in points], float) for key in keys)
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, median, color=colour, linewidth=2, marker="o", markersize=3.5)
        ends.append((float(median[-1]), f"{group['setting']}, {group['body']}", colour))
    axes.set(xlabel="training episodes", ylabel=TITLES[indicator])
    axes.margins(x=0.02)
    if indicator == "removal_rate":
        style.percent_axis(axes, "y")
    _names(axes, ends)  # last: they stand where the axis' final scale puts the lines' ends
    return figure


def _names(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Names beside the lines' ends; where lines meet, one above the other."""
    bottom, top = axes.get_ylim()
    step, lowest = 0.07, -1.0
    for end, name, colour in sorted(ends):
        lowest = max((end - bottom) / (top - bottom or 1.0), lowest + step)
        axes.annotate(name, (1.02, lowest), xycoords="axes fraction", color=colour, va="center", fontsize=8)
