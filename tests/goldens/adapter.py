"""All that the goldens know of the package. What is renamed or moved is changed here, and nowhere else in
tests/goldens. The functions' own names, and the left column of each table, are those of goldens.json: they
stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.acting import encode
from mirrormark.agent.losses import LAMBDA, Rollout
from mirrormark.agent.senses import SenseSpec
from mirrormark.agent.world_model import imagine
from mirrormark.config import CategoricalTokenizerConfig, SelfPriorConfig
from mirrormark.envs.babbling import Babbling, BabblingConfig
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.exam import candidates, conditions
from mirrormark.exam.agents import TrainedAgent
from mirrormark.exam.protocol import RunKey, run_condition
from mirrormark.presets import PAPER, SMOKE, SWIFT, SYMBOLIC, Config
from mirrormark.swift.on_policy import OnPolicy as OnPolicySource
from mirrormark.swift.on_policy import RealRollout
from mirrormark.training.build import build_agent, build_sources
from mirrormark.training.learner import Learner
from mirrormark.training.replay_buffer import Episodes, ReplayBuffer
from mirrormark.training.rollout import FRAMES_PER_EPISODE
from mirrormark.training.schedule import Iteration
from mirrormark.training.trainer import Trainer
from mirrormark.training.weights import load_tokenizer, shipped

# Names: in goldens.json, and in the package today ----------------------------------------------------------

METRICS = {
    "tokenizer_vision": "vision",
    "tokenizer_proprioception": "proprioception",
    "tokenizer_vision_auxiliary": "auxiliary_vision",
    "tokenizer_proprioception_auxiliary": "auxiliary_proprioception",
    "tokenizer_rate": "rate",
    "tokenizer_gradient": "tokenizer_gradient",
    "representation_loss": "representation",
    "dynamics_loss": "dynamics",
    "world_model_gradient": "world_model_gradient",
    "self_prior_loss": "self_prior",
    "self_prior_gradient": "self_prior_gradient",
    "babbling_free_energy": "G_babbling",
    "expected_g_loss": "expected_g",
    "expected_g_explained": "expected_g_explained_variance",
    "expected_g_gradient": "drive_gradient",
    "policy_loss": "policy",
    "policy_loss_on_policy": "policy_on_policy",
    "policy_gradient": "policy_gradient",
    "entropy": "entropy",
    "clipped": "clipped",
    "imagined_cost": "imagined_cost",
    "imagined_cost_fall": "imagined_cost_fall",
    "on_policy_cost": "cost_on_policy",
    "return_range": "return_range",
    "value": "value",
    "value_loss": "value_loss",
    "value_loss_on_policy": "value_loss_on_policy",
    "value_explained": "value_explained_variance",
    "value_gradient": "value_gradient",
    "skipped_steps": "skipped_steps",
    "skipped_in_a_row": "skipped_in_a_row",
    "unstable_worlds": "unstable_envs",
}
"""Metrics of an iteration. One that the package has and neither this table nor IGNORED is an error."""
IGNORED = ("collect_seconds", "learn_seconds")
OPTIMIZERS = {
    "tokenizer": "tokenizer",
    "world_model": "world_model",
    "self_prior": "self_prior",
    "policy": "policy",
    "value": "value",
    "expected_g": "drive",
}
OBSERVATION = {"vision": "vision", "proprioception": "proprioception", "cell": "cell"}
INFO = {
    "mark_present": "mark_present",
    "mark_removed": "mark_removed",
    "distance_m": "hand_mark_distance_m",
    "nearest_hand": "nearest_hand",
    "removing_hand": "removing_hand",
    "yoked_touched": "yoked_touched",
    "yoked_distance_m": "yoked_distance_m",
    "mark_surface": "mark_surface",
    "mark_site_m": "mark_site_m",
    "mark_px": "mark_px",
    "mirror_share_of_view": "mirror_share_of_view",
}
EXAM = {"removed": "removed", "latency_s": "removed_s", "hand": "hand", "yoked_touched": "yoked_touched"}

# Environment -----------------------------------------------------------------------------------------------

Arrays = dict[str, np.ndarray]
MIRRORS = {
    "mirror": MirrorConfig(),
    "absent": MirrorConfig("absent"),
    "covered": MirrorConfig("covered"),
    "delayed": MirrorConfig("delayed", delay_control_steps=10),
    "sham": MirrorConfig(),
}


class Environment:
    """n simulators of a body in one condition, begun at once; they go on to their next episode."""

    def __init__(self, body: str, n: int, condition: str, senses: tuple[str, ...], seed: int) -> None:
        self._envs = MirrorMarkEnvs(
            body, n, mirror=MIRRORS[condition], senses=senses, threads=1, autoreset=True, measure_view=True
        )
        self.actions = self._envs.actions
        marked = np.arange(n) % 4 < 3
        self.first = self._named(*self._envs.reset(seed, marked=marked, sham=condition == "sham"))

    def step(self, action: np.ndarray) -> tuple[Arrays, Arrays]:
        """Observation and info."""
        observation, _, _, _, info = self._envs.step(action)
        return self._named(observation, info)

    def paired_frames(self) -> Arrays:
        """The present seen with and without the mark."""
        return {name: np.asarray(value) for name, value in self._envs.paired_frames().items()}

    @staticmethod
    def _named(observation: dict[str, Any], info: dict[str, Any]) -> tuple[Arrays, Arrays]:
        seen = {name: np.asarray(observation[key]) for name, key in OBSERVATION.items() if key in observation}
        return seen, {name: np.asarray(info[key]) for name, key in INFO.items()}


BABBLING = ("iid", "held", "goal", "bouts")


def babbling(kind: str, seeds: list[int], joints: np.ndarray) -> np.ndarray:
    """(T, n, A): what motor babbling does in an episode in which these joint angles (T, n, A) are felt."""
    movement = Babbling(BabblingConfig(kind), joints.shape[-1])  # pyright: ignore[reportArgumentType]
    movement.begin(seeds)
    return np.stack([movement.act({"proprioception": now}).copy() for now in joints])


# Training --------------------------------------------------------------------------------------------------


class Training:
    """An agent that learns, one iteration after another."""

    def __init__(self, learner: Learner, buffer: Callable[[], ReplayBuffer], iterate: Callable) -> None:
        self.learner, self.buffer, self._iterate = learner, buffer, iterate
        self.agent = learner.agent

    def iterate(self) -> dict[str, float]:
        """One iteration: new episodes, then train steps. Its metrics under the goldens' names."""
        found = self._iterate()
        names = {key: name for name, key in METRICS.items()}
        unknown = sorted(set(found) - set(names) - set(IGNORED))
        if unknown:
            raise ValueError(f"metrics {', '.join(unknown)} are not in tests/goldens/adapter.py: METRICS.")
        return {names[key]: float(value) for key, value in sorted(found.items()) if key in names}

    def weights(self) -> list[Tensor]:
        """Every parameter once, slow copies among them, in any order."""
        return list(self.agent.parameters())

    def moments(self) -> list[Tensor]:
        """Adam's averages, in any order."""
        states = [m for d in self.learner.step.optimizers.values() for m in d.optimizer.state.values()]
        return [m[name] for m in states for name in ("exp_avg", "exp_avg_sq")]


def faster(preset: Config, rates: dict[str, float]) -> Config:
    """The preset with factors on the learning rates of some optimisers."""
    optim = preset.training.optim
    for name, factor in rates.items():
        own = getattr(optim, OPTIMIZERS[name])
        last = own.final_learning_rate
        own = replace(
            own,
            learning_rate=factor * own.learning_rate,
            final_learning_rate=None if last is None else factor * last,
        )
        optim = replace(optim, **{OPTIMIZERS[name]: own})
    return replace(preset, training=replace(preset.training, optim=optim))


def _born(preset: Config, device: str = "cpu", own_tokenizer: bool = True) -> Training:
    """A whole training run, from its first iteration on."""
    tokenizer, agent = None, preset.agent
    if not own_tokenizer:
        tokenizer = load_tokenizer(shipped(f"{preset.env.body}-tokenizer") or "")
        agent = replace(agent, tokenizer=tokenizer.config)  # pyright: ignore[reportCallIssue]
    env = replace(preset.env, threads=1 if device == "cpu" else None)
    run = Trainer(env, agent, preset.training, 0, device, tokenizer)
    iterations = run.schedule.iterations()
    return Training(run.learner, lambda: run.buffer, lambda: run.run_iteration(next(iterations)))


_STAGES = ("world_model", "self_prior", "policy")
_OPEN = {"world_model_from_episode": 0, "self_prior_from_episode": 0, "policy_from_episode": 4}
_SHORT = {"episodes": 12, "episodes_per_iteration": 4, "steps_per_iteration": 4, **_OPEN}


def _small(preset: Config, **batch: int) -> Config:
    """Open early, with small networks and batches."""
    agent, training = preset.agent, preset.training
    if batch:
        agent = replace(
            agent,
            world_model=replace(agent.world_model, width=32, layers=1, heads=2, ffn=64),
            self_prior=SelfPriorConfig(16, 1, 2, 32),
            actor_critic=replace(agent.actor_critic, bins=63),
        )
    if agent.kind == "paper":
        agent = replace(agent, tokenizer=CategoricalTokenizerConfig(4, 8, 128, 4, 8))
    training = replace(
        training,
        schedule=replace(training.schedule, policy_acts_from_episode=4, **_SHORT),
        batch=replace(training.batch, **batch),
        replay_episodes=64,
    )
    return replace(preset, agent=agent, training=training)


_SMOKE = _small(SMOKE)
_SYMBOLIC = _small(SYMBOLIC, sequences=4, sequence_frames=24, self_prior_frames=32, imagined=16)
_PAPER = _small(PAPER, sequences=4, sequence_frames=24, self_prior_frames=32, diet_window=8, imagined=16)

ITERATIONS = {"smoke": 4, "symbolic": 3, "paper": 3, "buffer/swift": 3, "buffer/paper": 3}
"""Of each run. smoke: one of the tokenizer and three behind it."""
LEARNS = {
    "smoke": tuple(OPTIMIZERS),
    "buffer/swift": ("world_model", "self_prior", "policy", "value", "expected_g"),
    "buffer/paper": ("world_model", "self_prior", "policy", "value"),
}


def training(name: str, rates: dict[str, float] | None = None) -> Training:
    """A run that has not begun. rates: factors on learning rates."""
    presets = {"smoke": _SMOKE, "symbolic": _SYMBOLIC, "paper": _PAPER}
    preset = faster(presets[name.removeprefix("buffer/").replace("swift", "smoke")], rates or {})
    return _on_fixed_buffer(preset) if name.startswith("buffer/") else _born(preset)


def _on_fixed_buffer(preset: Config) -> Training:
    """A run whose episodes are random numbers: no simulator, and no tokenizer where it is frozen."""
    torch.manual_seed(0)
    frozen, length = preset.training.tokenizer_phase is not None, FRAMES_PER_EPISODE
    senses = {"vision": SenseSpec("image", 64), "proprioception": SenseSpec("vector", 12)}
    agent = build_agent(preset.agent, senses, 12)
    agent.tokenizer.requires_grad_(not frozen)
    learner = Learner(agent, build_sources(agent, preset.training.batch.imagined), preset.training)
    frame = {"vision": ((64, 64, 3), torch.uint8), "proprioception": ((12,), torch.float32)}
    kept = {"tokens": ((agent.spec.K,), torch.uint8)} if frozen else frame
    kind = torch.float16 if frozen else torch.float32
    memory = ReplayBuffer(kept, 12, length, preset.training.replay_episodes, "cpu", kind)
    draw = torch.Generator().manual_seed(5)

    def episodes(first: bool, n: int = 8) -> Episodes:
        """Half of them by the policy, but for the first time; some are handed over to babbling."""
        if frozen:
            each = [torch.randint(0, c, (n, length), generator=draw) for c in agent.spec.classes]
            seen = {"tokens": torch.stack(each, -1)}
        else:
            image = torch.randint(0, 256, (n, length, 64, 64, 3), generator=draw, dtype=torch.uint8)
            seen = {"vision": image, "proprioception": torch.rand((n, length, 12), generator=draw) * 2 - 1}
        policy = (torch.arange(n) >= n // 2) & (not first)
        handover = torch.where(policy, torch.tensor([length, 40, 60, length]).repeat(n // 4), 0)
        action, marked = torch.rand((n, length, 12), generator=draw) * 2 - 1, torch.arange(n) % 2 == 1
        return Episodes(seen, action, torch.zeros(n, length, dtype=torch.bool), policy, marked, handover)

    def iterate() -> dict[str, float]:
        index = learner.steps // 4
        memory.extend(episodes(first=index == 0))
        return learner.learn(
            memory, Iteration(index, "training", 8, 8, 4, _STAGES, True, False, False, index / 3)
        )

    return Training(learner, lambda: memory, iterate)


class OnPolicy(NamedTuple):
    """What the policy did in the newest episodes, as value and policy learn from it: (B, T, ...)."""

    fields: dict[str, Tensor]
    lambda_: Tensor  # (B, T-1)
    last: Tensor  # (B, T-1) bool: the policy's last step before babbling takes over
    ratio: Tensor  # (B, T-1): today's policy against the one that acted


def _source(run: Training) -> OnPolicySource:
    return next(source for source in run.learner.sources if isinstance(source, OnPolicySource))


@torch.no_grad()
def on_policy(run: Training, seed: int = 0) -> OnPolicy:
    """The source's batch, as the next train step would see it."""
    torch.manual_seed(seed)
    found = _source(run).rollout(run.agent, run.buffer())
    real = found.rollout
    log_prob = run.agent.policy(real.tokens[:, :-1], real.hidden[:, :-1]).log_prob_of(real.action)
    fields = {
        "tokens": real.tokens,
        "hidden": real.hidden,
        "cost": real.cost,
        "action": real.action,
        "old_log_prob": found.old_log_prob,
        "old_value": found.old_value,
        "weight": real.weight,
        "continues": real.lambda_ / LAMBDA,
    }
    torch.manual_seed(seed)
    batch = run.buffer().newest(
        len(real.tokens), real.tokens.shape[1], real.tokens.shape[1] - run.agent.context
    )
    frame = batch.start[:, None] + torch.arange(real.action.shape[1])
    last = frame + 1 == batch.handover[:, None]
    return OnPolicy(fields, real.lambda_, last, (log_prob - found.old_log_prob).exp())


def on_policy_losses(run: Training, fields: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Of policy and value, on a batch as `on_policy` gives it."""
    f = fields
    real = Rollout(f["tokens"], f["hidden"], f["action"], f["cost"], LAMBDA * f["continues"], f["weight"])
    policy, value = _source(run).losses(run.agent, RealRollout(real, f["old_log_prob"], f["old_value"]))
    return policy.value, value.value


@torch.no_grad()
def begin_iteration(run: Training) -> None:
    """The policy that acts is the one that learns, at an iteration's first step."""
    _source(run).begin_iteration(run.agent)


# Shipped agents --------------------------------------------------------------------------------------------


class Shipped:
    """The trained agent of a body."""

    def __init__(self, body: str) -> None:
        self._subject = candidates.load(Path(body))
        self._agent = self._subject.agent
        self.context = self._agent.config.imagination.context
        self.horizon = self._agent.config.imagination.horizon

    @torch.no_grad()
    def encode(self, observation: Arrays) -> Tensor:
        """Tokens (N, K)."""
        return encode(self._agent, {OBSERVATION[k]: v for k, v in observation.items()}, sample=False)

    @torch.no_grad()
    def decode(self, tokens: Tensor) -> dict[str, Tensor]:
        """What tokens (N, K) look and feel like."""
        return self._agent.decode(tokens)

    @torch.no_grad()
    def predict(self, tokens: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden (B, T-1, D) and log-probabilities (B, T-1, K, C) of each next frame, in one pass."""
        model = self._agent.world_model
        hidden = model(tokens[:, :-1], action[:, :-1])
        return hidden, model.log_probs(hidden)

    @torch.no_grad()
    def step_by_step(self, tokens: Tensor, action: Tensor, first: int) -> Tensor:
        """The same hidden states by a prefill of `first` frames and then single steps."""
        model, steps = self._agent.world_model, tokens.shape[1] - 1
        cache = model.init_cache(len(tokens), steps)
        found = [model.prefill(tokens[:, :first], action[:, :first], cache)]
        for t in range(first, steps):
            found.append(model.step(tokens[:, t], action[:, t], cache, torch.tensor([t]))[:, None])
        return torch.cat(found, 1)

    @torch.no_grad()
    def dream(self, tokens: Tensor, action: Tensor, seed: int) -> dict[str, Tensor]:
        """Imagined from a context (B, T, K), (B, T-1, A)."""
        torch.manual_seed(seed)
        found = imagine(self._agent.world_model, self._agent.policy, tokens, action, self.horizon)
        return {"tokens": found.tokens, "hidden": found.hidden, "action": found.action}

    @torch.no_grad()
    def self_prior(self, tokens: Tensor) -> Tensor:
        """Log-probability of each token, (..., K)."""
        return self._agent.self_prior.per_token_log_prob(tokens)

    @torch.no_grad()
    def free_energy(self, tokens: Tensor) -> Tensor:
        """G, (...)."""
        return self._agent.expected_free_energy(tokens)

    @torch.no_grad()
    def policy(self, tokens: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation before tanh, (..., A)."""
        choice = self._agent.policy(tokens, hidden)
        return choice.mean, choice.std

    def exam(self, condition: str, runs: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Each run's outcome; and, before a mirror, its frames (N, T, ...) and actions."""
        setup, player = replace(self._subject.setup, threads=1), TrainedAgent(self._agent)
        worlds = conditions.get(condition).make_envs(setup, runs, "cpu")
        keys = RunKey("golden", "-", setup.body, condition, 0, "-", "-")
        tables, recording = run_condition(
            worlds, player, list(range(runs)), keys, sham=condition == "sham", view_every=0, record=True
        )
        assert recording is not None
        kept = {
            name: recording.senses[key].numpy() for name, key in OBSERVATION.items() if key in setup.senses
        }
        outcome = {name: tables.episodes[key].to_numpy() for name, key in EXAM.items()}
        return outcome, kept | {"action": recording.actions}


# On a GPU --------------------------------------------------------------------------------------------------


def gpu_training(phase: str, device: str, eager: bool, toy: bool) -> Training:
    """`tokenizer`: swift's own phase; `agent`: everything behind the shipped tokenizer, open from the first
    episode. swift's networks and batches, fewer episodes and steps. toy: smoke's, to try it on a CPU."""
    preset = _SMOKE if toy else SWIFT
    training, n = preset.training, 4 if toy else 64
    schedule = replace(
        training.schedule,
        episodes=3 * n,
        episodes_per_iteration=n,
        steps_per_iteration=n,
        world_model_from_episode=0,
        self_prior_from_episode=0,
        policy_acts_from_episode=0,
        policy_from_episode=0,
    )
    assert training.tokenizer_phase is not None
    tokenizer_phase = replace(
        training.tokenizer_phase,
        iterations=3,
        first_episodes=4 if toy else 128,
        episodes_per_iteration=4 if toy else 32,
        steps_per_iteration=4 if toy else 100,
    )
    training = replace(training, schedule=schedule, tokenizer_phase=tokenizer_phase, cuda_graph=not eager)
    return _born(replace(preset, training=training), device, own_tokenizer=phase == "tokenizer")
