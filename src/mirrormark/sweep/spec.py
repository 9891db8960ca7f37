"""What a sweep is: a small TOML file, and the jobs that it means. A mistake in it is one sentence."""

import contextlib
import functools
import io
import itertools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from mirrormark.config import GridTokenizerConfig
from mirrormark.envs import bodies
from mirrormark.exam import conditions
from mirrormark.presets import PRESETS, Config, preset
from mirrormark.sweep.folder import Job
from mirrormark.train_command import parse as parse_train
from mirrormark.training.commands import shared_tokenizer
from mirrormark.training.schedule import Schedule
from mirrormark.training.trainer import check

Value = str | int | float | bool | tuple[str | int | float | bool, ...]

DRIVE, NO_DRIVE = "agent.drive", "none"
"""An agent without drive is examined beside its twin, the same setting with one."""
MOST_JOBS = 10_000
"""More than this is a slip of the pen (ours)."""


def _at_least(low: float, default: Any) -> Any:
    return field(default=default, metadata={"low": low})


@dataclass(frozen=True)
class ExamOptions:
    """How every agent is examined: the options of `mirrormark exam` (ours)."""

    runs: int = _at_least(1, 80)  # of each condition for each agent (paper: 8 seeds × 10 runs)
    chance_runs: int = _at_least(1, 1000)  # of each random movement; with less nothing can be called passed
    first_exam_seed: int = _at_least(0, 0)  # number of the first world
    mode: str = "sample"  # draw actions from the policy (sample), or take its mean (mean)
    only: tuple[str, ...] = ()  # conditions to run; none: all


@dataclass(frozen=True)
class Resources:
    """What one job may use, and how often it is tried (ours)."""

    cpus: int = _at_least(1, 1)  # cores and threads; two processes of two threads slow one another tenfold
    gpus: float = _at_least(0, 0.0)  # 0.5: two jobs share one; 0 trains on the CPU
    workers: int = _at_least(0, 0)  # jobs at a time; 0: as many as fit
    tries: int = _at_least(1, 3)  # a job that has failed so often is left alone, and the rest goes on


@dataclass(frozen=True)
class Spec:
    """A sweep: every seed × every body × every combination of the grid."""

    preset: str  # where every run starts from: a preset of `mirrormark train`
    seeds: tuple[int, ...]  # training seeds: a list, or their number (8 means 0 to 7)
    bodies: tuple[str, ...] = ()  # none: the preset's
    overrides: dict[str, Value] = field(default_factory=dict)  # fields of the preset that differ in every run
    grid: dict[str, tuple[Value, ...]] = field(default_factory=dict)  # compared; the first ones are the base
    exam: ExamOptions = field(default_factory=ExamOptions)
    resources: Resources = field(default_factory=Resources)


# From the file to a spec


def read(path: Path) -> Spec:
    """The sweep that a file describes."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist: give the TOML file that describes the sweep.")
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML file: {error}.") from None
    return parse(found)


def parse(found: dict[str, Any]) -> Spec:
    """The sweep that a table describes."""
    _known(found, Spec, "")
    for name in ("preset", "seeds"):
        if name not in found:
            raise ValueError(f"{name} is missing: a sweep needs a preset and seeds.")
    if found["preset"] not in list(PRESETS):
        raise ValueError(f"preset is {found['preset']!r}: choose {', '.join(PRESETS)}.")
    overrides = {name: _value(name, value) for name, value in _flat(found, "overrides").items()}
    grid = {name: _values(f"grid.{name}", value) for name, value in _flat(found, "grid").items()}
    for name in sorted(set(overrides) & set(grid)):
        raise ValueError(f"{name} stands in overrides and in grid: leave it in one of them.")
    spec = Spec(
        preset=found["preset"],
        seeds=_seeds(found["seeds"]),
        bodies=_names("bodies", found.get("bodies", ())),
        overrides=overrides,
        grid=grid,
        exam=_section(ExamOptions, found, "exam"),
        resources=_section(Resources, found, "resources"),
    )
    if spec.exam.mode not in ("sample", "mean"):
        raise ValueError(f"exam.mode is {spec.exam.mode!r}: choose sample or mean.")
    count = len(spec.seeds) * max(1, len(spec.bodies)) * math.prod(map(len, grid.values()))
    if count > MOST_JOBS:
        raise ValueError(f"seeds, bodies and grid make {count:,} runs: a sweep has {MOST_JOBS:,} at most.")
    return spec


def _known(found: dict[str, Any], kind: type, place: str) -> None:
    names = [one.name for one in fields(kind)]
    for name in found:
        if name not in names:
            raise ValueError(f"{place}{name} is no field of a sweep: {place or 'it'} has {', '.join(names)}.")


def _section(kind: Any, found: dict[str, Any], name: str) -> Any:
    """One of the small tables, each value of its field's own type and range."""
    table, taken = _table(found, name), {}
    _known(table, kind, f"{name}.")
    for one in fields(kind):
        if one.name not in table:
            continue
        value, place, wanted = table[one.name], f"{name}.{one.name}", type(one.default)
        if wanted is tuple:
            taken[one.name] = _names(place, value)
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float) if wanted is float else wanted):
            raise ValueError(f"{place} is {value!r}: give a value of type {wanted.__name__}.")
        if "low" in one.metadata and not one.metadata["low"] <= value < 10**9:
            raise ValueError(f"{place} is {value}: give at least {one.metadata['low']}, and below a billion.")
        taken[one.name] = wanted(value)
    return kind(**taken)


def _seeds(found: Any) -> tuple[int, ...]:
    if type(found) is int and found > MOST_JOBS:
        raise ValueError(f"seeds is {found}: a sweep has {MOST_JOBS:,} runs at most; list seeds as [3, 5].")
    if type(found) is int and found > 0:
        return tuple(range(found))
    listed: list[Any] = found if isinstance(found, list) else []
    whole = bool(listed) and all(type(seed) is int and 0 <= seed < 2**31 for seed in listed)
    if not whole or len(set(listed)) < len(listed):
        raise ValueError(
            f"seeds is {found!r}: give a list of different whole numbers, or how many (8: 0 to 7)."
        )
    return tuple(listed)


def _names(place: str, found: Any) -> tuple[str, ...]:
    if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"{place} is {found!r}: give a list of names.")
    if len(set(found)) < len(found):
        raise ValueError(f"{place} names one thing twice: {', '.join(found)}.")
    return tuple(found)


def _table(found: dict[str, Any], name: str) -> dict[str, Any]:
    table = found.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"{name} is {table!r}: write it as a table, [{name}].")
    return table


def _flat(found: dict[str, Any], name: str) -> dict[str, Any]:
    """A table's dotted names, whether TOML nested them or they were quoted."""

    def walk(place: str, value: Any) -> Iterable[tuple[str, Any]]:
        if not isinstance(value, dict):
            yield place.replace("-", "_"), value
            return
        for key, inner in value.items():
            yield from walk(f"{place}.{key}" if place else key, inner)

    return dict(walk("", _table(found, name)))


def _value(name: str, found: Any) -> Value:
    value = tuple(found) if isinstance(found, list) else found
    for one in value if isinstance(value, tuple) else (value,):
        if not isinstance(one, str | int | float):
            raise ValueError(f"{name} is {found!r}: give a number, a word, true, false or a list of these.")
        if isinstance(one, float) and not math.isfinite(one):
            raise ValueError(f"{name} is {found!r}: give a finite number.")
    return value


def _values(name: str, found: Any) -> tuple[Value, ...]:
    if not isinstance(found, list) or not found:
        raise ValueError(f"{name} is {found!r}: give the list of values to compare.")
    values = tuple(_value(name, one) for one in found)
    if len({repr(value) for value in values}) < len(values):
        raise ValueError(f"{name} lists one value twice.")
    return values


# From a spec to jobs


def plan(spec: Spec) -> list[Job]:
    """All jobs: settings first, then bodies, then seeds. What cannot work is refused here."""
    groups = [one.name for one in fields(Config)]
    for name in spec.overrides | spec.grid:
        if name == "env.body":
            raise ValueError("env.body is chosen by the field bodies of the sweep: list them there.")
        if name.partition(".")[0] not in groups:
            raise ValueError(f"{name} is no field of a preset: they begin with {'., '.join(groups)}.")
    for name in spec.exam.only:
        conditions.get(name)
    if spec.exam.only and conditions.EXAM not in spec.exam.only:
        raise ValueError(f"exam.only lacks {conditions.EXAM!r}: without it there is nothing to compare.")
    kept = spec.bodies or (preset(spec.preset).env.body,)
    for body in kept:
        bodies.get(body)
    grid = [dict(zip(spec.grid, values)) for values in itertools.product(*spec.grid.values())]
    names, jobs = _setting_names(grid), []
    for (name, values), body in itertools.product(zip(names, grid), kept):
        given = spec.overrides | values
        train = _train_words(spec, body, given)
        schedule_of(train)  # refuses what the train command would
        twin = _twin(names, grid, values) if asked(train).agent.drive == NO_DRIVE else None
        exam = _exam_words(spec, (conditions.EXAM, "costless") if twin else spec.exam.only)
        threads = asked(train).env.threads or spec.resources.cpus
        for seed in spec.seeds:
            beside = f"{twin}-{body}-seed{seed}" if twin else None
            run = f"{name}-{body}-seed{seed}"
            jobs.append(Job(run, name, body, seed, values, train, exam, threads, beside))
    return jobs


def _train_words(spec: Spec, body: str, given: dict[str, Value]) -> tuple[str, ...]:
    words = ["--preset", spec.preset, "--body", body, "--device", device(spec)]
    if given.get("env.threads") is None:
        words.append(f"--env.threads={spec.resources.cpus}")
    for name, value in given.items():
        words += as_words(name, value)
    return tuple(words)


def device(spec: Spec) -> str:
    """Where agents train: on the GPU that they ask for, or on the CPU."""
    return "cuda" if spec.resources.gpus else "cpu"


def _exam_words(spec: Spec, only: tuple[str, ...]) -> tuple[str, ...]:
    exam = spec.exam
    words = f"--runs {exam.runs} --chance-runs {exam.chance_runs} --first-exam-seed {exam.first_exam_seed}"
    words += f" --mode {exam.mode} --device {device(spec)}"
    return (*words.split(), *(("--only", *only) if only else ()))


def _twin(names: list[str], grid: list[dict[str, Value]], values: dict[str, Value]) -> str:
    """The same setting with a drive; without one such an agent cannot be examined."""
    for name, other in zip(names, grid):
        if other.get(DRIVE) not in (None, NO_DRIVE) and other == values | {DRIVE: other[DRIVE]}:
            return name
    raise ValueError(
        f"an agent without drive is examined beside the same setting with one: write"
        f' {DRIVE} = ["self_prior", "{NO_DRIVE}"] in [grid].'
    )


def as_words(name: str, value: Value) -> list[str]:
    """A field and its value as tyro reads them."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        place, _, last = flag.rpartition(".")
        return [flag if value else f"{place}.no-{last}"]
    return [flag, *map(str, value)] if isinstance(value, tuple) else [f"{flag}={value}"]


def _setting_names(grid: list[dict[str, Value]]) -> list[str]:
    """Short names from the last part of each field; fields that share it are called by their whole names."""
    last = Counter(name.rpartition(".")[2] for name in grid[0])
    names = []
    for values in grid:
        shorts = [(full, full.rpartition(".")[2]) for full in values]
        shown = ["+".join(map(str, v)) if isinstance(v, tuple) else str(v).lower() for v in values.values()]
        parts = [f"{s if last[s] == 1 else full}-{value}" for (full, s), value in zip(shorts, shown)]
        names.append(re.sub(r"[^A-Za-z0-9._+-]", "_", "_".join(parts)) or "base")
    count = Counter(names)
    return [f"{one}_{i}" if count[one] > 1 else one for i, one in enumerate(names)]


@functools.cache
def asked(words: tuple[str, ...]) -> Config:
    """The whole configuration that these words of `mirrormark train` mean; a mistake is one sentence."""
    name, said = words[words.index("--preset") + 1], io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            return parse_train(list(words)).config
        except SystemExit:
            pass
    # tyro writes a title, what is wrong, a rule, and help that would not fit into a sentence; maybe in a box.
    lines = [line.strip(" │|─-╭╮╰╯") for line in said.getvalue().splitlines()[1:]]
    reason = " ".join(itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines)))
    raise ValueError(
        f"mirrormark train does not take the sweep's values: {reason.rstrip('.')}. "
        f"`mirrormark train --preset {name} --help` lists all fields."
    )


def schedule_of(words: tuple[str, ...]) -> Schedule:
    """The iterations of the run that these words start; refuses what the train command would."""
    config = asked(words)
    check(config.agent, config.training)
    phase, learns = config.training.tokenizer_phase, isinstance(config.agent.tokenizer, GridTokenizerConfig)
    taken = phase is not None and _takes_tokenizer(phase.source, config.env.body)
    return Schedule(config.training, learns and not taken)


@functools.cache
def _takes_tokenizer(source: str | None, body: str) -> bool:
    """Whether one that has learned already is taken over; it is loaded, as the train command will."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it tells that nothing is shipped for a body
            return shared_tokenizer(source, body) is not None
    except (ValueError, OSError) as error:
        raise ValueError(f"training.tokenizer_phase.source: {error}") from None


def fitting(resources: Resources, machines: Sequence[tuple[int, int]], whose: str) -> int:
    """How many jobs fit at a time on machines of so many cores and GPUs; none is one clear sentence."""
    cpus, gpus = resources.cpus, resources.gpus
    for i, (name, wanted) in enumerate((("cpus", cpus), ("gpus", gpus))):
        most = max(machine[i] for machine in machines)
        if wanted > most:
            words = f"resources.{name} is {wanted:g}, but {whose} {most}"
            raise ValueError(f"{words}: ask for less, or add machines.")
    fit = 0
    for here_cpus, here_gpus in machines:
        shared = here_gpus * int(1 / gpus) if 0 < gpus <= 1 else here_gpus // gpus if gpus else here_cpus
        fit += int(min(here_cpus // cpus, shared))
    if resources.workers > fit:
        raise ValueError(
            f"resources.workers is {resources.workers}, but only {fit} runs of {cpus} cpus and {gpus:g} gpus "
            "fit at a time: ask for less, or give 0 for as many as fit."
        )
    return resources.workers or fit


def gpus_here() -> int:
    return torch.cuda.device_count()
