"""What the self-prior has learned (paper, Fig. 5): numbers for results.json and pictures for the report.

Everyday frames are seen twice, with and without the mark (`Worlds.paired_frames`), in worlds of their own.
How much of the mark a decoded picture x shows is how far it departs from the decoded bare frame b towards the
mark m = marked − bare, over the mark's pixels: ⟨x − b, m⟩ ÷ ⟨m, m⟩; 1 paints it whole, 0 not at all.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.exam.conditions import EXAM, get
from mirrormark.exam.protocol import CONTROL_STEP_S
from mirrormark.exam.recording import SENSE, senses_of
from mirrormark.life.rollout import encode, to_tensors
from mirrormark.life.setup import WorldSetup, movement_of
from mirrormark.mind.dream import replay_dream
from mirrormark.mind.mind import Mind

FRAMES = 48
"""Paired frames behind the numbers: those of them in which the mark is seen."""
SHOWN = 8
"""Frames in the pictures."""
SETTLE_CONTROL_STEPS = 20
"""Everyday movement before the frames are taken: one second."""
SURPRISING = 0.02
"""A token less probable than this, given those before it, is drawn anew (ours)."""
LEAST_PAINTED = 0.1
"""Less of the mark than this in the reconstruction, and there is nothing that could be erased."""
_SEED = 2**40
_GREY = 128

Pictures = dict[str, np.ndarray]
Observation = dict[str, Tensor]


class Frames(NamedTuple):
    marked: Observation
    bare: Observation
    mask: Tensor  # (N, H, W, 1)


@torch.no_grad()
def probe(mind: Mind, setup: WorldSetup, seed: int = 0) -> tuple[dict[str, Any], Pictures]:
    """All probes of one mind; nothing for a mind without pixels."""
    if "vision" not in setup.senses:
        return {}, {}
    mind.eval()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        frames = paired(mind, setup, seed)
        numbers, pictures = erasure(mind, frames)
        crossed, more = crossing(mind, frames.bare, setup)
        samples = mind.decode(mind.self_prior.sample(SHOWN))["vision"]
    return numbers | crossed, pictures | more | {"samples": to_pixels(samples)}


def paired(mind: Mind, setup: WorldSetup, seed: int) -> Frames:
    """Everyday postures in which the mark is seen in the mirror."""
    worlds = get(EXAM).worlds(setup, FRAMES)
    seeds = [_SEED + seed * FRAMES + i for i in range(FRAMES)]
    observation, _ = worlds.reset(seed=seeds, marked=True)
    movement = movement_of(setup, worlds)
    movement.begin(seeds)
    for _ in range(SETTLE_CONTROL_STEPS):
        observation, *_ = worlds.step(movement.act(observation))
    pair = worlds.paired_frames()
    seen = np.flatnonzero(pair["mark_mask"].any((1, 2)))
    device = next(mind.dynamics.parameters()).device
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


def erasure(mind: Mind, frames: Frames) -> tuple[dict[str, Any], Pictures]:
    """Fig. 5b: a marked frame through the self-prior. Two ways: every token drawn anew given the real ones
    before it (the public code's, D18), and only the surprising tokens drawn anew."""
    marked, bare = (mind.codec.targets(side)["vision"].float() for side in (frames.marked, frames.bare))
    latent, latent_bare = (encode(mind, side, sample=False) for side in (frames.marked, frames.bare))
    prior = mind.self_prior
    ways = {
        "reconstructed": latent,
        "through the self-prior": prior.complete(
            latent, torch.zeros_like(latent, dtype=torch.bool), "teacher_forced"
        ),
        "surprising tokens redrawn": prior.complete(
            latent, prior.per_token_log_prob(latent).exp() >= SURPRISING
        ),
    }
    pictures = {name: mind.decode(code)["vision"].float() for name, code in ways.items()}
    without, mark = mind.decode(latent_bare)["vision"].float(), (marked - bare) * frames.mask
    shares = {name: painted(picture, without, mark) for name, picture in pictures.items()}
    there = shares["reconstructed"]
    erased = {name: 1 - share / there if there >= LEAST_PAINTED else None for name, share in shares.items()}
    del erased["reconstructed"]
    gap = mind.expected_free_energy(latent) - mind.expected_free_energy(latent_bare)
    numbers = {
        "frames": len(latent),
        "mark_painted": shares,
        "mark_erased": erased,
        "g_gap_nats": float(gap.mean()),
    }
    shown = {"real, marked": marked, "real, bare": bare} | pictures
    return numbers, {f"erasure/{name}": to_pixels(picture[:SHOWN]) for name, picture in shown.items()}


def crossing(mind: Mind, real: Observation, setup: WorldSetup) -> tuple[dict[str, Any], Pictures]:
    """One sense from the other: the missing one is blanked before encoding, then filled in by the self-prior.

    Chance: the true value of another frame. Encoder only: the blanked latent decoded without the self-prior.
    """
    half_range = _half_range_rad(setup, real["proprioception"])
    unseen = real | {"vision": torch.full_like(real["vision"], _GREY)}
    unfelt = real | {"proprioception": torch.zeros_like(real["proprioception"])}
    truth = mind.codec.targets(real)
    angle, picture = truth["proprioception"].float(), truth["vision"].float()
    other = torch.arange(len(angle)).roll(1)

    def wrong_rad(guess: Tensor) -> float:
        return float(((guess.float() - angle).abs() * half_range).mean())

    def wrong_pixels(guess: Tensor) -> float:
        return float((guess.float() - picture).square().mean().sqrt())

    felt = {
        name: mind.decode(code)["proprioception"]
        for name, code in _ways(mind, unfelt, "proprioception").items()
    }
    seen = {name: mind.decode(code)["vision"] for name, code in _ways(mind, unseen, "vision").items()}
    numbers = {
        "proprioception_from_vision_rad": {name: wrong_rad(guess) for name, guess in felt.items()}
        | {"chance": wrong_rad(angle[other])},
        "vision_from_proprioception_rms": {name: wrong_pixels(guess) for name, guess in seen.items()}
        | {"chance": wrong_pixels(picture[other])},
    }
    shown = {"real": picture} | seen
    return numbers, {f"crossing/{name}": to_pixels(guess[:SHOWN]) for name, guess in shown.items()}


def _ways(mind: Mind, blanked: Observation, missing: str) -> dict[str, Tensor]:
    """Latents of frames that lack one sense: as encoded, and completed by the self-prior."""
    latent = encode(mind, blanked, sample=False)
    place = mind.codec.tokens.get(missing)
    if place is None:  # tokens are mixed: drawn anew as the public code does (D18)
        known = torch.zeros_like(latent, dtype=torch.bool)
        return {
            "encoder only": latent,
            "self-prior": mind.self_prior.complete(latent, known, "teacher_forced"),
        }
    known = torch.ones_like(latent[0], dtype=torch.bool)
    known[place] = False
    follows = known[: place.start or 0].any()
    method = "ancestral" if follows and not known[place.stop :].any() else "gibbs"
    return {"encoder only": latent, "self-prior": mind.self_prior.complete(latent, known, method, sweeps=1)}


def _half_range_rad(setup: WorldSetup, like: Tensor) -> Tensor:
    ranges = get(EXAM).worlds(setup, 1).scene.range_rad
    return torch.as_tensor((ranges[:, 1] - ranges[:, 0]) / 2, dtype=torch.float32, device=like.device)


@torch.no_grad()
def dream_strip(mind: Mind, recording: Pictures, ahead_control_steps: int = 20) -> Pictures:
    """From up to ten steps before a removal: what came, and the dream of the same actions. Of the recorded
    runs the one that removed last: a dream needs some past, and must begin while the mark is still on."""
    removed_s = recording["removed_s"]
    if f"{SENSE}vision" not in recording or np.isnan(removed_s).all():
        return {}
    run = int(np.nanargmax(removed_s))
    senses = senses_of(recording, run)
    context = mind.config.imagination.context
    gone = round(float(removed_s[run]) / CONTROL_STEP_S)
    start, total = max(gone - 10, min(3, gone - 1)), recording["actions"].shape[1]
    stop = min(start + ahead_control_steps, total - 1)
    device = next(mind.dynamics.parameters()).device
    past = slice(max(start - context + 1, 0), start + 1)
    frames = {name: values[past] for name, values in senses.items()}
    actions = torch.as_tensor(recording["actions"][run], device=device)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        latent = encode(mind, frames, sample=False)[None]
        ahead = actions[None, start:stop]
        dreamed = replay_dream(mind.dynamics, latent, actions[None, past][:, :-1], ahead)[0]
    every = slice(None, None, max(1, -(-(stop - start) // SHOWN)))
    decoded = to_pixels(mind.decode(dreamed)["vision"])
    return {"dream/real": senses["vision"][start : stop + 1][every], "dream/dreamed": decoded[every]}


def to_pixels(picture: Tensor) -> np.ndarray:
    """A decoder's picture in [-.5, .5] as uint8."""
    return ((picture.float() + 0.5).clamp(0, 1) * 255).round().byte().cpu().numpy()
