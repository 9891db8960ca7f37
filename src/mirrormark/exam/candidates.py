"""Agents for the exam: from run folders, checkpoints and snapshots, or new from a preset."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mirrormark.agent.agent import Agent
from mirrormark.envs import bodies
from mirrormark.presets import preset as get_preset
from mirrormark.training.checkpoint import CheckpointError
from mirrormark.training.env_config import EnvConfig, build_agent
from mirrormark.training.weights import LEFT_OUT, find, load_weights, shipped

UNTRAINED = "untrained"
ALIKE = (
    *("body", "tone", "tone_scale", "mirror", "mirrorless_share", "mark", "babbling", "senses"),
    "biased_noise",
)
"""What agents must share to be examined together: seeds are compared, not upbringings."""


@dataclass(frozen=True)
class Candidate:
    """One agent that takes the exam."""

    run: str
    checkpoint: str
    training_seed: int
    setup: EnvConfig
    agent: Agent
    fingerprint: str
    """SHA-256 of its weights."""
    folder: Path | None = None
    """Its run folder, if it has one: curves over training come from there."""
    costless: bool = False
    """Trained without the self-prior's cost: an ablation, shown beside the others."""

    @property
    def name(self) -> str:
        return f"{self.run}@{self.checkpoint}".replace("/", "_")


def load(path: Path, device: torch.device | str = "cpu") -> Candidate:
    """The agent that `path` means, or that is shipped for the body of that name; one that is damaged or
    missing is named in one sentence."""
    place = _find(path)
    try:
        agent, setup, metadata = load_weights(place, device)
    except CheckpointError as reason:
        raise CheckpointError(f"{reason} Copy it again, or give another checkpoint or snapshot.") from reason
    bodies.get(setup.body)
    folder = _run_folder(place)
    run, checkpoint = folder.name if folder else place.parent.name, place.name
    if place == shipped(setup.body):
        run, checkpoint = f"shipped-{setup.body}", f"episodes-{metadata.get('episodes', 0)}"
    return Candidate(
        run=run,
        checkpoint=checkpoint,
        training_seed=int(metadata.get("seed", 0)),
        setup=setup,
        agent=agent,
        fingerprint=fingerprint(agent),
        folder=folder,
        costless=_costless(folder),
    )


def _find(path: Path) -> Path:
    """The checkpoint or snapshot that is meant; where none or several could be, what to give instead."""
    try:
        place = find(path)
    except CheckpointError as reason:
        raise CheckpointError(f"{reason} {_instead(path)}".rstrip()) from None
    if place.parent == path:
        raise CheckpointError(f"{path} holds several agents: give the run, {path.parent}, or one, {place}.")
    return place


def _instead(path: Path) -> str:
    if not path.is_dir():
        shipped_names = " or ".join(name for name in bodies.names() if shipped(name))
        return f"Shipped agents go by the name of their body: {shipped_names or 'there are none'}."
    runs = sorted(inner for inner in path.iterdir() if (inner / "config.json").is_file())
    return f"It is a folder of runs: give one of them, such as {runs[0]}." if runs else ""


def untrained(
    preset: str, body: str | None = None, seed: int = 0, device: torch.device | str = "cpu"
) -> Candidate:
    """An agent that has learned nothing, of a preset's sizes."""
    found = get_preset(preset)
    setup = found.env
    if body is not None and body != setup.body:
        setup = replace(setup, body=body, tone=None)  # a tone is a body's own
    bodies.get(setup.body)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        agent = build_agent(found.agent, setup.make_envs(1)).eval().requires_grad_(False)
    return Candidate(f"{UNTRAINED}-{preset}", UNTRAINED, seed, setup, agent.to(device), fingerprint(agent))


def check(candidates: Sequence[Candidate]) -> None:
    """Whether they can take one exam together, or a sentence that says why not."""
    if not any(not candidate.costless for candidate in candidates):
        raise ValueError("no agent to examine: name a run or a checkpoint, or --preset for a new agent.")
    first = candidates[0].setup
    for candidate in candidates[1:]:
        for name in ALIKE:
            if _resolved(candidate.setup, name) != _resolved(first, name):
                raise ValueError(
                    f"{candidate.run} differs from {candidates[0].run} in {name}: examine each kind by "
                    "itself."
                )
    seeds = [(candidate.training_seed, candidate.costless) for candidate in candidates]
    if len(set(seeds)) < len(seeds):
        raise ValueError(
            f"two agents share training seed {max(seeds, key=seeds.count)[0]}: seeds are the independent"
            " cases, so give one checkpoint of each."
        )
    names = [candidate.name for candidate in candidates]
    if len(set(names)) < len(names):
        raise ValueError(
            f"two agents are called {max(names, key=names.count)}, and results are kept by name: rename one"
            " of the run folders."
        )


def _resolved(setup: EnvConfig, name: str) -> object:
    """A tone that was left open is the body's default."""
    value = getattr(setup, name)
    return bodies.get(setup.body).tones[0] if name == "tone" and value is None else value


def fingerprint(agent: Agent) -> str:
    """SHA-256 over the weights that act: the same for every loading of a snapshot."""
    digest = hashlib.sha256()
    for name, value in sorted(agent.state_dict().items()):
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
    return config.get("agent", {}).get("drive") == "none"
