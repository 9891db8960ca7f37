"""The style of matplotlib figures: few colours that stay apart for colour-blind eyes, labels beside their
lines."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#1b1b1a"
"""Text and axes; the report turns it into the page's text colour, so that figures work in light and dark."""
QUIET = "#8a8a86"
EXAM = "#2f7fc1"
CONTROL = "#d98a1f"
REPORTED = "#7a9a8e"
AFTER = "#1f9e77"
REMOVAL = "#d1495b"

_SETTINGS = {
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "svg.hashsalt": "mirrormark",  # the same figure is the same bytes
    "figure.constrained_layout.use": True,
}


@contextmanager
def styled() -> Iterator[None]:
    with plt.rc_context(_SETTINGS):  # pyright: ignore[reportArgumentType]
        yield


def new(
    width_in: float = 6.4, height_in: float = 3.2, rows: int = 1, columns: int = 1, **more
) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(rows, columns, figsize=(width_in, height_in), squeeze=False, **more)
    return figure, list(axes.ravel())


def save(figure: Figure, folder: Path, name: str, label: str | None = None) -> None:
    """PNG on white for slides and mail, SVG without ground for the report; a label goes wherever they go."""
    if label:
        figure.set_figheight(figure.get_figheight() + 0.25)
        figure.suptitle(label, fontsize=8, color=REMOVAL, x=0.01, ha="left")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=160, facecolor="white", metadata={"Software": None})
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def percent_axis(axes: Axes, which: str = "x") -> None:
    """A share 0..1 shown as 0–100%."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    (axes.set_xlim if which == "x" else axes.set_ylim)(0, 1)
