"""The median, the best and a failed run side by side: from outside, through the eye, and the curve of G."""

import textwrap
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mirrormark.exam.protocol import CONTROL_STEP_S
from mirrormark.exam.recording import senses_of
from mirrormark.report import style

_PX = 240
_CURVE_PX = 112
_HOLD_FRAMES = 12
"""The last picture stays for so long, so that a loop does not jump at once."""
_REMEDY = "Install imageio-ffmpeg and write the report again: mirrormark report FOLDER."


class NoFilm(Exception):
    """There is no ffmpeg that works here; the message is a sentence for the reader."""


def write(recording: dict[str, np.ndarray], path: Path, label: str | None = None) -> None:
    """An mp4 that any browser plays; one column a run, and the label, if any, in every frame."""
    columns = [_column(recording, run) for run in range(len(recording["label"]))]
    frames = np.concatenate(columns, axis=2)
    if label:
        banner = _title(label, frames.shape[2], style.REMOVAL)
        frames = np.concatenate([np.broadcast_to(banner, (len(frames), *banner.shape)), frames], axis=1)
    path.unlink(missing_ok=True)  # an earlier one must not pass for this one
    try:
        _encode([*frames, *[frames[-1]] * _HOLD_FRAMES], path)
    except (ImportError, OSError, RuntimeError) as problem:
        raise NoFilm(f"No film: ffmpeg does not work here ({problem}). {_REMEDY}") from problem
    if not path.is_file():  # an ffmpeg that dies is not reported by imageio
        raise NoFilm(f"No film: ffmpeg wrote nothing. {_REMEDY}")


def _encode(frames: list[np.ndarray], path: Path) -> None:
    with imageio.get_writer(
        path,
        format="FFMPEG",
        fps=round(1 / CONTROL_STEP_S),
        codec="libx264",
        quality=5,
        macro_block_size=8,
    ) as out:
        for frame in frames:
            out.append_data(frame)


def _column(recording: dict[str, np.ndarray], run: int) -> np.ndarray:
    """(T, height, _PX, 3): title, outside, eye, G with a cursor."""
    outside = recording["outside"][run]
    total, removed_s = len(outside), float(recording["removed_s"][run])
    title = f"{recording['label'][run]}, world {recording['exam_seed'][run]}"
    parts = [np.broadcast_to(_title(title), (total, 24, _PX, 3)), outside]
    vision = senses_of(recording, run).get("vision")
    if vision is not None:
        large = vision.repeat(3, axis=1).repeat(3, axis=2)  # 64 → 192
        margin = (_PX - large.shape[2]) // 2
        parts.append(np.pad(large, ((0, 0), (4, 4), (margin, margin), (0, 0)), constant_values=255))
    g = recording["expected_free_energy_nats"]
    return np.concatenate([*parts, _curve(g[run], removed_s, _limits(g))], axis=1)


def _limits(g: np.ndarray) -> tuple[float, float] | None:
    """One scale for all runs of a film, so that curves side by side can be compared; None without any G."""
    if not np.isfinite(g).any():
        return None
    low, high = float(np.nanmin(g)), float(np.nanmax(g))
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def _drawn(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _title(text: str, width_px: int = _PX, colour: str = style.INK) -> np.ndarray:
    """(24 px a line, width, 3): words, broken where they would not fit."""
    lines = textwrap.wrap(text, width_px // 5)
    figure = Figure(figsize=(width_px / 100, 0.24 * len(lines)), dpi=100, facecolor="white")
    figure.text(0.5, 0.5, "\n".join(lines), ha="center", va="center", fontsize=8, color=colour)
    return _drawn(figure)


def _curve(g: np.ndarray, removed_s: float, limits: tuple[float, float] | None) -> np.ndarray:
    """The whole curve of G drawn once, then a cursor that runs along it."""
    figure = Figure(figsize=(_PX / 100, _CURVE_PX / 100), dpi=100, facecolor="white")
    axes = figure.add_axes((0.15, 0.2, 0.8, 0.58))
    time_s = CONTROL_STEP_S * np.arange(len(g))
    axes.plot(time_s, g, color=style.EXAM, linewidth=1)
    if limits:
        axes.set_ylim(limits)
    if np.isfinite(removed_s):
        axes.axvline(removed_s, color=style.REMOVAL, linewidth=1)
    axes.set_xlim(0, time_s[-1])
    axes.tick_params(labelsize=5, length=2)
    axes.set_title("G (nats)", fontsize=6, pad=2, loc="left")
    picture = _drawn(figure)
    left, right = (round(axes.transData.transform((t, 0))[0]) for t in (0, time_s[-1]))
    frames = np.repeat(picture[None], len(g), axis=0)
    for step, x in enumerate(np.linspace(left, right, len(g)).round().astype(int)):
        frames[step, 20:-22, x] = (120, 120, 120)
    return frames
