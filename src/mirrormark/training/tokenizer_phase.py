"""The phase in which the tokenizer alone learns, on single frames of motor babbling. Then it is frozen, and
what the phase's buffer holds becomes the first of the replay buffer, as tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mirrormark.agent.acting import encode
from mirrormark.agent.agent import Agent
from mirrormark.training.replay_buffer import GROUPS, Episodes, ReplayBuffer


class TokenizerPhase:
    """Its buffer of frames. A checkpoint keeps no frames: babbling depends on seeds only, so that they can be
    gathered again."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer
        self.written: list[list[int]] = []  # stored by group, after each iteration

    def extend(self, episodes: Episodes) -> None:
        """Store an iteration's episodes."""
        self.buffer.extend(episodes)
        self.written.append(self.buffer.written)

    @torch.no_grad()
    def freeze(self, agent: Agent, replay: ReplayBuffer) -> None:
        """The phase ends."""
        agent.tokenizer.requires_grad_(False).eval()
        buffer, marked_group = self.buffer, 1
        for group, count in enumerate(list(buffer.counts.values())[:2]):  # the policy's groups are empty
            for rows in torch.arange(group * buffer.per_group, group * buffer.per_group + count).split(32):
                rows = rows.to(buffer.device)
                frames = {name: kept[rows].flatten(0, 1) for name, kept in buffer.observation.items()}
                tokens = encode(agent, frames).unflatten(0, (len(rows), buffer.length))
                marked = torch.full((len(rows),), group == marked_group)
                replay.extend(
                    Episodes(
                        {"tokens": tokens},
                        buffer.action[rows],
                        buffer.mark[rows],
                        torch.zeros_like(marked),
                        marked,
                        buffer.handover[rows],
                    )
                )

    def refill(self, written: list[list[int]], collect: Callable[[int], Episodes]) -> None:
        """Gather again what would still be in the buffer after so many iterations. collect: the episodes of
        an iteration's index."""
        self.written = [list(counts) for counts in written]
        if not written:
            return
        before = [[0] * len(GROUPS), *self.written]  # stored before each iteration, and by now
        first, room = 0, self.buffer.per_group
        while all(
            later == earlier or now - later >= room
            for earlier, later, now in zip(before[first], before[first + 1], before[-1])
        ):
            first += 1
        self.buffer.skip_to(before[first])
        for index in range(first, len(written)):
            random = torch.get_rng_state()
            self.buffer.extend(collect(index))
            torch.set_rng_state(random)
