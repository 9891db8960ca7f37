"""Which agents take the exam: ours, from run folders and snapshots or new from a preset, and anyone's."""

import hashlib
import importlib
import inspect
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mirrormark.agent.agent import Agent
from mirrormark.envs import bodies
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS
from mirrormark.exam.agents import (
    AgentError,
    CheckedAgent,
    ConditionAgent,
    ExamAgent,
    Mode,
    TrainedAgent,
    separate_random_numbers,
)
from mirrormark.presets import preset as get_preset
from mirrormark.training.checkpoint import CheckpointError
from mirrormark.training.env_config import EnvConfig, build_agent
from mirrormark.training.weights import LEFT_OUT, find, load_weights, shipped

UNTRAINED = "untrained"
SHARED_SETTINGS = (
    *("body", "tone", "tone_scale", "mirror", "mirrorless_share", "mark", "babbling", "senses"),
    "biased_noise",
)
"""What agents must share to be examined together: seeds are compared, not settings."""
LABELS_USED = ("marked data",)
"""Privileged knowledge of our trained agents: the label "marked" chooses episodes that they learn from."""
TRIAL_WORLDS, TRIAL_CONTROL_STEPS = 4, 10
"""A stranger's agent first acts this much: its mistakes are found before anything is written (ours)."""
_TRIAL_SEED = 2**43


@dataclass(frozen=True, kw_only=True)
class Examinee(ABC):
    """One agent that takes the exam, with what outputs say about it."""

    run: str
    checkpoint: str
    training_seed: int
    setup: EnvConfig
    fingerprint: str
    """SHA-256 of what decides its actions: an exam goes on only with the same agent."""
    privileged: tuple[str, ...] = ()
    """What it knows beyond the senses."""
    environment_steps: int | None = None
    """Environment steps that it learned from (its tokenizer's own not counted); None: unknown."""
    gpu_minutes: float | None = None
    """GPU minutes that it learned for; None: unknown."""
    folder: Path | None = None
    """Its run folder, if it has one: curves over training come from there."""
    costless: bool = False
    """Trained without the self-prior's cost: an ablation, shown beside the others."""

    @property
    def name(self) -> str:
        return f"{self.run}@{self.checkpoint}".replace("/", "_")

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where it computes; the eye renders there, too."""

    @property
    @abstractmethod
    def gives_untrained(self) -> bool:
        """Whether an untrained agent of the same kind can be had."""

    @abstractmethod
    def acting(self, condition: str, mode: Mode) -> ConditionAgent:
        """It acts in a condition of this title."""

    @abstractmethod
    def acting_untrained(self, condition: str, mode: Mode) -> ConditionAgent:
        """An untrained agent of the same kind does."""


@dataclass(frozen=True, kw_only=True)
class Candidate(Examinee):
    """An agent of this package."""

    agent: Agent

    @property
    def device(self) -> torch.device:
        return self.agent.device

    @property
    def gives_untrained(self) -> bool:
        return True

    def acting(self, condition: str, mode: Mode) -> ConditionAgent:
        return TrainedAgent(self.agent, mode)

    def acting_untrained(self, condition: str, mode: Mode) -> ConditionAgent:
        torch.manual_seed(self.training_seed)
        fresh = build_agent(self.agent.config, self.setup.make_envs(1))
        return TrainedAgent(fresh.to(self.device).eval(), mode)


@dataclass(frozen=True, kw_only=True)
class ExternalCandidate(Examinee):
    """Anyone's agent."""

    agent: ExamAgent
    untrained_agent: ExamAgent | None = None

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def gives_untrained(self) -> bool:
        return self.untrained_agent is not None

    def acting(self, condition: str, mode: Mode) -> ConditionAgent:
        return CheckedAgent(self.agent, self.run, condition)

    def acting_untrained(self, condition: str, mode: Mode) -> ConditionAgent:
        assert self.untrained_agent is not None
        return CheckedAgent(self.untrained_agent, f"{self.run} ({UNTRAINED})", condition)


def load(path: Path, device: torch.device | str = "cpu") -> Candidate:
    """The agent that `path` means, or that is shipped for the body of that name; one that is damaged or
    missing is named in one sentence."""
    snapshot = _find(path)
    try:
        agent, setup, metadata = load_weights(snapshot, device)
    except CheckpointError as reason:
        raise CheckpointError(f"{reason} Copy it again, or give another checkpoint or snapshot.") from reason
    bodies.get(setup.body)
    folder = _run_folder(snapshot)
    run, checkpoint = folder.name if folder else snapshot.parent.name, snapshot.name
    if snapshot == shipped(setup.body):
        run, checkpoint = f"shipped-{setup.body}", f"episodes-{metadata.get('episodes', 0)}"
    episodes = metadata.get("episodes")
    return Candidate(
        run=run,
        checkpoint=checkpoint,
        training_seed=int(metadata.get("seed", 0)),
        setup=setup,
        agent=agent,
        fingerprint=fingerprint(agent),
        privileged=LABELS_USED + _symbolic(setup),
        environment_steps=None if episodes is None else int(episodes) * EPISODE_CONTROL_STEPS,
        gpu_minutes=metadata.get("gpu_minutes"),
        folder=folder,
        costless=_costless(folder),
    )


def _symbolic(setup: EnvConfig) -> tuple[str, ...]:
    return ("where the mark is seen",) if setup.ablation else ()


def _find(path: Path) -> Path:
    """The checkpoint or snapshot that is meant; where none or several could be, what to give instead."""
    try:
        snapshot = find(path)
    except CheckpointError as reason:
        raise CheckpointError(f"{reason} {_instead(path)}".rstrip()) from None
    if snapshot.parent == path:
        raise CheckpointError(
            f"{path} holds several agents: give the run, {path.parent}, or one, {snapshot}."
        )
    return snapshot


def _instead(path: Path) -> str:
    if not path.is_dir():
        shipped_names = " or ".join(name for name in bodies.names() if shipped(name))
        return f"Shipped agents go by the name of their body: {shipped_names or 'there are none'}."
    runs = sorted(inner for inner in path.iterdir() if (inner / "config.json").is_file())
    return f"It is a folder of runs: give one of them, such as {runs[0]}." if runs else ""


def untrained(
    preset: str, body: str | None = None, seed: int = 0, device: torch.device | str = "cpu"
) -> Candidate:
    """An agent with random weights, of a preset's sizes."""
    found = get_preset(preset)
    setup = found.env
    if body is not None and body != setup.body:
        setup = replace(setup, body=body, tone=None)  # a tone is a body's own
    bodies.get(setup.body)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        agent = build_agent(found.agent, setup.make_envs(1)).eval().requires_grad_(False)
    return Candidate(
        run=f"{UNTRAINED}-{preset}",
        checkpoint=UNTRAINED,
        training_seed=seed,
        setup=setup,
        agent=agent.to(device),
        fingerprint=fingerprint(agent),
        privileged=_symbolic(setup),
        environment_steps=0,
        gpu_minutes=0.0,
    )


def external(source: object, body: str = "infant", number: int = 0) -> ExternalCandidate:
    """Anyone's agent: "module:function", the function that makes it, or the agent itself.

    It is tried out in a few worlds first. Its training seed is its attribute `training_seed`, or `number`.
    """
    bodies.get(body)
    made_by: Any = _imported(source) if isinstance(source, str) else source
    offered = source if isinstance(source, str) else getattr(source, "__qualname__", type(source).__name__)
    is_agent = hasattr(made_by, "act") and not inspect.isclass(made_by)
    agent: Any = made_by if is_agent else _made(made_by, str(offered))
    name = str(getattr(agent, "name", offered)).replace(":", ".").replace("<locals>.", "")
    privileged = _privileged(agent, name)
    seed = int(getattr(agent, "training_seed", number))
    fresh = None if is_agent else _made_untrained(made_by, name)
    setup = EnvConfig(body=body)
    acted = [_trial(one, name, setup) for one in (agent, fresh) if one is not None]
    return ExternalCandidate(
        run=name,
        checkpoint=f"seed-{seed}",
        training_seed=seed,
        setup=setup,
        fingerprint=hashlib.sha256(_source_code(agent) + b"".join(acted)).hexdigest(),
        privileged=privileged,
        environment_steps=getattr(agent, "environment_steps", None),
        gpu_minutes=getattr(agent, "gpu_minutes", None),
        agent=agent,
        untrained_agent=fresh,
    )


def _imported(source: str) -> Any:
    """What "module:function" names; modules of the current folder are found."""
    module, colon, function = source.partition(":")
    if not (module and colon and function):
        raise AgentError(f"--agent {source!r}: write it as module:function, such as my_module:make_agent.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as reason:
        raise AgentError(f"--agent {source!r} cannot be imported: {reason}.") from reason


def _made(make: Any, name: str) -> Any:
    if not callable(make):
        raise AgentError(f"agent {name}: it has no act(observations) and makes no agent when it is called.")
    try:
        return make()
    except Exception as reason:
        raise AgentError(f"agent {name} cannot be made: {type(reason).__name__}: {reason}.") from reason


def _made_untrained(make: Callable[..., Any], name: str) -> Any:
    """The same agent before training, where the function that makes it has the parameter `untrained`."""
    try:
        offered = UNTRAINED in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return None
    return _made(lambda: make(untrained=True), f"{name} ({UNTRAINED})") if offered else None


def _privileged(agent: Any, name: str) -> tuple[str, ...]:
    for method in ("reset", "act"):
        if not callable(getattr(agent, method, None)):
            raise AgentError(f"agent {name} has no {method}: give it reset(n) and act(observations).")
    found = getattr(agent, "privileged", None)
    if not isinstance(found, tuple | list) or not all(isinstance(word, str) for word in found):
        raise AgentError(
            f"agent {name} does not say what it knows beyond the senses: give it an attribute privileged, a"
            ' tuple of words such as ("reward",), or () for nothing.'
        )
    return tuple(found)


def _trial(agent: ExamAgent, name: str, setup: EnvConfig) -> bytes:
    """What the agent does in a few marked worlds for a few steps."""
    envs = setup.make_envs(TRIAL_WORLDS)
    seeds = [_TRIAL_SEED + i for i in range(envs.n)]
    observation, _ = envs.reset(seed=seeds, marked=True)
    checked, actions = CheckedAgent(agent, name, "trial before the exam"), []
    with separate_random_numbers():
        checked.begin(envs, seeds)
        for _ in range(TRIAL_CONTROL_STEPS):
            actions.append(checked.act(observation))
            observation, *_ = envs.step(actions[-1])
    return np.stack(actions).tobytes()


def _source_code(agent: Any) -> bytes:
    """The file that defines the agent, where there is one."""
    try:
        return Path(inspect.getfile(type(agent))).read_bytes()
    except (TypeError, OSError):
        return b""


def check(examinees: Sequence[Examinee]) -> None:
    """Whether they can take one exam together, or a sentence that says why not."""
    if not any(not one.costless for one in examinees):
        raise ValueError("no agent to examine: name a run or a checkpoint, or --preset for a new agent.")
    first = examinees[0].setup
    for one in examinees[1:]:
        for name in SHARED_SETTINGS:
            if _resolved(one.setup, name) != _resolved(first, name):
                raise ValueError(
                    f"{one.run} differs from {examinees[0].run} in {name}: examine each kind by itself."
                )
    seeds = [(one.training_seed, one.costless) for one in examinees]
    if len(set(seeds)) < len(seeds):
        raise ValueError(
            f"two agents share training seed {max(seeds, key=seeds.count)[0]}: seeds are the independent"
            " cases, so give one checkpoint of each."
        )
    names = [one.name for one in examinees]
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
    """SHA-256 over the weights that act: the same whenever a snapshot is loaded."""
    digest = hashlib.sha256()
    for name, value in sorted(agent.state_dict().items()):
        if not name.startswith(LEFT_OUT):
            digest.update(name.encode())
            digest.update(value.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _run_folder(snapshot: Path) -> Path | None:
    folder = snapshot.parent.parent
    return folder if (folder / "config.json").exists() else None


def _costless(folder: Path | None) -> bool:
    if folder is None:
        return False
    config = json.loads((folder / "config.json").read_text())
    return config.get("agent", {}).get("drive") == "none"
