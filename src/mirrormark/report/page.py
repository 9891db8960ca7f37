"""HTML from templates: the page that every report shares, and how numbers are written."""

import math
from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def percent(share: float | None) -> str:
    """A share 0..1 in whole percent, so that one number looks the same wherever it stands."""
    return "–" if share is None else f"{100 * share:.0f}%"


def points(difference: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{100 * difference:+.0f}".replace("-", "−")


def nats(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def interval(ends: tuple[float | None, float | None], form: Callable[[float], str]) -> str:
    """A 95% interval; an end that is not known is infinite."""
    low, high = ends
    return f"{'−∞' if low is None else form(low)} to {'∞' if high is None else form(high)}"


def p_value(value: float | None) -> str:
    if value is None:
        return "no test possible"
    if value >= 1e-4:
        return f"p={value:.2g}"
    return f"p=10^{math.floor(math.log10(value))}" if value > 0 else "p<10^-300"


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
    forms = {"percent": percent, "points": points, "nats": nats}
    environment.filters |= {**forms, "p_value": p_value, "plural": plural, "part": part, "listed": listed}
    environment.filters["interval"] = lambda ends, form: interval(ends, forms[form])
    return environment
