"""Weights of a mind by themselves: snapshots of a run, and loading them for exams, probes and the live
page."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mirrormark.agent.agent import Mind, MindConfig, build_codec
from mirrormark.agent.senses import Senses, SenseSpec
from mirrormark.agent.tokenizer import Codec, CodecConfig
from mirrormark.envs import bodies
from mirrormark.training import checkpoint
from mirrormark.training.checkpoint import CheckpointError
from mirrormark.training.env_config import WorldSetup
from mirrormark.training.run_folder import from_json, to_json

CODEC = "codec."
"""What the names of a codec's weights begin with."""
LEFT_OUT = ("value.", "outlook.", "ema.", "return_range.")
"""What only learning needs: snapshots go without it."""
SHIPPED = Path(__file__).parents[1] / "weights"
"""What comes with the package: BODY, a trained mind; BODY-codec, a trained codec in a mind that has learned
nothing else. Snapshot folders, for bodies that have one."""


class Loaded(NamedTuple):
    """A mind, and what it grew up as."""

    mind: Mind
    world: WorldSetup
    about: dict[str, Any]  # preset, seed, episodes, steps, ablation, ...


def describe(mind: Mind, world: WorldSetup, **facts: Any) -> dict[str, Any]:
    """What is needed to build this mind and its world again, as JSON values."""
    senses = {name: [sense.kind, sense.size] for name, sense in mind.codec.senses.items()}
    return {
        "mind": to_json(mind.config),
        "world": to_json(world),
        "senses": senses,
        "actions": mind.actions,
        "ablation": world.ablation,
        **facts,
    }


def rebuild(about: dict[str, Any]) -> Mind:
    """A mind of the described sizes, with fresh weights."""
    return Mind(from_json(MindConfig, about["mind"], "mind"), _senses(about), int(about["actions"]))


def _senses(about: dict[str, Any]) -> Senses:
    return {name: SenseSpec(kind, size) for name, (kind, size) in about["senses"].items()}


def save_snapshot(folder: Path, name: str, mind: Mind, about: dict[str, Any]) -> Path:
    """Weights only, in bf16, under folder/name; all earlier snapshots stay."""
    return save_weights(folder, name, mind.state_dict(), about)


def save_weights(folder: Path, name: str, weights: dict[str, Tensor], about: dict[str, Any]) -> Path:
    """The same for weights by name."""
    kept = {key: value for key, value in weights.items() if not key.startswith(LEFT_OUT)}
    half = {key: value.bfloat16() if value.is_floating_point() else value for key, value in kept.items()}
    return checkpoint.save(folder, name, {"about": about, "weights": half}, keep=10**9)


def shipped(name: str) -> Path | None:
    """The snapshot of that name that comes with the package; None: there is none."""
    place = SHIPPED / name
    return place if (place / "manifest.json").is_file() else None


def find(path: Path) -> Path:
    """The snapshot or checkpoint that `path` means: itself, the newest of a run folder, or, where no such
    path exists, the shipped mind of the body of that name."""
    if (path / "manifest.json").exists():
        return path
    if not path.exists():
        if path.name in bodies.names() and path == Path(path.name):
            return _shipped_or_why_not(path.name)
        raise CheckpointError(f"{path} does not exist: give a run, a checkpoint or a snapshot.")
    for folder in (path, path / "checkpoints", path / "snapshots"):
        found = [name for name in checkpoint.names(folder) if (folder / name / "manifest.json").exists()]
        if found:
            return folder / found[-1]
    raise CheckpointError(f"{path} holds no checkpoint and no snapshot yet.")


def _shipped_or_why_not(body: str) -> Path:
    place = shipped(body)
    if place is None:
        raise CheckpointError(
            f"{body}: no such path, and no trained mind is shipped for the {body} in this version."
        )
    return place


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a snapshot or checkpoint says about its mind, and the weights in full precision. A shipped mind
    may see with a codec that is shipped by itself: about["codec"] names it."""
    tree = checkpoint.load(path, only=("about", "weights", "learner.mind"))
    about, weights = tree["about"], tree["weights"] if "weights" in tree else tree["learner"]["mind"]
    full: dict[str, Tensor] = {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}
    if "codec" in about:
        codec = _shipped_or_why_not(about["codec"])
        full |= {k: v for k, v in read(codec)[1].items() if k.startswith(CODEC)}
    return about, full


def load_codec(path: Path | str) -> Codec:
    """Only the codec of a run folder, a checkpoint or a snapshot, whatever else its mind was made of."""
    found = find(Path(path))
    about, weights = read(found)
    codec = build_codec(from_json(CodecConfig, about["mind"]["codec"], "mind.codec"), _senses(about))
    own = {name.removeprefix(CODEC): w for name, w in weights.items() if name.startswith(CODEC)}
    if set(own) != set(codec.state_dict()):
        raise CheckpointError(f"{found} does not fit the codec it describes: damaged, or of another version.")
    codec.load_state_dict(own)
    return codec.requires_grad_(False).eval()


def load_weights(path: Path | str, device: torch.device | str = "cpu") -> Loaded:
    """The mind of a run folder, a checkpoint or a snapshot; replay and optimisers are not read."""
    found = find(Path(path))
    about, full = read(found)
    mind = rebuild(about)
    missing, unknown = mind.load_state_dict(full, strict=False)
    if unknown or any(not name.startswith(LEFT_OUT) for name in missing):
        raise CheckpointError(f"{found} does not fit the mind it describes: damaged, or of another version.")
    if missing:
        mind.ema.self_prior.load_state_dict(mind.self_prior.state_dict())
    mind.requires_grad_(False)
    return Loaded(mind.to(device).eval(), from_json(WorldSetup, about["world"], "world"), about)
