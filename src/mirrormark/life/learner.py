"""One train step: world model, self-prior, imagination, policy, value.

On a GPU the whole step (drawing, losses, backward passes, clipping, optimisers, averages, metrics) is
captured in one CUDA graph for each set of open stages and replayed without a word from the host. On a CPU
the same function is called directly.

Two ways of life share the code. Joint (the paper's): memory holds frames, codec and dynamics learn together.
Tokens (swift, ideal): the codec learned first and is frozen, memory holds latents, and no convolution is
left.
"""

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from mirrormark.life.descent import Descent, DescentConfig
from mirrormark.life.memory import Memory
from mirrormark.life.objectives import indifferent_objective, latent_of, token_objective
from mirrormark.life.schedule import Lap
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

_DESCENTS = {
    "codec": ("codec",),
    "world": ("world",),
    "self_prior": ("self_prior",),
    "policy": ("policy", "value"),
}
"""What descends in each stage."""
_WARM_UP_STEPS = 3
"""Steps before a capture: they let cuBLAS and the optimisers allocate. They are steps like all others."""


@dataclass(frozen=True)
class LearnerConfig:
    """Batches, rates and precision of the train step."""

    world: DescentConfig = field(default_factory=DescentConfig)
    """Codec and dynamics together; dynamics alone where the codec is frozen."""
    self_prior: DescentConfig = field(default_factory=DescentConfig)
    """The self-prior."""
    policy: DescentConfig = field(default_factory=lambda: DescentConfig(optimiser="adam"))
    """The policy."""
    value: DescentConfig = field(default_factory=lambda: DescentConfig(optimiser="adam"))
    """The value."""
    codec: DescentConfig = field(
        default_factory=lambda: DescentConfig(1.5e-3, 5e-5, betas=(0.9, 0.99), norm_cap=1e9)
    )
    """The codec in a phase of its own (ours; learning.md)."""
    world_sequences: int = 32
    """Sequences in a world-model batch (public code, D6)."""
    world_frames: int = 64
    """Frames in each of them (public code, D6)."""
    self_prior_frames: int = 2048
    """Frames in a self-prior batch (public code: 32×64, D6)."""
    dreams: int = 1024
    """Imagined paths in a policy batch (public code, D6)."""
    restless_share: float = 0.0
    """Share of the dreams that start from the half of their drawn pasts whose present has the higher G: where
    there is something to be lowered (ours; tokens only; 0 = off)."""
    codec_frames: int = 2048
    """Frames in a batch of the codec's own phase (ours; learning.md)."""
    world_updates: int = 1
    """World-model updates in one train step (paper: 1)."""
    self_prior_updates: int = 1
    """Self-prior updates in one train step (paper: 1)."""
    policy_updates: int = 1
    """Dreams with policy and value updates in one train step (paper: 1)."""
    diet_marked_share: float = 0.05
    """Share of the self-prior's frames that come from marked episodes (paper, ~5%; D5)."""
    diet_random_only: bool = True
    """The self-prior learns from everyday movement only, not from the policy's episodes (D5)."""
    codec_marked_share: float = 0.5
    """Share of marked episodes among the frames of the codec's own phase (ours: as in replay, half)."""
    cost: Literal["self_prior", "none"] = "self_prior"
    """What the policy lowers: G, or nothing but its own predictability (ablation)."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: autocast on a GPU; logits, KL, log p̃, returns and optimisers stay fp32 (their matrix products
    TF32). Always fp32 on a CPU."""
    capture: bool = True
    """Capture the train step in a CUDA graph (on a GPU)."""
    compile: bool | None = None
    """Compile the train step with torch.compile; None: where it is captured on a GPU (ours)."""
    refused_in_a_row: int = 20
    """The run stops with a dump after so many steps in a row whose loss is not finite (ours)."""

    def __post_init__(self) -> None:
        for name in ("world_sequences", "self_prior_frames", "dreams", "codec_frames", "refused_in_a_row"):
            if getattr(self, name) < 1:
                raise ValueError(f"learner.{name} is {getattr(self, name)}: give at least 1.")
        if self.world_frames < 2:
            raise ValueError(
                "learner.world_frames must be at least 2: a frame is predicted from the one before."
            )
        for name in ("diet_marked_share", "restless_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"learner.{name} is a share: give a number from 0 to 1.")


class Learner:
    """Holds the mind and all that changes it."""

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
        self.steps = 0
        self.refused = torch.zeros((), device=self.device)
        self.in_a_row = torch.zeros((), device=self.device)
        self.longest_row = torch.zeros((), device=self.device)
        self._names: dict[str, tuple[str, ...]] = {}  # of each descent's metrics
        self._sums: dict[str, Tensor] = {}  # of them over the lap, in one row
        self._graphs: dict[tuple, torch.cuda.CUDAGraph] = {}
        wrap = partial(torch.compile, dynamic=False) if self.compiles else (lambda function: function)
        self._objective = {
            "codec": wrap(codec_objective),
            "joint": wrap(world_objective),
            "tokens": wrap(token_objective),
            "self_prior": wrap(self_prior_objective),
            "behaviour": wrap(behaviour_objective),
            "indifferent": wrap(indifferent_objective),
        }
        self._encode = wrap(latent_of)
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

    def learn(self, memory: Memory, lap: Lap) -> dict[str, float]:
        """The lap's train steps; gives the mean of every metric. One host synchronisation, at the end."""
        for descent in self.descents.values():
            descent.set_progress(lap.progress)
        for total in self._sums.values():
            total.zero_()
        self.refused.zero_()
        self.longest_row.zero_()
        self.mind.train()
        self._take_steps(memory, lap)
        self.mind.eval()
        self.steps += lap.steps
        return self._read(lap)

    def _take_steps(self, memory: Memory, lap: Lap) -> None:
        key, remaining = (lap.stages, id(memory)), lap.steps
        if self.captures and key not in self._graphs and remaining > _WARM_UP_STEPS:
            self.train_step(memory, lap.stages)  # what is compiled is compiled here: side streams trouble it
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UP_STEPS - 1):
                    self.train_step(memory, lap.stages)
            torch.cuda.current_stream().wait_stream(side)
            remaining -= _WARM_UP_STEPS
            self._graphs.clear()  # stages only open: an older graph's memory is better used by the new one
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.train_step(memory, lap.stages)
            self._graphs[key] = graph
        graph = self._graphs.get(key)
        step = graph.replay if graph else lambda: self.train_step(memory, lap.stages)
        for _ in range(remaining):
            step()

    def _read(self, lap: Lap) -> dict[str, float]:
        if not lap.steps:
            return {}
        open_ = [name for stage in lap.stages for name in _DESCENTS[stage] if name in self._sums]
        counts = torch.stack([self.refused, self.longest_row])
        packed = torch.cat([*(self._sums[name] for name in open_), counts]).tolist()
        names = [metric for name in open_ for metric in self._names[name]]
        metrics = {name: total / lap.steps for name, total in sorted(zip(names, packed))}
        return metrics | {"refused_steps": packed[-2], "refused_in_a_row": packed[-1]}

    # The step itself: no host synchronisation below this line.

    def train_step(self, memory: Memory, stages: tuple[str, ...]) -> None:
        """One step of every open stage, in order. All random numbers are the device's default ones."""
        with tensor_cores() if self._half else nullcontext():
            self._train_step(memory, stages)

    def _train_step(self, memory: Memory, stages: tuple[str, ...]) -> None:
        c = self.config
        refused = torch.zeros((), device=self.device)
        if "codec" in stages:
            refused = refused + self._codec_step(memory)
        latent = action = None
        if "world" in stages:
            for _ in range(c.world_updates):
                bad, latent, action = self._world_step(memory)
                refused = refused + bad
        if "self_prior" in stages:
            for _ in range(c.self_prior_updates):
                refused = refused + self._self_prior_step(memory)
        if "policy" in stages:
            for _ in range(c.policy_updates):
                refused = refused + self._policy_step(memory, latent, action)
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
        past, acted = self._contexts(memory, latent, action)
        buffers = list(self.mind.return_range.buffers())
        before = [buffer.clone() for buffer in buffers]
        with self._autocast(dreaming=True):
            dreamed = self._dream(past, acted[:, :-1])
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
                cost = self.mind.expected_free_energy(past[calm:, -1])
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

    def state(self) -> dict:
        """Weights, slow copies, optimisers, clipping, random numbers, step count."""
        cuda = self.device.type == "cuda"
        return {
            "mind": dict(self.mind.state_dict()),
            "descents": {name: descent.state() for name, descent in self.descents.items()},
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if cuda else None,
            "in_a_row": self.in_a_row,
            "steps": self.steps,
        }

    def load_state(self, state: dict) -> None:
        """Put back what `state` returned; before any graph is captured."""
        self.mind.load_state_dict(state["mind"])
        for name, descent in self.descents.items():
            descent.load_state(state["descents"][name])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.in_a_row.copy_(state["in_a_row"])
        self.steps = int(state["steps"])
