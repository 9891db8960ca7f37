"""`mirrormark bench tokenizer`: train each tokenizer for a fixed number of steps on given frames and score it
on paired frames (the same states seen with and without the mark). The pairs serve for scoring only; nothing
here learns from them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from mirrormark.agent.agent import Agent, AgentConfig
from mirrormark.agent.configs import AGENTS
from mirrormark.agent.losses import LossConfig
from mirrormark.agent.numerics import ZClip
from mirrormark.agent.objective import tokenizer_objective
from mirrormark.agent.senses import Observation, Senses
from mirrormark.agent.tokenizer import Tokenizer, TokenizerConfig
from mirrormark.agent.tokenizer_grid import GridTokenizer


class Contender(NamedTuple):
    """A tokenizer and the weight of the quiet loss that it learns with."""

    tokenizer: TokenizerConfig
    rate: float = 0.0


# The tokenizers that learning.md compares, and swift's own. `symbolic` is not here: it has nothing to learn
# and no pixels in which a mark could be recovered.
CONTENDERS: dict[str, Contender] = {
    "categorical": Contender(TokenizerConfig()),
    "grid": Contender(TokenizerConfig(kind="grid", levels=(5, 5), channels=64), 0.1),
    "swift": Contender(AGENTS["swift"].tokenizer, AGENTS["swift"].losses.rate),
}


@dataclass(frozen=True)
class BenchConfig:
    """How the tokenizers are trained (learning.md's recipe)."""

    steps: int = 2000
    """Train steps of each tokenizer."""
    batch: int = 2048
    """Frames a step, drawn independently."""
    learning_rate: float = 1.5e-3
    """Peak of AdamW's rate, after a warm-up of 2% of the steps."""
    final_rate: float = 5e-5
    """Its end, along a cosine."""
    seed: int = 0
    """Of weights and batches."""


class TokenizerScore(NamedTuple):
    """Units as in learning.md."""

    mark_recovery: float  # 1: the mark is painted as it is; 0: as good as painting none
    frame_error: float  # squared error summed over the frame at scale [-.5, .5], mean over frames
    joint_error: float  # squared error summed over the vector senses in [-1, 1]
    code_use: float  # classes seen in use, mean over tokens
    tokens_changed: float  # tokens that the mark changes, mean over pairs
    inactive: float  # share of vision tokens at their centre level in unmarked frames (senses only, else nan)
    seconds: float  # training time


def mark_recovery(prediction: Tensor, marked: Tensor, unmarked: Tensor) -> Tensor:
    """Images (N, S, S, 3) on one scale: 1 − error on the pixels that the mark changes ÷ error of painting no
    mark."""
    pixels = (marked != unmarked).any(-1, keepdim=True)
    error = ((prediction - marked).square() * pixels).sum()
    return 1 - error / ((unmarked - marked).square() * pixels).sum().clamp_min(1e-12)


def classes_in_use(tokens: Tensor, classes: int) -> Tensor:
    """Mean over tokens of the number of different classes seen: (N, K) -> ()."""
    return (tokens.unsqueeze(-1) == torch.arange(classes, device=tokens.device)).any(0).sum(-1).float().mean()


@torch.no_grad()
def score(
    tokenizer: Tokenizer, marked: Observation, unmarked: Observation, seconds: float = math.nan
) -> TokenizerScore:
    """Encode without sampling, decode from the tokens alone, compare. Observations of N paired frames."""
    vision = tokenizer.images[0]
    with_mark, without = (
        tokenizer.encode(marked, sample=False).tokens,
        tokenizer.encode(unmarked, sample=False).tokens,
    )
    seen, targets = tokenizer.decode(with_mark), tokenizer.targets(marked)
    plain, plain_targets = tokenizer.decode(without), tokenizer.targets(unmarked)
    joints = [(plain[n] - plain_targets[n]).square().sum(-1).mean() for n in tokenizer.vectors]
    inactive = math.nan
    if isinstance(tokenizer, GridTokenizer):
        inactive = (without[:, tokenizer.slices[vision]] == tokenizer.inactive_token).float().mean().item()
    return TokenizerScore(
        mark_recovery(seen[vision], targets[vision], plain_targets[vision]).item(),
        (plain[vision] - plain_targets[vision]).square().flatten(1).sum(-1).mean().item(),
        float(sum(joints)),
        classes_in_use(without, tokenizer.spec.widest).item(),
        (with_mark != without).float().sum(-1).mean().item(),
        inactive,
        seconds,
    )


def learning_rate(step: int, config: BenchConfig) -> float:
    """Linear warm-up, then a cosine to the final rate."""
    warm = max(1, config.steps // 50)
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    turn = (step - warm) / max(1, config.steps - warm)
    return config.final_rate + (config.learning_rate - config.final_rate) * (1 + math.cos(math.pi * turn)) / 2


def train(agent: Agent, frames: Observation, config: BenchConfig) -> float:
    """Train agent.tokenizer on frames (N, ...) kept on its device; gives the seconds taken. bf16 on a GPU,
    fp32 elsewhere."""
    some = next(iter(frames.values()))
    parameters = [p for p in agent.tokenizer.parameters() if p.requires_grad]
    if not parameters:
        return 0.0
    on_gpu = some.device.type == "cuda"
    optimiser = torch.optim.AdamW(parameters, lr=config.learning_rate, betas=(0.9, 0.99), fused=on_gpu)
    clip = ZClip().to(some.device)
    began = time.perf_counter()
    for step in range(config.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, config)
        chosen = torch.randint(some.shape[0], (config.batch,), device=some.device)
        with torch.autocast(some.device.type, torch.bfloat16, enabled=on_gpu):
            objective, _ = tokenizer_objective(agent, {name: value[chosen] for name, value in frames.items()})
        optimiser.zero_grad()
        objective.loss.backward()
        clip.clip(parameters)
        optimiser.step()
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def compare(
    senses: Senses,
    frames: Observation,
    marked: Observation,
    unmarked: Observation,
    config: BenchConfig,
    contenders: Mapping[str, Contender] = CONTENDERS,
) -> Iterator[tuple[str, TokenizerScore]]:
    """Train and score every contender on the device where the frames lie; each is given when it is done."""
    for name, (tokenizer, rate) in contenders.items():
        torch.manual_seed(config.seed)
        agent = Agent(
            replace(AgentConfig(), tokenizer=tokenizer, losses=LossConfig(rate=rate)), senses, actions=1
        )
        agent = agent.to(next(iter(frames.values())).device)
        seconds = train(agent, frames, config)
        agent.eval()
        yield name, score(agent.tokenizer, marked, unmarked, seconds)


def heading() -> str:
    """The table's first two lines."""
    rule = "|---" * (len(TokenizerScore._fields) + 1) + "|"
    return "| tokenizer | " + " | ".join(TokenizerScore._fields) + " |\n" + rule


def line(name: str, score: TokenizerScore) -> str:
    """One tokenizer's line."""
    return f"| {name} | " + " | ".join(f"{value:.3g}" for value in score) + " |"
