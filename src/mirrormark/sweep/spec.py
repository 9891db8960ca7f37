"""What a sweep is: a small TOML file, read into frozen dataclasses; a mistake in it is one sentence."""

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mirrormark.presets import PRESETS

Value = str | int | float | bool | tuple[str | int | float, ...]


@dataclass(frozen=True)
class ExamSpec:
    """How every run is examined: the options of `mirrormark exam` (ours)."""

    runs: int = 80
    """Runs of each condition for each agent (paper: 8 seeds × 10 runs)."""
    chance_runs: int = 1000
    """Runs of each random movement; below 1,000 nothing can be called passed."""
    first_exam_seed: int = 0
    """Number of the first world."""
    mode: str = "sample"
    """Draw actions from the policy (sample), or take its mean (mean)."""
    only: tuple[str, ...] = ()
    """Conditions to run; none: all."""


@dataclass(frozen=True)
class Resources:
    """What one run may use, and how often it is tried (ours)."""

    cpus: int = 1
    """Cores and threads of each run. One: two busy processes of two threads slow one another tenfold."""
    gpus: float = 0.0
    """GPUs of each run; 0.5: two runs share one. 0 trains on the CPU."""
    workers: int = 0
    """Runs at a time; 0: as many as fit."""
    tries: int = 3
    """A run that has failed so often is left alone, and the rest goes on."""


@dataclass(frozen=True)
class Spec:
    """A sweep: every seed × every body × every combination of the grid."""

    preset: str
    """Where every run starts from: a preset of `mirrormark train`."""
    seeds: tuple[int, ...]
    """Training seeds: a list, or their number (8 means 0 to 7)."""
    bodies: tuple[str, ...] = ()
    """Bodies by name; none: the preset's."""
    overrides: dict[str, Value] = field(default_factory=dict)
    """Fields of the preset that differ in every run, by their dotted names."""
    grid: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    """Fields of the preset with the values that are compared; the first ones make the base setting."""
    exam: ExamSpec = field(default_factory=ExamSpec)
    """How every run is examined."""
    resources: Resources = field(default_factory=Resources)
    """What a run may use."""

    @property
    def device(self) -> str:
        """Where the agents train: on the GPU that they ask for, or on the CPU."""
        return "cuda" if self.resources.gpus else "cpu"


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
    if found["preset"] not in PRESETS:
        raise ValueError(f"preset is {found['preset']!r}: choose {', '.join(PRESETS)}.")
    overrides = {name: _value(name, value) for name, value in _flat(found, "overrides").items()}
    grid = {name: _values(f"grid.{name}", value) for name, value in _flat(found, "grid").items()}
    both = sorted(set(overrides) & set(grid))
    if both:
        raise ValueError(f"{both[0]} stands in overrides and in grid: leave it in one of them.")
    spec = Spec(
        preset=found["preset"],
        seeds=_seeds(found["seeds"]),
        bodies=_names("bodies", found.get("bodies", ())),
        overrides=overrides,
        grid=grid,
        exam=_section(ExamSpec, found, "exam"),
        resources=_section(Resources, found, "resources"),
    )
    _check(spec)
    return spec


def _known(found: dict[str, Any], kind: type, place: str) -> None:
    names = [one.name for one in fields(kind)]
    for name in found:
        if name not in names:
            raise ValueError(f"{place}{name} is no field of a sweep: {place or 'it'} has {', '.join(names)}.")


def _section(kind: Any, found: dict[str, Any], name: str) -> Any:
    """One of the small tables, each value of its field's own type."""
    table = _table(found, name)
    _known(table, kind, f"{name}.")
    taken = {}
    for one in fields(kind):
        if one.name not in table:
            continue
        value, place = table[one.name], f"{name}.{one.name}"
        if one.name == "only":
            taken[one.name] = _names(place, value)
        else:
            wanted = type(one.default)
            if isinstance(value, bool) or not isinstance(value, (int, float) if wanted is float else wanted):
                raise ValueError(f"{place} is {value!r}: give a value of type {wanted.__name__}.")
            taken[one.name] = wanted(value)
    return kind(**taken)


def _check(spec: Spec) -> None:
    low = {"exam.runs": spec.exam.runs, "exam.chance_runs": spec.exam.chance_runs}
    low |= {"resources.cpus": spec.resources.cpus, "resources.tries": spec.resources.tries}
    for name, value in low.items():
        if value < 1:
            raise ValueError(f"{name} is {value}: give at least 1.")
    rest = {"exam.first_exam_seed": spec.exam.first_exam_seed, "resources.gpus": spec.resources.gpus}
    for name, value in (rest | {"resources.workers": spec.resources.workers}).items():
        if value < 0:
            raise ValueError(f"{name} is {value}: it cannot be negative.")
    if spec.exam.mode not in ("sample", "mean"):
        raise ValueError(f"exam.mode is {spec.exam.mode!r}: choose sample or mean.")


def _seeds(found: Any) -> tuple[int, ...]:
    if isinstance(found, int) and not isinstance(found, bool) and found > 0:
        return tuple(range(found))
    listed: list[Any] = found if isinstance(found, list) else []
    whole = bool(listed) and all(type(seed) is int and seed >= 0 for seed in listed)
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
    flat: dict[str, Any] = {}

    def walk(place: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{place}.{key}" if place else key, inner)
        else:
            flat[place.replace("-", "_")] = value

    walk("", _table(found, name))
    return flat


def _value(name: str, found: Any) -> Value:
    value = tuple(found) if isinstance(found, list) else found
    if all(isinstance(one, str | int | float) for one in (value if isinstance(value, tuple) else (value,))):
        return value
    raise ValueError(f"{name} is {found!r}: give a number, a word, true, false or a list of these.")


def _values(name: str, found: Any) -> tuple[Value, ...]:
    if not isinstance(found, list) or not found:
        raise ValueError(f"{name} is {found!r}: give the list of values to compare.")
    values = tuple(_value(name, one) for one in found)
    if len({repr(value) for value in values}) < len(values):
        raise ValueError(f"{name} lists one value twice.")
    return values
