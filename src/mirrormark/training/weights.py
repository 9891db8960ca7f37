"""Weights of an agent by themselves: snapshots of a run, and loading them for exams, probes and the live
page."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mirrormark.agent.agent import Agent
from mirrormark.agent.senses import Senses, SenseSpec
from mirrormark.agent.tokenizer import Tokenizer
from mirrormark.config import AgentConfig
from mirrormark.envs import bodies
from mirrormark.training import checkpoint
from mirrormark.training.build import build_agent
from mirrormark.training.checkpoint import CheckpointError
from mirrormark.training.env_config import EnvConfig
from mirrormark.training.run_folder import RunError, from_json, to_json

TOKENIZER = "tokenizer."
"""What the names of a tokenizer's weights begin with."""
LEFT_OUT = ("value.", "drive.", "ema.")
"""What only learning needs: snapshots go without it."""
SHIPPED = Path(__file__).parents[1] / "weights"
"""What comes with the package: BODY, a trained agent; BODY-tokenizer, a trained tokenizer in an agent that
has learned nothing else. Snapshot folders, for bodies that have one."""


class Loaded(NamedTuple):
    """An agent, and what it grew up as."""

    agent: Agent
    env: EnvConfig
    metadata: dict[str, Any]  # preset, seed, episodes, steps, ablation, ...


def describe(agent: Agent, env: EnvConfig, **facts: Any) -> dict[str, Any]:
    """What is needed to build this agent and its world again, as JSON values."""
    senses = {name: [sense.kind, sense.size] for name, sense in agent.tokenizer.senses.items()}
    return {
        "agent": to_json(agent.config),
        "env": to_json(env),
        "senses": senses,
        "actions": agent.actions,
        "ablation": env.ablation,
        **facts,
    }


def rebuild(metadata: dict[str, Any]) -> Agent:
    """An agent of the described sizes, with fresh weights."""
    return build_agent(
        from_json(AgentConfig, metadata["agent"], "agent"), _senses(metadata), int(metadata["actions"])
    )


def _rebuilt(path: Path, metadata: dict[str, Any]) -> Agent:
    try:
        return rebuild(metadata)
    except RunError:
        raise _earlier(path) from None


def _earlier(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} was written by an earlier version of mirrormark: use that version, or train anew."
    )


def _senses(metadata: dict[str, Any]) -> Senses:
    return {name: SenseSpec(kind, size) for name, (kind, size) in metadata["senses"].items()}


def save_snapshot(folder: Path, name: str, agent: Agent, metadata: dict[str, Any]) -> Path:
    """Weights only, in bf16, under folder/name; all earlier snapshots stay."""
    return save_weights(folder, name, agent.state_dict(), metadata)


def save_weights(folder: Path, name: str, weights: dict[str, Tensor], metadata: dict[str, Any]) -> Path:
    """The same for weights by name."""
    kept = {key: value for key, value in weights.items() if not key.startswith(LEFT_OUT)}
    half = {key: value.bfloat16() if value.is_floating_point() else value for key, value in kept.items()}
    return checkpoint.save(folder, name, {"metadata": metadata, "weights": half}, keep=10**9)


def shipped(name: str) -> Path | None:
    """The snapshot of that name that comes with the package; None: there is none."""
    place = SHIPPED / name
    return place if (place / "manifest.json").is_file() else None


def find(path: Path) -> Path:
    """The snapshot or checkpoint that `path` means: itself, the newest of a run folder, or, where no such
    path exists, the shipped agent of the body of that name."""
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
            f"{body}: no such path, and no trained agent is shipped for the {body} in this version."
        )
    return place


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a snapshot or checkpoint says about its agent, and the weights in full precision. A shipped agent
    may see with a tokenizer that is shipped by itself: metadata["tokenizer"] names it."""
    tree = checkpoint.load(path, only=("metadata", "weights", "learner.agent"))
    if not {"agent", "env", "senses"} <= set(tree.get("metadata", ())):
        raise _earlier(path)
    metadata, weights = tree["metadata"], tree["weights"] if "weights" in tree else tree["learner"]["agent"]
    full: dict[str, Tensor] = {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}
    if "tokenizer" in metadata:
        tokenizer = _shipped_or_why_not(metadata["tokenizer"])
        full |= {k: v for k, v in read(tokenizer)[1].items() if k.startswith(TOKENIZER)}
    return metadata, full


def load_tokenizer(path: Path | str) -> Tokenizer:
    """Only the tokenizer of a run folder, a checkpoint or a snapshot, whatever else its agent was made of."""
    found = find(Path(path))
    metadata, weights = read(found)
    tokenizer = _rebuilt(found, metadata).tokenizer
    own = {name.removeprefix(TOKENIZER): w for name, w in weights.items() if name.startswith(TOKENIZER)}
    if set(own) != set(tokenizer.state_dict()):
        raise CheckpointError(
            f"{found} does not fit the tokenizer it describes: damaged, or of another version."
        )
    tokenizer.load_state_dict(own)
    return tokenizer.requires_grad_(False).eval()


def load_weights(path: Path | str, device: torch.device | str = "cpu") -> Loaded:
    """The agent of a run folder, a checkpoint or a snapshot; replay and optimisers are not read."""
    found = find(Path(path))
    metadata, full = read(found)
    agent = _rebuilt(found, metadata)
    missing, unknown = agent.load_state_dict(full, strict=False)
    if unknown or any(not name.startswith(LEFT_OUT) for name in missing):
        raise CheckpointError(f"{found} does not fit the agent it describes: damaged, or of another version.")
    if missing:
        agent.ema.self_prior.load_state_dict(agent.self_prior.state_dict())
    agent.requires_grad_(False)
    return Loaded(agent.to(device).eval(), from_json(EnvConfig, metadata["env"], "env"), metadata)
