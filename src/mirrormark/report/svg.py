"""Plots as inline SVG that fit any width without a script: x in percent of the width, y and text in pixels.

Colours are the page's (`class="exam"` and so on), so they follow light and dark. `<title>` is what a browser
shows while a pointer rests on a dot.
"""

import math
from collections.abc import Callable, Sequence
from html import escape

from markupsafe import Markup

Numbers = Sequence[float]
_STRETCH = 1000.0
"""Width of a curve's own coordinates, which are stretched to the width of the plot."""


class Plot:
    """A plane with two scales; everything is drawn in the order of the calls."""

    def __init__(
        self,
        alt: str,
        x: tuple[float, float],
        y: tuple[float, float],
        height_px: int = 220,
        margin_px: tuple[int, int, int, int] = (12, 16, 42, 46),
    ) -> None:
        """alt: what is seen, in words. margin_px: top, right, bottom, left; labels of axes stand there."""
        self.alt, self._x, self._y = alt, x, y
        self._height_px, self._margin_px = height_px, margin_px
        self._parts: list[str] = []

    def html(self) -> Markup:
        top, right, bottom, left = self._margin_px
        return Markup(
            f'<div class="plot" style="padding:{top}px {right}px {bottom}px {left}px">'
            f'<svg width="100%" height="{self._height_px}" role="img" aria-label="{escape(self.alt)}">'
            f"{''.join(self._parts)}</svg></div>"
        )

    # Axes --------------------------------------------------------------------------------------------------

    def x_axis(
        self, label: str, form: Callable[[float], str] | None = None, ticks: Numbers | None = None
    ) -> None:
        bottom = self._height_px
        self._parts.append(f'<line class="axis" x1="0" x2="100%" y1="{bottom}" y2="{bottom}"/>')
        for tick in round_numbers(*self._x, 5) if ticks is None else ticks:
            words = (form or _short)(tick)
            at = self._across(tick)
            self._parts.append(
                f'<line class="axis" x1="{at}" x2="{at}" y1="{bottom}" y2="{bottom + 4}"/>'
                f'<text class="tick" x="{at}" y="{bottom + 17}" text-anchor="middle">{escape(words)}</text>'
            )
        self._parts.append(
            f'<text class="quiet" x="100%" y="{bottom + 35}" text-anchor="end">{escape(label)}</text>'
        )

    def y_axis(
        self, label: str, form: Callable[[float], str] | None = None, ticks: Numbers | None = None
    ) -> None:
        """The label stands over the plot: turned text is hard to read, and takes width on a phone."""
        for tick in round_numbers(*self._y, 4) if ticks is None else ticks:
            at = self._down(tick)
            self._parts.append(
                f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>'
                f'<text class="tick" x="0" dx="-6" y="{at:g}" dy=".35em" text-anchor="end">'
                f"{escape((form or _short)(tick))}</text>"
            )
        self._parts.append(
            f'<text class="quiet" x="0" dx="{8 - self._margin_px[3]}" y="-9">{escape(label)}</text>'
        )

    # What is drawn -----------------------------------------------------------------------------------------

    def line(self, x: Numbers, y: Numbers, colour: str, *, thin: bool = False, dashed: bool = False) -> None:
        points = " ".join(f"{self._stretched(a)},{self._down(b)}" for a, b in zip(x, y) if math.isfinite(b))
        kind = f"line{' thin' if thin else ''}{' dashed' if dashed else ''}"
        self._stretch(f'<polyline class="{kind} {colour}" points="{points}"/>')

    def band(self, x: Numbers, low: Numbers, high: Numbers, colour: str) -> None:
        there = [(a, b) for a, b in zip(x, high)] + [(a, b) for a, b in zip(reversed(x), reversed(low))]
        points = " ".join(f"{self._stretched(a)},{self._down(b)}" for a, b in there if math.isfinite(b))
        self._stretch(f'<polygon class="band {colour}" points="{points}"/>')

    def segment(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str,
        kind: str = "line",
        name: str = "",
    ) -> None:
        """A straight line; kind: line, thin, wide or dashed."""
        (x1, y1), (x2, y2) = start, end
        self._parts.append(
            f'<line class="line {kind} {colour}" x1="{self._across(x1)}" x2="{self._across(x2)}" '
            f'y1="{self._down(y1)}" y2="{self._down(y2)}">{_title(name)}</line>'
        )

    def dot(
        self, x: float, y: float, colour: str, name: str = "", size_px: float = 3, link: str | None = None
    ) -> None:
        """A dot that has a name, and a ring where a click leads to the film of its run."""
        kind = "dot linked" if link else "dot"
        drawn = (
            f'<circle class="{kind} {colour}" cx="{self._across(x)}" cy="{self._down(y)}" r="{size_px:g}">'
            f"{_title(name)}</circle>"
        )
        self._parts.append(f'<a href="#{escape(link)}">{drawn}</a>' if link else drawn)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        kind: str = "",
        anchor: str = "start",
        dx_px: int = 0,
        dy_px: int = 0,
    ) -> None:
        self._parts.append(
            f'<text class="{kind}" x="{self._across(x)}" y="{self._down(y)}" dx="{dx_px}" dy="{dy_px}" '
            f'text-anchor="{anchor}">{escape(words)}</text>'
        )

    def _stretch(self, shape: str) -> None:
        """A shape whose points are numbers: SVG takes no percentages there."""
        self._parts.append(
            f'<svg width="100%" height="{self._height_px}" viewBox="0 0 {_STRETCH:g} {self._height_px}"'
            f' preserveAspectRatio="none">{shape}</svg>'
        )

    def _share(self, x: float) -> float:
        return (x - self._x[0]) / (self._x[1] - self._x[0])

    def _across(self, x: float) -> str:
        return f"{100 * self._share(x):.2f}%"

    def _stretched(self, x: float) -> str:
        return f"{_STRETCH * self._share(x):.1f}"

    def _down(self, y: float) -> float:
        return round(self._height_px * (1 - (y - self._y[0]) / (self._y[1] - self._y[0])), 1)


def legend(named: dict[str, str]) -> Markup:
    """What the colours of curves mean (name: class), over the plot, where it wraps on a phone."""
    items = "".join(f'<span><i class="{kind}"></i>{escape(name)}</span>' for name, kind in named.items())
    return Markup(f'<div class="legend">{items}</div>')


def round_numbers(low: float, high: float, about: int) -> list[float]:
    """About so many round numbers between two ends."""
    raw = (high - low) / max(about, 1)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _short(value: float) -> str:
    return f"{value:,.10g}".replace("-", "−")


def _title(name: str) -> str:
    return f"<title>{escape(name)}</title>" if name else ""
