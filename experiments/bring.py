"""How training runs on a lent machine stand, and their newest snapshots on the way home before it goes.

    python experiments/bring.py out FOLDER $OUT [--runs 2]      # there, in every look at it
    python experiments/bring.py home FOLDER FILES...            # here: makes run folders of what came

FOLDER holds run folders, as side_by_side.py makes them. Prints a line for each evaluation and where each run
stands now. Into the second folder go logs.tgz (what was printed, metrics, evaluations, configurations, and of
exams in FOLDER/exams results and runs, not what their reports are drawn from, which is too large) and the
newest snapshot of each run, as NAME.EPISODES.PART, of at most so many runs at a time: those of which the
least was brought before.
"""

import json
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from mirrormark.training.run_folder import read_lines

_REPORTED = {
    "removal_rate": "removal",
    "yoked_rate": "yoked",
    "mark_recovery": "recovery",
    "efe_gap_nats": "gap",
    "dreamed_fall_ratio": "fall",
    "dreamed_fall_contrast": "contrast",
    "foresight_nats": "next frame",
}
_LOGS = ("*.log", "*.out", "*/evaluations.jsonl", "*/metrics.jsonl", "*/config.json")
_EXAMS = ("exams/*/results.json", "exams/*/provenance.json", "exams/*/episodes.parquet")


@dataclass
class Out:
    """Report how runs stand, and copy what must not be lost."""

    folder: tyro.conf.Positional[Path]
    out: tyro.conf.Positional[Path]
    runs: int = 2
    """Runs whose snapshots come at once: a snapshot of swift has 21 MB, and 64 MiB travel."""


@dataclass
class Home:
    """Make run folders of what was brought."""

    folder: tyro.conf.Positional[Path]
    files: tyro.conf.Positional[tuple[Path, ...]]


def report_and_copy(asked: Out) -> None:
    """What `out` does."""
    for run in sorted(path.parent for path in asked.folder.glob("*/config.json")):
        print(standing(run))
    asked.out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(asked.out / "logs.tgz", "w:gz") as logs:
        for pattern in _LOGS + _EXAMS:
            for path in sorted(asked.folder.glob(pattern)):
                logs.add(path, path.relative_to(asked.folder))
    for path in bring(asked.folder, asked.out, asked.runs):
        print(f"brought {path.name}")


def standing(run: Path) -> str:
    """A run in a few lines."""
    lines = [run.name]
    for exam in read_lines(run / "evaluations.jsonl"):
        parts = [f"{name} {exam[key]:.2f}" for key, name in _REPORTED.items() if exam.get(key) is not None]
        lines.append(f"  {exam['episodes']}: {', '.join(parts)}")
    now = read_lines(run / "metrics.jsonl")[-1:]
    lines += [
        f"  {m['phase']}, iteration {m['iteration']}, {m['episodes']} episodes, {m['seconds']:.0f} s"
        for m in now
    ]
    return "\n".join(lines)


def bring(folder: Path, out: Path, runs: int) -> list[Path]:
    """Copy the newest snapshots that were not brought yet, of as many runs; what was is noted in FOLDER."""
    note = folder / "brought.json"
    brought: dict[str, int] = json.loads(note.read_text()) if note.exists() else {}
    newest: dict[str, tuple[int, Path]] = {}
    for place in sorted(folder.glob("*/snapshots/episodes-*")):
        newest[place.parts[-3]] = int(place.name.split("-")[1]), place
    due = [name for name, (episodes, _) in newest.items() if episodes > brought.get(name, -1)]
    copied = []
    for name in sorted(due, key=lambda name: brought.get(name, -1))[:runs]:
        brought[name], place = newest[name]
        copied += [Path(shutil.copy(f, out / f"{name}.{brought[name]}.{f.name}")) for f in place.iterdir()]
    note.write_text(json.dumps(brought))
    return copied


def unpack(asked: Home) -> None:
    """NAME.EPISODES.PART to FOLDER/NAME/snapshots/episodes-EPISODES/PART."""
    for path in asked.files:
        name, episodes, part = path.name.split(".", 2)
        place = asked.folder / name / "snapshots" / f"episodes-{int(episodes):08d}"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place / part)


if __name__ == "__main__":
    words = tyro.cli(Out | Home, description=__doc__)
    report_and_copy(words) if isinstance(words, Out) else unpack(words)
