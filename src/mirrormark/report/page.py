"""HTML from templates: the page that every report shares, and how numbers are written."""

import math

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_DUST = 1e-6
"""Of a percent: 7.0000001 is 7."""


def percent(share: float | None) -> str:
    """A share 0..1 in whole percent, so that one number reads the same everywhere."""
    return "–" if share is None else f"{100 * share:.0f}%"


def points(difference: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100 * difference:+.0f}".replace("-", "−")


def nats(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def interval(ends: tuple[float | None, float | None], form: str = "percent") -> str:
    """A 95% interval, rounded outward as in the verdict, so that it reads the same everywhere."""
    low, high = ends
    if form == "percent":
        high = 1.0 if high is None else high
        return f"{math.floor(100 * (low or 0.0) + _DUST)}–{math.ceil(100 * high - _DUST)}%"
    if form == "points":
        low = None if low is None else math.floor(100 * low + _DUST) / 100
        high = None if high is None else math.ceil(100 * high - _DUST) / 100
    write = points if form == "points" else nats
    return f"{'−∞' if low is None else write(low)} to {'∞' if high is None else write(high)}"


def p_value(value: float | None) -> str:
    if value is None:
        return "no test possible"
    return f"p={value:.2g}" if value >= 1e-4 else f"p={value:.0e}"


def plural(n: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(words: list[str]) -> str:
    """a, b and c."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def part(geom: str) -> str:
    """A surface's name as people say it: head_geom is the head."""
    return geom.removesuffix("_geom").replace("_", " ")


def render(template: str, **values: object) -> str:
    """A template of this package, filled in; everything that is not Markup is escaped."""
    return _environment().get_template(template).render(**values)


def page(title: str, body: str) -> str:
    """A whole HTML document around a body that is HTML already."""
    return render("base.html", title=title, body=Markup(body))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mirrormark.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    forms = (percent, points, nats, interval, p_value, plural, part, listed)
    environment.filters |= {form.__name__: form for form in forms}
    return environment
