"""`mirrormark bench codec`: train each codec for a fixed number of steps on given frames and score it on
paired frames (the same states seen with and without the mark). The pairs serve for scoring only; nothing here
learns from them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from mirrormark.mind.codec import Codec, CodecConfig
from mirrormark.mind.codec_senses import SensesCodec
from mirrormark.mind.configs import MINDS
from mirrormark.mind.losses import LossConfig
from mirrormark.mind.mind import Mind, MindConfig
from mirrormark.mind.numerics import ZClip
from mirrormark.mind.objective import codec_objective
from mirrormark.mind.senses import Observation, Senses


class Contender(NamedTuple):
    """A codec and the weight of the quiet loss that it learns with."""

    codec: CodecConfig
    quiet: float = 0.0


# The codecs that learning.md compares, and swift's own. `symbolic` is not here: it has nothing to learn and
# no pixels in which a mark could be recovered.
CONTENDERS: dict[str, Contender] = {
    "categorical": Contender(CodecConfig()),
    "senses": Contender(CodecConfig(kind="senses", levels=(5, 5), channels=64), 0.1),
    "swift": Contender(MINDS["swift"].codec, MINDS["swift"].losses.quiet),
}


@dataclass(frozen=True)
class BenchConfig:
    """How the codecs are trained (learning.md's recipe)."""

    steps: int = 2000
    """Train steps of each codec."""
    batch: int = 2048
    """Frames a step, drawn independently."""
    learning_rate: float = 1.5e-3
    """Peak of AdamW's rate, after a warm-up of 2% of the steps."""
    final_rate: float = 5e-5
    """Its end, along a cosine."""
    seed: int = 0
    """Of weights and batches."""


class CodecScore(NamedTuple):
    """Units as in learning.md."""

    mark_recovery: float  # 1: the mark is painted as it is; 0: as good as painting none
    frame_error: float  # squared error summed over the frame at scale [-.5, .5], mean over frames
    joint_error: float  # squared error summed over the vector senses in [-1, 1]
    code_use: float  # classes seen in use, mean over tokens
    tokens_changed: float  # tokens that the mark changes, mean over pairs
    silent: float  # share of vision tokens at their centre level in unmarked frames (senses only, else nan)
    seconds: float  # training time


def mark_recovery(prediction: Tensor, marked: Tensor, unmarked: Tensor) -> Tensor:
    """Images (N, S, S, 3) on one scale: 1 − error on the pixels that the mark changes ÷ error of painting no
    mark."""
    pixels = (marked != unmarked).any(-1, keepdim=True)
    error = ((prediction - marked).square() * pixels).sum()
    return 1 - error / ((unmarked - marked).square() * pixels).sum().clamp_min(1e-12)


def classes_in_use(latent: Tensor, classes: int) -> Tensor:
    """Mean over tokens of the number of different classes seen: (N, K) -> ()."""
    return (latent.unsqueeze(-1) == torch.arange(classes, device=latent.device)).any(0).sum(-1).float().mean()


@torch.no_grad()
def score(codec: Codec, marked: Observation, unmarked: Observation, seconds: float = math.nan) -> CodecScore:
    """Encode without sampling, decode from the latent alone, compare. Observations of N paired frames."""
    vision = codec.images[0]
    with_mark, without = (
        codec.encode(marked, sample=False).latent,
        codec.encode(unmarked, sample=False).latent,
    )
    seen, targets = codec.decode(with_mark), codec.targets(marked)
    plain, plain_targets = codec.decode(without), codec.targets(unmarked)
    joints = [(plain[n] - plain_targets[n]).square().sum(-1).mean() for n in codec.vectors]
    silent = math.nan
    if isinstance(codec, SensesCodec):
        silent = (without[:, codec.tokens[vision]] == codec.silent_token).float().mean().item()
    return CodecScore(
        mark_recovery(seen[vision], targets[vision], plain_targets[vision]).item(),
        (plain[vision] - plain_targets[vision]).square().flatten(1).sum(-1).mean().item(),
        float(sum(joints)),
        classes_in_use(without, codec.spec.widest).item(),
        (with_mark != without).float().sum(-1).mean().item(),
        silent,
        seconds,
    )


def learning_rate(step: int, config: BenchConfig) -> float:
    """Linear warm-up, then a cosine to the final rate."""
    warm = max(1, config.steps // 50)
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    turn = (step - warm) / max(1, config.steps - warm)
    return config.final_rate + (config.learning_rate - config.final_rate) * (1 + math.cos(math.pi * turn)) / 2


def train(mind: Mind, frames: Observation, config: BenchConfig) -> float:
    """Train mind.codec on frames (N, ...) kept on its device; gives the seconds taken. bf16 on a GPU, fp32
    elsewhere."""
    some = next(iter(frames.values()))
    parameters = [p for p in mind.codec.parameters() if p.requires_grad]
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
            objective, _ = codec_objective(mind, {name: value[chosen] for name, value in frames.items()})
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
) -> Iterator[tuple[str, CodecScore]]:
    """Train and score every contender on the device where the frames lie; each is given when it is done."""
    for name, (codec, quiet) in contenders.items():
        torch.manual_seed(config.seed)
        mind = Mind(replace(MindConfig(), codec=codec, losses=LossConfig(quiet=quiet)), senses, actions=1)
        mind = mind.to(next(iter(frames.values())).device)
        seconds = train(mind, frames, config)
        mind.eval()
        yield name, score(mind.codec, marked, unmarked, seconds)


def heading() -> str:
    """The table's first two lines."""
    rule = "|---" * (len(CodecScore._fields) + 1) + "|"
    return "| codec | " + " | ".join(CodecScore._fields) + " |\n" + rule


def line(name: str, score: CodecScore) -> str:
    """One codec's line."""
    return f"| {name} | " + " | ".join(f"{value:.3g}" for value in score) + " |"
