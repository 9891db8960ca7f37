"""What the self-prior has learned (paper, Fig. 5): numbers for results.json and pictures for the report.

Babbling frames are seen twice, with and without the mark (`MirrorMarkEnvs.paired_frames`), in worlds of their
own. How much of the mark a decoded picture x shows is how far it departs from the decoded bare frame b
towards the mark m = marked − bare, over the mark's pixels: ⟨x − b, m⟩ ÷ ⟨m, m⟩; 1 paints it whole, 0 not at
all.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.acting import encode, to_tensors
from mirrormark.agent.agent import Agent
from mirrormark.agent.world_model import predict
from mirrormark.exam.conditions import EXAM, get
from mirrormark.exam.crossing import SETTLE_CONTROL_STEPS, crossing
from mirrormark.exam.protocol import CONTROL_STEP_S
from mirrormark.exam.recording import SENSE, senses_of
from mirrormark.training.env_config import EnvConfig, babbling_of

FRAMES = 48
"""Paired frames behind the numbers: those of them in which the mark is seen."""
SHOWN = 8
"""Frames in the pictures."""
SURPRISING = 0.02
"""A token less probable than this, given those before it, is drawn anew (ours)."""
LEAST_PAINTED = 0.1
"""Less of the mark than this in the reconstruction, and there is nothing that could be erased."""
_SEED = 2**40

Pictures = dict[str, np.ndarray]
Observation = dict[str, Tensor]


class Frames(NamedTuple):
    marked: Observation
    bare: Observation
    mask: Tensor  # (N, H, W, 1)


@torch.no_grad()
def probe(agent: Agent, setup: EnvConfig, seed: int = 0) -> tuple[dict[str, Any], Pictures]:
    """All probes of one agent; nothing for an agent without pixels."""
    if "vision" not in setup.senses:
        return {}, {}
    agent.eval()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        frames = paired(agent, setup, seed)
        numbers, pictures = erasure(agent, frames)
        crossed, seen = crossing(agent, frames.bare, setup)
        samples = agent.decode(agent.self_prior.sample(SHOWN))["vision"]
    rows = {f"crossing/{name}": to_pixels(picture[:SHOWN]) for name, picture in seen.items()}
    return numbers | crossed, pictures | rows | {"samples": to_pixels(samples)}


def paired(agent: Agent, setup: EnvConfig, seed: int) -> Frames:
    """Babbling postures in which the mark is seen in the mirror."""
    envs = get(EXAM).make_envs(setup, FRAMES)
    seeds = [_SEED + seed * FRAMES + i for i in range(FRAMES)]
    observation, _ = envs.reset(seed=seeds, marked=True)
    babbling = babbling_of(setup, envs)
    babbling.begin(seeds)
    for _ in range(SETTLE_CONTROL_STEPS):
        observation, *_ = envs.step(babbling.act(observation))
    pair = envs.paired_frames()
    seen = np.flatnonzero(pair["mark_mask"].any((1, 2)))
    device = next(agent.world_model.parameters()).device
    rest = {name: np.asarray(value)[seen] for name, value in observation.items() if name != "vision"}
    marked, bare = (
        to_tensors(rest | {"vision": np.asarray(pair[side])[seen]}, device)
        for side in ("with_mark", "without_mark")
    )
    mask = torch.as_tensor(pair["mark_mask"][seen], device=device).unsqueeze(-1)
    return Frames(marked, bare, mask)


def painted(picture: Tensor, without: Tensor, mark: Tensor) -> float:
    """How much of the mark is in the pictures, over all of them (see the top of this file)."""
    return float(((picture - without) * mark).sum() / (mark * mark).sum().clamp_min(1e-9))


def erasure(agent: Agent, frames: Frames) -> tuple[dict[str, Any], Pictures]:
    """Fig. 5b: a marked frame through the self-prior. Two ways: every token drawn anew given the real ones
    before it (the public code's, D18), and only the surprising tokens drawn anew."""
    marked, bare = (agent.tokenizer.targets(side)["vision"].float() for side in (frames.marked, frames.bare))
    tokens, tokens_bare = (encode(agent, side, sample=False) for side in (frames.marked, frames.bare))
    prior = agent.self_prior
    ways = {
        "reconstructed": tokens,
        "through the self-prior": prior.complete(
            tokens, torch.zeros_like(tokens, dtype=torch.bool), "teacher_forced"
        ),
        "surprising tokens redrawn": prior.complete(
            tokens, prior.per_token_log_prob(tokens).exp() >= SURPRISING
        ),
    }
    pictures = {name: agent.decode(code)["vision"].float() for name, code in ways.items()}
    without, mark = agent.decode(tokens_bare)["vision"].float(), (marked - bare) * frames.mask
    shares = {name: painted(picture, without, mark) for name, picture in pictures.items()}
    there = shares["reconstructed"]
    erased = {name: 1 - share / there if there >= LEAST_PAINTED else None for name, share in shares.items()}
    del erased["reconstructed"]
    gap = agent.expected_free_energy(tokens) - agent.expected_free_energy(tokens_bare)
    numbers = {
        "frames": len(tokens),
        "mark_painted": shares,
        "mark_erased": erased,
        "g_gap_nats": float(gap.mean()),
    }
    shown = {"real, marked": marked, "real, bare": bare} | pictures
    return numbers, {f"erasure/{name}": to_pixels(picture[:SHOWN]) for name, picture in shown.items()}


@torch.no_grad()
def dream_strip(agent: Agent, recording: Pictures, ahead_control_steps: int = 20) -> Pictures:
    """From up to ten steps before a removal: what came, and the dream of the same actions. Of the recorded
    runs the one that removed last: a dream needs some past, and must begin while the mark is still on."""
    removed_s = recording["removed_s"]
    if f"{SENSE}vision" not in recording or np.isnan(removed_s).all():
        return {}
    run = int(np.nanargmax(removed_s))
    senses = senses_of(recording, run)
    context = agent.config.imagination.context
    gone = round(float(removed_s[run]) / CONTROL_STEP_S)
    start, total = max(gone - 10, min(3, gone - 1)), recording["actions"].shape[1]
    stop = min(start + ahead_control_steps, total - 1)
    device = next(agent.world_model.parameters()).device
    past = slice(max(start - context + 1, 0), start + 1)
    frames = {name: values[past] for name, values in senses.items()}
    actions = torch.as_tensor(recording["actions"][run], device=device)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokens = encode(agent, frames, sample=False)[None]
        ahead = actions[None, start:stop]
        dreamed = predict(agent.world_model, tokens, actions[None, past][:, :-1], ahead)[0]
    every = slice(None, None, max(1, -(-(stop - start) // SHOWN)))
    decoded = to_pixels(agent.decode(dreamed)["vision"])
    return {"dream/real": senses["vision"][start : stop + 1][every], "dream/dreamed": decoded[every]}


def to_pixels(picture: Tensor) -> np.ndarray:
    """A decoder's picture in [-.5, .5] as uint8."""
    return ((picture.float() + 0.5).clamp(0, 1) * 255).round().byte().cpu().numpy()
