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

from mirrormark.agent import objective
from mirrormark.agent.agent import Agent
from mirrormark.agent.dream import dream
from mirrormark.agent.objective import OnPolicyBatch, on_policy_batch
from mirrormark.agent.senses import SenseSpec
from mirrormark.agent.tokenizer import TokenizerConfig
from mirrormark.envs.babbling import Babbling, BabblingConfig
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.exam import candidates, conditions
from mirrormark.exam.agents import TrainedAgent
from mirrormark.exam.protocol import RunKey, run_condition
from mirrormark.presets import PAPER, SMOKE, SWIFT, SYMBOLIC, Config
from mirrormark.training.learner import Learner
from mirrormark.training.replay_buffer import Episodes, ReplayBuffer, ReplayConfig
from mirrormark.training.rollout import FRAMES_PER_EPISODE, encode
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
    "expected_g_gradient": "expected_g_gradient",
    "policy_loss": "policy",
    "policy_loss_on_policy": "policy_on_policy",
    "policy_gradient": "policy_gradient",
    "entropy": "entropy",
    "clipped": "clipped",
    "imagined_cost": "cost_dreamed",
    "imagined_cost_fall": "cost_dreamed_fall",
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
    "expected_g": "expected_g",
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
ON_POLICY = {
    "tokens": "tokens",
    "hidden": "hidden",
    "cost": "cost",
    "action": "action",
    "old_log_prob": "log_prob",
    "old_value": "value",
    "weight": "weight",
    "continues": "goes_on",
}
"""Fields that value and policy learn from, in the order in which they are handed over."""
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
        states = [m for d in self.learner.optimizers.values() for m in d.optimizer.state.values()]
        return [m[name] for m in states for name in ("exp_avg", "exp_avg_sq")]


def faster(preset: Config, rates: dict[str, float]) -> Config:
    """The preset with factors on the learning rates of some optimisers."""
    learner = preset.training.learner
    for name, factor in rates.items():
        own = getattr(learner, OPTIMIZERS[name])
        last = own.final_learning_rate
        own = replace(
            own,
            learning_rate=factor * own.learning_rate,
            final_learning_rate=None if last is None else factor * last,
        )
        learner = replace(learner, **{OPTIMIZERS[name]: own})
    return replace(preset, training=replace(preset.training, learner=learner))


def _born(preset: Config, device: str = "cpu", own_tokenizer: bool = True) -> Training:
    """A whole training run, from its first iteration on."""
    tokenizer = None if own_tokenizer else load_tokenizer(shipped(f"{preset.env.body}-tokenizer") or "")
    agent, training = preset.agent, preset.training
    if tokenizer is not None:
        agent = replace(agent, tokenizer=replace(tokenizer.config, dead_zone=agent.tokenizer.dead_zone))
        training = replace(
            training, tokenizer_from="shipped", schedule=replace(training.schedule, tokenizer_iterations=0)
        )
    run = Trainer(replace(preset.env, threads=1 if device == "cpu" else None), agent, training, 0, device)
    if tokenizer is not None:
        run.take_tokenizer(tokenizer)
    laps = run.schedule.iterations()
    return Training(run.learner, lambda: run.buffer, lambda: run.run_iteration(next(laps)))


_STAGES = ("world_model", "self_prior", "policy")
_NARROW = TokenizerConfig(variables=4, classes=8, embedding=128, channels=4, vector_hidden=8)
_OPEN = {"world_model_from_episode": 0, "self_prior_from_episode": 0, "policy_from_episode": 4}
_SHORT = {"episodes": 12, "episodes_per_iteration": 4, "steps_per_iteration": 4, **_OPEN}

_SMOKE = replace(SMOKE, training=replace(SMOKE.training, schedule=replace(SMOKE.training.schedule, **_SHORT)))
_SYMBOLIC = replace(
    SYMBOLIC,
    agent=replace(
        SYMBOLIC.agent,
        world_model=replace(SYMBOLIC.agent.world_model, width=32, layers=1, heads=2, ffn=64),
        self_prior=replace(SYMBOLIC.agent.self_prior, width=16, layers=1, heads=2, ffn=32),
        value=replace(SYMBOLIC.agent.value, bins=63),
    ),
    training=replace(
        SYMBOLIC.training,
        schedule=replace(SYMBOLIC.training.schedule, **_SHORT),
        replay=ReplayConfig(capacity_episodes=64),
        learner=replace(
            SYMBOLIC.training.learner,
            sequences=4,
            sequence_frames=24,
            self_prior_frames=32,
            dreams=16,
            on_policy_windows=4,
        ),
    ),
)
_PAPER = replace(
    PAPER,
    agent=replace(
        PAPER.agent,
        tokenizer=_NARROW,
        world_model=replace(PAPER.agent.world_model, width=32, layers=1, heads=2, ffn=64),
        self_prior=replace(PAPER.agent.self_prior, width=16, layers=1, heads=2, ffn=32),
        value=replace(PAPER.agent.value, bins=63),
    ),
    training=replace(
        PAPER.training,
        schedule=replace(PAPER.training.schedule, **_SHORT),
        replay=ReplayConfig(capacity_episodes=64),
        learner=replace(
            PAPER.training.learner, sequences=4, sequence_frames=24, self_prior_frames=32, dreams=16
        ),
    ),
)
"""`paper` with small networks and batches, open early."""

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
    tokens, length = preset.training.frozen_tokenizer, FRAMES_PER_EPISODE
    senses = {"vision": SenseSpec("image", 64), "proprioception": SenseSpec("vector", 12)}
    agent = Agent(preset.agent, senses, 12)
    learner = Learner(agent, preset.training.learner, tokens)
    frame = {"vision": ((64, 64, 3), torch.uint8), "proprioception": ((12,), torch.float32)}
    kept = {"tokens": ((agent.spec.K,), torch.uint8)} if tokens else frame
    kind = torch.float16 if tokens else torch.float32
    memory = ReplayBuffer(kept, 12, length, preset.training.replay, "cpu", kind)
    draw = torch.Generator().manual_seed(5)

    def episodes(first: bool, n: int = 8) -> Episodes:
        """Half of them by the policy, but for the first time; some are handed over to babbling."""
        if tokens:
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


@torch.no_grad()
def on_policy(run: Training, seed: int = 0) -> OnPolicy:
    """The source's batch, as the next train step would see it."""
    agent, learner, c = run.agent, run.learner, run.learner.config
    past = agent.longest_past
    torch.manual_seed(seed)
    draw = run.buffer().newest(c.on_policy_windows, past + 1, past + 1 - agent.config.imagination.context)
    tokens = draw.observation["tokens"].long()
    batch = on_policy_batch(
        agent, learner.behavior_policy, learner.old_value, tokens, draw.action, draw.start, draw.handover
    )
    log_prob = agent.policy(
        agent.world_model.features(batch.tokens)[:, :-1], batch.hidden[:, :-1]
    ).log_prob_of(batch.action)
    frame = draw.start[:, None] + torch.arange(batch.action.shape[1])
    fields = {name: getattr(batch, key) for name, key in ON_POLICY.items()}
    ratio = (log_prob - batch.log_prob).exp()
    lambda_ = objective.LAMBDA * batch.goes_on
    return OnPolicy(fields, lambda_, frame + 1 == draw.handover[:, None], ratio)


def on_policy_losses(run: Training, fields: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Of policy and value, on a batch as `on_policy` gives it."""
    batch = OnPolicyBatch(*(fields[name] for name in ON_POLICY))
    policy, value = objective._on_policy_objectives(run.agent, batch, 0.0)
    return policy.loss, value.loss


@torch.no_grad()
def begin_iteration(run: Training) -> None:
    """The policy that acts is the one that learns, at an iteration's first step."""
    run.learner.behavior_policy.load_state_dict(run.agent.policy.state_dict())
    run.learner.old_value.load_state_dict(run.agent.value.state_dict())


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
        return hidden, model.logits(hidden, tokens[:, :-1], tokens[:, 1:])

    @torch.no_grad()
    def step_by_step(self, tokens: Tensor, action: Tensor, first: int) -> Tensor:
        """The same hidden states by a prefill of `first` frames and then single steps."""
        model, steps = self._agent.world_model, tokens.shape[1] - 1
        cache = model.init_cache(len(tokens), steps)
        hidden, cache = model.prefill(tokens[:, :first], action[:, :first], cache)
        found = [hidden]
        for t in range(first, steps):
            hidden, cache = model.step(tokens[:, t], action[:, t], cache, t)
            found.append(hidden[:, None])
        return torch.cat(found, 1)

    @torch.no_grad()
    def dream(self, tokens: Tensor, action: Tensor, seed: int) -> dict[str, Tensor]:
        """Imagined from a context (B, T, K), (B, T-1, A)."""
        torch.manual_seed(seed)
        i, agent = self._agent.config.imagination, self._agent
        found = dream(agent.world_model, agent.policy, tokens, action, i.horizon, i.dropout)
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

    def without_trace(self, hidden: Tensor) -> Tensor | None:
        """The hidden state with its memory trace blanked; None: it has none."""
        traces = self._agent.world_model.trace_size
        if not traces:
            return None
        hidden = hidden.clone()
        hidden[..., -traces:] = 0
        return hidden

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
    schedule = replace(
        preset.training.schedule,
        episodes=3 * (4 if toy else 64),
        episodes_per_iteration=4 if toy else 64,
        steps_per_iteration=4 if toy else 64,
        world_model_from_episode=0,
        self_prior_from_episode=0,
        self_prior_until_episode=None,
        policy_from_episode=0,
        tokenizer_iterations=3,
        tokenizer_first_episodes=4 if toy else 128,
        tokenizer_episodes_per_iteration=4 if toy else 32,
        tokenizer_steps_per_iteration=4 if toy else 100,
    )
    learner = replace(preset.training.learner, cuda_graph=not eager, compile=False if eager else None)
    preset = replace(preset, training=replace(preset.training, schedule=schedule, learner=learner))
    return _born(preset, device, own_tokenizer=phase == "tokenizer")
