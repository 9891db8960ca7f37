"""Replay in four groups: random or policy movement, marked or unmarked (D22).

How an episode lies in memory: an episode of 100 control steps has L = 101 frames, frame 0 being what the
reset shows. Action t is the one taken *after* frame t and leads to frame t + 1; the last frame has no
action and holds zeros, which no loss ever reads.

Mark labels choose which stored episodes are drawn and nothing else: no method returns one with a batch. Where
dreams start, not even that: `windows` draws from all stored episodes alike.
Everything a draw needs (counts, group slots) lies on the memory's device, so that drawing can
be part of a captured CUDA graph: no host synchronisation, no Python branch that depends on what is stored.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

GROUPS = ("random_unmarked", "random_marked", "policy_unmarked", "policy_marked")
_SLOTS = 12
"""Even rotation over 1, 2, 3 or 4 filled groups needs a table whose length all of them divide."""


class Episodes(NamedTuple):
    """Whole episodes on their way into memory, N of them with L frames each."""

    observation: dict[str, Tensor]  # name -> (N, L, ...)
    action: Tensor  # (N, L, A); the last action of each episode is zero
    mark: Tensor  # (N, L) bool: the mark is on the body in this frame (D15)
    policy: Tensor  # (N,) bool: moved by the policy, at least until it let go
    marked: Tensor  # (N,) bool: began with a mark
    handover: Tensor  # (N,) int64: frame from which on motor babbling moves it; 0: always has, L: never


class Batch(NamedTuple):
    """Windows of stored episodes, without any label."""

    observation: dict[str, Tensor]  # name -> (B, T, ...)
    action: Tensor  # (B, T, A)
    start: Tensor  # (B,) frame of the episode with which the window begins
    handover: Tensor  # (B,) frame of the episode from which on motor babbling moves the body


class ReplayBuffer:
    """Four FIFO groups of whole episodes on one device."""

    def __init__(
        self,
        fields: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
        actions: int,
        frames_per_episode: int,
        capacity_episodes: int,
        device: torch.device | str = "cpu",
        action_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.length, self.device = frames_per_episode, torch.device(device)
        self.per_group = capacity_episodes // len(GROUPS)
        rows = self.per_group * len(GROUPS)

        def room(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            return torch.zeros((rows, frames_per_episode, *shape), dtype=dtype, device=self.device)

        self.observation = {name: room(shape, dtype) for name, (shape, dtype) in fields.items()}
        self.action = room((actions,), action_dtype)
        self.mark = room((), torch.bool)  # kept for whoever looks into a memory: no draw ever reads it
        self.handover = torch.zeros(rows, dtype=torch.int64, device=self.device)
        self.count = torch.zeros(len(GROUPS), dtype=torch.int64, device=self.device)
        self._newest = torch.zeros(len(GROUPS), dtype=torch.int64, device=self.device)
        self._fresh = torch.zeros(len(GROUPS), dtype=torch.int64, device=self.device)
        self._slots = torch.zeros(_SLOTS, dtype=torch.int64, device=self.device)
        self._written = [0] * len(GROUPS)

    @property
    def counts(self) -> dict[str, int]:
        """Stored episodes by group."""
        return {name: min(written, self.per_group) for name, written in zip(GROUPS, self._written)}

    def __len__(self) -> int:
        return sum(self.counts.values())

    def extend(self, episodes: Episodes) -> None:
        """Store episodes, each in its group, over the oldest of that group when it is full."""
        groups = (2 * episodes.policy.long() + episodes.marked.long()).to("cpu")
        for group in range(len(GROUPS)):
            chosen = (groups == group).nonzero().flatten()[-self.per_group :]
            if not len(chosen):
                continue
            places = (self._written[group] + torch.arange(len(chosen))) % self.per_group
            rows = (group * self.per_group + places).to(self.device)
            for name, kept in self.observation.items():
                kept[rows] = self._take(episodes.observation[name], chosen, kept.dtype)
            self.action[rows] = self._take(episodes.action, chosen, self.action.dtype)
            self.mark[rows] = self._take(episodes.mark, chosen, torch.bool)
            self.handover[rows] = self._take(episodes.handover, chosen, torch.int64)
            self._written[group] += len(chosen)
            self._fresh[group] = len(chosen)
        self._publish_counts()

    @property
    def written(self) -> list[int]:
        """Episodes stored so far by group, those overwritten since among them."""
        return list(self._written)

    def skip_to(self, written: Sequence[int]) -> None:
        """Stand where so many have been stored, without having them: all will be overwritten."""
        self._written = list(written)
        self._publish_counts()

    def _take(self, source: Tensor, chosen: Tensor, dtype: torch.dtype) -> Tensor:
        return source[chosen.to(source.device)].to(self.device, dtype)

    def _publish_counts(self) -> None:
        counts = torch.tensor([min(written, self.per_group) for written in self._written])
        self.count.copy_(counts)
        self._newest.copy_(torch.tensor([(written - 1) % self.per_group for written in self._written]))
        filled = counts.nonzero().flatten()
        if len(filled):
            self._slots.copy_(filled[torch.arange(_SLOTS) % len(filled)])

    # Drawing: index arithmetic only, with the device's default random numbers.

    def _episodes_of(self, group: Tensor) -> Tensor:
        """One row, uniformly, from the given group of each draw."""
        place = torch.rand(group.shape, device=self.device) * self.count[group]
        return group * self.per_group + place.long().clamp_max(self.per_group - 1)

    def _recent_rows(self, group: Tensor, count: Tensor) -> Tensor:
        """One of so many newest rows, uniformly, from the given group of each draw."""
        back = (torch.rand(group.shape, device=self.device) * count).long()
        return group * self.per_group + (self._newest[group] - back) % self.per_group

    def sequences(self, batch: int, length: int) -> Batch:
        """(B, T) windows: groups in even rotation, episode and start uniform."""
        rotation = torch.arange(batch, device=self.device) + torch.randint(_SLOTS, (1,), device=self.device)
        group = self._slots[rotation % _SLOTS]
        return self._windows(self._episodes_of(group), length)

    def windows(self, batch: int, length: int) -> Batch:
        """(B, T) windows of any stored episodes, each as likely as every other: no group, no label."""
        until = self.count.cumsum(0)
        number = (torch.rand(batch, device=self.device, dtype=torch.float64) * until[-1]).long()
        group = torch.searchsorted(until, number, right=True).clamp_max(len(GROUPS) - 1)
        return self._windows(group * self.per_group + number - (until - self.count)[group], length)

    def newest(self, batch: int, length: int, early: int = 0) -> Batch:
        """(B, T) windows of the latest iteration's policy episodes, each as likely as every other (while
        there are none, others stand in, and their `handover` says so). early: so many more of the possible
        starts are the episode's first frame."""
        fresh = self._fresh[2:]  # by the policy: unmarked, marked
        place = (torch.rand(batch, device=self.device) * fresh.sum()).long()
        group = 2 + (place >= fresh[0]).long()
        for other in (3 - (group - 2), group - 2, 1 - (group - 2)):  # while a group is empty, the next
            group = torch.where(self.count[group] > 0, group, other)
        return self._windows(self._recent_rows(group, self._fresh[group]), length, early)

    def _windows(self, row: Tensor, length: int, early: int = 0) -> Batch:
        """A window of each of the given episodes, its start uniform, save for `early` more at the first."""
        if length > self.length:
            raise ValueError(f"A window of {length} frames does not fit an episode of {self.length} frames.")
        starts = self.length - length + 1 + early
        start = ((torch.rand(len(row), device=self.device) * starts).long() - early).clamp_min(0)
        frame = row[:, None] * self.length + start[:, None] + torch.arange(length, device=self.device)
        action = self.action.flatten(0, 1)[frame].float()
        return Batch(self._collect(frame), action, start, self.handover[row])

    def frames(self, batch: int, marked_share: float, babbling_only: bool) -> dict[str, Tensor]:
        """(B, ...) single frames, of which `marked_share` come from marked episodes."""
        return self._collect(self._first_frames(batch, marked_share, babbling_only, 1))

    def diet(self, frames: int, window: int, marked_share: float, babbling_only: bool) -> dict[str, Tensor]:
        """(frames, ...) in windows of consecutive ones, of which `marked_share`, at least one if there is any
        share, come from marked episodes: what the self-prior learns from (D5, S3)."""
        if window == 1:
            return self.frames(frames, marked_share, babbling_only)
        first = self._first_frames(frames // window, marked_share, babbling_only, window, exact=True)
        steps = torch.arange(window, device=self.device)
        return self._collect((first[:, None] + steps).flatten())

    def _first_frames(
        self, batch: int, marked_share: float, babbling_only: bool, window: int, exact: bool = False
    ) -> Tensor:
        """Where windows of so many frames begin: (B,)."""
        if exact:
            marked_windows = max(round(batch * marked_share), 1) if marked_share else 0
            marked = (torch.arange(batch, device=self.device) < marked_windows).long()
        else:
            marked = (torch.rand(batch, device=self.device) < marked_share).long()
        policy = torch.zeros_like(marked)
        if not babbling_only:
            policy = torch.randint(2, (batch,), device=self.device)
            policy = torch.where(self.count[2 * policy + marked] > 0, policy, 1 - policy)
        group = 2 * policy + marked
        # While one of the two groups is still empty, the other stands in for it.
        group = torch.where(self.count[group] > 0, group, 2 * policy + 1 - marked)
        starts = self.length - window + 1
        return self._episodes_of(group) * self.length + torch.randint(starts, (batch,), device=self.device)

    def _collect(self, frame: Tensor) -> dict[str, Tensor]:
        return {name: kept.flatten(0, 1)[frame] for name, kept in self.observation.items()}

    # Checkpoints keep what is stored, not the empty room.

    def _kept(self) -> dict[str, Tensor]:
        observation = {f"observation.{name}": kept for name, kept in self.observation.items()}
        rest = {"action": self.action, "mark": self.mark, "handover": self.handover}
        return observation | rest

    def state(self) -> dict:
        """All that is stored, as a tree of tensors and numbers."""
        filled = self.counts.values()
        rows = torch.cat([g * self.per_group + torch.arange(n) for g, n in enumerate(filled)])
        rows = rows.to(self.device)
        stored = {name: kept[rows].cpu() for name, kept in self._kept().items()}
        return {"stored": stored, "written": list(self._written), "fresh": self._fresh.cpu()}

    def load_state(self, state: dict) -> None:
        """Put back what `state` returned."""
        self._written = [int(written) for written in state["written"]]
        self._fresh.copy_(state["fresh"])
        self._publish_counts()
        filled = self.counts.values()
        rows = torch.cat([g * self.per_group + torch.arange(n) for g, n in enumerate(filled)])
        rows = rows.to(self.device)
        for name, kept in self._kept().items():
            kept[rows] = state["stored"][name].to(self.device)
