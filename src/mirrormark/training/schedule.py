"""Which stages are open when. A lap is a number of new episodes followed by a number of train steps.

A schedule is a pure function of its configuration and the lap's index, so a run resumes from an index alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

STAGES = ("codec", "world", "self_prior", "policy")


@dataclass(frozen=True)
class ScheduleConfig:
    """When the agent gathers, learns and is examined."""

    episodes: int = 50_000
    """Episodes gathered in the whole life, after the codec phase where there is one (paper Table III)."""
    episodes_per_lap: int = 10
    """New episodes before each run of train steps (paper Table III)."""
    steps_per_lap: int = 100
    """Train steps after each lap's episodes (paper Table III)."""
    world_from_episode: int = 100
    """The world model learns from here on (paper Table III)."""
    self_prior_from_episode: int = 120
    """The self-prior learns from here on (paper Table III)."""
    self_prior_until_episode: int | None = None
    """The self-prior stops learning here, so that what is familiar holds still (ours; None: it goes on)."""
    policy_from_episode: int = 140
    """Policy and value learn, and the policy moves, from here on (paper Table III)."""
    exam_every_episodes: int = 500
    """Indicators, snapshot and exam after each so many episodes (paper Table III)."""
    codec_laps: int = 0
    """Laps in which the codec alone learns, on fresh frames, before it is frozen (ours; 0 = joint
    training)."""
    codec_episodes_per_lap: int = 64
    """Fresh everyday episodes into the codec's pool before each codec lap (ours)."""
    codec_first_episodes: int = 256
    """Episodes with which the pool is first filled (ours)."""
    codec_steps_per_lap: int = 500
    """Codec train steps a codec lap (ours)."""
    checkpoint_every_laps: int = 10
    """Laps between checkpoints; the last lap and Ctrl-C write one too (ours)."""

    def __post_init__(self) -> None:
        counts = ["episodes", "episodes_per_lap", "exam_every_episodes", "checkpoint_every_laps"]
        if self.codec_laps:
            counts += ["codec_first_episodes", "codec_episodes_per_lap"]
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"schedule.{name} is {getattr(self, name)}: give at least 1.")
        begins = ("world_from_episode", "self_prior_from_episode", "policy_from_episode")
        for name in ("steps_per_lap", "codec_laps", "codec_steps_per_lap", *begins):
            if getattr(self, name) < 0:
                raise ValueError(f"schedule.{name} is {getattr(self, name)}: it cannot be negative.")


class Lap(NamedTuple):
    """One lap: gather, then learn."""

    index: int  # from 0 over the whole run, codec laps first
    phase: str  # "codec" or "life"
    episodes: int  # new episodes gathered at the start of this lap
    episodes_after: int  # episodes lived when the lap ends (codec laps count none)
    steps: int  # train steps
    stages: tuple[str, ...]  # open stages, in the order in which they learn
    policy_moves: bool  # life.policy_share of the new episodes are moved by the policy
    exam: bool  # an exam point follows
    checkpoint: bool  # a checkpoint follows
    progress: float  # 0..1 within the phase, for learning-rate schedules


class Schedule:
    """The laps of one run."""

    def __init__(self, config: ScheduleConfig) -> None:
        self.config = config
        self.life_laps = -(-config.episodes // config.episodes_per_lap)
        self.total_laps = config.codec_laps + self.life_laps

    def laps(self, start: int = 0) -> Iterator[Lap]:
        """Laps from `start` to the end."""
        return (self.lap(index) for index in range(start, self.total_laps))

    def lap(self, index: int) -> Lap:
        """The lap of that index."""
        c = self.config
        last = index == self.total_laps - 1
        checkpoint = last or (index + 1) % c.checkpoint_every_laps == 0
        if index < c.codec_laps:
            episodes = c.codec_first_episodes if index == 0 else c.codec_episodes_per_lap
            # The codec's last lap is an exam point: its gate is looked at before anything is built on it.
            turn = index == c.codec_laps - 1
            return Lap(
                index=index, phase="codec", episodes=episodes, episodes_after=0, steps=c.codec_steps_per_lap,
                stages=("codec",), policy_moves=False, exam=turn, checkpoint=checkpoint or turn,
                progress=index / c.codec_laps,
            )  # fmt: skip
        lived = (index - c.codec_laps) * c.episodes_per_lap
        after = lived + c.episodes_per_lap
        stages = self._open(after)
        exam = last or after // c.exam_every_episodes > lived // c.exam_every_episodes
        return Lap(
            index=index, phase="life", episodes=c.episodes_per_lap, episodes_after=after,
            steps=c.steps_per_lap if stages else 0, stages=stages,
            policy_moves=lived >= c.policy_from_episode, exam=exam, checkpoint=checkpoint,
            progress=(index - c.codec_laps) / self.life_laps,
        )  # fmt: skip

    def _open(self, episodes: int) -> tuple[str, ...]:
        c = self.config
        until = c.self_prior_until_episode
        learning = {
            "world": episodes >= c.world_from_episode,
            "self_prior": episodes >= c.self_prior_from_episode and (until is None or episodes <= until),
            "policy": episodes >= c.policy_from_episode,
        }
        return tuple(stage for stage, on in learning.items() if on)
