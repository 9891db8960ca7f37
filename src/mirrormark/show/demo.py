"""The demo: a short film and a contact sheet of a body before its mirror. No GPU, no OpenGL."""

from pathlib import Path

import imageio.v3 as iio
import numpy as np
from rich.progress import track

from mirrormark.world.movement import Movement, MovementConfig
from mirrormark.world.worlds import Worlds

SIDE = 384  # pixels of each of the two pictures
SHEET_COLUMNS, SHEET_ROWS = 6, 3


def demo(out: Path = Path("demo"), body: str = "infant", seed: int = 3, control_steps: int = 100) -> None:
    """Film everyday movement before the mirror: a third person's view beside what the eye sees.

    Args:
        out: Folder for the film and the contact sheet.
        body: Which body: infant or arm.
        seed: Another seed, another posture, mark and movement.
        control_steps: Length; 20 control steps are one second.
    """
    if control_steps < 1:
        raise ValueError(f"control_steps is {control_steps}; film at least 1.")
    out.mkdir(parents=True, exist_ok=True)
    worlds = Worlds(body, 1)
    movement = Movement(MovementConfig("held"), worlds.actions)
    movement.begin([seed])
    observation, info = worlds.reset(seed=[seed])
    frames = [picture(worlds, observation["vision"][0])]
    iio.imwrite(out / f"{body}-portrait.png", portrait(worlds, observation["vision"][0]))
    for _ in track(range(control_steps), description="filming"):
        observation, *_, info = worlds.step(movement.act(observation))
        frames.append(picture(worlds, observation["vision"][0]))
    film, sheet = out / f"{body}.mp4", out / f"{body}.png"
    iio.imwrite(film, np.stack(frames), fps=20, codec="libx264", macro_block_size=8)
    iio.imwrite(sheet, contact_sheet(frames))
    tone = worlds.scene.tone
    print(f"The {body} (tone: {tone}) moved at random for {control_steps / 20:.0f} s.")
    print("No trained mind is shipped yet, so nobody decides here: this shows the world, not recognition.")
    print(f"Its mark {'came off by chance' if info['mark_removed'][0] else 'stayed on'}.")
    print(f"film:          {film.resolve()}")
    print(f"portrait:      {(out / f'{body}-portrait.png').resolve()}")
    print(f"contact sheet: {sheet.resolve()}")


def portrait(worlds: Worlds, seen: np.ndarray) -> np.ndarray:
    """Two views from outside and what the eye sees, side by side."""
    outside = [worlds.render(0, camera, SIDE, SIDE) for camera in ("world", "behind")]
    return np.concatenate([*outside, enlarged(seen)], axis=1)


def enlarged(seen: np.ndarray) -> np.ndarray:
    """The eye's picture at SIDE pixels, without smoothing."""
    zoom = SIDE // seen.shape[0]
    return np.kron(seen, np.ones((zoom, zoom, 1), np.uint8))


def picture(worlds: Worlds, seen: np.ndarray) -> np.ndarray:
    """A third person's view beside the eye's own, enlarged without smoothing."""
    return np.concatenate([worlds.render(0, "behind", SIDE, SIDE), enlarged(seen)], axis=1)


def contact_sheet(frames: list[np.ndarray]) -> np.ndarray:
    """Evenly spaced frames at half size, in rows."""
    count = SHEET_COLUMNS * SHEET_ROWS
    chosen = [frames[i][::2, ::2] for i in np.linspace(0, len(frames) - 1, count).round().astype(int)]
    rows = [chosen[start : start + SHEET_COLUMNS] for start in range(0, count, SHEET_COLUMNS)]
    return np.concatenate([np.concatenate(row, axis=1) for row in rows], axis=0)
