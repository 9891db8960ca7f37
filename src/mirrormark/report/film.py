"""Films of single runs at half speed: G on top, below it the view from outside and through the eye."""

from pathlib import Path

import imageio.v2 as imageio
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mirrormark.report.exam_data import CONTROL_STEP_S, RecordedRun

SPEED = 0.5
_SIDE_PX = 256
_TOP_PX, _CURVE_PX = 28, 92
_AFTER_S, _HOLD_FRAMES = 1.0, 8
"""A film goes on for a second after removal; its last picture stays for a moment before the loop."""
_RED_FRAMES = 5
"""How long a red frame shows that the mark has come off."""
_GROUND, _INK, _QUIET = (24, 25, 28), (236, 234, 229), (150, 149, 144)
_BLUE, _RED = (92, 164, 222), (232, 92, 108)
_REMEDY = "Install imageio-ffmpeg and write the report again: mirrormark report FOLDER."


class NoFilm(Exception):
    """There is no ffmpeg that works here; the message is a sentence for the reader."""


def write(run: RecordedRun, path: Path, limits: tuple[float, float], label: str | None = None) -> np.ndarray:
    """An mp4 that any browser plays; its first picture is returned. limits: of G, the same for films side by
    side. label: words that must be in every frame."""
    drawn = frames(run, limits, label)
    path.unlink(missing_ok=True)  # an earlier one must not pass for this one
    try:
        _encode([*drawn, *[drawn[-1]] * _HOLD_FRAMES], path)
    except (ImportError, OSError, RuntimeError) as problem:
        raise NoFilm(f"No film: ffmpeg does not work here ({problem}). {_REMEDY}") from problem
    if not path.is_file():  # an ffmpeg that dies is not reported by imageio
        raise NoFilm(f"No film: ffmpeg wrote nothing. {_REMEDY}")
    return drawn[0]


def _encode(pictures: list[np.ndarray], path: Path) -> None:
    fps = round(SPEED / CONTROL_STEP_S)
    options = ["-crf", "27", "-preset", "slow", "-movflags", "+faststart"]
    with imageio.get_writer(
        path,
        format="FFMPEG",
        fps=fps,
        codec="libx264",
        quality=None,
        output_params=options,
        macro_block_size=4,
    ) as out:
        for picture in pictures:
            out.append_data(picture)


def g_limits(runs: list[RecordedRun]) -> tuple[float, float]:
    """One scale for all films of a page, so that their curves can be compared."""
    g = np.concatenate([run.g[: _frames_of(run)] for run in runs])
    if not np.isfinite(g).any():
        return 0.0, 1.0
    low, high = float(np.nanmin(g)), float(np.nanmax(g))
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def frames(run: RecordedRun, limits: tuple[float, float], label: str | None = None) -> list[np.ndarray]:
    """(height, width, 3) each. Nothing lies over G: a player's controls cover the foot of the pictures."""
    total = _frames_of(run)
    width = _SIDE_PX * (1 if run.seen is None else 2)
    curve = _curve(run.g[:total], width, limits, run.removed_frame)
    name = f"world {run.exam_seed}, half speed" + (f" · {label}" if label else "")
    pictures = []
    for step in range(total):
        views = [run.outside[step]] + ([] if run.seen is None else [run.seen[step]])
        canvas = Image.new("RGB", (width, _TOP_PX + _CURVE_PX + _SIDE_PX), _GROUND)
        canvas.paste(curve, (0, _TOP_PX))
        for k, view in enumerate(views):
            smooth = Image.Resampling.NEAREST if view.shape[0] < _SIDE_PX / 2 else Image.Resampling.BICUBIC
            canvas.paste(
                Image.fromarray(view).resize((_SIDE_PX, _SIDE_PX), smooth),
                (k * _SIDE_PX, _TOP_PX + _CURVE_PX),
            )
        _annotate(canvas, run, step, total, name)
        pictures.append(np.asarray(canvas))
    return pictures


def _frames_of(run: RecordedRun) -> int:
    if run.removed_frame is None:
        return len(run.outside)
    return min(run.removed_frame + round(_AFTER_S / CONTROL_STEP_S) + 1, len(run.outside))


def _annotate(canvas: Image.Image, run: RecordedRun, step: int, total: int, name: str) -> None:
    """The name above, a cursor on G, the time over the picture, and the removal."""
    pen, top = ImageDraw.Draw(canvas), _TOP_PX + _CURVE_PX
    pen.text((8, 7), name, fill=_QUIET, font=_font(_fitting(pen, name, canvas.width - 16)))
    x = _x_of(step, total, canvas.width)
    pen.line((x, _TOP_PX + 4, x, top - 4), fill=_INK, width=1)
    time = f"{step * CONTROL_STEP_S:.2f} s"
    gone = run.removed_frame is not None and step >= run.removed_frame
    words = f"{time} · mark off at {run.removed_s:.2f} s" if gone else time
    pen.text(
        (9, top + 7), words, fill=_RED if gone else _INK, font=_font(19), stroke_width=3, stroke_fill=_GROUND
    )
    if gone and run.removed_frame is not None and step < run.removed_frame + _RED_FRAMES:
        pen.rectangle((0, top, canvas.width - 1, canvas.height - 1), outline=_RED, width=5)


def _curve(g: np.ndarray, width: int, limits: tuple[float, float], gone: int | None) -> Image.Image:
    """The whole curve of G, with its limits and the moment of removal."""
    picture = Image.new("RGB", (width, _CURVE_PX), _GROUND)
    pen = ImageDraw.Draw(picture)
    low, high = limits
    points = [
        (_x_of(step, len(g), width), round((_CURVE_PX - 8) - (value - low) / (high - low) * (_CURVE_PX - 16)))
        for step, value in enumerate(g)
        if np.isfinite(value)
    ]
    if gone is not None:
        x = _x_of(gone, len(g), width)
        pen.line((x, 4, x, _CURVE_PX - 4), fill=_RED, width=2)
    if points:
        pen.line(points, fill=_BLUE, width=2, joint="curve")
        pen.text((8, 2), f"{high:.0f} nats", fill=_QUIET, font=_font(12))
        pen.text((8, _CURVE_PX - 17), f"{low:.0f}", fill=_QUIET, font=_font(12))
        pen.text((8, _CURVE_PX / 2 - 9), "G", fill=_BLUE, font=_font(15))
    return picture


def _x_of(step: int, total: int, width: int) -> int:
    return round(60 + step / max(total - 1, 1) * (width - 72))


def _fitting(pen: ImageDraw.ImageDraw, words: str, width: int) -> int:
    """The largest type size at which the words fit: a label must be whole in every frame."""
    sizes = range(14, 5, -1)
    return next((size for size in sizes if pen.textlength(words, font=_font(size)) <= width), sizes[-1])


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
