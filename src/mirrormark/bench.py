"""How fast a train step runs here, and what each tokenizer comes to see of the mark."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import torch

from mirrormark.config import EvaluationConfig, PaperAgentConfig, SwiftAgentConfig, TrainingConfig
from mirrormark.presets import PRESETS, Config
from mirrormark.training.build import build_agent, build_sources
from mirrormark.training.commands import Device, choose_device
from mirrormark.training.env_config import EnvConfig, babbling_of, senses_of
from mirrormark.training.evaluation import mark_recovery
from mirrormark.training.held_out import HeldOut, hold_out
from mirrormark.training.learner import Learner
from mirrormark.training.replay_buffer import GROUPS, Episodes, ReplayBuffer
from mirrormark.training.rollout import FRAMES_PER_EPISODE, collect, plan_episodes
from mirrormark.training.schedule import Iteration
from mirrormark.training.train_step import STAGES

_PARTS = (*((stage,) for stage in STAGES[1:]), STAGES[1:])
_TOKENIZER_SIZES = {"cuda": (2000, 512, 256), "cpu": (10, 16, 16)}
"""Steps, frames a step and episodes of `bench tokenizer` where none are asked for."""


def bench_learn(
    preset: Literal[
        "paper", "paper-code", "paper-quick", "swift", "swift-arm", "symbolic", "laptop", "smoke"
    ] = "paper",
    device: Device = "auto",
    precision: Literal["fp32", "tf32", "bf16"] | None = None,
    cuda_graph: bool = True,
    steps: int = 50,
    out: Path | None = None,
) -> None:
    """Time one train step as the preset takes it, whole and by parts, on made-up data.

    Args:
        preset: Whose networks, batches and precision.
        device: Where.
        precision: Another precision than the preset's; on a GPU only.
        cuda_graph: Compile and capture the step; on a GPU only.
        steps: Timed steps of each part.
        out: Also write the table as JSON here.
    """
    if steps < 1:
        raise ValueError(f"--steps is {steps}: give at least 1.")
    config, place = PRESETS[preset], choose_device(device)
    training = replace(
        config.training, cuda_graph=cuda_graph, precision=precision or config.training.precision
    )
    learner, buffer = _made_up(replace(config, training=training), place)
    rows = []
    for stages in _PARTS:
        start = time.perf_counter()
        learner.learn(buffer, _iteration(stages, 8))  # compile, warm up, capture
        first_s = time.perf_counter() - start
        start = time.perf_counter()
        learner.learn(buffer, _iteration(stages, steps))  # ends with a synchronisation
        ms = (time.perf_counter() - start) / steps * 1e3
        part = "whole" if len(stages) > 1 else stages[0]
        rows.append({"part": part, "ms": ms, "first_steps_s": first_s})
        print(f"{part:>12} {ms:9.2f} ms a step, first steps {first_s:5.1f} s", flush=True)
    facts = _facts(preset, learner)
    print(json.dumps(facts))
    if out is not None:
        out.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


def _facts(preset: str, learner: Learner) -> dict[str, Any]:
    cuda, c = learner.device.type == "cuda", learner.config
    return {
        "preset": preset,
        "device": torch.cuda.get_device_name() if cuda else f"cpu, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "precision": c.precision if cuda else "fp32",
        "cuda_graph": learner.captures,
        "batches": f"{c.batch.sequences}x{c.batch.sequence_frames} frames, {c.batch.self_prior_frames} "
        f"frames for the self-prior, {c.batch.imagined} imagined paths",
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if cuda else None,
    }


def _made_up(config: Config, place: torch.device) -> tuple[Learner, ReplayBuffer]:
    """A learner and a buffer of noise: speed does not depend on what is seen."""
    envs = replace(config.env, threads=1).make_envs(1)
    agent = build_agent(config.agent, senses_of(envs), envs.actions).to(place)
    if config.training.tokenizer_phase is not None:
        agent.tokenizer.requires_grad_(False)
    n = len(GROUPS) * 4
    if config.training.tokenizer_phase is not None:
        tokens = torch.stack([torch.randint(c, (n, FRAMES_PER_EPISODE)) for c in agent.spec.classes], -1)
        frames = {"tokens": tokens.to(torch.int16)}
    else:
        frames = {
            "vision": torch.randint(0, 256, (n, FRAMES_PER_EPISODE, 64, 64, 3), dtype=torch.uint8),
            "proprioception": torch.rand(n, FRAMES_PER_EPISODE, envs.actions) * 2 - 1,
        }
    fields = {key: (tuple(value.shape[2:]), value.dtype) for key, value in frames.items()}
    buffer = ReplayBuffer(fields, envs.actions, FRAMES_PER_EPISODE, n, place)
    number = torch.arange(n)
    policy = number % 4 >= 2
    buffer.extend(
        Episodes(
            frames,
            torch.rand(n, FRAMES_PER_EPISODE, envs.actions) * 2 - 1,
            torch.zeros(n, FRAMES_PER_EPISODE, dtype=torch.bool),
            policy,
            number % 2 == 1,
            policy * FRAMES_PER_EPISODE,
        )
    )
    return Learner(agent, build_sources(agent, config.training.batch.imagined), config.training), buffer


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
    """Train the paper's tokenizer and ours for a number of steps on babbling frames; print what they see of
    the mark. On a CPU the defaults are so small that they show the command at work and prefer neither.

    Args:
        body: Whose environment.
        steps: Train steps of each tokenizer; None: 2,000 on a GPU, 10 on a CPU.
        batch: Frames a step, drawn independently; None: 512 on a GPU, 16 on a CPU.
        episodes: Babbling episodes that the frames come from, half of them marked; None: 256 on a GPU, 16 on
            a CPU.
        device: Where.
        seed: Of environments, weights and batches.
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
    fields = {
        name: (sense.shape, torch.uint8 if sense.kind == "image" else torch.float32)
        for name, sense in senses_of(envs).items()
    }
    buffer = ReplayBuffer(fields, envs.actions, FRAMES_PER_EPISODE, 2 * max(episodes, 2), place)
    for turn in range(-(-episodes // envs.n)):
        buffer.extend(collect(envs, babbling_of(setup, envs), plan_episodes(envs.n, turn, seed, 0.0), None))
    held = hold_out(setup, EvaluationConfig(babbling_episodes=64, pairs=512), place)
    rows = {}
    for name, kind in (("paper", PaperAgentConfig()), ("swift", SwiftAgentConfig())):
        score = _train_tokenizer(kind, envs, buffer, held, steps, batch, seed, place)
        rows[name] = score
        print(
            f"{name:>6}: mark recovery {score['mark_recovery']:5.2f}, loss {score['loss']:8.1f}, "
            f"{score['ms']:7.2f} ms a step",
            flush=True,
        )
    if out is not None:
        facts = {"body": body, "steps": steps, "batch": batch, "episodes": episodes, "device": place.type}
        out.write_text(json.dumps({**facts, "tokenizers": rows}, indent=1) + "\n")


def _train_tokenizer(
    config: PaperAgentConfig | SwiftAgentConfig,
    envs: Any,
    buffer: ReplayBuffer,
    held: HeldOut,
    steps: int,
    batch: int,
    seed: int,
    place: torch.device,
) -> dict[str, float]:
    torch.manual_seed(seed)
    agent = build_agent(config, senses_of(envs), envs.actions).to(place)
    training = TrainingConfig()
    rate = training.optim.tokenizer.learning_rate
    optimizer = torch.optim.AdamW(agent.tokenizer.parameters(), rate, betas=(0.9, 0.99))
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=rate / 20)
    began, loss = time.perf_counter(), torch.zeros(())
    agent.train()
    for step in range(steps):
        agent.tokenizer.set_progress(step / steps)
        loss = agent.tokenizer.loss(buffer.frames(batch, 0.5, babbling_only=True))[1].value
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()
    agent.eval()
    ms = (time.perf_counter() - began) / steps * 1e3
    recovery = mark_recovery(agent, held.pairs) if len(held.pairs.mask) else float("nan")
    return {"mark_recovery": recovery, "loss": cast(float, loss.item()), "ms": ms}
