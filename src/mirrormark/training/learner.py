"""Iterations of train steps.

On a GPU the whole step (drawing, losses, backward passes, clipping, optimisers, averages, metrics) is
compiled, captured in one CUDA graph for each set of open stages and replayed without a word from the host. On
a CPU the same function is called directly.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch

from mirrormark.agent.agent import Agent
from mirrormark.training.optim import OptimizerConfig
from mirrormark.training.replay_buffer import ReplayBuffer
from mirrormark.training.schedule import Iteration
from mirrormark.training.train_step import TrainStep

_OPTIMIZERS = {
    "tokenizer": ("tokenizer",),
    "world_model": ("world_model", "expected_g"),
    "self_prior": ("self_prior",),
    "policy": ("policy", "value"),
}
"""What descends in each stage."""
_WARM_UP_STEPS = 3
"""Steps before a capture: they let cuBLAS and the optimisers allocate. They are steps like all others."""


@dataclass(frozen=True)
class LearnerConfig:
    """Batches, rates and precision of the train step."""

    world_model: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Tokenizer and dynamics together; dynamics alone where the tokenizer is frozen."""
    self_prior: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The self-prior."""
    policy: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The policy."""
    value: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The value."""
    expected_g: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Expected G, where there is one (ours)."""
    tokenizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(1.5e-3, 5e-5))
    """The tokenizer in a phase of its own (ours; learning.md)."""
    sequences: int = 32
    """Sequences in a world-model batch (public code, D6)."""
    sequence_frames: int = 64
    """Frames in each of them (public code, D6)."""
    self_prior_frames: int = 2048
    """Frames in a self-prior batch (public code: 32×64, D6)."""
    dreams: int = 1024
    """Imagined paths in a policy batch (public code, D6)."""
    high_cost_starts_share: float = 0.0
    """Share of the dreams that start from the half of their drawn pasts whose present has the higher G: where
    there is something to be lowered (ours; tokens only; 0 = off)."""
    on_policy_windows: int = 256
    """Windows of the policy's newest episodes from which value and policy learn beside the dreams, where
    losses.value_on_policy_share or losses.policy_on_policy_share is above 0 (ours)."""
    tokenizer_frames: int = 2048
    """Frames in a batch of the tokenizer's own phase (ours; learning.md)."""
    diet_marked_share: float = 0.05
    """Share of the self-prior's frames that come from marked episodes (paper, ~5%; D5)."""
    diet_random_only: bool = True
    """The self-prior learns from motor babbling only, not from the policy's episodes (D5)."""
    tokenizer_marked_share: float = 0.5
    """Share of marked episodes among the frames of the tokenizer's own phase (ours: as in replay, half)."""
    cost: Literal["self_prior", "none"] = "self_prior"
    """What the policy lowers: G, or nothing but its own predictability (ablation)."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: autocast on a GPU; logits, KL, log p̃, returns and optimisers stay fp32 (their matrix products
    TF32). Always fp32 on a CPU."""
    cuda_graph: bool = True
    """Capture the train step in a CUDA graph (on a GPU)."""
    cuda_graph_rollout: bool = False
    """See and act from CUDA graphs while gathering, too (ours; on a GPU; no faster where lives share it:
    notebook, run 19)."""
    compile: bool | None = None
    """Compile the train step with torch.compile; None: where it is captured on a GPU (ours)."""
    overlap: bool | None = None
    """Let world model, expected G and self-prior learn on a second stream of the GPU, beside the dream; no
    effect on the result. None: where the step is captured, without which it has no effect (ours)."""

    def __post_init__(self) -> None:
        batches = ("sequences", "self_prior_frames", "dreams", "on_policy_windows", "tokenizer_frames")
        for name in batches:
            if getattr(self, name) < 1:
                raise ValueError(f"learner.{name} is {getattr(self, name)}: give at least 1.")
        if self.sequence_frames < 2:
            raise ValueError(
                "learner.sequence_frames must be at least 2: a frame is predicted from the one before."
            )
        for name in ("diet_marked_share", "tokenizer_marked_share", "high_cost_starts_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"learner.{name} is a share: give a number from 0 to 1.")


class Learner(TrainStep):
    """Takes train steps by the iteration."""

    def __init__(self, agent: Agent, config: LearnerConfig, frozen_tokenizer: bool) -> None:
        super().__init__(agent, config, frozen_tokenizer)
        self.steps = 0
        self._graphs: dict[tuple, torch.cuda.CUDAGraph] = {}

    def learn(self, buffer: ReplayBuffer, iteration: Iteration) -> dict[str, float]:
        """The iteration's train steps; gives the mean of every metric. One host synchronisation, at the
        end."""
        for optimizer in self.optimizers.values():
            optimizer.set_progress(iteration.progress)
        self.agent.set_rate_progress(iteration.progress)
        for total in self._sums.values():
            total.zero_()
        self.skipped.zero_()
        self.longest_row.zero_()
        self.behavior_policy.load_state_dict(self.agent.policy.state_dict())
        self.old_value.load_state_dict(self.agent.value.state_dict())
        self.agent.train()
        self._take_steps(buffer, iteration)
        self.agent.eval()
        self.steps += iteration.steps
        return self._read(iteration)

    def _take_steps(self, buffer: ReplayBuffer, iteration: Iteration) -> None:
        key, remaining = (iteration.stages, id(buffer)), iteration.steps
        if self.uses_cuda_graph and key not in self._graphs and remaining > _WARM_UP_STEPS:
            self.train_step(
                buffer, iteration.stages
            )  # what is compiled is compiled here: side streams trouble it
            self._side_stream.on = self.overlaps
            side = torch.cuda.Stream(priority=-1)  # a dream's many small kernels go before what is beside
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UP_STEPS - 1):
                    self.train_step(buffer, iteration.stages)
            torch.cuda.current_stream().wait_stream(side)
            remaining -= _WARM_UP_STEPS
            self._graphs.clear()  # stages only open: an older graph's memory is better used by the new one
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                self.train_step(buffer, iteration.stages)
            self._graphs[key], self._side_stream.on = graph, False
        graph = self._graphs.get(key)
        step = graph.replay if graph else lambda: self.train_step(buffer, iteration.stages)
        for _ in range(remaining):
            step()

    def _read(self, iteration: Iteration) -> dict[str, float]:
        if not iteration.steps:
            return {}
        open_ = [name for stage in iteration.stages for name in _OPTIMIZERS[stage] if name in self._sums]
        counts = torch.stack([self.skipped, self.longest_row])
        packed = torch.cat([*(self._sums[name] for name in open_), counts]).tolist()
        names = [metric for name in open_ for metric in self._names[name]]
        metrics = {name: total / iteration.steps for name, total in sorted(zip(names, packed))}
        return metrics | {"skipped_steps": packed[-2], "skipped_in_a_row": packed[-1]}

    def state(self) -> dict:
        """Weights, slow copies, optimisers, clipping, random numbers, step count."""
        cuda = self.device.type == "cuda"
        return {
            "agent": dict(self.agent.state_dict()),
            "behavior_policy": dict(self.behavior_policy.state_dict()),
            "old_value": dict(self.old_value.state_dict()),
            "rate_share": self.agent.rate_share,
            "optimizers": {name: optimizer.state() for name, optimizer in self.optimizers.items()},
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if cuda else None,
            "in_a_row": self.in_a_row,
            "steps": self.steps,
        }

    def load_state(self, state: dict) -> None:
        """Put back what `state` returned; before any graph is captured."""
        self.agent.load_state_dict(state["agent"])
        self.behavior_policy.load_state_dict(state["behavior_policy"])
        self.old_value.load_state_dict(state["old_value"])
        self.agent.rate_share.copy_(state["rate_share"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state(state["optimizers"][name])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.in_a_row.copy_(state["in_a_row"])
        self.steps = int(state["steps"])
