"""Checkpoints that survive a kill at any moment, and weights-only snapshots.

A checkpoint is a folder of safetensors parts and a `manifest.json` that names each part's SHA-256. It is
written under a temporary name, flushed to the disk and renamed, so a folder without the temporary prefix is
complete or was damaged later; damage is found by its checksum. Nothing is ever pickled.

What is kept is a tree of dicts, lists, numbers, strings and tensors; the manifest holds the tree with each
tensor replaced by a reference into the parts. Large tensors are cut along their first axis to keep parts
small.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

FORMAT = 1
PART_BYTES = 15 * 2**20
"""Tensor bytes a part: with its header a part stays below 16 MiB, small enough to be moved one by one."""
_TEMPORARY = ".writing-"
_TENSOR = "__tensor__"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, with the reason in one sentence."""


def _flatten(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tree's tensors into `tensors` and leave references behind."""
    if isinstance(tree, Tensor):
        tensors[name] = tree.detach().cpu().contiguous()
        return {_TENSOR: name}
    if isinstance(tree, dict):
        return {str(key): _flatten(value, f"{name}.{key}", tensors) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_flatten(value, f"{name}.{i}", tensors) for i, value in enumerate(tree)]
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(
        f"Checkpoint entry {name} is a {type(tree).__name__}; only tensors and JSON values are kept."
    )


def _unflatten(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, dict):
        if set(tree) == {_TENSOR}:
            return tensors[tree[_TENSOR]]
        return {key: _unflatten(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_unflatten(value, tensors) for value in tree]
    return tree


def _pack(tensors: dict[str, Tensor], part_bytes: int) -> list[dict[str, Tensor]]:
    """Distribute tensors over parts; piece names are `name#i`, i counting along the first axis."""
    parts: list[dict[str, Tensor]] = [{}]
    room = part_bytes
    for name, tensor in tensors.items():
        row_bytes = tensor.nbytes // max(1, len(tensor)) if tensor.ndim else 0
        rows = max(1, part_bytes // row_bytes) if row_bytes else 0
        pieces = tensor.split(rows) if rows and tensor.nbytes > part_bytes else (tensor,)
        for i, piece in enumerate(pieces):
            if parts[-1] and piece.nbytes > room:
                parts.append({})
                room = part_bytes
            parts[-1][f"{name}#{i}"] = piece.clone() if len(pieces) > 1 else piece
            room -= piece.nbytes
    return parts


def _unpack(pieces: dict[str, Tensor]) -> dict[str, Tensor]:
    grouped: dict[str, dict[int, Tensor]] = {}
    for key, piece in pieces.items():
        name, _, i = key.rpartition("#")
        grouped.setdefault(name, {})[int(i)] = piece
    return {
        name: found[0] if len(found) == 1 else torch.cat([found[i] for i in range(len(found))])
        for name, found in grouped.items()
    }


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_bytes(path: Path, data: bytes) -> None:
    """Exchange a file's content at once: a kill or a full disk leaves the old content."""
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    try:
        write_bytes(temporary, data)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file so that a reader sees the old or the new one, never a half."""
    replace_bytes(path, (json.dumps(value, indent=1) + "\n").encode())


def save(folder: Path, name: str, tree: dict, keep: int = 2, part_bytes: int = PART_BYTES) -> Path:
    """Write `folder/name` atomically and keep the newest `keep` checkpoints of the folder.

    Names sort by age (`iteration-00000012`). The old ones go only after the new one is on the disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary, final = folder / f"{_TEMPORARY}{name}", folder / name
    temporary.mkdir()
    try:
        _write_parts(temporary, tree, part_bytes)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        kept = names(folder)
        last = f"the last good one is {kept[-1]}" if kept else "there is no earlier one"
        raise CheckpointError(
            f"Checkpoint {final} could not be written ({error.strerror}); {last}."
        ) from error
    if final.exists():
        shutil.rmtree(final)
    os.rename(temporary, final)
    _flush_folder(folder)
    for old in names(folder)[:-keep]:
        shutil.rmtree(folder / old, ignore_errors=True)
    return final


def _write_parts(folder: Path, tree: dict, part_bytes: int) -> None:
    tensors: dict[str, Tensor] = {}
    skeleton = _flatten(tree, "root", tensors)
    parts = []
    for i, pieces in enumerate(_pack(tensors, part_bytes)):
        data = save_tensors(pieces)
        write_bytes(folder / f"part-{i:05d}.safetensors", data)
        parts.append(
            {
                "file": f"part-{i:05d}.safetensors",
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "tensors": list(pieces),
            }
        )
    manifest = {"format": FORMAT, "torch": torch.__version__, "parts": parts, "tree": skeleton}
    text = json.dumps(manifest)
    seal = hashlib.sha256(text.encode()).hexdigest()
    write_bytes(folder / "manifest.json", json.dumps({"sha256": seal, "manifest": text}).encode())
    _flush_folder(folder)


def names(folder: Path) -> list[str]:
    """Complete checkpoints in the folder, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(_TEMPORARY))


def read_manifest(path: Path) -> dict:
    """The checked manifest of one checkpoint."""
    try:
        sealed = json.loads((path / "manifest.json").read_text())
        text = sealed["manifest"]
        if hashlib.sha256(text.encode()).hexdigest() != sealed["sha256"]:
            raise CheckpointError(f"Checkpoint {path} is damaged: manifest.json does not match its checksum.")
        manifest = json.loads(text)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no manifest.json.") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"Checkpoint {path} is damaged: manifest.json cannot be read.") from error
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"Checkpoint {path} has format {manifest['format']}; this version of mirrormark reads {FORMAT}."
        )
    return manifest


def load(path: Path, only: tuple[str, ...] = ()) -> dict:
    """The tree of one checkpoint, every byte checked.

    only: dotted branches; parts without any of them are not read and other branches are left out.
    """
    manifest = read_manifest(path)
    branches = tuple(f"root.{name}" for name in only) or ("root",)
    pieces: dict[str, Tensor] = {}
    for part in manifest["parts"]:
        wanted = {name for name in part["tensors"] if _under(name.rpartition("#")[0], branches)}
        if wanted:
            found = _read_part(path, part)
            pieces |= {name: found[name] for name in wanted}
    return _unflatten(_pruned(manifest["tree"], "root", branches), _unpack(pieces))


def _under(name: str, branches: tuple[str, ...]) -> bool:
    return any(name == branch or name.startswith(f"{branch}.") for branch in branches)


def _pruned(tree: Any, name: str, branches: tuple[str, ...]) -> Any:
    """The tree without what lies on no branch."""
    if _under(name, branches) or not isinstance(tree, dict):
        return tree
    return {
        key: _pruned(value, f"{name}.{key}", branches)
        for key, value in tree.items()
        if any(
            _under(branch, (f"{name}.{key}",)) or _under(f"{name}.{key}", (branch,)) for branch in branches
        )
    }


def _read_part(path: Path, part: dict) -> dict[str, Tensor]:
    file = part["file"]
    try:
        data = (path / file).read_bytes()
    except OSError:
        raise CheckpointError(f"Checkpoint {path} is damaged: {file} is missing.") from None
    if len(data) != part["bytes"]:
        raise CheckpointError(
            f"Checkpoint {path} is damaged: {file} has {len(data)} bytes of {part['bytes']}."
        )
    if hashlib.sha256(data).hexdigest() != part["sha256"]:
        raise CheckpointError(f"Checkpoint {path} is damaged: {file} does not match its checksum.")
    try:
        return load_tensors(data)
    except SafetensorError as error:
        raise CheckpointError(f"Checkpoint {path}: {file} is not safetensors ({error}).") from error


def load_newest(folder: Path) -> tuple[str, dict, list[str]]:
    """The newest undamaged checkpoint: its name, its tree, and a sentence for each damaged one passed
    over."""
    complaints: list[str] = []
    for name in reversed(names(folder)):
        try:
            return name, load(folder / name), complaints
        except CheckpointError as error:
            complaints.append(str(error))
    reason = " ".join(complaints) or "none has been written yet."
    raise CheckpointError(f"No checkpoint in {folder} can be used: {reason}")
