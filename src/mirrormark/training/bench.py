"""How fast a train step runs here, and what each tokenizer comes to see of the mark."""

import json
import time
from pathlib import Path
from typing import Any, Literal

import torch

from mirrormark.agent import bench as tokenizers
from mirrormark.agent.agent import Agent
from mirrormark.agent.configs import AGENTS
from mirrormark.agent.senses import SenseSpec
from mirrormark.training.commands import Device, choose_device
from mirrormark.training.env_config import EnvConfig, babbling_of, senses_of
from mirrormark.training.held_out import EvaluationConfig, hold_out
from mirrormark.training.learner import Learner, LearnerConfig
from mirrormark.training.replay_buffer import GROUPS, Episodes, ReplayBuffer, ReplayConfig
from mirrormark.training.rollout import FRAMES_PER_EPISODE, collect, plan_episodes
from mirrormark.training.schedule import Iteration

REFERENCE = {
    "whole": 222.0,
    "whole, eager": 249.0,
    "sampling": 75.0,
    "world_model": 27.0,
    "self_prior": 18.0,
    "policy": 101.0,
}
"""ms a step of the paper's public code on an H200, torch 2.11, fp32, its own compile (parts: eager); sampling
is part of every stage here (design notes, speed.md; policy = imagination 87 + policy and value 14)."""
_PARTS = (("world_model",), ("self_prior",), ("policy",), ("world_model", "self_prior", "policy"))
_ACTIONS = 12
_TOKENIZER_SIZES = {"cuda": (2000, 2048, 256), "cpu": (10, 16, 16)}
"""Steps, frames a step and episodes of `bench tokenizer` where none are asked for; GPU: learning.md's."""


def bench_learn(
    agent: Literal["paper", "swift", "symbolic", "laptop", "smoke"] = "paper",
    device: Device = "auto",
    precision: Literal["fp32", "bf16"] = "bf16",
    cuda_graph: bool = True,
    compile: bool | None = None,
    overlap: bool | None = None,
    steps: int = 50,
    sequences: int = 32,
    sequence_frames: int = 64,
    self_prior_frames: int = 2048,
    dreams: int = 1024,
    out: Path | None = None,
) -> None:
    """Time one train step, whole and by parts, on made-up data at the paper's batch sizes.

    Args:
        agent: Whose networks; paper learns from frames, the others from tokens of a frozen tokenizer.
        device: Where.
        precision: bf16 has an effect on a GPU only.
        capture: Replay a CUDA graph (GPU only).
        compile: Compile the step first; None: where it is captured.
        overlap: Let world model and self-prior learn beside the dream; None: where the step is captured.
        steps: Timed steps of each part.
        sequences: Sequences in a world-model batch.
        sequence_frames: Frames in each.
        self_prior_frames: Frames in a self-prior batch.
        dreams: Imagined paths in a policy batch.
        out: Also write the table as JSON here.
    """
    place = choose_device(device)
    config = LearnerConfig(
        sequences=sequences, sequence_frames=sequence_frames, self_prior_frames=self_prior_frames,
        dreams=dreams, precision=precision, cuda_graph=cuda_graph, compile=compile, overlap=overlap,
    )  # fmt: skip
    learner, buffer = _made_up(agent, config, place)
    rows = []
    if learner.compiles:
        from torch._inductor.runtime.cache_dir_utils import cache_dir  # takes a second to import

        print(f"compiled code is kept in {cache_dir()}: a first run compiles, a second one reads", flush=True)
    for stages in _PARTS:
        whole = len(stages) > 1
        start = time.perf_counter()
        learner.learn(buffer, _iteration(stages, 8))  # compile, warm up, capture
        first_s = time.perf_counter() - start
        start = time.perf_counter()
        learner.learn(buffer, _iteration(stages, steps))  # ends with a synchronisation
        ms = (time.perf_counter() - start) / steps * 1e3
        part = "whole" if whole else stages[0]
        reference = REFERENCE[part] if agent == "paper" and _paper_sized(config) else None
        rows.append({"part": part, "ms": ms, "reference_ms": reference, "first_steps_s": first_s})
        beside = f"   reference {reference:6.1f} ms (H200, fp32)" if reference else ""
        print(f"{part:>12} {ms:9.2f} ms a step, first steps {first_s:5.1f} s{beside}", flush=True)
    metadata = _metadata(agent, learner)
    print(json.dumps(metadata))
    if out is not None:
        out.write_text(json.dumps({**metadata, "rows": rows}, indent=1) + "\n")


def _paper_sized(config: LearnerConfig) -> bool:
    names = ("sequences", "sequence_frames", "self_prior_frames", "dreams")
    return all(getattr(config, name) == getattr(LearnerConfig(), name) for name in names)


def _metadata(agent: str, learner: Learner) -> dict[str, Any]:
    cuda, config = learner.device.type == "cuda", learner.config
    return {
        "agent": agent,
        "device": torch.cuda.get_device_name() if cuda else f"cpu, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "precision": config.precision if cuda else "fp32",
        "captured": learner.uses_cuda_graph,
        "compiled": learner.compiles,
        "overlap": learner.overlaps,
        "batches": f"{config.sequences}x{config.sequence_frames} frames, "
        f"{config.self_prior_frames} states, {config.dreams} dreams",
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if cuda else None,
    }


def _made_up(name: str, config: LearnerConfig, place: torch.device) -> tuple[Learner, ReplayBuffer]:
    """A learner and a memory of noise: speed does not depend on what is seen."""
    symbolic = AGENTS[name].tokenizer.kind == "symbolic"
    seeing = {"cell": SenseSpec("symbol", 226)} if symbolic else {"vision": SenseSpec("image", 64)}
    agent = Agent(AGENTS[name], seeing | {"proprioception": SenseSpec("vector", _ACTIONS)}, _ACTIONS).to(
        place
    )
    frozen_tokenizer = name != "paper"
    n = len(GROUPS) * 4
    if frozen_tokenizer:
        tokens = torch.stack([torch.randint(c, (n, FRAMES_PER_EPISODE)) for c in agent.spec.classes], -1)
        frames: dict[str, torch.Tensor] = {"tokens": tokens.to(torch.int16)}
    else:
        frames = {
            "vision": torch.randint(0, 256, (n, FRAMES_PER_EPISODE, 64, 64, 3), dtype=torch.uint8),
            "proprioception": torch.rand(n, FRAMES_PER_EPISODE, _ACTIONS) * 2 - 1,
        }
    fields = {key: (tuple(value.shape[2:]), value.dtype) for key, value in frames.items()}
    buffer = ReplayBuffer(fields, _ACTIONS, FRAMES_PER_EPISODE, ReplayConfig(capacity_episodes=n), place)
    flags = torch.arange(n)
    action = torch.rand(n, FRAMES_PER_EPISODE, _ACTIONS) * 2 - 1
    mark = torch.zeros(n, FRAMES_PER_EPISODE, dtype=torch.bool)
    policy = flags % 4 >= 2
    buffer.extend(Episodes(frames, action, mark, policy, flags % 2 == 1, policy * FRAMES_PER_EPISODE))
    return Learner(agent, config, frozen_tokenizer), buffer


def _iteration(stages: tuple[str, ...], steps: int) -> Iteration:
    return Iteration(0, "training", 0, 0, steps, stages, True, False, False, 0.0)


def bench_tokenizer(
    body: str = "infant",
    steps: int | None = None,
    batch: int | None = None,
    episodes: int | None = None,
    device: Device = "auto",
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Train each tokenizer for a number of steps on frames that the world makes; print what it sees of the
    mark.

    A tokenizer's line is printed when it is done. symbolic is left out: it learns nothing and sees no pixels.
    On a CPU the defaults are so small that they show the command at work and prefer no tokenizer.

    Args:
        body: Whose world.
        steps: Train steps of each tokenizer; None: 2,000 on a GPU, 10 on a CPU.
        batch: Frames a step, drawn independently; None: 2,048 on a GPU, 16 on a CPU.
        episodes: Babbling episodes that the frames come from, half of them marked; None: 256 on a GPU, 16 on
            a CPU.
        device: Where.
        seed: Of worlds, weights and batches.
        out: Also write the table as JSON here.
    """
    place = choose_device(device)
    usual = _TOKENIZER_SIZES[place.type]
    steps, batch, episodes = (
        own if asked is None else asked for own, asked in zip(usual, (steps, batch, episodes))
    )
    if min(steps, batch, episodes) < 1:
        raise ValueError("bench tokenizer needs at least 1 step, 1 frame a step and 1 episode.")
    setup = EnvConfig(body=body)
    envs = setup.make_envs(min(episodes, 256), "cuda" if place.type == "cuda" else "cpu")
    parts = []
    for turn in range(-(-episodes // envs.n)):
        made = collect(envs, babbling_of(setup, envs), plan_episodes(envs.n, turn, seed, 0.0), None)
        parts.append({name: value.flatten(0, 1).to(place) for name, value in made.observation.items()})
    frames = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    pairs = hold_out(setup, EvaluationConfig(babbling_episodes=64, pairs=512), place).pairs
    config = tokenizers.BenchConfig(steps=steps, batch=batch, seed=seed)
    print(tokenizers.heading(), flush=True)
    rows = {}
    paired = pairs.with_mark, pairs.without_mark
    for name, score in tokenizers.compare(senses_of(envs), frames, *paired, config):
        print(tokenizers.line(name, score), flush=True)
        rows[name] = score._asdict()
    if out is not None:
        metadata = {"body": body, "steps": steps, "batch": batch, "episodes": episodes, "device": place.type}
        out.write_text(json.dumps({**metadata, "tokenizers": rows}, indent=1) + "\n")
