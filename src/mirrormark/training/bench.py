"""How fast a train step runs here, and what each codec comes to see of the mark."""

import json
import time
from pathlib import Path
from typing import Any, Literal

import torch

from mirrormark.agent import bench as codecs
from mirrormark.agent.agent import Mind
from mirrormark.agent.configs import MINDS
from mirrormark.agent.senses import SenseSpec
from mirrormark.training.commands import Device, choose_device
from mirrormark.training.env_config import WorldSetup, movement_of, senses_of
from mirrormark.training.held_out import IndicatorConfig, hold_out
from mirrormark.training.learner import Learner, LearnerConfig
from mirrormark.training.replay_buffer import GROUPS, Episodes, Memory, MemoryConfig
from mirrormark.training.rollout import FRAMES_PER_EPISODE, gather, recipe
from mirrormark.training.schedule import Lap

REFERENCE = {
    "whole": 222.0,
    "whole, eager": 249.0,
    "sampling": 75.0,
    "world": 27.0,
    "self_prior": 18.0,
    "policy": 101.0,
}
"""ms a step of the paper's public code on an H200, torch 2.11, fp32, its own compile (parts: eager); sampling
is part of every stage here (design notes, speed.md; policy = imagination 87 + policy and value 14)."""
_PARTS = (("world",), ("self_prior",), ("policy",), ("world", "self_prior", "policy"))
_ACTIONS = 12
_CODEC_SIZES = {"cuda": (2000, 2048, 256), "cpu": (10, 16, 16)}
"""Steps, frames a step and episodes of `bench codec` where none are asked for; GPU: learning.md's."""


def bench_learn(
    mind: Literal["paper", "swift", "ideal", "laptop", "smoke"] = "paper",
    device: Device = "auto",
    precision: Literal["fp32", "bf16"] = "bf16",
    capture: bool = True,
    compile: bool | None = None,
    overlap: bool | None = None,
    steps: int = 50,
    world_sequences: int = 32,
    world_frames: int = 64,
    self_prior_frames: int = 2048,
    dreams: int = 1024,
    out: Path | None = None,
) -> None:
    """Time one train step, whole and by parts, on made-up data at the paper's batch sizes.

    Args:
        mind: Whose networks; paper learns from frames, the others from tokens of a frozen codec.
        device: Where.
        precision: bf16 has an effect on a GPU only.
        capture: Replay a CUDA graph (GPU only).
        compile: Compile the step first; None: where it is captured.
        overlap: Let world model and self-prior learn beside the dream; None: where the step is captured.
        steps: Timed steps of each part.
        world_sequences: Sequences in a world-model batch.
        world_frames: Frames in each.
        self_prior_frames: Frames in a self-prior batch.
        dreams: Imagined paths in a policy batch.
        out: Also write the table as JSON here.
    """
    place = choose_device(device)
    config = LearnerConfig(
        world_sequences=world_sequences, world_frames=world_frames, self_prior_frames=self_prior_frames,
        dreams=dreams, precision=precision, capture=capture, compile=compile, overlap=overlap,
    )  # fmt: skip
    learner, memory = _made_up(mind, config, place)
    rows = []
    if learner.compiles:
        from torch._inductor.runtime.cache_dir_utils import cache_dir  # takes a second to import

        print(f"compiled code is kept in {cache_dir()}: a first run compiles, a second one reads", flush=True)
    for stages in _PARTS:
        whole = len(stages) > 1
        start = time.perf_counter()
        learner.learn(memory, _lap(stages, 8))  # compile, warm up, capture
        first_s = time.perf_counter() - start
        start = time.perf_counter()
        learner.learn(memory, _lap(stages, steps))  # ends with a synchronisation
        ms = (time.perf_counter() - start) / steps * 1e3
        part = "whole" if whole else stages[0]
        reference = REFERENCE[part] if mind == "paper" and _paper_sized(config) else None
        rows.append({"part": part, "ms": ms, "reference_ms": reference, "first_steps_s": first_s})
        beside = f"   reference {reference:6.1f} ms (H200, fp32)" if reference else ""
        print(f"{part:>12} {ms:9.2f} ms a step, first steps {first_s:5.1f} s{beside}", flush=True)
    about = _about(mind, learner)
    print(json.dumps(about))
    if out is not None:
        out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


def _paper_sized(config: LearnerConfig) -> bool:
    names = ("world_sequences", "world_frames", "self_prior_frames", "dreams")
    return all(getattr(config, name) == getattr(LearnerConfig(), name) for name in names)


def _about(mind: str, learner: Learner) -> dict[str, Any]:
    cuda, config = learner.device.type == "cuda", learner.config
    return {
        "mind": mind,
        "device": torch.cuda.get_device_name() if cuda else f"cpu, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "precision": config.precision if cuda else "fp32",
        "captured": learner.captures,
        "compiled": learner.compiles,
        "overlap": learner.overlaps,
        "batches": f"{config.world_sequences}x{config.world_frames} frames, "
        f"{config.self_prior_frames} states, {config.dreams} dreams",
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if cuda else None,
    }


def _made_up(name: str, config: LearnerConfig, place: torch.device) -> tuple[Learner, Memory]:
    """A learner and a memory of noise: speed does not depend on what is seen."""
    symbolic = MINDS[name].codec.kind == "symbolic"
    seeing = {"cell": SenseSpec("symbol", 226)} if symbolic else {"vision": SenseSpec("image", 64)}
    mind = Mind(MINDS[name], seeing | {"proprioception": SenseSpec("vector", _ACTIONS)}, _ACTIONS).to(place)
    tokens = name != "paper"
    n = len(GROUPS) * 4
    if tokens:
        latent = torch.stack([torch.randint(c, (n, FRAMES_PER_EPISODE)) for c in mind.spec.classes], -1)
        frames: dict[str, torch.Tensor] = {"latent": latent.to(torch.int16)}
    else:
        frames = {
            "vision": torch.randint(0, 256, (n, FRAMES_PER_EPISODE, 64, 64, 3), dtype=torch.uint8),
            "proprioception": torch.rand(n, FRAMES_PER_EPISODE, _ACTIONS) * 2 - 1,
        }
    fields = {key: (tuple(value.shape[2:]), value.dtype) for key, value in frames.items()}
    memory = Memory(fields, _ACTIONS, FRAMES_PER_EPISODE, MemoryConfig(capacity_episodes=n), place)
    flags = torch.arange(n)
    action = torch.rand(n, FRAMES_PER_EPISODE, _ACTIONS) * 2 - 1
    mark = torch.zeros(n, FRAMES_PER_EPISODE, dtype=torch.bool)
    policy = flags % 4 >= 2
    memory.extend(Episodes(frames, action, mark, policy, flags % 2 == 1, policy * FRAMES_PER_EPISODE))
    return Learner(mind, config, tokens), memory


def _lap(stages: tuple[str, ...], steps: int) -> Lap:
    return Lap(0, "life", 0, 0, steps, stages, True, False, False, 0.0)


def bench_codec(
    body: str = "infant",
    steps: int | None = None,
    batch: int | None = None,
    episodes: int | None = None,
    device: Device = "auto",
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Train each codec for a number of steps on frames that the world makes; print what it sees of the mark.

    A codec's line is printed when it is done. symbolic is left out: it learns nothing and sees no pixels. On
    a CPU the defaults are so small that they show the command at work and prefer no codec.

    Args:
        body: Whose world.
        steps: Train steps of each codec; None: 2,000 on a GPU, 10 on a CPU.
        batch: Frames a step, drawn independently; None: 2,048 on a GPU, 16 on a CPU.
        episodes: Everyday episodes that the frames come from, half of them marked; None: 256 on a GPU, 16 on
            a CPU.
        device: Where.
        seed: Of worlds, weights and batches.
        out: Also write the table as JSON here.
    """
    place = choose_device(device)
    usual = _CODEC_SIZES[place.type]
    steps, batch, episodes = (
        own if asked is None else asked for own, asked in zip(usual, (steps, batch, episodes))
    )
    if min(steps, batch, episodes) < 1:
        raise ValueError("bench codec needs at least 1 step, 1 frame a step and 1 episode.")
    setup = WorldSetup(body=body)
    worlds = setup.worlds(min(episodes, 256), "cuda" if place.type == "cuda" else "cpu")
    parts = []
    for turn in range(-(-episodes // worlds.n)):
        made = gather(worlds, movement_of(setup, worlds), recipe(worlds.n, turn, seed, 0.0), None)
        parts.append({name: value.flatten(0, 1).to(place) for name, value in made.observation.items()})
    frames = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    pairs = hold_out(setup, IndicatorConfig(everyday_episodes=64, pairs=512), place).pairs
    config = codecs.BenchConfig(steps=steps, batch=batch, seed=seed)
    print(codecs.heading(), flush=True)
    rows = {}
    paired = pairs.with_mark, pairs.without_mark
    for name, score in codecs.compare(senses_of(worlds), frames, *paired, config):
        print(codecs.line(name, score), flush=True)
        rows[name] = score._asdict()
    if out is not None:
        about = {"body": body, "steps": steps, "batch": batch, "episodes": episodes, "device": place.type}
        out.write_text(json.dumps({**about, "codecs": rows}, indent=1) + "\n")
