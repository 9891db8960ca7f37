"""From a spec to jobs: which commands run, in which folders."""

import contextlib
import dataclasses
import functools
import io
import itertools
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from mirrormark.envs import bodies
from mirrormark.exam import conditions
from mirrormark.presets import Config, preset
from mirrormark.sweep.spec import Spec, Value
from mirrormark.sweep.work import Work, environment
from mirrormark.train_command import Train

COST = "cost"
"""The one field that is no preset's: `mirrormark train --cost`."""
COSTLESS = "none"


@dataclass(frozen=True)
class Job:
    """One run: its training and its exam."""

    name: str
    setting: str
    body: str
    seed: int
    values: dict[str, Value]
    """The grid's values of its setting."""
    train: tuple[str, ...]
    """Words of `mirrormark train`, without --out and --resume."""
    exam: tuple[str, ...]
    """Options of `mirrormark exam`, without --out."""
    beside: str | None = None
    """An agent trained without cost is examined beside its twin with cost: that twin's name."""


@dataclass(frozen=True)
class Folder:
    """Where a sweep keeps what."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "sweep.json"

    def run(self, job: str) -> Path:
        return self.path / "runs" / job

    def exam(self, job: str) -> Path:
        return self.path / "exams" / job

    def journal(self, job: str) -> Path:
        return self.path / "jobs" / f"{job}.json"

    def log(self, job: str) -> Path:
        return self.path / "logs" / f"{job}.log"

    def trained(self, job: Job, resume: bool) -> Work:
        """Its training as a command."""
        words = ("train", *job.train, "--out", str(self.run(job.name)), *(["--resume"] if resume else []))
        return Work(job.name, "train", words, self.log(job.name), _threads(job))

    def examined(self, job: Job) -> Work:
        """Its exam as a command."""
        agents = [str(self.run(name)) for name in (job.beside, job.name) if name]
        words = ("exam", *agents, "--out", str(self.exam(job.name)), *job.exam)
        return Work(job.name, "exam", words, self.log(job.name), _threads(job))


def _threads(job: Job) -> int:
    return int(next(word for word in job.train if word.startswith("--env.threads=")).partition("=")[2])


def plan(spec: Spec) -> list[Job]:
    """All jobs: settings first, then bodies, then seeds. Nothing is started with values that cannot work."""
    for name in (*spec.overrides, *spec.grid):
        _check_field(spec, name)
    for name in spec.exam.only:
        conditions.get(name)
    if spec.exam.only and conditions.EXAM not in spec.exam.only:
        raise ValueError(f"exam.only lacks {conditions.EXAM!r}: without it there is nothing to compare.")
    kept = spec.bodies or (preset(spec.preset).env.body,)
    for body in kept:
        bodies.get(body)
    combinations = [dict(zip(spec.grid, values)) for values in itertools.product(*spec.grid.values())]
    names = _setting_names(combinations)
    jobs = [
        _job(spec, names, combinations, number, body, seed)
        for number, body, seed in itertools.product(range(len(names)), kept, spec.seeds)
    ]
    for job in jobs:
        if job.seed == spec.seeds[0]:
            asked(job.train)  # before anything has run
    return jobs


def _job(
    spec: Spec, names: list[str], grid: list[dict[str, Value]], number: int, body: str, seed: int
) -> Job:
    values = grid[number]
    fields = spec.overrides | values
    words = ["--preset", spec.preset, "--body", body, "--seed", str(seed), "--device", spec.device]
    if fields.get("env.threads") is None:
        words.append(f"--env.threads={spec.resources.cpus}")
    for name, value in fields.items():
        words += as_words(name, value)
    beside = None
    if fields.get(COST) == COSTLESS:
        beside = f"{_twin(names, grid, values)}-{body}-seed{seed}"
    return Job(
        name=f"{names[number]}-{body}-seed{seed}",
        setting=names[number],
        body=body,
        seed=seed,
        values=values,
        train=tuple(words),
        exam=_exam_words(spec, beside is not None),
        beside=beside,
    )


def _twin(names: list[str], grid: list[dict[str, Value]], values: dict[str, Value]) -> str:
    """The same setting with the self-prior's cost; without one such an agent cannot be examined."""
    for name, other in zip(names, grid):
        if other.get(COST) not in (None, COSTLESS) and other == values | {COST: other[COST]}:
            return name
    raise ValueError(
        'cost = "none" is examined beside the same setting with cost: write cost = ["self_prior", "none"]'
        " in [grid]."
    )


def _exam_words(spec: Spec, costless: bool) -> tuple[str, ...]:
    exam = spec.exam
    only = (conditions.EXAM, "costless") if costless else exam.only
    words = [
        "--runs",
        exam.runs,
        "--chance-runs",
        exam.chance_runs,
        "--first-exam-seed",
        exam.first_exam_seed,
    ]
    words += ["--mode", exam.mode, "--device", spec.device]
    return tuple(str(word) for word in (*words, *(["--only", *only] if only else [])))


def as_words(name: str, value: Value) -> list[str]:
    """A field and its value as tyro reads them."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        place, _, last = flag.rpartition(".")
        return [flag if value else f"{place}.no-{last}"]
    return [flag, *map(str, value)] if isinstance(value, tuple) else [f"{flag}={value}"]


def _setting_names(combinations: list[dict[str, Value]]) -> list[str]:
    """Short names from the last part of each field; fields that share it are called by their whole names."""
    last = Counter(field.rpartition(".")[2] for field in combinations[0])

    def name(values: dict[str, Value]) -> str:
        parts = []
        for field, value in values.items():
            short = field.rpartition(".")[2]
            told = "+".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
            parts.append(f"{short if last[short] == 1 else field}-{told}")
        return re.sub(r"[^A-Za-z0-9._+-]", "_", "_".join(parts)) or "base"

    names = [name(values) for values in combinations]
    doubled = {one for one, count in Counter(names).items() if count > 1}
    return [f"{one}_{i}" if one in doubled else one for i, one in enumerate(names)]


def _check_field(spec: Spec, name: str) -> None:
    """The field exists in the preset; else the level at which it is lost is named, with what is there."""
    if name == COST:
        return
    if name == "env.body":
        raise ValueError("env.body is chosen by the field bodies of the sweep: list them there.")
    here: Any = preset(spec.preset)
    place = ""
    for part in name.split("."):
        known = [field.name for field in dataclasses.fields(here)] if dataclasses.is_dataclass(here) else []
        if part not in known:
            there = f"{place or 'a preset'} has {', '.join(known)}" if known else f"{place} is a single value"
            raise ValueError(f"{name} is no field of the preset {spec.preset}: {there}.")
        here, place = getattr(here, part), f"{place}.{part}" if place else part
    if dataclasses.is_dataclass(here):
        known = ", ".join(f"{name}.{field.name}" for field in dataclasses.fields(here))
        raise ValueError(f"{name} is a group of fields: name one of {known}.")


@functools.cache
def asked(words: tuple[str, ...]) -> Config:
    """The whole configuration that these words of `mirrormark train` mean; a mistake is one sentence."""
    name = words[words.index("--preset") + 1]
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            default = Train(config=preset(name), preset=name)
            return tyro.cli(Train, args=list(words), prog="mirrormark train", default=default).config
        except SystemExit:
            pass
    # tyro writes a title, what is wrong, a rule, and help that would not fit into a sentence; maybe in a box.
    lines = [line.strip(" │|─-╭╮╰╯") for line in told.getvalue().splitlines()[1:]]
    said = " ".join(itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines)))
    raise ValueError(f"mirrormark train does not take the sweep's values: {said}")


def commands(jobs: Sequence[Job], folder: Folder) -> list[str]:
    """One shell line a job, for any other scheduler; a line that is run again goes on where it stopped."""
    lines = []
    for job in jobs:
        run = shlex.quote(str(folder.run(job.name) / "config.json"))
        train, exam = folder.trained(job, False), folder.examined(job)
        variables = " ".join(f"{name}={value}" for name, value in environment(train.threads).items())
        resume = f"$(test -e {run} && echo --resume)"
        finished = (
            f"""grep -q '"finished"' {shlex.quote(str(folder.run(job.name) / "status.json"))} 2>/dev/null"""
        )
        lines.append(
            f"export {variables}; {{ {finished} || mirrormark {shlex.join(train.words)} {resume}; }}"
            f" && mirrormark {shlex.join(exam.words)}"
        )
    return lines
