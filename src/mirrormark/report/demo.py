"""The demo: the shipped agent through a short exam; without one, a film of a body before its mirror."""

import shlex
import shutil
import sys
from pathlib import Path

import imageio.v3 as iio
import numpy as np
from rich.console import Console
from rich.progress import track

from mirrormark.envs import bodies
from mirrormark.envs.babbling import Babbling, BabblingConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.exam import candidates, commands
from mirrormark.exam.run import Settings
from mirrormark.report import report
from mirrormark.training.weights import shipped

SIDE = 384  # pixels of each of the two pictures
SHEET_COLUMNS, SHEET_ROWS = 6, 3
CONDITIONS = ("mirror", "absent", "babbling")
"""With and without mirror, and chance."""
CHANCE_RUNS = 200
COMPILES = "The first time, the world is compiled: half a minute."


def demo(
    out: Path = Path("demo"),
    body: str = "infant",
    runs: int = 80,
    film: bool = False,
    seed: int = 3,
    control_steps: int = 100,
) -> None:
    """Put the shipped agent through a short exam with and without a mirror; without one, film its body.

    Args:
        out: Folder for the exam and its report, or for the film.
        body: Which body: infant or arm.
        runs: Runs of each condition.
        film: Only film the body, moving at random.
        seed: Of the film: another seed, another posture, mark and movement.
        control_steps: Length of the film; 20 control steps are one second.
    """
    bodies.get(body)
    if control_steps < 1:
        raise ValueError(f"control_steps is {control_steps}; film at least 1.")
    place = shipped(body)
    if place is not None and not film:
        _exam(place, out / "exam", runs)
        return
    if place is None:
        print(f"No trained agent is shipped for the {body}: this shows random movement only.")
    _film(out, body, seed, control_steps)


def _exam(place: Path, out: Path, runs: int) -> None:
    """A short exam from scratch, its report, and the verdict in a few lines."""
    console, candidate = Console(), candidates.load(place)
    settings = Settings(runs=runs, chance_runs=CHANCE_RUNS, conditions=CONDITIONS)
    if (out / "exam.json").exists():  # of an earlier demo
        shutil.rmtree(out)
    console.print(
        f"The shipped {candidate.setup.body} takes a short exam: {runs} runs with a mirror, {runs} without."
        f" {COMPILES}",
        highlight=False,
    )
    found = commands.examine([candidate], out, settings, console)
    page = report.write(out)
    commands.show(found, console)
    program = called()
    print(f"report: {page.resolve()}")
    for film in sorted(out.glob("film-*.mp4")):
        print(f"film:   {film.resolve()}")
    print(f"The whole exam, with all controls: {program} exam {place.name} --out exam")
    print(f"Meet it in the browser: {program} lab --body {place.name}")


def called() -> str:
    """This command as it can be typed here: `make demo` leaves it in an environment that is not active."""
    folder = Path(sys.executable).parent
    on_path, own = shutil.which("mirrormark"), shutil.which("mirrormark", path=str(folder))
    if own is None:
        return shlex.join([_from_here(Path(sys.executable)), "-m", "mirrormark"])
    if on_path is not None and Path(on_path).samefile(own):
        return "mirrormark"
    return shlex.quote(_from_here(Path(own)))


def _from_here(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _film(out: Path, body: str, seed: int, control_steps: int) -> None:
    """A third person's view beside what the eye sees, by motor babbling."""
    print(COMPILES, flush=True)
    out.mkdir(parents=True, exist_ok=True)
    envs = MirrorMarkEnvs(body, 1)
    babbling = Babbling(BabblingConfig("held"), envs.actions)
    babbling.begin([seed])
    observation, info = envs.reset(seed=[seed])
    frames = [picture(envs, observation["vision"][0])]
    iio.imwrite(out / f"{body}-portrait.png", portrait(envs, observation["vision"][0]))
    for _ in track(range(control_steps), description="filming"):
        observation, *_, info = envs.step(babbling.act(observation))
        frames.append(picture(envs, observation["vision"][0]))
    film, sheet = out / f"{body}.mp4", out / f"{body}.png"
    iio.imwrite(film, np.stack(frames), fps=20, codec="libx264", macro_block_size=8)
    iio.imwrite(sheet, contact_sheet(frames))
    print(f"The {body} (tone: {envs.scene.tone}) moved at random for {control_steps / 20:.0f} s.")
    print(f"Its mark {'came off by chance' if info['mark_removed'][0] else 'stayed on'}.")
    print(f"film:          {film.resolve()}")
    print(f"portrait:      {(out / f'{body}-portrait.png').resolve()}")
    print(f"contact sheet: {sheet.resolve()}")


def portrait(envs: MirrorMarkEnvs, seen: np.ndarray) -> np.ndarray:
    """Two views from outside and what the eye sees, side by side."""
    outside = [envs.picture(0, camera, SIDE, SIDE) for camera in ("world", "behind")]
    return np.concatenate([*outside, enlarged(seen)], axis=1)


def enlarged(seen: np.ndarray) -> np.ndarray:
    """The eye's picture at SIDE pixels, without smoothing."""
    zoom = SIDE // seen.shape[0]
    return np.kron(seen, np.ones((zoom, zoom, 1), np.uint8))


def picture(envs: MirrorMarkEnvs, seen: np.ndarray) -> np.ndarray:
    """A third person's view beside the eye's own, enlarged without smoothing."""
    return np.concatenate([envs.picture(0, "behind", SIDE, SIDE), enlarged(seen)], axis=1)


def contact_sheet(frames: list[np.ndarray]) -> np.ndarray:
    """Evenly spaced frames at half size, in rows."""
    count = SHEET_COLUMNS * SHEET_ROWS
    chosen = [frames[i][::2, ::2] for i in np.linspace(0, len(frames) - 1, count).round().astype(int)]
    rows = [chosen[start : start + SHEET_COLUMNS] for start in range(0, count, SHEET_COLUMNS)]
    return np.concatenate([np.concatenate(row, axis=1) for row in rows], axis=0)
