"""What the self-prior of our agents has learned (paper, Fig. 5): numbers for results.json, pictures for the
report.

Erasure. Babbling frames are rendered with and without the mark (`MirrorMarkEnvs.paired_frames`), in worlds of
their own. The share of the mark in a decoded picture x is its projection on the mark m = marked − bare, over
the mark's pixels, from the decoded bare frame b: ⟨x − b, m⟩ ÷ ⟨m, m⟩; 1: the whole mark, 0: none of it.

Crossing (Fig. 5b): joint angles from vision, vision from joint angles. Where tokens mix the senses (the
paper's tokenizer), none belongs to one sense: as in the public code (D18), the missing sense is blanked
before encoding, and every token is drawn anew given the encoded ones before it. A tokenizer with tokens for
each sense encodes vision *given* the angles, so angles cannot be filled in from vision tokens alone. There,
angles from vision are a choice: the picture is encoded under postures of the same run, a control step apart,
the true one among them; the self-prior takes the one of the highest probability, the encoder alone the one
whose reconstruction is nearest to the picture. Vision from angles: the self-prior draws the cells' tokens
given the angles' tokens; the encoder alone leaves them inactive. Scene tokens are another frame's, for both.
Chance: the true value of another frame, or any of the postures.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.acting import encode, to_tensors
from mirrormark.agent.agent import Agent
from mirrormark.agent.world_model import predict
from mirrormark.exam.conditions import EXAM, get
from mirrormark.exam.protocol import CONTROL_STEP_S
from mirrormark.exam.recording import SENSE, senses_of
from mirrormark.swift.tokenizer import GridTokenizer
from mirrormark.training.env_config import EnvConfig, babbling_of

FRAMES = 48
"""Paired frames; the numbers are of those in which the mark is seen."""
SHOWN = 8
"""Frames in the pictures."""
SURPRISING = 0.02
"""A token less probable than this, given those before it, is drawn anew (ours)."""
LEAST_SHOWN = 0.1
"""Below this share of the mark in the reconstruction there is nothing to erase."""
RUNS = 12
"""Pictures whose posture is chosen."""
POSTURES = 12
"""Postures to choose from: neighbours in time, so that the choice is hard."""
SETTLE_CONTROL_STEPS = 20
"""Motor babbling before frames are taken: one second."""
_SEED, _CROSSING_SEED = 2**40, 2**42
_GREY = 128

Pictures = dict[str, np.ndarray]
Observation = dict[str, Tensor]
Errors = dict[str, float]


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


def mark_share(picture: Tensor, without: Tensor, mark: Tensor) -> float:
    """How much of the mark is in the pictures, over all of them (see the top of this file)."""
    return float(((picture - without) * mark).sum() / (mark * mark).sum().clamp_min(1e-9))


def erasure(agent: Agent, frames: Frames) -> tuple[dict[str, Any], Pictures]:
    """Fig. 5b: a marked frame through the self-prior. Two ways: every token drawn anew given the real ones
    before it (the public code's, D18), and only the surprising tokens drawn anew."""
    marked, bare = (agent.tokenizer.targets(side)["vision"].float() for side in (frames.marked, frames.bare))
    tokens, tokens_bare = (encode(agent, side, sample=False) for side in (frames.marked, frames.bare))
    prior = agent.self_prior
    tokens_by_way = {
        "reconstructed": tokens,
        "through the self-prior": prior.complete(
            tokens, torch.zeros_like(tokens, dtype=torch.bool), "teacher_forced"
        ),
        "surprising tokens redrawn": prior.complete(
            tokens, prior.per_token_log_prob(tokens).exp() >= SURPRISING
        ),
    }
    pictures = {name: agent.decode(code)["vision"].float() for name, code in tokens_by_way.items()}
    without, mark = agent.decode(tokens_bare)["vision"].float(), (marked - bare) * frames.mask
    shares = {name: mark_share(picture, without, mark) for name, picture in pictures.items()}
    whole = shares["reconstructed"]
    erased = {name: 1 - share / whole if whole >= LEAST_SHOWN else None for name, share in shares.items()}
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
    """What followed from up to ten steps before a removal, and the imagined frames under the same actions.
    Of the recorded runs the one that removed last: imagination needs a context, and begins with the mark."""
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


def crossing(agent: Agent, real: Observation, setup: EnvConfig) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Numbers for results.json, and vision decoded from angles alone."""
    if separate := isinstance(agent.tokenizer, GridTokenizer):
        angles, all_tokens = chosen_angles(agent, setup), _vision_given_angles(agent, agent.tokenizer, real)
    else:
        angles, all_tokens = _completed_angles(agent, real, setup), _redrawn(agent, real, "vision")
    truth = agent.tokenizer.targets(real)["vision"].float()
    seen = {name: agent.decode(tokens)["vision"].float() for name, tokens in all_tokens.items()}
    guesses = seen | {"chance": truth.roll(1, 0)}
    numbers = {
        "proprioception_from_vision": "chosen" if separate else "completed",
        "proprioception_from_vision_rad": angles,
        "vision_from_proprioception_rms": {
            name: float((guess - truth).square().mean().sqrt()) for name, guess in guesses.items()
        },
    }
    return numbers, {"real": truth} | seen


def chosen_angles(agent: Agent, setup: EnvConfig) -> Errors:
    """Which of its neighbours in time is a picture's posture: mean error of the choice in radians."""
    frames = _successive(setup, agent.device)
    angle = torch.stack([frame["proprioception"] for frame in frames], 1)  # (runs, postures, A)
    runs, postures = angle.shape[:2]
    now = postures // 2
    picture = frames[now]["vision"]
    under = {
        name: torch.stack([frame[name] for frame in frames], 1).flatten(0, 1)
        for name in frames[0]
        if name != "vision"
    }
    tokens = encode(agent, under | {"vision": picture.repeat_interleave(postures, 0)}, sample=False)
    log_prob = agent.self_prior.log_prob(tokens).view(runs, postures)
    truth = agent.tokenizer.targets(frames[now])["vision"].float().unsqueeze(1)
    decoded = agent.decode(tokens)["vision"].float().unflatten(0, (runs, postures))
    error_px = (decoded - truth).square().flatten(2).mean(-1)
    error = ((angle - angle[:, now : now + 1]).abs() * half_range_rad(setup, angle)).mean(-1)
    choices = {"self-prior": log_prob.argmax(1), "encoder only": error_px.argmin(1)}
    found = {name: float(error.gather(1, choice[:, None]).mean()) for name, choice in choices.items()}
    return found | {"chance": float(error.mean())}


def _successive(setup: EnvConfig, device: torch.device) -> list[Observation]:
    """Successive observations of some runs of motor babbling, without a mark."""
    envs = get(EXAM).make_envs(setup, RUNS)
    seeds = [_CROSSING_SEED + i for i in range(RUNS)]
    observation, _ = envs.reset(seed=seeds, marked=False)
    babbling = babbling_of(setup, envs)
    babbling.begin(seeds)
    frames = []
    for step in range(SETTLE_CONTROL_STEPS + POSTURES):
        observation, *_ = envs.step(babbling.act(observation))
        if step >= SETTLE_CONTROL_STEPS:
            frames.append(to_tensors({k: np.array(v) for k, v in observation.items()}, device))
    return frames


def _vision_given_angles(agent: Agent, tokenizer: GridTokenizer, real: Observation) -> dict[str, Tensor]:
    """Tokens with the angles of each frame and the scene tokens of another."""
    tokens, vision = encode(agent, real, sample=False), tokenizer.slices["vision"]
    cells = slice(vision.start + tokenizer.config.scene_tokens, vision.stop)
    inactive, known = tokens.roll(1, 0), torch.ones(agent.spec.K, dtype=torch.bool, device=tokens.device)
    inactive[:, : vision.start] = tokens[:, : vision.start]
    inactive[:, cells], known[cells] = tokenizer.inactive_token, False
    return {"encoder only": inactive, "self-prior": agent.self_prior.complete(inactive, known)}


def _completed_angles(agent: Agent, real: Observation, setup: EnvConfig) -> Errors:
    truth = real["proprioception"].float()
    all_tokens = _redrawn(agent, real, "proprioception")
    guesses = {name: agent.decode(tokens)["proprioception"].float() for name, tokens in all_tokens.items()}
    guesses |= {"chance": truth.roll(1, 0)}
    ranges = half_range_rad(setup, truth)
    return {name: float(((guess - truth).abs() * ranges).mean()) for name, guess in guesses.items()}


def _redrawn(agent: Agent, real: Observation, missing: str) -> dict[str, Tensor]:
    """Mixed tokens of frames that lack one sense, as encoded and as drawn anew by the self-prior."""
    fill = _GREY if agent.tokenizer.senses[missing].kind == "image" else 0
    tokens = encode(agent, real | {missing: torch.full_like(real[missing], fill)}, sample=False)
    nothing = torch.zeros_like(tokens, dtype=torch.bool)
    return {
        "encoder only": tokens,
        "self-prior": agent.self_prior.complete(tokens, nothing, "teacher_forced"),
    }


def half_range_rad(setup: EnvConfig, like: Tensor) -> Tensor:
    """Half of each joint's range: what a scaled angle of 1 means."""
    ranges = get(EXAM).make_envs(setup, 1).scene.range_rad
    return torch.as_tensor((ranges[:, 1] - ranges[:, 0]) / 2, dtype=torch.float32, device=like.device)
