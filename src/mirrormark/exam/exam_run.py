"""One sitting of the exam: every condition for every mind, each kept on disk as soon as it is done.

OUT/sitting.json        what is examined and how; another exam in the same folder is refused
OUT/parts/MIND/CONDITION.{episodes,steps}.parquet   a finished condition, never run again
OUT/parts/MIND/recording.npz                        three chosen runs of the exam, as seen and as acted
"""

import json
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import torch

from mirrormark.envs.babbling import MovementConfig
from mirrormark.envs.senses import Device
from mirrormark.exam import conditions, tables, workers
from mirrormark.exam.agents import MindPlayer, Mode, MovementPlayer, OraclePlayer, Player
from mirrormark.exam.candidates import Subject, check
from mirrormark.exam.conditions import EXAM, Condition
from mirrormark.exam.measures import NO_MIND
from mirrormark.exam.protocol import Keys, Tables, run_condition
from mirrormark.exam.recording import keep_three, save
from mirrormark.training.checkpoint import write_json
from mirrormark.training.env_config import WorldSetup, build_mind

CHANCE = "chance"
"""Name of the part that holds the conditions in which no mind acts."""


@dataclass(frozen=True)
class Settings:
    """How the exam is sat. The same settings and minds give the same results, byte for byte."""

    runs: int = 80
    """Runs a mind and condition (paper: 8 seeds × 10 runs)."""
    first_exam_seed: int = 0
    """Worlds are numbered from here: results are reported from 0 on, weights chosen from 1000 on."""
    chance_runs: int = 1000
    """Runs of each random movement; no eye is needed for them, so they are cheap (ours)."""
    mode: Mode = "sample"
    """Actions drawn from the policy, or its mean."""
    conditions: tuple[str, ...] = field(default_factory=conditions.names)
    """Which conditions are run; the default is all."""
    view_every_control_steps: int = 5
    """How often the view is measured in controls; in the exam itself it is every frame (ours)."""

    def __post_init__(self) -> None:
        for name in ("runs", "chance_runs", "view_every_control_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: at least 1 is needed.")
        if self.first_exam_seed < 0:
            raise ValueError(f"first_exam_seed is {self.first_exam_seed}: give 0 or more.")
        for name in self.conditions:
            conditions.get(name)
            if self.conditions.count(name) > 1:
                raise ValueError(f"conditions (--only): {name!r} is named twice; name it once.")
        if EXAM not in self.conditions:
            raise ValueError(f"conditions: {EXAM!r} is missing; without it there is nothing to compare.")


Progress = Callable[[str, int, int], None]
"""Told the condition that begins, how many are done and how many there are."""


def sit(
    subjects: Sequence[Subject],
    out: Path,
    settings: Settings,
    progress: Progress | None = None,
    helpers: Executor | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Tables:
    """Run what is not on disk yet; the whole exam's tables, in a fixed order.

    helpers: a crew that runs conditions beside this process. meanwhile: done here before waiting for the
    last of them, when the exam itself is on disk.
    """
    claim(subjects, out, settings)
    sent = _send(subjects, out, settings, helpers) if helpers else {}
    first = subjects[0].setup
    without = left_out(first, settings)
    jobs = [job for job in _jobs(subjects, settings) if job[1].name not in without]
    parts: dict[str, Tables] = {}

    def run(job: Job) -> None:
        (subject, condition), name = job, _name(*job)
        if progress:
            who = f"{subject.run}: {condition.title}" if subject and len(subjects) > 1 else condition.title
            beside = [n for n, help in sent.items() if help.done() and not help.cancelled()]
            progress(who, len({*parts, *beside}), len(jobs))
        if name in sent and not sent[name].cancelled() and (problem := sent[name].exception()):
            warnings.warn(f"{condition.title}: a helper failed ({problem!r}); it runs here.", stacklevel=3)
        parts[name] = _part(subject, first, condition, out, settings)

    for job in sorted(jobs, key=lambda job: _name(*job) in sent):
        if _name(*job) not in sent or sent[_name(*job)].cancel():
            run(job)
    if meanwhile:
        meanwhile()
    for job in jobs:
        if _name(*job) not in parts:
            run(job)
    if progress:
        progress("writing tables", len(jobs), len(jobs))
    ordered = [parts[_name(*job)] for job in jobs]
    episodes, steps = (pd.concat(frames, ignore_index=True) for frames in zip(*ordered, strict=True))
    tables.write(episodes, out / "episodes.parquet", tables.EPISODES)
    tables.write(steps, out / "steps.parquet", tables.STEPS)
    return Tables(episodes, steps)


Job = tuple[Subject | None, Condition]


def _jobs(subjects: Sequence[Subject], settings: Settings) -> list[Job]:
    wanted = [conditions.get(name) for name in settings.conditions]
    jobs: list[Job] = [(s, c) for s in subjects for c in wanted if c.per_mind and c.costless == s.costless]
    return jobs + [(None, c) for c in wanted if not c.per_mind]


def _name(subject: Subject | None, condition: Condition) -> str:
    return f"{subject.name if subject else CHANCE}/{condition.name}"


def _send(
    subjects: Sequence[Subject], out: Path, settings: Settings, helpers: Executor
) -> dict[str, Future[None]]:
    """Give helpers all but the exam itself and the hidden site, whose search is done here only.

    They begin at the end, with the longest; this process goes on from the beginning.
    """
    sent: dict[str, Future[None]] = {}
    for subject, condition in reversed(_jobs(subjects, settings)):
        setup = subjects[0].setup
        if condition.name != EXAM and not condition.out_of_sight and condition.why_not(setup) is None:
            which = (subjects.index(subject), subject.fingerprint) if subject else None
            job = helpers.submit(_help, which, setup, condition, out, settings)
            sent[_name(subject, condition)] = job
    return sent


def _help(
    which: tuple[int, str] | None, setup: WorldSetup, condition: Condition, out: Path, settings: Settings
) -> None:
    """In a helper: one condition of the mind with this number and these weights, onto the disk."""
    subject = workers.minds()[which[0]] if which else None
    if which and subject and subject.fingerprint != which[1]:
        raise RuntimeError("the helper's mind has other weights")
    _part(subject, setup, condition, out, settings)


def left_out(setup: WorldSetup, settings: Settings) -> dict[str, str]:
    """Conditions that this body and mirror cannot have, and why."""
    reasons = {name: conditions.get(name).why_not(setup) for name in settings.conditions}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def claim(subjects: Sequence[Subject], out: Path, settings: Settings) -> None:
    """The folder belongs to one exam: the same minds, the same settings. Nothing happens the second time."""
    check(subjects)
    plan = {
        "settings": {**vars(settings), "conditions": list(settings.conditions)},
        "minds": [[subject.name, subject.training_seed, subject.fingerprint] for subject in subjects],
    }
    path = out / "sitting.json"
    if path.exists():
        if json.loads(path.read_text()) != plan:
            raise ValueError(f"{out} holds another exam (other minds or settings): choose another --out.")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists and holds no exam: choose an empty folder for --out.")
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, plan)


def _part(
    subject: Subject | None, setup: WorldSetup, condition: Condition, out: Path, settings: Settings
) -> Tables:
    folder = out / "parts" / (subject.name if subject else CHANCE)
    paths = [folder / f"{condition.name}.{kind}.parquet" for kind in ("episodes", "steps")]
    if all(path.exists() for path in paths):
        return Tables(tables.read(paths[0], tables.EPISODES), tables.read(paths[1], tables.STEPS))
    folder.mkdir(parents=True, exist_ok=True)
    found = _run(subject, setup, condition, folder, settings)
    tables.write(found.episodes, paths[0], tables.EPISODES)
    tables.write(found.steps, paths[1], tables.STEPS)
    return found


def _run(
    subject: Subject | None, setup: WorldSetup, condition: Condition, folder: Path, settings: Settings
) -> Tables:
    random = condition.player in ("iid", "everyday")
    n = settings.chance_runs if random else settings.runs
    seeds = list(range(settings.first_exam_seed, settings.first_exam_seed + n))
    eye = "symbolic" if "cell" in setup.senses else "pixels"
    if not condition.sees:
        setup = replace(setup, senses=("proprioception",))
    worlds = condition.worlds(setup, n, _eye_device(subject, setup))
    keys = Keys(
        run=subject.run if subject else CHANCE,
        checkpoint=subject.checkpoint if subject else "-",
        body=setup.body,
        condition=condition.name,
        training_seed=subject.training_seed if subject else NO_MIND,
        tone=worlds.scene.tone + (f" ×{setup.tone_scale:g}" if setup.tone_scale != 1 else ""),
        eye=eye,
    )
    view = 0 if not condition.sees else 1 if condition.name == EXAM else settings.view_every_control_steps
    with torch.random.fork_rng():  # players seed torch; the caller's random numbers stay as they were
        player = _player(subject, setup, condition, settings.mode)
        found, recording = run_condition(
            worlds, player, seeds, keys, sham=condition.sham, view_every=view, record=condition.name == EXAM
        )
    if recording is not None:
        kept = keep_three(setup, condition, found, recording)
        save(folder / "recording.npz", kept)
    return found


def _eye_device(subject: Subject | None, setup: WorldSetup) -> Device:
    """The eye looks where the mind thinks; without a mind or pixels, on the CPU."""
    if subject is None or "vision" not in setup.senses:
        return "cpu"
    return "cuda" if subject.mind.device.type == "cuda" else "cpu"


def _player(subject: Subject | None, setup: WorldSetup, condition: Condition, mode: Mode) -> Player:
    if condition.player == "iid":
        return MovementPlayer(MovementConfig("iid"))
    if condition.player == "everyday":
        return MovementPlayer(setup.movement)
    if condition.player == "oracle":
        return OraclePlayer()
    assert subject is not None
    if condition.player == "mind":
        return MindPlayer(subject.mind, mode)
    torch.manual_seed(subject.training_seed)
    fresh = build_mind(subject.mind.config, subject.setup.worlds(1))
    return MindPlayer(fresh.to(next(subject.mind.dynamics.parameters()).device).eval(), mode)
