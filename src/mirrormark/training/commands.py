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
from rich.markup import escape
from rich.table import Table

from mirrormark.agent.tokenizer import Tokenizer
from mirrormark.config import AgentConfig, TrainingConfig
from mirrormark.training import checkpoint
from mirrormark.training.env_config import EnvConfig
from mirrormark.training.nan import NotFinite
from mirrormark.training.recorder import Recorder
from mirrormark.training.run_folder import RunError, RunFolder, list_runs, to_json
from mirrormark.training.schedule import Iteration
from mirrormark.training.trainer import Hook, Trainer, UnstableEnvs, check, run_iterations
from mirrormark.training.weights import load_tokenizer, shipped

Device = Literal["auto", "cpu", "cuda"]
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Interrupted(Exception):
    """Asked to stop: the iteration is finished and saved."""


def choose_device(device: Device) -> torch.device:
    """The device asked for; auto takes a GPU where there is one."""
    there = torch.cuda.is_available()
    if device == "cuda" and not there:
        raise ValueError("--device cuda: torch finds no CUDA GPU on this machine; use --device cpu.")
    return torch.device("cuda" if there and device != "cpu" else "cpu")


def shared_tokenizer(source: str | None, body: str) -> Tokenizer | None:
    """The tokenizer that training.tokenizer_phase.source names; None: the training run learns its own."""
    if source is None:
        return None
    if source == "shipped":
        place = shipped(f"{body}-tokenizer")
        if place is None:
            print(f"No trained tokenizer is shipped for the {body}: this run learns its own.")
            return None
        return load_tokenizer(place)
    return load_tokenizer(source)


def resolve(
    name: str, env: EnvConfig, agent: AgentConfig, config: TrainingConfig, seed: int
) -> tuple[AgentConfig, Tokenizer | None, dict[str, Any]]:
    """The agent as it will be, the tokenizer that it is given, and what config.json will hold."""
    if seed < 0:
        raise ValueError(f"--seed is {seed}: give a whole number of 0 or more.")
    check(agent, config)
    tokenizer = None
    if config.tokenizer_phase is not None and agent.kind == "swift":
        tokenizer = shared_tokenizer(config.tokenizer_phase.source, env.body)
        if tokenizer is not None:
            agent = replace(agent, tokenizer=tokenizer.config)
    asked = {"preset": name, "body": env.body, "seed": seed, "ablation": env.ablation}
    asked |= {"env": to_json(env), "agent": to_json(agent), "training": to_json(config)}
    return agent, tokenizer, asked


def train(
    name: str,
    env: EnvConfig,
    agent: AgentConfig,
    config: TrainingConfig,
    seed: int,
    out: Path,
    resume: bool = False,
    device: Device = "auto",
    hooks: tuple[Hook, ...] = (),
) -> None:
    """Start or resume a run in the folder `out`."""
    place = choose_device(device)
    agent, tokenizer, asked = resolve(name, env, agent, config, seed)
    # What cannot be used is refused before a folder is made.
    if resume:
        RunFolder.reopen(out, asked)
    else:
        RunFolder.check_free(out)
    trainer = Trainer(env, agent, config, seed, place, tokenizer)
    with RunFolder(out).held(), _threads(env.threads):
        # Asked again: while the training run was set up, another process may have taken the folder and left
        # it.
        run = RunFolder.reopen(out, asked) if resume else RunFolder.create(out, asked)
        _train_in(run, trainer, name, resume, hooks)


@contextmanager
def _threads(most: int | None) -> Iterator[None]:
    """Keep what follows the physics on the CPU to as many threads: runs side by side have a share each."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(most or before, before))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def _train_in(run: RunFolder, trainer: Trainer, preset: str, resume: bool, hooks: tuple[Hook, ...]) -> None:
    """The training run in its folder, whose status always tells how it stands or ended."""
    console = Console()
    if trainer.env.ablation:
        console.print(f"[bold]{trainer.env.ablation}[/bold]")
    try:
        if resume:
            run.note("starting", **_standing(run))
            _go_on(trainer, run, console)
        records = Recorder(run, trainer, preset, console)
        if not checkpoint.names(run.checkpoints):
            records.save()  # from the first moment on there is something to resume from
        run.note("running", iteration=trainer.next_iteration, episodes=trainer.episodes_collected)
        with _StopSoon(console, records) as stop, records:
            run_iterations(trainer, (records, *hooks, stop), run.path / "nan")
        run.note("finished", iteration=trainer.next_iteration, episodes=trainer.episodes_collected)
    except (Interrupted, KeyboardInterrupt):
        run.note("interrupted", **_standing(run))
        console.print(f"Interrupted; go on with the same command and --resume. {run.path}")
    except BaseException as error:
        _note_failure(run, error)
        if isinstance(error, OSError):
            what, mend = error.strerror or str(error), "Make room" if error.errno in _FULL else "Mend that"
            raise RunError(f"{run.path}: {what}. {mend}, then go on with --resume.") from error
        if isinstance(error, NotFinite | UnstableEnvs | torch.OutOfMemoryError):
            raise RunError(f"{run.path}: {error}") from error
        raise
    else:
        console.print(f"Finished: {run.path}")


def _note_failure(run: RunFolder, error: BaseException) -> None:
    """On a disk that is really full not even this can be written; the first mistake is the one to tell."""
    with suppress(OSError):
        run.note("failed", reason=str(error), **_standing(run))


def _go_on(trainer: Trainer, run: RunFolder, console: Console) -> None:
    """Load the newest undamaged checkpoint; a run killed before its first one starts over."""
    if not checkpoint.names(run.checkpoints):
        console.print(f"{run.path} has no checkpoint yet: starting from the beginning.")
        _drop_after(run, 0, console)
        return
    name, tree, complaints = checkpoint.load_newest(run.checkpoints)
    for complaint in complaints:
        console.print(f"{complaint} Going back to {name}.")
    then = checkpoint.read_manifest(run.checkpoints / name)["torch"]
    if then != torch.__version__:
        console.print(
            f"This run was saved by torch {then}; on {torch.__version__} it goes on, not bit for bit."
        )
    trainer.load_state(tree)
    _drop_after(run, trainer.next_iteration, console)
    console.print(
        f"Resuming {run.path} at iteration {trainer.next_iteration} of {trainer.schedule.total_iterations}."
    )


def _drop_after(run: RunFolder, iteration: int, console: Console) -> None:
    for complaint in run.drop_after(iteration):
        console.print(complaint, markup=False)


def _standing(run: RunFolder) -> dict[str, Any]:
    status = run.status()
    return {key: status.get(key, 0) for key in ("iteration", "episodes")}


class _StopSoon:
    """Ctrl-C or SIGTERM: finish the iteration, save, keep its weights, stop. A second one stops at once, at
    the last checkpoint."""

    def __init__(self, console: Console, records: Recorder) -> None:
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
        self._console.print("Stopping after this iteration; once more stops at once.")

    def __call__(self, iteration: Iteration, trainer: Trainer, metrics: dict[str, float]) -> None:
        if self._asked:
            if not iteration.checkpoint:
                self._records.save(iteration)
            if not iteration.evaluation:
                self._records.snapshot(iteration)
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
    table = Table(
        "run", "preset", "body", "seed", "state", "iteration", "episodes", "removal", "chance", "note"
    )
    for row in rows:
        evaluation = row["last_evaluation"] or {}
        rates = [evaluation.get(key) for key in ("removal_rate", "chance_removal_rate")]
        facts = [row[key] for key in ("name", "preset", "body", "seed", "state", "iteration", "episodes")]
        facts += [f"{rate:.2f}" if isinstance(rate, float) else None for rate in rates]
        facts.append(row.get("note") or row["ablation"])
        table.add_row(*("" if fact is None else escape(str(fact)) for fact in facts))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
