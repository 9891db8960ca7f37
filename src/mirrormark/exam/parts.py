"""Finished parts of an exam on disk: a condition of one agent, or its probes.

A part is some files and NAME.manifest.json, written last, which holds the SHA-256 of each file and of the
exam's plan. What is damaged, empty, missing or of another exam is not read: that part is run again, alone.
"""

import hashlib
import json
import warnings
from pathlib import Path

from mirrormark.training.checkpoint import replace_bytes, write_json

Files = dict[str, bytes]


def save(folder: Path, name: str, exam: str, files: Files) -> None:
    """Write a part; `exam` is the SHA-256 of the plan that it belongs to."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        replace_bytes(folder / file, content)
    write_json(_manifest(folder, name), {"exam": exam, "files": {f: sha256(c) for f, c in files.items()}})


def load(folder: Path, name: str, exam: str) -> Files | None:
    """The files of a part as they were written; None: it is not there, or (with one warning) damaged."""
    path = _manifest(folder, name)
    if not path.exists() and not any(folder.glob(f"{name}.*")):
        return None
    files, problem = _read(folder, path, exam)
    if problem:
        warnings.warn(f"{problem}; “{name}” is run again.", stacklevel=3)
        return None
    return files


def _manifest(folder: Path, name: str) -> Path:
    return folder / f"{name}.manifest.json"


def _read(folder: Path, manifest: Path, exam: str) -> tuple[Files, str | None]:
    """The files, and what is wrong with them."""
    files: Files = {}
    try:
        found = json.loads(manifest.read_bytes())
        for file, expected in found["files"].items():
            files[file] = (folder / file).read_bytes()
            if sha256(files[file]) != expected:
                return {}, f"{folder / file} is damaged (its checksum differs)"
        return files, None if found["exam"] == exam else f"{manifest} is of another exam"
    except OSError as reason:
        return {}, f"{reason.filename} cannot be read ({reason.strerror})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, f"{manifest} is damaged"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_json(path: Path, consequence: str) -> dict | None:
    """An object from a JSON file; None: no such file, or (with one warning) none that can be read."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        found = None
    if isinstance(found, dict):
        return found
    warnings.warn(f"{path} is damaged; {consequence}.", stacklevel=3)
    return None
