"""Which stages are open when. An iteration is a number of new episodes followed by a number of train steps.

A schedule is a pure function of its configuration and the iteration's index, so a run resumes from an index
alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mirrormark.config import TrainingConfig


class Iteration(NamedTuple):
    """Gather, then learn."""

    index: int  # from 0 over the whole run, the tokenizer's phase first
    phase: str  # "tokenizer" or "training"
    episodes: int  # new episodes gathered at its start
    episodes_after: int  # episodes gathered when it ends (the tokenizer's phase counts none)
    steps: int  # train steps
    stages: tuple[str, ...]  # open stages
    policy_acts: bool  # training.policy_share of the new episodes are moved by the policy
    evaluation: bool  # an evaluation follows
    checkpoint: bool  # a checkpoint follows
    progress: float  # 0..1 within the phase, for learning-rate schedules


class Schedule:
    """The iterations of one run."""

    def __init__(self, config: TrainingConfig, tokenizer_learns: bool) -> None:
        """tokenizer_learns: in a phase of its own."""
        self.config, self._phase = config.schedule, config.tokenizer_phase
        self.tokenizer_iterations = self._phase.iterations if self._phase and tokenizer_learns else 0
        self.training_iterations = -(-self.config.episodes // self.config.episodes_per_iteration)
        self.total_iterations = self.tokenizer_iterations + self.training_iterations

    def iterations(self, start: int = 0) -> Iterator[Iteration]:
        """Iterations from `start` to the end."""
        return (self.iteration(index) for index in range(start, self.total_iterations))

    def iteration(self, index: int) -> Iteration:
        """The iteration of that index."""
        c, last = self.config, index == self.total_iterations - 1
        checkpoint = last or (index + 1) % c.checkpoint_every_iterations == 0
        if index < self.tokenizer_iterations:
            return self._of_tokenizer(index, checkpoint)
        before = (index - self.tokenizer_iterations) * c.episodes_per_iteration
        after = before + c.episodes_per_iteration
        opens = {
            "world_model": c.world_model_from_episode,
            "self_prior": c.self_prior_from_episode,
            "policy": c.policy_from_episode,
        }
        stages = tuple(stage for stage, first in opens.items() if after >= first)
        return Iteration(
            index,
            "training",
            c.episodes_per_iteration,
            after,
            c.steps_per_iteration if stages else 0,
            stages,
            policy_acts=before >= c.policy_acts_from_episode,
            evaluation=last or after // c.evaluate_every_episodes > before // c.evaluate_every_episodes,
            checkpoint=checkpoint,
            progress=(index - self.tokenizer_iterations) / self.training_iterations,
        )

    def _of_tokenizer(self, index: int, checkpoint: bool) -> Iteration:
        p = self._phase
        assert p is not None
        # The phase's last iteration is evaluated: what is seen is looked at before anything is built on it.
        ends = index == self.tokenizer_iterations - 1
        return Iteration(
            index,
            "tokenizer",
            p.episodes_per_iteration if index else p.first_episodes,
            0,
            p.steps_per_iteration,
            ("tokenizer",),
            policy_acts=False,
            evaluation=ends,
            checkpoint=checkpoint or ends,
            progress=index / self.tokenizer_iterations,
        )
