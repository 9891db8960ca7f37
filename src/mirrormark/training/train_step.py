"""One train step: every loss from the networks as they were, one backward pass, then every optimiser."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor

from mirrormark.agent import losses as L
from mirrormark.agent.agent import Agent
from mirrormark.agent.losses import Loss
from mirrormark.agent.numerics import matmul_precision
from mirrormark.config import TrainingConfig
from mirrormark.training.behavior import BehaviorSource
from mirrormark.training.optim import Optimizer
from mirrormark.training.replay_buffer import ReplayBuffer

STAGES = ("tokenizer", "world_model", "self_prior", "policy")


class TrainStep:
    """Device work only, so that a CUDA graph can hold it. All random numbers are the device's default
    ones."""

    def __init__(
        self,
        agent: Agent,
        sources: list[BehaviorSource],
        config: TrainingConfig,
        wrap: Callable = lambda function: function,
    ) -> None:
        """wrap: compiles a function, or leaves it as it is."""
        self.agent, self.sources, self.config = agent, sources, config
        self.optimizers = {
            name: Optimizer(name, parameters, getattr(config.optim, name), wrap)
            for name, parameters in agent.groups().items()
        }
        self._world_model_loss, self._self_prior_loss = wrap(L.world_model_loss), wrap(L.self_prior_loss)
        self.metrics = MetricSums(agent.device)

    def __call__(self, buffer: ReplayBuffer, stages: tuple[str, ...]) -> None:
        """One update of every open stage."""
        with self.precision():
            self._update(self.losses(buffer, stages))

    def losses(self, buffer: ReplayBuffer, stages: tuple[str, ...]) -> dict[str, Loss]:
        """Of each group of parameters; they share none."""
        agent, b, losses = self.agent, self.config.batch, {}
        if "tokenizer" in stages:  # a phase of its own
            frames = buffer.frames(b.tokenizer_frames, b.tokenizer_marked_share, babbling_only=True)
            losses["tokenizer"] = agent.tokenizer.loss(frames)[1]
        if "world_model" in stages:
            batch = buffer.sequences(b.sequences, b.sequence_frames)  # obs (B, T, ...), action (B, T, A)
            encoding, reconstruction = agent.encode_with_loss(batch.observation)
            losses["world_model"] = reconstruction + self._world_model_loss(
                agent.world_model, encoding, batch.action
            )
            drive = agent.drive.loss(agent, encoding.tokens, batch.action, batch.start, batch.handover)
            if drive is not None:
                losses["drive"] = drive
        if "self_prior" in stages:
            diet = buffer.diet(b.self_prior_frames, b.diet_window, b.diet_marked_share, b.diet_babbling_only)
            tokens = agent.tokens_of(diet)  # (N, K)
            losses["self_prior"] = self._self_prior_loss(agent.self_prior, agent.ema.self_prior, tokens)
        if "policy" in stages:
            losses["policy"], losses["value"] = self._behavior(buffer)
        return losses

    def _behavior(self, buffer: ReplayBuffer) -> tuple[Loss, Loss]:
        """What all sources say together, each in its share."""
        policy = value = None
        for source in self.sources:
            actor, critic = source.losses(self.agent, source.rollout(self.agent, buffer))
            actor, critic = source.policy_share * actor, source.value_share * critic
            policy = actor if policy is None else policy + actor
            value = critic if value is None else value + critic
        assert policy is not None and value is not None
        return policy, value

    def _update(self, losses: dict[str, Loss]) -> None:
        for name in losses:
            self.optimizers[name].zero_grad()
        torch.stack([loss.value.float() for loss in losses.values()]).sum().backward()
        skipped = torch.zeros((), device=self.agent.device)
        for name, loss in losses.items():
            norm = self.optimizers[name].step(loss.value)  # ZClip; skipped on the device if not finite
            self.metrics.add(name, loss.metrics | {f"{name}_gradient": norm})
            skipped = skipped + self.optimizers[name].skipped
        self.agent.update_ema(losses)
        self.metrics.count(skipped > 0)

    @contextmanager
    def precision(self):
        """Of matrix products and convolutions on a GPU."""
        p, kind = self.config.precision, self.agent.device.type
        with ExitStack() as stack:
            stack.enter_context(matmul_precision(p != "fp32") if kind == "cuda" else nullcontext())
            half = p == "bf16" and kind == "cuda"
            # No cast is kept: made without gradient, it would serve where gradient is needed.
            stack.enter_context(torch.autocast(kind, torch.bfloat16, enabled=half, cache_enabled=False))
            yield


class MetricSums:
    """Means over an iteration, summed on the device; read once, at its end."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._names: dict[str, tuple[str, ...]] = {}
        self._sums: dict[str, Tensor] = {}
        self.skipped, self.in_a_row, self.longest_row = (torch.zeros((), device=device) for _ in range(3))

    def add(self, group: str, metrics: dict[str, Tensor]) -> None:
        values = torch.stack([value.detach().float() for value in metrics.values()])
        if group not in self._sums:
            self._names[group], self._sums[group] = tuple(metrics), torch.zeros_like(values)
        self._sums[group].add_(values.nan_to_num_(0.0, 0.0, 0.0))

    def count(self, skipped: Tensor) -> None:
        """Whether the step was skipped by any optimiser."""
        bad = skipped.float()
        self.skipped.add_(bad)
        self.in_a_row.copy_((self.in_a_row + 1) * bad)
        self.longest_row.copy_(torch.maximum(self.longest_row, self.in_a_row))

    def begin(self) -> None:
        for total in (*self._sums.values(), self.skipped, self.longest_row):
            total.zero_()

    def read(self, groups: list[str], steps: int) -> dict[str, float]:
        """Means over the iteration's steps of these groups. One host synchronisation."""
        there = [group for group in groups if group in self._sums]
        counts = torch.stack([self.skipped, self.longest_row])
        packed = torch.cat([*(self._sums[group] for group in there), counts]).tolist()
        names = [name for group in there for name in self._names[group]]
        metrics = {name: total / steps for name, total in sorted(zip(names, packed))}
        return metrics | {"skipped_steps": packed[-2], "skipped_in_a_row": packed[-1]}
