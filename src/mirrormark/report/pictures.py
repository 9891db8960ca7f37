"""Rows of pictures as small inline images: one run as it was seen, and what the self-prior has learned."""

import base64
import io

import numpy as np
from PIL import Image

from mirrormark.report.exam_data import CONTROL_STEP_S, Exam, RecordedRun

GAP_PX = 4
"""Between two pictures of a row."""
STRIP_FRAMES = 8
_SIDE_PX = 128


def data_uri(picture: np.ndarray, kind: str = "webp", quality: int = 88) -> str:
    """A picture (H, W, 3 or 4) as an address that holds the picture itself."""
    kept = io.BytesIO()
    Image.fromarray(picture).save(kept, kind, quality=quality)
    return f"data:image/{kind};base64,{base64.b64encode(kept.getvalue()).decode()}"


def probe_rows(exam: Exam, group: str) -> list[dict[str, str | int]]:
    """The rows of one group of probes: name, picture and width."""
    rows = {
        name.partition("/")[2]: value for name, value in exam.probes.items() if name.split("/")[0] == group
    }
    return [{"name": name, "src": data_uri(side_by_side(row)), "n": len(row)} for name, row in rows.items()]


def side_by_side(row: np.ndarray) -> np.ndarray:
    """Pictures (N, H, W, 3) as one (H, …, 4) with clear gaps."""
    n, height, width, _ = row.shape
    tiles = np.zeros((n, height, width + GAP_PX, 4), np.uint8)
    tiles[:, :, :width, :3], tiles[:, :, :width, 3] = row, 255
    return np.concatenate(list(tiles), axis=1)[:, :-GAP_PX]


def strip(run: RecordedRun) -> list[dict[str, str | bool]]:
    """Fig. 3a: moments of one run from outside and, below, through its eye; the first without the mark."""
    cells: list[dict[str, str | bool]] = []
    for step in moments(len(run.outside), run.removed_frame):
        views = [run.outside[step], *([] if run.seen is None else [run.seen[step]])]
        sized = [
            np.asarray(Image.fromarray(view).resize((_SIDE_PX, _SIDE_PX), Image.Resampling.BICUBIC))
            for view in views
        ]
        time = f"{step * CONTROL_STEP_S:.2f} s"
        gone = step == run.removed_frame
        alt = f"{time}: from outside and through its eye{'; the mark has just come off' if gone else ''}"
        cells.append({"time": time, "src": data_uri(np.concatenate(sized)), "alt": alt, "gone": gone})
    return cells


def moments(total: int, gone: int | None) -> list[int]:
    """Evenly over the run; with a removal: up to it, at it and just after."""
    if gone is None:
        return np.linspace(0, total - 1, STRIP_FRAMES).round().astype(int).tolist()
    before = np.linspace(0, gone, STRIP_FRAMES - 2).round().astype(int).tolist()
    after = np.linspace(gone, total - 1, 3).round().astype(int).tolist()[1:]
    return sorted(set(before + after))
