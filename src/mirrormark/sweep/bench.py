"""What a sweep costs beyond its commands, and how many runs it gets through."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from mirrormark.sweep import journal
from mirrormark.sweep.engine_ray import Ray, installed
from mirrormark.sweep.plan import Folder, plan
from mirrormark.sweep.spec import Resources, parse
from mirrormark.sweep.work import environment

_COMMAND = [sys.executable, "-m", "mirrormark"]


def bench_sweep(
    runs: int = 2,
    episodes: int = 24,
    engines: tuple[Literal["ray", "processes"], ...] = ("ray", "processes"),
    workers: tuple[int, ...] = (1, 2),
    out: Path | None = None,
) -> None:
    """Time the same runs as bare commands, one after the other, and as a sweep.

    Args:
        runs: Seeds of the smoke preset.
        episodes: Length of each training.
        engines: Which engines to time.
        workers: Runs at a time; the first is compared with the bare commands.
        out: Also write the numbers as JSON here.
    """
    about = {
        "preset": "smoke",
        "seeds": runs,
        "overrides": {"training.schedule.episodes": episodes},
        "exam": {"runs": 2, "chance_runs": 4, "only": ["mirror", "absent"]},
    }
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="mirrormark-bench-") as place:
        bare_s = _bare(about, Path(place) / "bare")
        print(f"{runs} runs as bare commands: {bare_s:.1f} s (load {os.getloadavg()[0]:.1f})", flush=True)
        start_s = {"processes": 0.0, "ray": _ray_start() if "ray" in engines and installed() else 0.0}
        for engine in [one for one in engines if one != "ray" or installed()]:
            for count in workers:
                found = _sweep(about, Path(place) / f"{engine}-{count}", engine, count)
                rows.append({"engine": engine, "workers": count, "start_s": start_s[engine], **found})
                _tell(rows[-1], runs)
    if out is not None:
        result = {"cores": os.cpu_count(), "runs": runs, "episodes": episodes, "bare_s": bare_s, "rows": rows}
        out.write_text(json.dumps(result, indent=1) + "\n")


def _call(words: Sequence[str]) -> float:
    began = time.monotonic()
    subprocess.run(
        [*_COMMAND, *words], env=os.environ | environment(1), stdout=subprocess.DEVNULL, check=True
    )
    return time.monotonic() - began


def _bare(about: dict[str, Any], place: Path) -> float:
    folder = Folder(place)
    works = [
        work for job in plan(parse(about)) for work in (folder.trained(job, False), folder.examined(job))
    ]
    return sum(_call(work.words) for work in works)


def _ray_start() -> float:
    """Ray's own start and end, without any work."""
    began = time.monotonic()
    Ray(Resources(workers=1)).close()
    return time.monotonic() - began


def _sweep(about: dict[str, Any], place: Path, engine: str, workers: int) -> dict[str, Any]:
    """Wall time of the command, and how much of it its train and exam commands ran, by their own clocks."""
    place.mkdir(parents=True)
    spec = place / "spec.toml"
    overrides, exam = about["overrides"], about["exam"]
    lines = [f"preset = {json.dumps(about['preset'])}", f"seeds = {about['seeds']}", "[overrides]"]
    lines += [f"{json.dumps(name)} = {value}" for name, value in overrides.items()]
    lines += ["[exam]", *(f"{name} = {json.dumps(value)}" for name, value in exam.items())]
    spec.write_text("\n".join([*lines, "[resources]", f"workers = {workers}"]) + "\n")
    sweep_s = _call(["sweep", str(spec), "--out", str(place / "out"), "--engine", engine])
    folder = Folder(place / "out")
    entries = [journal.read(folder, job.name) for job in journal.jobs_of(folder)]
    return {"sweep_s": sweep_s, "commands_s": sum(sum(entry.seconds.values()) for entry in entries)}


def _tell(row: dict[str, Any], runs: int) -> None:
    rate = 3600 * runs / row["sweep_s"]
    told = f"{row['engine']:>9}, {row['workers']} at a time: {row['sweep_s']:.1f} s, {rate:.0f} runs an hour"
    if row["workers"] == 1:
        beyond_s = row["sweep_s"] - row["commands_s"] - row["start_s"]
        share = f"{100 * beyond_s / row['commands_s']:.0f}%"
        told += (
            f"; {beyond_s:.1f} s ({share}) beyond its commands, {row['start_s']:.1f} s for the engine's start"
        )
    print(f"{told} (load {os.getloadavg()[0]:.1f})", flush=True)
