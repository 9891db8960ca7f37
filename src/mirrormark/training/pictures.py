"""Pictures of an agent on the way: real, reconstructed, dreamed, drawn from the self-prior."""

from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import torch

from mirrormark.agent.acting import encode
from mirrormark.agent.agent import Agent
from mirrormark.agent.world_model import predict
from mirrormark.training.held_out import HeldOut

_COLUMNS = 8
_EVERY_CONTROL_STEPS = 2


@torch.no_grad()
def picture(agent: Agent, held: HeldOut) -> np.ndarray | None:
    """Four rows of eight frames, (4·64, 8·64, 3) uint8: a held-out marked episode as it was, as the tokenizer
    paints it, as it is dreamed with the same actions after the context, and samples of the self-prior.

    None where there are no eyes to see with.
    """
    if "vision" not in held.episodes.observation:
        return None
    episode = int(held.episodes.marked.int().argmax())
    context = agent.config.imagination.context
    last = context + (_COLUMNS - 1) * _EVERY_CONTROL_STEPS
    shown = torch.arange(context - 1, last, _EVERY_CONTROL_STEPS)
    frames = {name: value[episode, :last] for name, value in held.episodes.observation.items()}
    tokens = encode(agent, frames, sample=False)
    action = held.episodes.action[episode, :last].to(tokens.device).unsqueeze(0)
    past, ahead = action[:, : context - 1], action[:, context - 1 : last - 1]
    dreamed = predict(agent.world_model, tokens[None, :context], past, ahead)[0, ::_EVERY_CONTROL_STEPS]
    rows = [
        frames["vision"][shown].cpu().numpy(),
        _painted(agent, tokens[shown.to(tokens.device)]),
        _painted(agent, dreamed[:_COLUMNS]),
        _painted(agent, agent.self_prior.sample(_COLUMNS)),
    ]
    return np.concatenate([np.concatenate(list(row), 1) for row in rows], 0)


def _painted(agent: Agent, tokens: torch.Tensor) -> np.ndarray:
    image = agent.decode(tokens)["vision"].float().cpu().numpy() + 0.5
    return (image.clip(0, 1) * 255).round().astype(np.uint8)


def save_picture(path: Path, image: np.ndarray) -> None:
    """As PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    imageio.imwrite(path, image)
