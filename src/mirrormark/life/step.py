"""One train step: world model, self-prior, imagination, policy, value; no host synchronisation in it.

In one step every part learns from the others as they were when it began. So dreaming, a long row of small
work, need not wait for the others: in a captured step they learn on a second stream of the GPU meanwhile.

Two ways of life share the code. Joint (the paper's): memory holds frames, codec and dynamics learn together.
Tokens (swift, ideal): the codec learned first and is frozen, memory holds latents, and no convolution is
left.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mirrormark.life.beside import Beside
from mirrormark.life.descent import RULES, Descent
from mirrormark.life.memory import Draw, Memory
from mirrormark.life.objectives import Computations
from mirrormark.mind.codec import Code
from mirrormark.mind.dream import Dream, Dreamer
from mirrormark.mind.mind import Mind
from mirrormark.mind.numerics import tensor_cores
from mirrormark.mind.objective import Foretold, Lived, Objective

if TYPE_CHECKING:
    from mirrormark.life.learner import LearnerConfig


class TrainStep:
    """Holds the mind and all that changes it in one step."""

    def __init__(self, mind: Mind, config: LearnerConfig, tokens: bool) -> None:
        self.mind, self.config, self.tokens = mind, config, tokens
        self.device = next(mind.dynamics.parameters()).device
        codec = [] if tokens else list(mind.codec.parameters())
        parts = {
            "world": [*codec, *mind.dynamics.parameters()],
            "self_prior": mind.self_prior.parameters(),
            "policy": mind.policy.parameters(),
            "value": mind.value.parameters(),
        }
        if mind.outlook is not None:
            parts["outlook"] = mind.outlook.parameters()
        if tokens and any(True for _ in mind.codec.parameters()):
            parts["codec"] = mind.codec.parameters()
        self.descents = {
            name: Descent(parameters, getattr(config, name), RULES[name], self.compiles)
            for name, parameters in parts.items()
        }
        self.refused = torch.zeros((), device=self.device)
        self.in_a_row = torch.zeros((), device=self.device)
        self.longest_row = torch.zeros((), device=self.device)
        self._names: dict[str, tuple[str, ...]] = {}  # of each descent's metrics
        self._sums: dict[str, Tensor] = {}  # of them over the lap, in one row
        self._do = Computations(self.compiles)
        self.acted = copy.deepcopy(mind.policy).requires_grad_(False)
        """The policy that moved the body lately."""
        self.judged = copy.deepcopy(mind.value).requires_grad_(False)
        """What was expected of it then."""
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
    def replays(self) -> bool:
        """Whether new episodes are seen and acted from CUDA graphs."""
        return self.device.type == "cuda" and self.config.replays

    @property
    def overlaps(self) -> bool:
        """Whether parts of it run side by side."""
        return self.captures and self.config.overlap is not False

    @property
    def compiles(self) -> bool:
        """Whether the step is compiled."""
        return self.captures if self.config.compile is None else self.config.compile

    def train_step(self, memory: Memory, stages: tuple[str, ...]) -> None:
        """One step of every open stage, in order. All random numbers are the device's default ones."""
        with tensor_cores() if self._half else nullcontext():
            self._train_step(memory, stages)

    def _train_step(self, memory: Memory, stages: tuple[str, ...]) -> None:
        beside, refused = self._beside, [torch.zeros((), device=self.device)]
        if "codec" in stages:
            refused.append(self._codec_step(memory))
        if self._dreamer is not None and "policy" in stages:
            self._dreamer.follow()
        begun = rated = beside.mark()
        with beside.work():
            beside.wait(begun)
            batch, code = self._world_batch(memory) if "world" in stages else (None, None)
            ready = beside.mark()
            world = None if batch is None else self._world_objective(memory, batch, code)
            foretold = None if batch is None else self._foretold(batch, code)
            diet = self._diet(memory) if "self_prior" in stages else None
        looked = None
        if "policy" in stages:
            lived = self._lived(memory)
            looked, seen = beside.mark(), (None, None)
            if batch is not None and code is not None:
                seen = code.latent.detach(), batch.action
                beside.wait(ready)
            bad, rated = self._policy_step(lived, *self._contexts(memory, *seen))
            refused.append(bad)
        with beside.work():
            if world is not None:
                refused.append(self._descend(looked if self._dreams_apart else rated, world=world))
            if foretold is not None:
                with self._autocast():
                    outlook = self._do.outlook(self.mind, foretold)
                refused.append(self._descend(rated, outlook=outlook))
            if diet is not None:
                refused.append(self._self_prior_step(diet, rated))
            learned = beside.mark()
        beside.wait(learned)
        self._count(torch.stack(refused).sum())

    @property
    def _dreams_apart(self) -> bool:
        """Whether a dream reads nothing that the world model's step changes."""
        return self._dreamer is not None and (self.tokens or self.mind.dynamics.look is None)

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

    def _descend(self, mark: torch.cuda.Event | None = None, /, **objectives: Objective) -> Tensor:
        """One backward pass for all, which share no parameter; then, when the mark is reached, each descent's
        own step."""
        for name in objectives:
            self.descents[name].forget()
        torch.stack([objective.loss for objective in objectives.values()]).sum().backward()
        self._beside.wait(mark)
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
            objective, _ = self._do.codec(self.mind, frames)
        return self._descend(codec=objective)

    def _world_batch(self, memory: Memory) -> tuple[Draw, Code | None]:
        """Sequences for the world model to learn from. Where memory holds frames, also their code, from whose
        latents dreams start: they need not wait for the losses."""
        draw = memory.sequences(self.config.world_sequences, self.config.world_frames)
        if self.tokens:
            return draw, None
        with self._autocast():
            return draw, self._do.code(self.mind, draw.observation)

    def _world_objective(self, memory: Memory, draw: Draw, code: Code | None) -> Objective:
        if code is not None:
            with self._autocast():
                return self._do.joint(self.mind, draw.observation, draw.action, code)[0]
        latent = draw.observation["latent"].long()
        with self._autocast():
            return self._do.tokens(self.mind, latent, draw.action)

    def _diet(self, memory: Memory) -> Tensor:
        """Latents for the self-prior to learn from."""
        c = self.config
        return self._latent_of(memory.frames(c.self_prior_frames, c.diet_marked_share, c.diet_random_only))

    def _self_prior_step(self, latent: Tensor, mark: torch.cuda.Event | None) -> Tensor:
        with self._autocast():
            objective = self._do.self_prior(self.mind, latent)
        refused = self._descend(mark, self_prior=objective)
        self.mind.update_ema(self_prior=True, value=False)
        return refused

    def _lived(self, memory: Memory) -> Lived | None:
        """What really came of the policy lately."""
        w, past = self.mind.config.losses, self.mind.longest_past
        if not (w.value_lived or w.policy_lived) or self.config.cost == "none":
            return None
        # So many more windows begin with the episode that its first frames count no less than later ones.
        early = past + 1 - self.mind.config.imagination.context
        draw = memory.newest_sequences(self.config.lived, past + 1, early)
        latent = self._latent_of(draw.observation)
        with torch.no_grad(), self._autocast():
            then = self.acted, self.judged
            return self._do.lived(self.mind, *then, latent, draw.action, draw.start, draw.let_go)

    def _foretold(self, draw: Draw, code: Code | None) -> Foretold | None:
        """What the outlook learns from: the world model's own sequences."""
        if self.mind.outlook is None:
            return None
        latent = self._latent_of(draw.observation) if code is None else code.latent.detach()
        with torch.no_grad(), self._autocast():
            return self._do.foretold(self.mind, latent, draw.action, draw.start, draw.let_go)

    def _policy_step(
        self, lived: Lived | None, past: Tensor, acted: Tensor
    ) -> tuple[Tensor, torch.cuda.Event | None]:
        """Learns from a dream; also marks when it was dreamed and rated: from then on the parts that it came
        from may change."""
        buffers = list(self.mind.return_range.buffers())
        before = [buffer.clone() for buffer in buffers]
        with self._autocast(dreaming=True):
            dreamed = self._dream(past, acted[:, :-1])
        with torch.no_grad(), self._autocast():
            cost = None if self.config.cost == "none" else self._do.costs(self.mind, dreamed)
        rated = self._beside.mark()
        with self._autocast():
            if cost is None:
                policy, value = self._do.indifferent(self.mind, dreamed)
            else:
                policy, value = self._do.behaviour(self.mind, dreamed, cost, lived)
        for buffer, old in zip(buffers, before):
            buffer.copy_(torch.where(buffer.isfinite(), buffer, old))
        refused = self._descend(policy=policy, value=value)
        self.mind.update_ema(self_prior=False, value=True)
        return refused, rated

    def _dream(self, past: Tensor, acted: Tensor) -> Dream:
        if self._dreamer is None:
            return self.mind.dream(past, acted)
        i = self.mind.config.imagination
        return self._dreamer(past, acted, i.horizon, i.dropout)

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
                cost = self._do.cost(self.mind, past[calm:, -1])
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
            return self._do.encode(self.mind, observation)
