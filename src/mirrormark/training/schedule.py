"""Which stages are open when. An iteration is a number of new episodes followed by a number of train steps.

A schedule is a pure function of its configuration and the iteration's index, so a run resumes from an index
alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

STAGES = ("tokenizer", "world_model", "self_prior", "policy")


@dataclass(frozen=True)
class ScheduleConfig:
    """When the agent gathers, learns and is examined."""

    episodes: int = 50_000
    """Episodes gathered in the whole training run, after the tokenizer phase where there is one (paper Table
    III)."""
    episodes_per_iteration: int = 10
    """New episodes before each run of train steps (paper Table III)."""
    steps_per_iteration: int = 100
    """Train steps after each iteration's episodes (paper Table III)."""
    world_model_from_episode: int = 100
    """The world model learns from here on (paper Table III)."""
    self_prior_from_episode: int = 120
    """The self-prior learns from here on (paper Table III)."""
    self_prior_until_episode: int | None = None
    """The self-prior stops learning here, so that what is familiar holds still (ours; None: it goes on)."""
    policy_from_episode: int = 140
    """Policy and value learn, and the policy moves, from here on (paper Table III)."""
    evaluate_every_episodes: int = 500
    """Indicators, snapshot and exam after each so many episodes (paper Table III)."""
    tokenizer_iterations: int = 0
    """Iterations in which the tokenizer alone learns, on fresh frames, before it is frozen (ours; 0 = joint
    training)."""
    tokenizer_episodes_per_iteration: int = 64
    """Fresh babbling episodes into the tokenizer's pool before each tokenizer iteration (ours)."""
    tokenizer_first_episodes: int = 256
    """Episodes with which the pool is first filled (ours)."""
    tokenizer_steps_per_iteration: int = 500
    """Tokenizer train steps a tokenizer iteration (ours)."""
    checkpoint_every_iterations: int = 10
    """Iterations between checkpoints; the last iteration and Ctrl-C write one too (ours)."""

    def __post_init__(self) -> None:
        counts = [
            "episodes",
            "episodes_per_iteration",
            "evaluate_every_episodes",
            "checkpoint_every_iterations",
        ]
        if self.tokenizer_iterations:
            counts += ["tokenizer_first_episodes", "tokenizer_episodes_per_iteration"]
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"schedule.{name} is {getattr(self, name)}: give at least 1.")
        begins = ("world_model_from_episode", "self_prior_from_episode", "policy_from_episode")
        for name in ("steps_per_iteration", "tokenizer_iterations", "tokenizer_steps_per_iteration", *begins):
            if getattr(self, name) < 0:
                raise ValueError(f"schedule.{name} is {getattr(self, name)}: it cannot be negative.")


class Iteration(NamedTuple):
    """One iteration: gather, then learn."""

    index: int  # from 0 over the whole run, tokenizer iterations first
    phase: str  # "tokenizer" or "life"
    episodes: int  # new episodes gathered at the start of this iteration
    episodes_after: int  # episodes lived when the iteration ends (tokenizer iterations count none)
    steps: int  # train steps
    stages: tuple[str, ...]  # open stages, in the order in which they learn
    policy_moves: bool  # training.policy_share of the new episodes are moved by the policy
    evaluate: bool  # an exam point follows
    checkpoint: bool  # a checkpoint follows
    progress: float  # 0..1 within the phase, for learning-rate schedules


class Schedule:
    """The iterations of one run."""

    def __init__(self, config: ScheduleConfig) -> None:
        self.config = config
        self.training_iterations = -(-config.episodes // config.episodes_per_iteration)
        self.total_iterations = config.tokenizer_iterations + self.training_iterations

    def iterations(self, start: int = 0) -> Iterator[Iteration]:
        """Iterations from `start` to the end."""
        return (self.iteration(index) for index in range(start, self.total_iterations))

    def iteration(self, index: int) -> Iteration:
        """The iteration of that index."""
        c = self.config
        last = index == self.total_iterations - 1
        checkpoint = last or (index + 1) % c.checkpoint_every_iterations == 0
        if index < c.tokenizer_iterations:
            episodes = c.tokenizer_first_episodes if index == 0 else c.tokenizer_episodes_per_iteration
            # The tokenizer's last iteration is an exam point: its gate is looked at before anything is built
            # on it.
            turn = index == c.tokenizer_iterations - 1
            return Iteration(
                index=index, phase="tokenizer", episodes=episodes, episodes_after=0, steps=c.tokenizer_steps_per_iteration,
                stages=("tokenizer",), policy_moves=False, evaluate=turn, checkpoint=checkpoint or turn,
                progress=index / c.tokenizer_iterations,
            )  # fmt: skip
        before = (index - c.tokenizer_iterations) * c.episodes_per_iteration
        after = before + c.episodes_per_iteration
        stages = self._open(after)
        exam = last or after // c.evaluate_every_episodes > before // c.evaluate_every_episodes
        return Iteration(
            index=index, phase="training", episodes=c.episodes_per_iteration, episodes_after=after,
            steps=c.steps_per_iteration if stages else 0, stages=stages,
            policy_moves=before >= c.policy_from_episode, evaluate=exam, checkpoint=checkpoint,
            progress=(index - c.tokenizer_iterations) / self.training_iterations,
        )  # fmt: skip

    def _open(self, episodes: int) -> tuple[str, ...]:
        c = self.config
        until = c.self_prior_until_episode
        learning = {
            "world_model": episodes >= c.world_model_from_episode,
            "self_prior": episodes >= c.self_prior_from_episode and (until is None or episodes <= until),
            "policy": episodes >= c.policy_from_episode,
        }
        return tuple(stage for stage, on in learning.items() if on)
