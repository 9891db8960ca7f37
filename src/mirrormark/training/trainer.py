"""A training run: gather, learn, look back; iteration after iteration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from mirrormark.agent.acting import Actor
from mirrormark.agent.senses import SenseSpec
from mirrormark.agent.tokenizer import Tokenizer
from mirrormark.config import AgentConfig, TrainingConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.training.build import build_agent, build_sources
from mirrormark.training.env_config import EnvConfig, babbling_of, senses_of
from mirrormark.training.held_out import eye_device
from mirrormark.training.learner import Learner
from mirrormark.training.nan import NotFinite, dump
from mirrormark.training.replay_buffer import Episodes, ReplayBuffer
from mirrormark.training.rollout import FRAMES_PER_EPISODE, collect, plan_episodes
from mirrormark.training.schedule import Iteration, Schedule
from mirrormark.training.tokenizer_phase import TokenizerPhase

SKIPPED_IN_A_ROW = 20
"""The run stops with a dump after so many steps in a row whose loss is not finite (ours)."""


class UnstableEnvs(RuntimeError):
    """More than half of an iteration's environments broke: the body or its actions are not sound."""


class Trainer:
    """Everything one run holds: environments, agent, learner, replay buffer, and where it stands."""

    def __init__(
        self,
        env: EnvConfig,
        agent: AgentConfig,
        config: TrainingConfig,
        seed: int,
        device: torch.device | str,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        """tokenizer: one that has learned already, in place of a phase of its own."""
        check(agent, config)
        self.env, self.config, self.seed = env, config, seed
        self.device = torch.device(device)
        self._envs: dict[tuple[int, bool], MirrorMarkEnvs] = {}
        torch.manual_seed(seed)
        some = self.make_envs(config.schedule.episodes_per_iteration)
        self.agent = build_agent(agent, senses_of(some), some.actions).to(self.device)
        if tokenizer is not None:
            self._take(tokenizer)
        learns = any(parameter.requires_grad for parameter in self.agent.tokenizer.parameters())
        self.schedule = Schedule(config, learns)
        self.learner = Learner(self.agent, build_sources(self.agent, config.batch.imagined), config)
        self._actors: dict[int, Actor] = {}
        frame = {name: _stored(sense) for name, sense in self.agent.tokenizer.senses.items()}
        small = torch.uint8 if self.agent.spec.widest <= 256 else torch.int16
        self.frozen = config.tokenizer_phase is not None
        kept = {"tokens": ((self.agent.spec.K,), small)} if self.frozen else frame
        # Beside a frame's few token bytes, actions would be most of buffer and checkpoint; half precision is
        # off by 2⁻¹² at most, and the least noise of an action is 0.1.
        kind = torch.float16 if self.frozen else torch.float32
        sizes = some.actions, FRAMES_PER_EPISODE
        self.buffer = ReplayBuffer(kept, *sizes, config.replay_episodes, self.device, kind)
        self.phase: TokenizerPhase | None = None
        if self.schedule.tokenizer_iterations and config.tokenizer_phase:
            room = 2 * config.tokenizer_phase.buffer_episodes  # two of four groups stay empty
            self.phase = TokenizerPhase(ReplayBuffer(frame, *sizes, room, self.device))
        self.next_iteration = 0

    def _take(self, tokenizer: Tokenizer) -> None:
        if tokenizer.senses != self.agent.tokenizer.senses:
            raise ValueError(
                "training.tokenizer_phase.source: that tokenizer is for other senses: take one of "
                "the same body."
            )
        self.agent.tokenizer.load_state_dict(tokenizer.state_dict())
        self.agent.tokenizer.requires_grad_(False)

    def make_envs(self, n: int, evaluation: bool = False) -> MirrorMarkEnvs:
        """n environments to learn in, or n to be evaluated in (all before a mirror); made once for each n."""
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
        """What the iteration learns from."""
        return self.phase.buffer if iteration.phase == "tokenizer" and self.phase else self.buffer

    def collect(self, iteration: Iteration) -> Episodes:
        """The iteration's new episodes, the same ones for the same seed, iteration and agent."""
        envs, c = self.make_envs(iteration.episodes), self.config
        share = c.policy_share if iteration.policy_acts else 0.0
        n = iteration.episodes
        plan = plan_episodes(n, iteration.index, self.seed, share, c.marked_share, c.handover_share)
        self.agent.eval()
        actor = self._actor(n - plan.random, int(plan.seeds[0] % 2**31), iteration.progress)
        frozen = self.agent if self.frozen and iteration.phase == "training" else None
        episodes = collect(envs, babbling_of(self.env, envs), plan, actor, frozen)
        broken = self._broken(iteration, episodes)
        if 2 * broken >= n:
            raise UnstableEnvs(
                f"Iteration {iteration.index}: the physics broke in {broken} of {n} environments; "
                "check the body's masses, ranges and tone."
            )
        return episodes

    def _broken(self, iteration: Iteration, episodes: Episodes) -> int:
        """How many of the iteration's environments are not among its episodes."""
        return iteration.episodes - len(episodes.marked)

    def _actor(self, n: int, seed: int, progress: float) -> Actor | None:
        """One that has just begun; made once for each n."""
        if not n:
            return None
        if n not in self._actors:
            self._actors[n] = Actor(self.agent, n)
        noise = getattr(self.agent.config, "action_noise", None)
        self._actors[n].noise_rho = noise.at(progress) if noise else 0.0
        self._actors[n].begin(seed)
        return self._actors[n]

    def run_iteration(self, iteration: Iteration) -> dict[str, float]:
        """Gather, store, learn. Ends with the tokenizer frozen if this was the last iteration of its
        phase."""
        began = time.perf_counter()
        episodes = self.collect(iteration)
        (self.phase if iteration.phase == "tokenizer" and self.phase else self.buffer).extend(episodes)
        collected = time.perf_counter()
        metrics = self.learner.learn(self.buffer_of(iteration), iteration)
        metrics |= {"collect_seconds": collected - began, "learn_seconds": time.perf_counter() - collected}
        metrics["unstable_envs"] = float(self._broken(iteration, episodes))
        self.next_iteration = iteration.index + 1
        if self.phase and self.next_iteration == self.schedule.tokenizer_iterations:
            self.phase.freeze(self.agent, self.buffer)
            self.phase = None
        return metrics

    def state(self) -> dict:
        """All that the rest of the run depends on."""
        return {
            "learner": self.learner.state(),
            "replay_buffer": self.buffer.state(),
            "next_iteration": self.next_iteration,
            "tokenizer_phase": list(self.phase.written) if self.phase else [],
        }

    def load_state(self, state: dict) -> None:
        """Go on from what `state` returned."""
        self.learner.load_state(state["learner"])
        self.buffer.load_state(state["replay_buffer"])
        self.next_iteration = int(state["next_iteration"])
        if self.phase is None:
            return
        if self.next_iteration < self.schedule.tokenizer_iterations:
            gather = lambda index: self.collect(self.schedule.iteration(index))  # noqa: E731
            self.phase.refill(state["tokenizer_phase"], gather)
        else:
            self.agent.tokenizer.requires_grad_(False)
            self.phase = None


def _stored(sense: SenseSpec) -> tuple[tuple[int, ...], torch.dtype]:
    return sense.shape, {"image": torch.uint8, "vector": torch.float32, "symbol": torch.int64}[sense.kind]


def check(agent: AgentConfig, config: TrainingConfig) -> None:
    """Refuse what could only fail after hours of work: what each part accepts, but not all together."""
    frames, i = config.batch.sequence_frames, agent.imagination
    longest = min(FRAMES_PER_EPISODE, agent.world_model.max_length + 1)
    if frames > longest:
        raise ValueError(
            f"batch.sequence_frames is {frames}: an episode and world_model.max_length allow "
            f"{longest} at most."
        )
    if i.context + i.horizon > FRAMES_PER_EPISODE:
        raise ValueError(
            f"imagination.context + horizon = {i.context + i.horizon}: an episode has "
            f"{FRAMES_PER_EPISODE} frames."
        )
    if config.batch.diet_window > FRAMES_PER_EPISODE:
        raise ValueError(
            f"batch.diet_window is {config.batch.diet_window}: an episode has {FRAMES_PER_EPISODE}."
        )
    if (agent.kind == "paper") != (config.tokenizer_phase is None):
        raise ValueError(
            "training.tokenizer_phase belongs to agents with a frozen tokenizer: leave it out for the "
            "paper's agent, whose tokenizer learns along, and give it otherwise."
        )
    if agent.kind == "swift":
        if agent.acting_context > frames - 1:
            raise ValueError(
                f"agent.acting_context is {agent.acting_context}: the world model never learns more than "
                f"{frames - 1} control steps of past; raise batch.sequence_frames, or lower it."
            )
        ahead = i.context + agent.expected_g.control_steps
        if agent.expected_g.control_steps and frames < ahead:
            raise ValueError(
                f"batch.sequence_frames is {frames}: expected G over {agent.expected_g.control_steps} "
                f"control steps needs {ahead} at least, context included."
            )
        if config.handover_share and not agent.expected_g.control_steps:
            raise ValueError(
                "training.handover_share serves expected G only: set its control_steps, or give 0."
            )


Hook = Callable[[Iteration, Trainer, dict[str, float]], None]


def run_iterations(trainer: Trainer, hooks: Iterable[Hook] = (), dump_to: Path | None = None) -> None:
    """The whole run from where it stands. Hooks see every iteration: metrics, evaluations, checkpoints."""
    for iteration in trainer.schedule.iterations(trainer.next_iteration):
        metrics = trainer.run_iteration(iteration)
        if metrics.get("skipped_in_a_row", 0) >= SKIPPED_IN_A_ROW:
            buffer = trainer.buffer_of(iteration)
            place = dump(trainer.learner, buffer, iteration, dump_to, trainer.env) if dump_to else None
            raise NotFinite(iteration.index, int(metrics["skipped_in_a_row"]), place)
        for hook in hooks:
            hook(iteration, trainer, metrics)
