"""One train step: world model, self-prior, imagination, policy, value; no host synchronisation in it.

Two ways of life share the code. Joint (the paper's): memory holds frames, codec and dynamics learn together.
Tokens (swift, ideal): the codec learned first and is frozen, memory holds latents, and no convolution is
left.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mirrormark.life.descent import Descent
from mirrormark.life.memory import Memory
from mirrormark.life.objectives import cost_of, indifferent_objective, latent_of, token_objective
from mirrormark.mind.dream import Dream, Dreamer
from mirrormark.mind.mind import Mind
from mirrormark.mind.numerics import tensor_cores
from mirrormark.mind.objective import (
    Objective,
    behaviour_objective,
    codec_objective,
    self_prior_objective,
    world_objective,
)

if TYPE_CHECKING:
    from mirrormark.life.learner import LearnerConfig


class Beside:
    """A second stream of a GPU, for work that the first need not wait for; while it is off, all is done in
    order."""

    def __init__(self, device: torch.device) -> None:
        self.on = False
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def fork(self) -> None:
        """What is done beside may begin when all has been done that was asked for until now."""
        if self.on and self._stream:
            self._stream.wait_stream(torch.cuda.current_stream())

    def work(self) -> torch.cuda.StreamContext | nullcontext:
        """With this, what is asked for is done beside."""
        return torch.cuda.stream(self._stream) if self.on and self._stream else nullcontext()

    def join(self) -> None:
        """What follows waits for all that is done beside."""
        if self.on and self._stream:
            torch.cuda.current_stream().wait_stream(self._stream)


class TrainStep:
    """Holds the mind and all that changes it in one step."""

    def __init__(self, mind: Mind, config: LearnerConfig, tokens: bool) -> None:
        self.mind, self.config, self.tokens = mind, config, tokens
        self.device = next(mind.dynamics.parameters()).device
        codec = [] if tokens else list(mind.codec.parameters())
        self.descents = {
            "world": Descent([*codec, *mind.dynamics.parameters()], config.world, self.compiles),
            "self_prior": Descent(mind.self_prior.parameters(), config.self_prior, self.compiles),
            "policy": Descent(mind.policy.parameters(), config.policy, self.compiles),
            "value": Descent(mind.value.parameters(), config.value, self.compiles),
        }
        if tokens and any(True for _ in mind.codec.parameters()):
            self.descents["codec"] = Descent(mind.codec.parameters(), config.codec, self.compiles)
        self.refused = torch.zeros((), device=self.device)
        self.in_a_row = torch.zeros((), device=self.device)
        self.longest_row = torch.zeros((), device=self.device)
        self._names: dict[str, tuple[str, ...]] = {}  # of each descent's metrics
        self._sums: dict[str, Tensor] = {}  # of them over the lap, in one row
        wrap = partial(torch.compile, dynamic=False) if self.compiles else (lambda function: function)
        self._objective = {
            "codec": wrap(codec_objective),
            "joint": wrap(world_objective),
            "tokens": wrap(token_objective),
            "self_prior": wrap(self_prior_objective),
            "behaviour": wrap(behaviour_objective),
            "indifferent": wrap(indifferent_objective),
        }
        self._encode, self._cost = wrap(latent_of), wrap(cost_of)
        self._beside = Beside(self.device)
        half = torch.bfloat16 if self._half else torch.float32
        self._dreamer = Dreamer(mind.dynamics, mind.policy, half) if self.compiles else None

    @property
    def _half(self) -> bool:
        return self.device.type == "cuda" and self.config.precision == "bf16"

    @property
    def captures(self) -> bool:
        """Whether the step is replayed from a CUDA graph."""
        return self.device.type == "cuda" and self.config.capture

    @property
    def compiles(self) -> bool:
        """Whether the step is compiled."""
        return self.captures if self.config.compile is None else self.config.compile

    def train_step(self, memory: Memory, stages: tuple[str, ...]) -> None:
        """One step of every open stage, in order. All random numbers are the device's default ones."""
        with tensor_cores() if self._half else nullcontext():
            self._train_step(memory, stages)

    def _train_step(self, memory: Memory, stages: tuple[str, ...]) -> None:
        c, beside, refused = self.config, self._beside, [torch.zeros((), device=self.device)]
        if "codec" in stages:
            refused.append(self._codec_step(memory))
        if self.tokens:
            beside.fork()  # the self-prior learns from stored tokens, beside the world model
        latent = action = None
        if "world" in stages:
            for _ in range(c.world_updates):
                bad, latent, action = self._world_step(memory)
                refused.append(bad)
        if not self.tokens:
            beside.fork()  # it learns from frames that the codec of now encodes, beside the dream
        if "self_prior" in stages:
            with beside.work():
                refused += [self._self_prior_step(memory) for _ in range(c.self_prior_updates)]
        if "policy" in stages:
            refused += [self._policy_step(memory, latent, action) for _ in range(c.policy_updates)]
        beside.join()
        self._count(torch.stack(refused).sum())

    def _count(self, refused: Tensor) -> None:
        bad = (refused > 0).float()
        self.refused.add_(bad)
        self.in_a_row.copy_((self.in_a_row + 1) * bad)
        self.longest_row.copy_(torch.maximum(self.longest_row, self.in_a_row))

    def _autocast(self, dreaming: bool = False) -> torch.autocast:
        # A dream reads the same weights at every step, cast once. No cast is kept elsewhere: made without
        # gradient, it would serve where gradient is needed.
        return torch.autocast(
            self.device.type, torch.bfloat16, enabled=self._half, cache_enabled=dreaming and not self.compiles
        )

    def _descend(self, **objectives: Objective) -> Tensor:
        """One backward pass for all, which share no parameter; then each descent's own step."""
        for name in objectives:
            self.descents[name].forget()
        torch.stack([objective.loss for objective in objectives.values()]).sum().backward()
        refused = [self._take(name, objective) for name, objective in objectives.items()]
        return torch.stack(refused).sum()

    def _take(self, name: str, objective: Objective) -> Tensor:
        norm = self.descents[name].take(objective.loss)
        metrics = objective.metrics | {f"{name}_gradient": norm}
        values = torch.stack([value.detach().float() for value in metrics.values()])
        if name not in self._sums:
            self._names[name], self._sums[name] = tuple(metrics), torch.zeros_like(values)
        self._sums[name].add_(values.nan_to_num_(0.0, 0.0, 0.0))
        return self.descents[name].refused

    def _codec_step(self, memory: Memory) -> Tensor:
        frames = memory.frames(self.config.codec_frames, self.config.codec_marked_share)
        with self._autocast():
            objective, _ = self._objective["codec"](self.mind, frames)
        return self._descend(codec=objective)

    def _world_step(self, memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
        """Learns to predict; also gives the batch's latents and actions, for dreams to start from."""
        draw = memory.sequences(self.config.world_sequences, self.config.world_frames)
        if self.tokens:
            latent = draw.observation["latent"].long()
            with self._autocast():
                objective, surprise = self._objective["tokens"](self.mind, latent, draw.action)
            if memory.config.curious_share:
                memory.report_error(draw.row, surprise)
        else:
            with self._autocast():
                objective, code = self._objective["joint"](self.mind, draw.observation, draw.action)
            latent = code.latent.detach()
        return self._descend(world=objective), latent, draw.action

    def _self_prior_step(self, memory: Memory) -> Tensor:
        c = self.config
        frames = memory.frames(c.self_prior_frames, c.diet_marked_share, c.diet_random_only)
        with self._autocast():
            objective = self._objective["self_prior"](self.mind, self._latent_of(frames))
        refused = self._descend(self_prior=objective)
        self.mind.update_ema(self_prior=True, value=False)
        return refused

    def _policy_step(self, memory: Memory, latent: Tensor | None, action: Tensor | None) -> Tensor:
        if self.tokens:
            self._beside.join()  # restless pasts are chosen by the self-prior of now
        past, acted = self._contexts(memory, latent, action)
        buffers = list(self.mind.return_range.buffers())
        before = [buffer.clone() for buffer in buffers]
        with self._autocast(dreaming=True):
            dreamed = self._dream(past, acted[:, :-1])
        self._beside.join()  # by which dreams are rated
        with self._autocast():
            cost = "indifferent" if self.config.cost == "none" else "behaviour"
            policy, value = self._objective[cost](self.mind, dreamed)
        for buffer, old in zip(buffers, before):
            buffer.copy_(torch.where(buffer.isfinite(), buffer, old))
        refused = self._descend(policy=policy, value=value)
        self.mind.update_ema(self_prior=False, value=True)
        return refused

    def _dream(self, past: Tensor, acted: Tensor) -> Dream:
        if self._dreamer is None:
            return self.mind.dream(past, acted)
        i = self.mind.config.imagination
        return self._dreamer(past, acted, i.horizon, i.temperature, i.dropout)

    def _contexts(
        self, memory: Memory, latent: Tensor | None, action: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Real pasts for the dreams, from anywhere in memory: no label chooses them. Where frames would have
        to be encoded again, windows of the world batch serve, as in the public code."""
        context, dreams = self.mind.config.imagination.context, self.config.dreams
        if self.tokens or latent is None or action is None:
            restless = round(dreams * self.config.restless_share) if self.tokens else 0
            draw = memory.any_sequences(dreams + restless, context)
            past = self._latent_of(draw.observation)
            if not restless:
                return past, draw.action
            calm = dreams - restless
            with torch.no_grad(), self._autocast():
                cost = self._cost(self.mind, past[calm:, -1])
            chosen = torch.cat((torch.arange(calm, device=self.device), calm + cost.topk(restless).indices))
            return past[chosen], draw.action[chosen]
        starts = latent.shape[1] - context + 1
        chosen = torch.randint(latent.shape[0] * starts, (self.config.dreams,), device=self.device)
        row, start = chosen // starts, chosen % starts
        steps = start[:, None] + torch.arange(context, device=self.device)
        return latent[row[:, None], steps], action[row[:, None], steps]

    def _latent_of(self, observation: dict[str, Tensor]) -> Tensor:
        if self.tokens:
            return observation["latent"].long()
        with torch.no_grad(), self._autocast():
            return self._encode(self.mind, observation)
