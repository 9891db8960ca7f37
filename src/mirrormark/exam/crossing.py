"""One sense from the other (paper, Fig. 5b): joint angles from vision, vision from joint angles.

A mixed code (the paper's) has no token that belongs to one sense. There, as in the public code (D18), the
sense to be found is blanked before encoding, and every token is drawn anew given the encoded ones before it.

A code with tokens for each sense tells vision *given* the angles: a picture has no tokens until a posture is
assumed, so angles cannot be filled in from vision tokens alone, and blanked angles only mislead the encoder.
There, angles from vision are a choice: the picture is encoded under postures of the same run, a control step
apart, the true one among them; the self-prior takes the one that makes the whole most familiar, the tokenizer
alone the one whose reconstruction is nearest to the picture. Vision from angles: the cells' tokens are drawn
by the self-prior given the angles' tokens; the tokenizer alone leaves them silent. What room it is (scene
tokens) is taken from another frame, for both.

Chance: the true value of another frame, or any of the postures.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.acting import encode, to_tensors
from mirrormark.agent.agent import Agent
from mirrormark.exam.conditions import EXAM, get
from mirrormark.swift.tokenizer import GridTokenizer
from mirrormark.training.env_config import EnvConfig, babbling_of

RUNS = 12
"""Pictures whose posture is chosen."""
POSTURES = 12
"""Postures to choose from: neighbours in time, so that the choice is hard."""
SETTLE_CONTROL_STEPS = 20
"""Motor babbling before frames are taken: one second."""
_SEED = 2**42
_GREY = 128

Observation = dict[str, Tensor]
Errors = dict[str, float]


def crossing(agent: Agent, real: Observation, setup: EnvConfig) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Numbers for results.json, and what vision looks like from angles alone."""
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
    """Which of its neighbours in time is a picture's posture? Mean error of the choice in radians."""
    moments = _moments(setup, agent.device)
    angle = torch.stack([sim_state["proprioception"] for sim_state in moments], 1)  # (runs, postures, A)
    runs, postures = angle.shape[:2]
    now = postures // 2
    picture = moments[now]["vision"]
    under = {
        name: torch.stack([sim_state[name] for sim_state in moments], 1).flatten(0, 1)
        for name in moments[0]
        if name != "vision"
    }
    tokens = encode(agent, under | {"vision": picture.repeat_interleave(postures, 0)}, sample=False)
    familiar = agent.self_prior.log_prob(tokens).view(runs, postures)
    truth = agent.tokenizer.targets(moments[now])["vision"].float().unsqueeze(1)
    painted = agent.decode(tokens)["vision"].float().unflatten(0, (runs, postures))
    unlike = (painted - truth).square().flatten(2).mean(-1)
    error = ((angle - angle[:, now : now + 1]).abs() * half_range_rad(setup, angle)).mean(-1)
    choices = {"self-prior": familiar.argmax(1), "encoder only": unlike.argmin(1)}
    found = {name: float(error.gather(1, choice[:, None]).mean()) for name, choice in choices.items()}
    return found | {"chance": float(error.mean())}


def _moments(setup: EnvConfig, device: torch.device) -> list[Observation]:
    """Successive observations of some runs of motor babbling, without a mark."""
    envs = get(EXAM).make_envs(setup, RUNS)
    seeds = [_SEED + i for i in range(RUNS)]
    observation, _ = envs.reset(seed=seeds, marked=False)
    babbling = babbling_of(setup, envs)
    babbling.begin(seeds)
    moments = []
    for step in range(SETTLE_CONTROL_STEPS + POSTURES):
        observation, *_ = envs.step(babbling.act(observation))
        if step >= SETTLE_CONTROL_STEPS:
            moments.append(to_tensors({k: np.array(v) for k, v in observation.items()}, device))
    return moments


def _vision_given_angles(agent: Agent, tokenizer: GridTokenizer, real: Observation) -> dict[str, Tensor]:
    """Tokens that know the angles of each frame and the room of another."""
    tokens, place = encode(agent, real, sample=False), tokenizer.slices["vision"]
    cells = slice(place.start + tokenizer.config.scene_tokens, place.stop)
    inactive, known = tokens.roll(1, 0), torch.ones(agent.spec.K, dtype=torch.bool, device=tokens.device)
    inactive[:, : place.start] = tokens[:, : place.start]
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
    """Mixed codes: tokens of frames that lack one sense, as encoded and as drawn anew by the self-prior."""
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
