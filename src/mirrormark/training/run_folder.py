"""The run folder: what was asked, what it ran on, what came of it.

- config.json: the whole preset as it ran, with seed and body
- versions.json: python, torch, mujoco, ..., git commit, machine
- status.json: state, iteration, episodes, process; lock: which process holds the folder, locked while it
lives
- metrics.jsonl: one line an iteration; evaluations.jsonl: one line an evaluation
- checkpoints/: the last two; snapshots/: weights only, one an evaluation
- pictures/, tensorboard/, nan/ (only after a stop by non-finite losses)
"""

import dataclasses
import fcntl
import json
import math
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from mirrormark.config import AgentConfig, TrainingConfig
from mirrormark.training.checkpoint import replace_bytes, write_json
from mirrormark.training.env_config import EnvConfig

_PACKAGES = ("mirrormark", "torch", "numpy", "mujoco", "numba", "gymnasium", "safetensors")
_PARTS = {"env": EnvConfig, "agent": AgentConfig, "training": TrainingConfig}
"""Of config.json."""
_LOCK = "lock"
_TRIES = 10
"""To lock a folder, 20 ms apart."""
_SILENT_S = 900.0
"""A run writes its status every iteration, at most minutes apart: after a quarter of an hour nobody is
there."""


class RunError(ValueError):
    """A run folder that cannot be used as asked, with the reason in one sentence."""


def to_json(config: Any) -> Any:
    """A configuration as JSON values."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: to_json(getattr(config, f.name)) for f in dataclasses.fields(config)}
    if isinstance(config, tuple | list):
        return [to_json(value) for value in config]
    if isinstance(config, dict):
        return {str(key): to_json(value) for key, value in config.items()}
    return config


def from_json(kind: Any, value: Any, name: str = "config") -> Any:
    """The configuration of type `kind` from what `to_json` made of it; unknown fields are refused, missing
    ones take their defaults."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise RunError(f"{name} is {value!r}: it must be an object of fields.")
        hints = get_type_hints(kind)
        fields = {f.name for f in dataclasses.fields(kind)}
        unknown = set(value) - fields
        if unknown:
            raise RunError(f"{name} has fields this version does not know: {', '.join(sorted(unknown))}.")
        return kind(**{key: from_json(hints[key], item, f"{name}.{key}") for key, item in value.items()})
    if value is None:
        return value
    options = [option for option in get_args(kind) if option is not type(None)]
    if get_origin(kind) is tuple:
        inner = options[0] if len(options) == 2 and options[1] is Ellipsis else None
        kinds = [inner] * len(value) if inner else options
        return tuple(from_json(k, item, name) for k, item in zip(kinds, value))
    if get_origin(kind) is not None and get_origin(kind) is not dict:
        nested = [o for o in options if dataclasses.is_dataclass(o) or get_origin(o) is tuple]
        if nested and isinstance(value, dict | list):
            return from_json(_fitting(nested, value, name), value, name)
    return value


def _fitting(options: list[Any], value: dict | list, name: str) -> Any:
    """Which of several configurations these values are: that of their `kind`, else the smallest that knows
    all of their fields."""
    if len(options) == 1 or not isinstance(value, dict):
        return options[0]
    fields: dict[Any, dict[str, Any]] = {
        option: {f.name: f.default for f in dataclasses.fields(option)} for option in options
    }
    if "kind" in value:
        named = {fields[option]["kind"]: option for option in options if "kind" in fields[option]}
        if value["kind"] not in named:
            raise RunError(f"{name}.kind is {value['kind']!r}: this version knows {', '.join(named)}.")
        return named[value["kind"]]
    known = [option for option in options if set(value) <= set(fields[option])]
    return min(known or options, key=lambda option: len(fields[option]))


def versions() -> dict[str, Any]:
    """What the run stands on."""
    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found | {"commit": _commit(), "host": socket.gethostname(), "command": command()}


def command() -> list[str]:
    """The words that started this process, without where the program lies on this machine."""
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def _commit() -> str | None:
    """The source's commit, with "+" when files differ from it; None where git does not keep it, though it may
    lie in a checkout: installed into the environment of another project."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        answer = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10)
        return answer.stdout.strip() if answer.returncode == 0 else ""

    try:
        if not git("ls-files", Path(__file__).name):
            return None
        commit = git("rev-parse", "HEAD")
        return (commit + ("+" if git("status", "--porcelain", "-uno") else "")) or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def read_lines(path: Path) -> list[dict]:
    """The rows of a JSONL file. A line that cannot be read is left out: torn by a kill, or damaged."""
    rows = (_object(line) for line in _lines(path))
    return [row for row in rows if row is not None]


def _lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines() if line.strip()] if path.exists() else []


def _object(text: bytes) -> dict | None:
    """None: these bytes are no JSON object."""
    try:
        found = json.loads(text)
    except ValueError:  # not JSON, or not even text
        return None
    return found if isinstance(found, dict) else None


class RunFolder:
    """One run folder, opened by the process that fills it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints, self.snapshots = path / "checkpoints", path / "snapshots"
        self.pictures, self.tensorboard = path / "pictures", path / "tensorboard"

    @staticmethod
    def check_free(path: Path) -> None:
        """A folder that already holds a run, or anything else, is refused."""
        if (path / "config.json").exists():
            raise RunError(
                f"{path} already holds a run: add --resume to go on with it, or choose another --out."
            )
        if path.exists() and (not path.is_dir() or any(file.name != _LOCK for file in path.iterdir())):
            raise RunError(f"{path} exists and is not an empty folder: choose another --out.")

    @classmethod
    def create(cls, path: Path, config: dict) -> "RunFolder":
        """A new folder."""
        cls.check_free(path)
        run = cls(path)
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / "config.json", config)  # first: a folder with it can be resumed, whatever follows
        write_json(path / "versions.json", versions())
        run.note("starting", iteration=0, episodes=0)
        return run

    @classmethod
    def reopen(cls, path: Path, config: dict) -> "RunFolder":
        """The folder of an interrupted run, if it was started with this very configuration."""
        run = cls(path)
        if not (path / "config.json").exists():
            raise RunError(f"{path} holds no run to resume: leave out --resume to start one.")
        state = run.status()
        # Another machine's process is not ours to ask after: a folder that came from there has ended.
        here = state.get("host") == socket.gethostname()
        if state["state"] in ("running", "starting") and here:
            raise RunError(_taken(path, f"{state['pid']} on {state['host']}"))
        before = run.config()
        if not _of_this_version(before):
            raise RunError(f"{path} was written by an earlier version of mirrormark: start a new run.")
        if before.get("preset") != config.get("preset"):  # then hundreds of fields differ
            old = before.get("preset")
            raise RunError(f"{path} was started with preset {old}: give --preset {old}, or start a new run.")
        differing = list(differences(before, config))
        if differing:
            raise RunError(
                f"{path} was started with another configuration ({'; '.join(differing[:4])}): "
                "give the same values, or start a new run."
            )
        return run

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process out of the folder; the system lets go of it however this one ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / _LOCK, "a+") as file:
            for patience in range(_TRIES, 0, -1):  # one who only asks holds it for a moment, too
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if patience == 1:
                        file.seek(0)
                        raise RunError(_taken(self.path, file.read().strip() or "unknown")) from None
                    time.sleep(0.02)
                except OSError:
                    break  # a file system without locks: status.json alone must tell
            file.truncate(0)
            file.write(_me())
            file.flush()
            yield

    def _held_by_another(self) -> bool | None:
        """None: there is no lock, or the file system knows none."""
        try:
            with open(self.path / _LOCK) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return False
                except BlockingIOError:
                    return file.read() != _me()
        except OSError:
            return None

    def config(self) -> dict:
        """What the run was started with."""
        found = _object((self.path / "config.json").read_bytes())
        if found is None:
            raise RunError(f"{self.path / 'config.json'} is damaged: put a copy back, or start a new run.")
        return found

    def status(self) -> dict:
        """status.json, with "running" corrected to "killed" when that process is no more; "killed", too,
        where the file is missing or damaged.

        A process on another machine cannot be asked: it counts as killed when it has been silent for long.
        """
        unknown = {"state": "killed", "pid": None, "iteration": 0, "episodes": 0}
        try:
            status = unknown | (_object((self.path / "status.json").read_bytes()) or {})
        except OSError:
            return unknown
        if status["state"] not in ("running", "starting"):
            return status
        here, since_s = status.get("host") == socket.gethostname(), status.get("updated_s")
        silent = not isinstance(since_s, int | float) or time.time() - since_s >= _SILENT_S
        # The lock knows better than a number, which after a restart may be a stranger's.
        held = self._held_by_another() if here else not silent
        if not (_alive(status["pid"]) if held is None else held):
            status["state"] = "killed"
        return status

    def note(self, state: str, **facts: Any) -> None:
        """Write status.json: starting, running, interrupted, finished, failed."""
        me = {"pid": os.getpid(), "host": socket.gethostname(), "updated_s": time.time()}
        write_json(self.path / "status.json", {"state": state, **me, **facts})

    def append(self, file: str, row: dict) -> None:
        """One more line in a JSONL file of the folder; JSON has no word for what is not finite but null."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        with open(self.path / file, "a") as out:
            out.write(json.dumps(finite, allow_nan=False) + "\n")

    def drop_after(self, iteration: int) -> list[str]:
        """Drop rows of iterations that come again after a resume, and what cannot be read; a sentence for
        each file that held such lines. A last one is torn by a kill and needs none."""
        complaints = []
        for file in ("metrics.jsonl", "evaluations.jsonl"):
            path = self.path / file
            lines = _lines(path)
            if not lines:
                continue
            rows = [_object(line) for line in lines]
            sound = [row for row in rows if row and isinstance(row.get("iteration"), int)]
            kept = [row for row in sound if row["iteration"] < iteration]
            replace_bytes(path, "".join(json.dumps(row) + "\n" for row in kept).encode())
            lost = len(rows) - len(sound) - (rows[-1] is None)
            if lost:
                complaints.append(f"{path}: {lost} damaged line{'s' * (lost > 1)} left out.")
        return complaints


def _me() -> str:
    """What the holder of a folder writes into its lock."""
    return f"{os.getpid()} on {socket.gethostname()}\n"


def _taken(path: Path, process: str) -> str:
    return f"{path} is being trained by process {process}: end that first."


def differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Where two configurations differ, as sentences."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(set(old) | set(new)):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
    elif old != new:
        yield f"{name} was {old}, now {new}"


def _of_this_version(config: dict) -> bool:
    """Whether this version would have written the very same."""
    try:
        return all(
            to_json(from_json(kind, dict(config[part]), part)) == config[part]
            for part, kind in _PARTS.items()
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def _alive(pid: Any) -> bool:
    if not isinstance(pid, int) or pid == os.getpid():
        return False  # an earlier run of this very process has ended, or we would not be here
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:  # a killed process that nobody has waited for still has its number
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


def list_runs(folder: Path) -> list[dict]:
    """Every run below the folder with its state, by name; one whose config.json is damaged is listed as
    such."""
    rows = []
    for config_path in sorted(folder.rglob("config.json")):
        row = dict.fromkeys(
            ("preset", "body", "seed", "ablation", "iteration", "episodes", "last_evaluation")
        )
        row |= {"name": str(config_path.parent)}
        try:
            found = _row(RunFolder(config_path.parent))
        except (OSError, RunError) as error:
            found = {"state": "damaged", "note": str(error)}
        if found:
            rows.append(row | found)
    return rows


def _row(run: RunFolder) -> dict[str, Any]:
    """Nothing where the file belongs to something else than a run."""
    config = run.config()
    if "preset" not in config:
        return {}
    points = read_lines(run.path / "evaluations.jsonl")
    facts = {key: config.get(key) for key in ("preset", "body", "seed", "ablation")}
    return {**facts, **run.status(), "last_evaluation": points[-1] if points else None}
