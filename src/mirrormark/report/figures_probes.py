"""Fig. 5: what the self-prior has learned, as rows of pictures."""

import numpy as np
from matplotlib.figure import Figure

from mirrormark.report import style

GAP_PX = 4
"""Between two pictures of a row."""
ROWS = {
    "samples": "drawn from\nthe self-prior",
    "erasure": None,
    "crossing": None,
    "dream": None,
}
"""Groups of pictures; a group without a name has one row for each of its own names."""


def pictures(stored: dict[str, np.ndarray], group: str) -> Figure | None:
    """All rows of one group, labelled at their left."""
    rows = {
        name.partition("/")[2] or ROWS[group]: value for name, value in stored.items() if _in(name, group)
    }
    if not rows:
        return None
    columns = max(len(row) for row in rows.values())
    figure, axes = style.new(0.82 * columns + 1.5, 0.86 * len(rows), len(rows))
    for axis, (label, row) in zip(axes, rows.items(), strict=True):
        axis.set_axis_off()
        axis.set_anchor("E")  # what room is left over is the labels'
        axis.imshow(side_by_side(row, columns), interpolation="nearest")
        axis.annotate(
            _broken(str(label)), (-0.015, 0.5), xycoords="axes fraction", ha="right", va="center", fontsize=8
        )
    return figure


def side_by_side(row: np.ndarray, columns: int) -> np.ndarray:
    """Pictures (N, H, W, 3) as one (H, …, 4) with clear gaps: an axis for each would take seconds."""
    n, height, width, _ = row.shape
    tiles = np.zeros((columns, height, width + GAP_PX, 4), np.uint8)
    tiles[:n, :, :width, :3], tiles[:n, :, :width, 3] = row, 255
    return np.concatenate(list(tiles), axis=1)[:, :-GAP_PX]


def _in(name: str, group: str) -> bool:
    return name == group or name.startswith(f"{group}/")


def _broken(label: str) -> str:
    """Long labels over two lines."""
    words = label.split(" ")
    if "\n" in label or len(label) < 16:
        return label
    half = len(words) // 2
    return " ".join(words[:half]) + "\n" + " ".join(words[half:])
