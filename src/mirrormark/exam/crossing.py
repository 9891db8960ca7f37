"""One sense from the other (paper, Fig. 5b): joint angles from vision, vision from joint angles.

A mixed code (the paper's) has no token that belongs to one sense. There, as in the public code (D18), the
sense to be found is blanked before encoding, and every token is drawn anew given the encoded ones before it.

A code with tokens for each sense tells vision *given* the angles: a picture has no tokens until a posture is
assumed, so angles cannot be filled in from vision tokens alone, and blanked angles only mislead the encoder.
There, angles from vision are a choice: the picture is encoded under postures of the same run, a control step
apart, the true one among them; the self-prior takes the one that makes the whole most familiar, the codec
alone the one whose reconstruction is nearest to the picture. Vision from angles: the cells' tokens are drawn
by the self-prior given the angles' tokens; the codec alone leaves them silent. What room it is (scene tokens)
is taken from another frame, for both.

Chance: the true value of another frame, or any of the postures.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.agent import Mind
from mirrormark.agent.tokenizer_grid import SensesCodec
from mirrormark.exam.conditions import EXAM, get
from mirrormark.training.env_config import WorldSetup, movement_of
from mirrormark.training.rollout import encode, to_tensors

RUNS = 12
"""Pictures whose posture is chosen."""
POSTURES = 12
"""Postures to choose from: neighbours in time, so that the choice is hard."""
SETTLE_CONTROL_STEPS = 20
"""Everyday movement before frames are taken: one second."""
_SEED = 2**42
_GREY = 128

Observation = dict[str, Tensor]
Errors = dict[str, float]


def crossing(mind: Mind, real: Observation, setup: WorldSetup) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Numbers for results.json, and what vision looks like from angles alone."""
    if separate := isinstance(mind.codec, SensesCodec):
        angles, latents = chosen_angles(mind, setup), _vision_given_angles(mind, mind.codec, real)
    else:
        angles, latents = _completed_angles(mind, real, setup), _redrawn(mind, real, "vision")
    truth = mind.codec.targets(real)["vision"].float()
    seen = {name: mind.decode(latent)["vision"].float() for name, latent in latents.items()}
    guesses = seen | {"chance": truth.roll(1, 0)}
    numbers = {
        "proprioception_from_vision": "chosen" if separate else "completed",
        "proprioception_from_vision_rad": angles,
        "vision_from_proprioception_rms": {
            name: float((guess - truth).square().mean().sqrt()) for name, guess in guesses.items()
        },
    }
    return numbers, {"real": truth} | seen


def chosen_angles(mind: Mind, setup: WorldSetup) -> Errors:
    """Which of its neighbours in time is a picture's posture? Mean error of the choice in radians."""
    moments = _moments(setup, mind.device)
    angle = torch.stack([moment["proprioception"] for moment in moments], 1)  # (runs, postures, A)
    runs, postures = angle.shape[:2]
    now = postures // 2
    picture = moments[now]["vision"]
    under = {
        name: torch.stack([moment[name] for moment in moments], 1).flatten(0, 1)
        for name in moments[0]
        if name != "vision"
    }
    latent = encode(mind, under | {"vision": picture.repeat_interleave(postures, 0)}, sample=False)
    familiar = mind.self_prior.log_prob(latent).view(runs, postures)
    truth = mind.codec.targets(moments[now])["vision"].float().unsqueeze(1)
    painted = mind.decode(latent)["vision"].float().unflatten(0, (runs, postures))
    unlike = (painted - truth).square().flatten(2).mean(-1)
    error = ((angle - angle[:, now : now + 1]).abs() * half_range_rad(setup, angle)).mean(-1)
    choices = {"self-prior": familiar.argmax(1), "encoder only": unlike.argmin(1)}
    found = {name: float(error.gather(1, choice[:, None]).mean()) for name, choice in choices.items()}
    return found | {"chance": float(error.mean())}


def _moments(setup: WorldSetup, device: torch.device) -> list[Observation]:
    """Successive observations of some runs of everyday movement, without a mark."""
    worlds = get(EXAM).worlds(setup, RUNS)
    seeds = [_SEED + i for i in range(RUNS)]
    observation, _ = worlds.reset(seed=seeds, marked=False)
    movement = movement_of(setup, worlds)
    movement.begin(seeds)
    moments = []
    for step in range(SETTLE_CONTROL_STEPS + POSTURES):
        observation, *_ = worlds.step(movement.act(observation))
        if step >= SETTLE_CONTROL_STEPS:
            moments.append(to_tensors({k: np.array(v) for k, v in observation.items()}, device))
    return moments


def _vision_given_angles(mind: Mind, codec: SensesCodec, real: Observation) -> dict[str, Tensor]:
    """Latents that know the angles of each frame and the room of another."""
    latent, place = encode(mind, real, sample=False), codec.tokens["vision"]
    cells = slice(place.start + codec.config.scene_tokens, place.stop)
    silent, known = latent.roll(1, 0), torch.ones(mind.spec.K, dtype=torch.bool, device=latent.device)
    silent[:, : place.start] = latent[:, : place.start]
    silent[:, cells], known[cells] = codec.silent_token, False
    return {"encoder only": silent, "self-prior": mind.self_prior.complete(silent, known)}


def _completed_angles(mind: Mind, real: Observation, setup: WorldSetup) -> Errors:
    truth = real["proprioception"].float()
    latents = _redrawn(mind, real, "proprioception")
    guesses = {name: mind.decode(latent)["proprioception"].float() for name, latent in latents.items()}
    guesses |= {"chance": truth.roll(1, 0)}
    ranges = half_range_rad(setup, truth)
    return {name: float(((guess - truth).abs() * ranges).mean()) for name, guess in guesses.items()}


def _redrawn(mind: Mind, real: Observation, missing: str) -> dict[str, Tensor]:
    """Mixed codes: latents of frames that lack one sense, as encoded and as drawn anew by the self-prior."""
    fill = _GREY if mind.codec.senses[missing].kind == "image" else 0
    latent = encode(mind, real | {missing: torch.full_like(real[missing], fill)}, sample=False)
    nothing = torch.zeros_like(latent, dtype=torch.bool)
    return {"encoder only": latent, "self-prior": mind.self_prior.complete(latent, nothing, "teacher_forced")}


def half_range_rad(setup: WorldSetup, like: Tensor) -> Tensor:
    """Half of each joint's range: what a scaled angle of 1 means."""
    ranges = get(EXAM).worlds(setup, 1).scene.range_rad
    return torch.as_tensor((ranges[:, 1] - ranges[:, 0]) / 2, dtype=torch.float32, device=like.device)
