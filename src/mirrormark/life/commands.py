"""What `mirrormark train` and `runs` do, once their words are understood."""

import errno
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numba
import torch
from rich.console import Console
from rich.table import Table

from mirrormark.life import checkpoint
from mirrormark.life.live import Hook, Life, LifeConfig, UnstableWorlds, live
from mirrormark.life.nan import NotFinite
from mirrormark.life.records import Records
from mirrormark.life.run import Run, RunError, list_runs, to_json
from mirrormark.life.schedule import Lap
from mirrormark.life.setup import WorldSetup
from mirrormark.life.weights import load_codec, shipped
from mirrormark.mind.codec import Codec
from mirrormark.mind.mind import MindConfig

Device = Literal["auto", "cpu", "cuda"]
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Interrupted(Exception):
    """Asked to stop: the lap is finished and saved."""


def choose_device(device: Device) -> torch.device:
    """The device asked for; auto takes a GPU where there is one."""
    there = torch.cuda.is_available()
    if device == "cuda" and not there:
        raise ValueError("--device cuda: torch finds no CUDA GPU on this machine; use --device cpu.")
    return torch.device("cuda" if there and device != "cpu" else "cpu")


def shared_codec(source: str | None, body: str) -> Codec | None:
    """The codec that life.codec_from names; None: the life learns its own."""
    if source is None:
        return None
    if source == "shipped":
        place = shipped(f"{body}-codec")
        if place is None:
            print(f"No trained codec is shipped for the {body}: this life learns its own.")
            return None
        return load_codec(place)
    return load_codec(source)


def train(
    name: str,
    world: WorldSetup,
    mind: MindConfig,
    config: LifeConfig,
    seed: int,
    out: Path,
    resume: bool = False,
    device: Device = "auto",
    hooks: tuple[Hook, ...] = (),
) -> None:
    """Start or resume a run in the folder `out`."""
    if seed < 0:
        raise ValueError(f"--seed is {seed}: give a whole number of 0 or more.")
    place = choose_device(device)
    codec = shared_codec(config.codec_from, world.body)
    if codec is not None:
        mind = replace(mind, codec=replace(codec.config, hush=mind.codec.hush))
        config = replace(config, schedule=replace(config.schedule, codec_laps=0))
    asked = {"preset": name, "body": world.body, "seed": seed, "ablation": world.ablation}
    asked |= {"world": to_json(world), "mind": to_json(mind), "life": to_json(config)}
    # What cannot be used or lived is refused before a folder is made.
    if resume:
        Run.reopen(out, asked)
    else:
        Run.check_free(out)
    life = Life(world, mind, config, seed, place)
    if codec is not None:
        life.take_codec(codec)
    with Run(out).held(), _threads(world.threads):
        # Asked again: while the life was set up, another process may have taken the folder and left it.
        run = Run.reopen(out, asked) if resume else Run.create(out, asked)
        _live_in(run, life, name, resume, hooks)


@contextmanager
def _threads(most: int | None) -> Iterator[None]:
    """Keep what follows the physics on the CPU to as many threads: lives side by side have a share each."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(most or before, before))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def _live_in(run: Run, life: Life, preset: str, resume: bool, hooks: tuple[Hook, ...]) -> None:
    """The life in its folder, whose status always tells how it stands or ended."""
    console = Console()
    if life.world.ablation:
        console.print(f"[bold]{life.world.ablation}[/bold]")
    try:
        if resume:
            run.note("starting", **_standing(run))
            _go_on(life, run, console)
        records = Records(run, life, preset, console)
        if not checkpoint.names(run.checkpoints):
            records.save()  # from the first moment on there is something to resume from
        run.note("running", lap=life.next_lap, episodes=life.episodes_lived)
        with _StopSoon(console, records) as stop, records:
            live(life, (records, *hooks, stop), run.path / "nan")
        run.note("finished", lap=life.next_lap, episodes=life.episodes_lived)
    except (Interrupted, KeyboardInterrupt):
        run.note("interrupted", **_standing(run))
        console.print(f"Interrupted; go on with the same command and --resume. {run.path}")
    except BaseException as error:
        _note_failure(run, error)
        if isinstance(error, OSError):
            what, mend = error.strerror or str(error), "Make room" if error.errno in _FULL else "Mend that"
            raise RunError(f"{run.path}: {what}. {mend}, then go on with --resume.") from error
        if isinstance(error, NotFinite | UnstableWorlds | torch.OutOfMemoryError):
            raise RunError(f"{run.path}: {error}") from error
        raise
    else:
        console.print(f"Finished: {run.path}")


def _note_failure(run: Run, error: BaseException) -> None:
    """On a disk that is really full not even this can be written; the first mistake is the one to tell."""
    with suppress(OSError):
        run.note("failed", reason=str(error), **_standing(run))


def _go_on(life: Life, run: Run, console: Console) -> None:
    """Load the newest undamaged checkpoint; a run killed before its first one starts over."""
    if not checkpoint.names(run.checkpoints):
        console.print(f"{run.path} has no checkpoint yet: starting from the beginning.")
        run.forget_after(0)
        return
    name, tree, complaints = checkpoint.load_newest(run.checkpoints)
    for complaint in complaints:
        console.print(f"{complaint} Going back to {name}.")
    then = checkpoint.read_manifest(run.checkpoints / name)["torch"]
    if then != torch.__version__:
        console.print(
            f"This run was saved by torch {then}; on {torch.__version__} it goes on, not bit for bit."
        )
    life.load_state(tree)
    run.forget_after(life.next_lap)
    console.print(f"Resuming {run.path} at lap {life.next_lap} of {life.schedule.total_laps}.")


def _standing(run: Run) -> dict[str, Any]:
    status = run.status()
    return {key: status.get(key, 0) for key in ("lap", "episodes")}


class _StopSoon:
    """Ctrl-C or SIGTERM: finish the lap, save, keep its weights, stop. A second one stops at once, at the
    last checkpoint."""

    def __init__(self, console: Console, records: Records) -> None:
        self._console, self._records, self._asked = console, records, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_StopSoon":
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[number] = signal.signal(number, self._ask)
            except ValueError:  # not the main thread: nobody can press Ctrl-C there
                return self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        self._console.print("Stopping after this lap; once more stops at once.")

    def __call__(self, lap: Lap, life: Life, metrics: dict[str, float]) -> None:
        if self._asked:
            if not lap.checkpoint:
                self._records.save(lap)
            if not lap.exam:
                self._records.snapshot(lap)
            raise Interrupted


def runs(folder: Path = Path("runs")) -> None:
    """List the runs below a folder with their state.

    Args:
        folder: Where to look.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: give one that holds runs.")
    rows = list_runs(folder)
    if not rows:
        print(f"No runs below {folder}.")
        return
    table = Table("run", "preset", "body", "seed", "state", "lap", "episodes", "removal", "chance", "note")
    for row in rows:
        exam = row["last_exam"] or {}
        rates = [exam.get(key) for key in ("removal_rate", "chance_removal_rate")]
        facts = [
            row["name"],
            row["preset"],
            row["body"],
            row["seed"],
            row["state"],
            row["lap"],
            row["episodes"],
        ]
        shown = ["" if rate is None else f"{rate:.2f}" for rate in rates]
        table.add_row(*(str(fact) for fact in facts), *shown, row["ablation"] or "")
    Console(width=None if sys.stdout.isatty() else 160).print(table)
