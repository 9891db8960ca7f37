"""Minds for the exam: from run folders, checkpoints and snapshots, or new from a preset."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import torch

from mirrormark.exam.sitting import Subject
from mirrormark.life.setup import build_mind
from mirrormark.life.weights import LEFT_OUT, find, load_weights, shipped
from mirrormark.mind.mind import Mind
from mirrormark.presets import preset as get_preset
from mirrormark.world import bodies

UNTRAINED = "untrained"


def load(path: Path, device: torch.device | str = "cpu") -> Subject:
    """The mind that `path` means, or that is shipped for the body of that name; one that is damaged or
    missing is named in one sentence."""
    place = find(path)
    mind, setup, about = load_weights(place, device)
    bodies.get(setup.body)
    folder = _run_folder(place)
    run, checkpoint = folder.name if folder else place.parent.name, place.name
    if place == shipped(setup.body):
        run, checkpoint = f"shipped-{setup.body}", f"episodes-{about.get('episodes', 0)}"
    return Subject(
        run=run,
        checkpoint=checkpoint,
        training_seed=int(about.get("seed", 0)),
        setup=setup,
        mind=mind,
        fingerprint=fingerprint(mind),
        folder=folder,
        costless=_costless(folder),
    )


def untrained(
    preset: str, body: str | None = None, seed: int = 0, device: torch.device | str = "cpu"
) -> Subject:
    """A mind that has learned nothing, of a preset's sizes."""
    found = get_preset(preset)
    setup = found.world
    if body is not None and body != setup.body:
        setup = replace(setup, body=body, tone=None)  # a tone is a body's own
    bodies.get(setup.body)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        mind = build_mind(found.mind, setup.worlds(1)).eval().requires_grad_(False)
    return Subject(f"{UNTRAINED}-{preset}", UNTRAINED, seed, setup, mind.to(device), fingerprint(mind))


def fingerprint(mind: Mind) -> str:
    """SHA-256 over the weights that act: the same for every loading of a snapshot."""
    digest = hashlib.sha256()
    for name, value in sorted(mind.state_dict().items()):
        if not name.startswith(LEFT_OUT):
            digest.update(name.encode())
            digest.update(value.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _run_folder(place: Path) -> Path | None:
    folder = place.parent.parent
    return folder if (folder / "config.json").exists() else None


def _costless(folder: Path | None) -> bool:
    if folder is None:
        return False
    config = json.loads((folder / "config.json").read_text())
    return config.get("life", {}).get("learner", {}).get("cost") == "none"
