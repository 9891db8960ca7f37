"""Laps of train steps.

On a GPU the whole step (drawing, losses, backward passes, clipping, optimisers, averages, metrics) is
compiled, captured in one CUDA graph for each set of open stages and replayed without a word from the host. On
a CPU the same function is called directly.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch

from mirrormark.life.descent import DescentConfig
from mirrormark.life.memory import Memory
from mirrormark.life.schedule import Lap
from mirrormark.life.step import TrainStep
from mirrormark.mind.mind import Mind

_DESCENTS = {
    "codec": ("codec",),
    "world": ("world", "outlook"),
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
    policy: DescentConfig = field(default_factory=DescentConfig)
    """The policy."""
    value: DescentConfig = field(default_factory=DescentConfig)
    """The value."""
    outlook: DescentConfig = field(default_factory=DescentConfig)
    """The outlook, where there is one (ours)."""
    codec: DescentConfig = field(default_factory=lambda: DescentConfig(1.5e-3, 5e-5))
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
    lived: int = 256
    """Windows of the policy's newest episodes from which value and policy learn beside the dreams, where
    losses.value_lived or losses.policy_lived is above 0 (ours)."""
    codec_frames: int = 2048
    """Frames in a batch of the codec's own phase (ours; learning.md)."""
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
    replays: bool = False
    """See and act from CUDA graphs while gathering, too (ours; on a GPU; no faster where lives share it:
    notebook, run 19)."""
    compile: bool | None = None
    """Compile the train step with torch.compile; None: where it is captured on a GPU (ours)."""
    overlap: bool | None = None
    """Let world model, outlook and self-prior learn on a second stream of the GPU, beside the dream; no
    effect on the result. None: where the step is captured, without which it has no effect (ours)."""

    def __post_init__(self) -> None:
        batches = ("world_sequences", "self_prior_frames", "dreams", "lived", "codec_frames")
        for name in batches:
            if getattr(self, name) < 1:
                raise ValueError(f"learner.{name} is {getattr(self, name)}: give at least 1.")
        if self.world_frames < 2:
            raise ValueError(
                "learner.world_frames must be at least 2: a frame is predicted from the one before."
            )
        for name in ("diet_marked_share", "codec_marked_share", "restless_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"learner.{name} is a share: give a number from 0 to 1.")


class Learner(TrainStep):
    """Takes train steps by the lap."""

    def __init__(self, mind: Mind, config: LearnerConfig, tokens: bool) -> None:
        super().__init__(mind, config, tokens)
        self.steps = 0
        self._graphs: dict[tuple, torch.cuda.CUDAGraph] = {}

    def learn(self, memory: Memory, lap: Lap) -> dict[str, float]:
        """The lap's train steps; gives the mean of every metric. One host synchronisation, at the end."""
        for descent in self.descents.values():
            descent.set_progress(lap.progress)
        self.mind.let_quiet_grow(lap.progress)
        for total in self._sums.values():
            total.zero_()
        self.refused.zero_()
        self.longest_row.zero_()
        self.acted.load_state_dict(self.mind.policy.state_dict())
        self.judged.load_state_dict(self.mind.value.state_dict())
        self.mind.train()
        self._take_steps(memory, lap)
        self.mind.eval()
        self.steps += lap.steps
        return self._read(lap)

    def _take_steps(self, memory: Memory, lap: Lap) -> None:
        key, remaining = (lap.stages, id(memory)), lap.steps
        if self.captures and key not in self._graphs and remaining > _WARM_UP_STEPS:
            self.train_step(memory, lap.stages)  # what is compiled is compiled here: side streams trouble it
            self._beside.on = self.overlaps
            side = torch.cuda.Stream(priority=-1)  # a dream's many small kernels go before what is beside
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UP_STEPS - 1):
                    self.train_step(memory, lap.stages)
            torch.cuda.current_stream().wait_stream(side)
            remaining -= _WARM_UP_STEPS
            self._graphs.clear()  # stages only open: an older graph's memory is better used by the new one
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                self.train_step(memory, lap.stages)
            self._graphs[key], self._beside.on = graph, False
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

    def state(self) -> dict:
        """Weights, slow copies, optimisers, clipping, random numbers, step count."""
        cuda = self.device.type == "cuda"
        return {
            "mind": dict(self.mind.state_dict()),
            "acted": dict(self.acted.state_dict()),
            "judged": dict(self.judged.state_dict()),
            "quiet_share": self.mind.quiet_share,
            "descents": {name: descent.state() for name, descent in self.descents.items()},
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if cuda else None,
            "in_a_row": self.in_a_row,
            "steps": self.steps,
        }

    def load_state(self, state: dict) -> None:
        """Put back what `state` returned; before any graph is captured."""
        self.mind.load_state_dict(state["mind"])
        self.acted.load_state_dict(state["acted"])
        self.judged.load_state_dict(state["judged"])
        self.mind.quiet_share.copy_(state["quiet_share"])
        for name, descent in self.descents.items():
            descent.load_state(state["descents"][name])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.in_a_row.copy_(state["in_a_row"])
        self.steps = int(state["steps"])
