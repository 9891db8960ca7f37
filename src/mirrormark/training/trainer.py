"""A learning life: gather, learn, look back; iteration after iteration."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from mirrormark.agent.agent import AgentConfig
from mirrormark.agent.senses import SenseSpec
from mirrormark.agent.tokenizer import Tokenizer
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.training.config_checks import check
from mirrormark.training.env_config import EnvConfig, babbling_of, build_agent
from mirrormark.training.held_out import EvaluationConfig, eye_device
from mirrormark.training.learner import Learner, LearnerConfig
from mirrormark.training.nan import NotFinite, dump
from mirrormark.training.replay_buffer import GROUPS, Episodes, ReplayBuffer, ReplayConfig
from mirrormark.training.rollout import (
    FRAMES_PER_EPISODE,
    Actor,
    CachedEncoder,
    collect,
    encode,
    plan_episodes,
)
from mirrormark.training.schedule import Iteration, Schedule, ScheduleConfig


@dataclass(frozen=True)
class TrainingConfig:
    """Schedule, memory, learner and indicators of one life."""

    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """When it gathers, learns and is examined."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """What it remembers."""
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """How it learns."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """What is looked at on the way."""
    frozen_tokenizer: bool = False
    """The tokenizer is frozen while the rest learns, and memory holds tokens (ours; the paper learns
    jointly)."""
    pool_episodes: int = 1024
    """Babbling episodes in the pool from which a tokenizer phase draws single frames (ours)."""
    tokenizer_from: str | None = None
    """A run, checkpoint or snapshot whose tokenizer is taken over, frozen; its own phase is then left out.
    shipped: the one that comes with the package for this body, where there is one (ours; tokens only)."""
    marked_share: float = 0.5
    """Share of marked episodes in training (paper Table III)."""
    policy_share: float = 0.5
    """Share of episodes that the policy moves, once it does (paper: half)."""
    handover_share: float = 0.0
    """Share of these in which motor babbling takes over at some control step, so that expected G learns
    what follows on what the policy does (ours; 0 = off)."""

    def __post_init__(self) -> None:
        for name in ("marked_share", "policy_share", "handover_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"training.{name} is a share: give a number from 0 to 1.")
        if self.pool_episodes < 2:
            raise ValueError(
                f"training.pool_episodes is {self.pool_episodes}: give at least 2, for its two groups."
            )


class UnstableEnvs(RuntimeError):
    """More than half of an iteration's worlds broke: the body or its actions are not sound."""


class Trainer:
    """Everything one run holds: worlds, agent, learner, memory, and where it stands."""

    def __init__(
        self,
        env: EnvConfig,
        agent: AgentConfig,
        config: TrainingConfig,
        seed: int,
        device: torch.device | str,
    ) -> None:
        check(agent, config)
        self.env, self.config, self.seed = env, config, seed
        self.device = torch.device(device)
        self.schedule = Schedule(config.schedule)
        self._envs: dict[tuple[int, bool], MirrorMarkEnvs] = {}
        torch.manual_seed(seed)
        some = self.make_envs(config.schedule.episodes_per_iteration)
        self.agent = build_agent(agent, some).to(self.device)
        self.learner = Learner(self.agent, config.learner, config.frozen_tokenizer)
        self._encoder, self._actors = (
            CachedEncoder(self.agent, self.learner.cuda_graph_rollout),
            dict[int, Actor](),
        )
        frame = {name: _stored(sense) for name, sense in self.agent.tokenizer.senses.items()}
        small = torch.uint8 if self.agent.spec.widest <= 256 else torch.int16
        kept = {"tokens": ((self.agent.spec.K,), small)} if config.frozen_tokenizer else frame
        # Beside a frame's few token bytes, actions would be most of memory and checkpoint; half precision is
        # off by 2⁻¹² at most, and the least noise of an action is 0.1.
        kind = torch.float16 if config.frozen_tokenizer else torch.float32
        self.buffer = ReplayBuffer(kept, some.actions, FRAMES_PER_EPISODE, config.replay, self.device, kind)
        self.pool: ReplayBuffer | None = None
        if config.schedule.tokenizer_iterations:
            room = ReplayConfig(capacity_episodes=2 * config.pool_episodes)  # two of four groups stay empty
            self.pool = ReplayBuffer(frame, some.actions, FRAMES_PER_EPISODE, room, self.device)
        self._pooled: list[
            list[int]
        ] = []  # stored in the pool by group, after each of the tokenizer's iterations
        self.next_iteration = 0

    def make_envs(self, n: int, evaluation: bool = False) -> MirrorMarkEnvs:
        """n worlds to live in, or n to be examined in (all before a mirror); made once for each n."""
        key = (n, evaluation)
        if key not in self._envs:
            mirrors = None if evaluation else self.env.mirrors(n)
            self._envs[key] = self.env.make_envs(n, eye_device(self.env, self.device), mirrors)
        return self._envs[key]

    @property
    def episodes_collected(self) -> int:
        """Episodes gathered so far, without the tokenizer's."""
        return self.schedule.iteration(self.next_iteration - 1).episodes_after if self.next_iteration else 0

    def buffer_of(self, iteration: Iteration) -> ReplayBuffer:
        """What the iteration fills and learns from: the tokenizer's pool in its phase, then memory."""
        return self.pool if iteration.phase == "tokenizer" and self.pool is not None else self.buffer

    def collect(self, iteration: Iteration) -> Episodes:
        """The iteration's new episodes, the same ones for the same seed, iteration and agent."""
        envs = self.make_envs(iteration.episodes)
        share = self.config.policy_share if iteration.policy_moves else 0.0
        plan = plan_episodes(
            iteration.episodes,
            iteration.index,
            self.seed,
            share,
            self.config.marked_share,
            self.config.handover_share,
        )
        self.agent.eval()
        actor = self._actor(iteration.episodes - plan.random, int(plan.seeds[0] % 2**31), iteration.progress)
        encoder = self._encoder if self.config.frozen_tokenizer and iteration.phase == "training" else None
        episodes = collect(envs, babbling_of(self.env, envs), plan, actor, encoder)
        broken = self._broken(iteration, episodes)
        if 2 * broken >= iteration.episodes:
            raise UnstableEnvs(
                f"Iteration {iteration.index}: the physics broke in {broken} of {iteration.episodes} worlds; "
                "check the body's masses, ranges and tone."
            )
        return episodes

    def _broken(self, iteration: Iteration, episodes: Episodes) -> int:
        """How many of the iteration's worlds are not among its episodes."""
        return iteration.episodes - len(episodes.marked)

    def _actor(self, n: int, seed: int, progress: float) -> Actor | None:
        """One that has just begun; made once for each n."""
        if not n:
            return None
        if n not in self._actors:
            self._actors[n] = Actor(self.agent, n, cuda_graph_rollout=self.learner.cuda_graph_rollout)
        self._actors[n].noise_rho = self.agent.policy.config.noise_rho_at(progress)
        self._actors[n].begin(seed)
        return self._actors[n]

    def run_iteration(self, iteration: Iteration) -> dict[str, float]:
        """One iteration: gather, remember, learn. Ends with the tokenizer frozen if this was its last
        iteration."""
        buffer, began = self.buffer_of(iteration), time.perf_counter()
        episodes = self.collect(iteration)
        buffer.extend(episodes)
        if buffer is self.pool:
            self._pooled.append(buffer.written)
        collected = time.perf_counter()
        metrics = self.learner.learn(buffer, iteration)
        metrics |= {"collect_seconds": collected - began, "learn_seconds": time.perf_counter() - collected}
        metrics["unstable_envs"] = float(self._broken(iteration, episodes))
        self.next_iteration = iteration.index + 1
        if self.next_iteration == self.config.schedule.tokenizer_iterations:
            self.freeze_tokenizer()
        return metrics

    def take_tokenizer(self, tokenizer: Tokenizer) -> None:
        """See as another agent has learned to; before the first iteration."""
        if tokenizer.senses != self.agent.tokenizer.senses:
            raise ValueError(
                "training.tokenizer_from: that tokenizer is for other senses; take one of the same body."
            )
        self.agent.tokenizer.load_state_dict(tokenizer.state_dict())
        self.agent.tokenizer.requires_grad_(False)

    @torch.no_grad()
    def freeze_tokenizer(self) -> None:
        """The tokenizer's phase ends: what its pool holds is remembered as tokens, and the pool is let go."""
        assert self.pool is not None
        self.agent.tokenizer.requires_grad_(False)
        pool, marked_group = self.pool, 1
        for group, count in enumerate(list(pool.counts.values())[:2]):
            for rows in torch.arange(group * pool.per_group, group * pool.per_group + count).split(32):
                rows = rows.to(pool.device)
                frames = {name: kept[rows].flatten(0, 1) for name, kept in pool.observation.items()}
                tokens = encode(self.agent, frames).unflatten(0, (len(rows), FRAMES_PER_EPISODE))
                marked = torch.full((len(rows),), group == marked_group)
                kept = {"tokens": tokens}
                policy, handover = torch.zeros_like(marked), pool.handover[rows]
                self.buffer.extend(
                    Episodes(kept, pool.action[rows], pool.mark[rows], policy, marked, handover)
                )
        self.pool, self._pooled = None, []

    # Checkpoints

    def state(self) -> dict:
        """All that the rest of the run depends on. A tokenizer's pool is made again from its seeds
        instead."""
        agent, buffer = self.learner.state(), self.buffer.state()
        return {
            "learner": agent,
            "replay_buffer": buffer,
            "next_iteration": self.next_iteration,
            "pooled": list(self._pooled),
        }

    def load_state(self, state: dict) -> None:
        """Go on from what `state` returned."""
        self.learner.load_state(state["learner"])
        self.buffer.load_state(state["replay_buffer"])
        self.next_iteration = int(state["next_iteration"])
        if self.next_iteration < self.config.schedule.tokenizer_iterations:
            self._pooled = list(state["pooled"])
            if self._pooled:
                self._refill_pool()
        elif self.pool is not None:
            self.agent.tokenizer.requires_grad_(False)
            self.pool = None

    def _refill_pool(self) -> None:
        """Motor babbling depends on seeds only: gather again what would still be in the pool."""
        assert self.pool is not None
        before = [[0] * len(GROUPS), *self._pooled]  # stored before each iteration, and by now
        first, room = 0, self.pool.per_group
        while all(
            later == earlier or now - later >= room
            for earlier, later, now in zip(before[first], before[first + 1], before[-1])
        ):
            first += 1
        self.pool.skip_to(before[first])
        for index in range(first, self.next_iteration):
            random = torch.get_rng_state()
            self.pool.extend(self.collect(self.schedule.iteration(index)))
            torch.set_rng_state(random)


def _stored(sense: SenseSpec) -> tuple[tuple[int, ...], torch.dtype]:
    return sense.shape, {"image": torch.uint8, "vector": torch.float32, "symbol": torch.int64}[sense.kind]


REFUSED_IN_A_ROW = 20
"""The run stops with a dump after so many steps in a row whose loss is not finite (ours)."""
Hook = Callable[[Iteration, Trainer, dict[str, float]], None]


def run_iterations(trainer: Trainer, hooks: Iterable[Hook] = (), dump_to: Path | None = None) -> None:
    """The whole life from where it stands. Hooks see every iteration: metrics, exams, checkpoints,
    displays."""
    for iteration in trainer.schedule.iterations(trainer.next_iteration):
        metrics = trainer.run_iteration(iteration)
        if metrics.get("skipped_in_a_row", 0) >= REFUSED_IN_A_ROW:
            place = (
                dump(trainer.learner, trainer.buffer_of(iteration), iteration, dump_to, trainer.env)
                if dump_to
                else None
            )
            raise NotFinite(iteration.index, int(metrics["skipped_in_a_row"]), place)
        for hook in hooks:
            hook(iteration, trainer, metrics)
