"""What the agent makes of what it sees, as pictures: its reconstruction, and what its self-prior expects."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirrormark.agent.acting import encode, to_tensors
from mirrormark.agent.agent import Agent
from mirrormark.agent.completion import complete_senses
from mirrormark.lab.session import Session

Picture = NDArray[np.uint8]

_RECONSTRUCT_EVERY_S = 0.1
_EXPECT_EVERY_S = 1.0
_AT_MOST = 0.3
"""Share of its time that the thread may think: the world comes first, and both share two cores."""


class Thoughts(NamedTuple):
    """Pictures (64, 64, 3); None for an agent without pixels, or not yet thought."""

    reconstruction: Picture | None = None
    expectation: Picture | None = None


@torch.no_grad()
def reconstruct(agent: Agent, tokens: Tensor) -> Picture | None:
    """What the tokens (1, K) would look like."""
    if "vision" not in agent.tokenizer.senses:
        return None
    image = agent.decode(tokens)["vision"][0]
    return ((image.clamp(-0.5, 0.5) + 0.5) * 255).round().to(torch.uint8).cpu().numpy()


@torch.no_grad()
def expect(agent: Agent, observation: dict) -> Picture | None:
    """What the self-prior expects to see in this posture and room: the rest of vision is drawn anew."""
    if "vision" not in agent.tokenizer.senses:
        return None
    place = agent.tokenizer.slices.get("vision")
    if place is None:  # a mixed code
        known = set(agent.tokenizer.senses) - {"vision"}
        return reconstruct(agent, complete_senses(agent, to_tensors(observation, agent.device), known))
    tokens = encode(agent, observation, sample=False)
    kept = torch.ones(agent.spec.K, dtype=torch.bool, device=tokens.device)
    kept[place.start + agent.tokenizer.config.scene_tokens : place.stop] = False
    return reconstruct(agent, agent.self_prior.complete(tokens, kept))


class Thinker(threading.Thread):
    """Thinks beside life, as often as the machine allows."""

    def __init__(self, session: Session, wanted: Callable[[], bool] = lambda: True) -> None:
        """wanted: whether anybody looks; if not, it rests."""
        super().__init__(daemon=True, name="thoughts")
        self.session, self.thoughts, self._wanted = session, Thoughts(), wanted
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()
        self.join(timeout=10)

    def run(self) -> None:
        torch.set_num_threads(1)
        last, expected_at = None, -np.inf
        while not self._closing.is_set():
            began = time.perf_counter()
            with self.session.lock:
                look, agent = self.session.look(), self.session.candidate.agent
            if not self._wanted() or (last is not None and look.sim_state is last.sim_state):
                self._closing.wait(_RECONSTRUCT_EVERY_S)
                continue
            if last is None or look.place != last.place:
                expected_at, self.thoughts = -np.inf, Thoughts()
            last = look
            tokens = encode(agent, look.observation) if look.tokens is None else look.tokens
            self.thoughts = self.thoughts._replace(reconstruction=reconstruct(agent, tokens))
            wait = max(_RECONSTRUCT_EVERY_S, (time.perf_counter() - began) / _AT_MOST)
            if began - expected_at >= _EXPECT_EVERY_S:
                self.thoughts = self.thoughts._replace(expectation=expect(agent, look.observation))
                expected_at = time.perf_counter()
                wait = max(wait, (expected_at - began) / _AT_MOST)
            self._closing.wait(wait)
