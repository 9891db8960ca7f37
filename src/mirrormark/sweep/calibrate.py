"""A short measured try-out: the first job's own command with few laps, in a folder that is thrown away."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from mirrormark.life import checkpoint
from mirrormark.life.run import Run, read_lines
from mirrormark.life.schedule import Schedule, ScheduleConfig
from mirrormark.sweep import work as works
from mirrormark.sweep.estimate import Pace, folder_bytes
from mirrormark.sweep.plan import Folder, Job, asked

_LAPS = 4
"""Laps of life that are tried (ours)."""
_LOOK_S = 0.1


def calibrate(job: Job, limit_s: float) -> Pace:
    """What a lap of each phase takes with all stages open, an exam, and the disk that a whole run will need.

    What could not be measured within the limit stays unknown.
    """
    deadline = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(prefix="mirrormark-calibrate-") as place:
        folder = Folder(Path(place))
        whole = asked(job.train).life.schedule
        short = _shortened(job, whole)
        _run(folder.trained(short, resume=False), deadline)
        run = folder.run(job.name)
        lap_s = _lap_seconds(run)
        exam_s = None
        if Run(run).status()["state"] == "finished":
            began = time.monotonic()
            if _run(folder.examined(replace(short, beside=None)), deadline):
                exam_s = time.monotonic() - began
        size = _disk_bytes(run, folder.exam(job.name), Schedule(whole)) if exam_s else None
        laps = len(read_lines(run / "metrics.jsonl"))
        return Pace(f"{job.name}, tried for {laps} laps", lap_s, exam_s, size)


def _shortened(job: Job, config: ScheduleConfig) -> Job:
    few = {
        "episodes": _LAPS * config.episodes_per_lap, "codec_laps": min(2, config.codec_laps),
        "world_from_episode": 0, "self_prior_from_episode": 0, "policy_from_episode": 0,
        "exam_every_episodes": 10**9, "checkpoint_every_laps": 1,
    }  # fmt: skip
    flags = {f"--life.schedule.{name.replace('_', '-')}": value for name, value in few.items()}
    kept = [word for word in job.train if word.partition("=")[0] not in flags]
    return replace(job, train=(*kept, *(f"{flag}={value}" for flag, value in flags.items())))


def _run(work: works.Work, deadline: float) -> bool:
    """Whether it came to a good end in time."""
    process = works.start(work)
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            return False
        time.sleep(_LOOK_S)
    return process.returncode == 0


def _lap_seconds(run: Path) -> dict[str, float]:
    """Mean seconds of a phase's laps; its first, which warms up, only where there is no other."""
    rows: Sequence[dict] = read_lines(run / "metrics.jsonl")
    found: dict[str, list[float]] = {}
    for before, row in zip([None, *rows], rows):
        found.setdefault(row["phase"], []).append(row["seconds"] - (before["seconds"] if before else 0.0))
    return {phase: fmean(all_s[1:] or all_s) for phase, all_s in found.items()}


def _disk_bytes(run: Path, exam: Path, whole: Schedule) -> int | None:
    """Two checkpoints with a full memory, a snapshot for each exam point, and the exam's tables.

    Memory is what grows: each lap adds the same until its capacity is reached.
    """
    names = checkpoint.names(run / "checkpoints")
    if len(names) < 2:
        return None
    sizes = [folder_bytes(run / "checkpoints" / name) for name in names[-2:]]
    config = whole.config
    capacity = Run(run).config()["life"]["memory"]["capacity_episodes"]
    laps_to_fill = min(config.episodes, capacity) / config.episodes_per_lap - _LAPS
    full = sizes[1] + max(0.0, laps_to_fill) * max(0, sizes[1] - sizes[0])
    snapshots = sorted((run / "snapshots").iterdir())
    points = sum(whole.lap(index).exam for index in range(whole.total_laps))
    return int(2 * full + points * folder_bytes(snapshots[-1]) + folder_bytes(exam))
