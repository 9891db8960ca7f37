"""One train step: world model, self-prior, imagination, policy, value; no host synchronisation in it.

In one step every part learns from the others as they were when it began. So dreaming, a long row of small
work, need not wait for the others: in a captured step they learn on a second stream of the GPU meanwhile.

Two ways of training share the code. Joint (the paper's): memory holds frames, tokenizer and dynamics learn
together. Tokens (swift, ideal): the tokenizer learned first and is frozen, memory holds tokens, and no
convolution is left.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mirrormark.agent.agent import Agent
from mirrormark.agent.dream import Dream, Dreamer
from mirrormark.agent.numerics import tensor_cores
from mirrormark.agent.objective import ExpectedGBatch, Objective, OnPolicyBatch
from mirrormark.agent.tokenizer import Encoding
from mirrormark.training.objectives import Computations
from mirrormark.training.optim import RULES, Optimizer
from mirrormark.training.replay_buffer import Batch, ReplayBuffer
from mirrormark.training.side_stream import SideStream

if TYPE_CHECKING:
    from mirrormark.training.learner import LearnerConfig


class TrainStep:
    """Holds the agent and all that changes it in one step."""

    def __init__(self, agent: Agent, config: LearnerConfig, frozen_tokenizer: bool) -> None:
        self.agent, self.config, self.frozen_tokenizer = agent, config, frozen_tokenizer
        self.device = next(agent.world_model.parameters()).device
        tokenizer = [] if frozen_tokenizer else list(agent.tokenizer.parameters())
        parts = {
            "world_model": [*tokenizer, *agent.world_model.parameters()],
            "self_prior": agent.self_prior.parameters(),
            "policy": agent.policy.parameters(),
            "value": agent.value.parameters(),
        }
        if agent.expected_g is not None:
            parts["expected_g"] = agent.expected_g.parameters()
        if frozen_tokenizer and any(True for _ in agent.tokenizer.parameters()):
            parts["tokenizer"] = agent.tokenizer.parameters()
        self.optimizers = {
            name: Optimizer(parameters, getattr(config, name), RULES[name], self.compiles)
            for name, parameters in parts.items()
        }
        self.skipped = torch.zeros((), device=self.device)
        self.in_a_row = torch.zeros((), device=self.device)
        self.longest_row = torch.zeros((), device=self.device)
        self._names: dict[str, tuple[str, ...]] = {}  # of each descent's metrics
        self._sums: dict[str, Tensor] = {}  # of them over the iteration, in one row
        self._do = Computations(self.compiles)
        self.behavior_policy = copy.deepcopy(agent.policy).requires_grad_(False)
        """The policy that moved the body lately."""
        self.old_value = copy.deepcopy(agent.value).requires_grad_(False)
        """What was expected of it then."""
        self._side_stream = SideStream(self.device)
        half = torch.bfloat16 if self._half else torch.float32
        self._dreamer = Dreamer(agent.world_model, agent.policy, half) if self.compiles else None

    @property
    def _half(self) -> bool:
        return self.device.type == "cuda" and self.config.precision == "bf16"

    @property
    def uses_cuda_graph(self) -> bool:
        """Whether the step is replayed from a CUDA graph."""
        return self.device.type == "cuda" and self.config.cuda_graph

    @property
    def cuda_graph_rollout(self) -> bool:
        """Whether new episodes are seen and acted from CUDA graphs."""
        return self.device.type == "cuda" and self.config.cuda_graph_rollout

    @property
    def overlaps(self) -> bool:
        """Whether parts of it run side by side."""
        return self.uses_cuda_graph and self.config.overlap is not False

    @property
    def compiles(self) -> bool:
        """Whether the step is compiled."""
        return self.uses_cuda_graph if self.config.compile is None else self.config.compile

    def train_step(self, buffer: ReplayBuffer, stages: tuple[str, ...]) -> None:
        """One step of every open stage, in order. All random numbers are the device's default ones."""
        with tensor_cores() if self._half else nullcontext():
            self._train_step(buffer, stages)

    def _train_step(self, buffer: ReplayBuffer, stages: tuple[str, ...]) -> None:
        beside, skipped = self._side_stream, [torch.zeros((), device=self.device)]
        if "tokenizer" in stages:
            skipped.append(self._tokenizer_step(buffer))
        if self._dreamer is not None and "policy" in stages:
            self._dreamer.follow()
        begun = rated = beside.mark()
        with beside.work():
            beside.wait(begun)
            batch, encoding = self._world_model_batch(buffer) if "world_model" in stages else (None, None)
            ready = beside.mark()
            world_model = None if batch is None else self._world_model_objective(buffer, batch, encoding)
            expected_g_batch = None if batch is None else self._expected_g_batch(batch, encoding)
            diet = self._diet(buffer) if "self_prior" in stages else None
        looked = None
        if "policy" in stages:
            on_policy = self._on_policy(buffer)
            looked, seen = beside.mark(), (None, None)
            if batch is not None and encoding is not None:
                seen = encoding.tokens.detach(), batch.action
                beside.wait(ready)
            bad, rated = self._policy_step(on_policy, *self._contexts(buffer, *seen))
            skipped.append(bad)
        with beside.work():
            if world_model is not None:
                skipped.append(
                    self._backward_and_step(looked if self._dreams_apart else rated, world_model=world_model)
                )
            if expected_g_batch is not None:
                with self._autocast():
                    expected_g = self._do.expected_g(self.agent, expected_g_batch)
                skipped.append(self._backward_and_step(rated, expected_g=expected_g))
            if diet is not None:
                skipped.append(self._self_prior_step(diet, rated))
            learned = beside.mark()
        beside.wait(learned)
        self._count(torch.stack(skipped).sum())

    @property
    def _dreams_apart(self) -> bool:
        """Whether a dream reads nothing that the world model's step changes."""
        return self._dreamer is not None and (
            self.frozen_tokenizer or self.agent.world_model.posture_renderer is None
        )

    def _count(self, skipped: Tensor) -> None:
        bad = (skipped > 0).float()
        self.skipped.add_(bad)
        self.in_a_row.copy_((self.in_a_row + 1) * bad)
        self.longest_row.copy_(torch.maximum(self.longest_row, self.in_a_row))

    def _autocast(self, dreaming: bool = False) -> torch.autocast:
        # A dream reads the same weights at every step, cast once. No cast is kept elsewhere: made without
        # gradient, it would serve where gradient is needed.
        return torch.autocast(
            self.device.type, torch.bfloat16, enabled=self._half, cache_enabled=dreaming and not self.compiles
        )

    def _backward_and_step(self, mark: torch.cuda.Event | None = None, /, **objectives: Objective) -> Tensor:
        """One backward pass for all, which share no parameter; then, when the mark is reached, each descent's
        own step."""
        for name in objectives:
            self.optimizers[name].zero_grad()
        torch.stack([objective.loss for objective in objectives.values()]).sum().backward()
        self._side_stream.wait(mark)
        skipped = [self._take(name, objective) for name, objective in objectives.items()]
        return torch.stack(skipped).sum()

    def _take(self, name: str, objective: Objective) -> Tensor:
        norm = self.optimizers[name].step(objective.loss)
        metrics = objective.metrics | {f"{name}_gradient": norm}
        values = torch.stack([value.detach().float() for value in metrics.values()])
        if name not in self._sums:
            self._names[name], self._sums[name] = tuple(metrics), torch.zeros_like(values)
        self._sums[name].add_(values.nan_to_num_(0.0, 0.0, 0.0))
        return self.optimizers[name].skipped

    def _tokenizer_step(self, buffer: ReplayBuffer) -> Tensor:
        frames = buffer.frames(self.config.tokenizer_frames, self.config.tokenizer_marked_share)
        with self._autocast():
            objective, _ = self._do.tokenizer(self.agent, frames)
        return self._backward_and_step(tokenizer=objective)

    def _world_model_batch(self, buffer: ReplayBuffer) -> tuple[Batch, Encoding | None]:
        """Sequences for the world model to learn from. Where memory holds frames, also their code, from whose
        tokens dreams start: they need not wait for the losses."""
        batch = buffer.sequences(self.config.sequences, self.config.sequence_frames)
        if self.frozen_tokenizer:
            return batch, None
        with self._autocast():
            return batch, self._do.encoding(self.agent, batch.observation)

    def _world_model_objective(
        self, buffer: ReplayBuffer, batch: Batch, encoding: Encoding | None
    ) -> Objective:
        if encoding is not None:
            with self._autocast():
                return self._do.joint(self.agent, batch.observation, batch.action, encoding)[0]
        tokens = batch.observation["tokens"].long()
        with self._autocast():
            return self._do.frozen(self.agent, tokens, batch.action)

    def _diet(self, buffer: ReplayBuffer) -> Tensor:
        """Tokens for the self-prior to learn from."""
        c = self.config
        return self._tokens_of(buffer.frames(c.self_prior_frames, c.diet_marked_share, c.diet_random_only))

    def _self_prior_step(self, tokens: Tensor, mark: torch.cuda.Event | None) -> Tensor:
        with self._autocast():
            objective = self._do.self_prior(self.agent, tokens)
        skipped = self._backward_and_step(mark, self_prior=objective)
        self.agent.update_ema(self_prior=True, value=False)
        return skipped

    def _on_policy(self, buffer: ReplayBuffer) -> OnPolicyBatch | None:
        """What really came of the policy lately."""
        w, past = self.agent.config.losses, self.agent.longest_past
        if not (w.value_on_policy_share or w.policy_on_policy_share) or self.config.cost == "none":
            return None
        # So many more windows begin with the episode that its first frames count no less than later ones.
        early = past + 1 - self.agent.config.imagination.context
        batch = buffer.newest(self.config.on_policy_windows, past + 1, early)
        tokens = self._tokens_of(batch.observation)
        with torch.no_grad(), self._autocast():
            then = self.behavior_policy, self.old_value
            return self._do.on_policy(self.agent, *then, tokens, batch.action, batch.start, batch.handover)

    def _expected_g_batch(self, batch: Batch, encoding: Encoding | None) -> ExpectedGBatch | None:
        """What expected G learns from: the world model's own sequences."""
        if self.agent.expected_g is None:
            return None
        tokens = self._tokens_of(batch.observation) if encoding is None else encoding.tokens.detach()
        with torch.no_grad(), self._autocast():
            return self._do.expected_g_batch(self.agent, tokens, batch.action, batch.start, batch.handover)

    def _policy_step(
        self, on_policy: OnPolicyBatch | None, past: Tensor, past_action: Tensor
    ) -> tuple[Tensor, torch.cuda.Event | None]:
        """Learns from a dream; also marks when it was dreamed and rated: from then on the parts that it came
        from may change."""
        buffers = list(self.agent.return_range.buffers())
        before = [buffer.clone() for buffer in buffers]
        with self._autocast(dreaming=True):
            dreamed = self._dream(past, past_action[:, :-1])
        with torch.no_grad(), self._autocast():
            cost = None if self.config.cost == "none" else self._do.costs(self.agent, dreamed)
        rated = self._side_stream.mark()
        with self._autocast():
            if cost is None:
                policy, value = self._do.indifferent(self.agent, dreamed)
            else:
                policy, value = self._do.behaviour(self.agent, dreamed, cost, on_policy)
        for buffer, old in zip(buffers, before):
            buffer.copy_(torch.where(buffer.isfinite(), buffer, old))
        skipped = self._backward_and_step(policy=policy, value=value)
        self.agent.update_ema(self_prior=False, value=True)
        return skipped, rated

    def _dream(self, past: Tensor, past_action: Tensor) -> Dream:
        if self._dreamer is None:
            return self.agent.dream(past, past_action)
        i = self.agent.config.imagination
        return self._dreamer(past, past_action, i.horizon, i.dropout)

    def _contexts(
        self, buffer: ReplayBuffer, tokens: Tensor | None, action: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Real pasts for the dreams, from anywhere in memory: no label chooses them. Where frames would have
        to be encoded again, windows of the world batch serve, as in the public code."""
        context, dreams = self.agent.config.imagination.context, self.config.dreams
        if self.frozen_tokenizer or tokens is None or action is None:
            high_cost = round(dreams * self.config.high_cost_starts_share) if self.frozen_tokenizer else 0
            batch = buffer.windows(dreams + high_cost, context)
            past = self._tokens_of(batch.observation)
            if not high_cost:
                return past, batch.action
            calm = dreams - high_cost
            with torch.no_grad(), self._autocast():
                cost = self._do.cost(self.agent, past[calm:, -1])
            chosen = torch.cat((torch.arange(calm, device=self.device), calm + cost.topk(high_cost).indices))
            return past[chosen], batch.action[chosen]
        starts = tokens.shape[1] - context + 1
        chosen = torch.randint(tokens.shape[0] * starts, (self.config.dreams,), device=self.device)
        row, start = chosen // starts, chosen % starts
        steps = start[:, None] + torch.arange(context, device=self.device)
        return tokens[row[:, None], steps], action[row[:, None], steps]

    def _tokens_of(self, observation: dict[str, Tensor]) -> Tensor:
        if self.frozen_tokenizer:
            return observation["tokens"].long()
        with torch.no_grad(), self._autocast():
            return self._do.encode(self.agent, observation)
