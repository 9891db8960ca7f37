"""Iterations of train steps: on a GPU compiled, captured in one CUDA graph for each set of open stages and
replayed without a word from the host; on a CPU the same function is called directly."""

from __future__ import annotations

from typing import Any

import torch

from mirrormark.agent.agent import Agent
from mirrormark.config import TrainingConfig
from mirrormark.training.behavior import BehaviorSource, Imagination
from mirrormark.training.replay_buffer import ReplayBuffer
from mirrormark.training.schedule import Iteration
from mirrormark.training.train_step import TrainStep

_GROUPS = {
    "tokenizer": ("tokenizer",),
    "world_model": ("world_model", "drive"),
    "self_prior": ("self_prior",),
    "policy": ("policy", "value"),
}
"""Groups of parameters that learn in each stage."""
_WARM_UP_STEPS = 3
"""Steps before a capture: they let cuBLAS and the optimisers allocate. They are steps like all others."""


class Learner:
    """The train step, its speed and its state."""

    def __init__(self, agent: Agent, sources: list[BehaviorSource], config: TrainingConfig) -> None:
        self.agent, self.sources, self.config = agent, sources, config
        self.device = agent.device
        self.captures = self.device.type == "cuda" and config.cuda_graph
        self.step = TrainStep(
            agent, sources, config, _compiled if self.captures else lambda function: function
        )
        self.steps = 0
        self._graphs: dict[tuple, torch.cuda.CUDAGraph] = {}
        if self.captures:
            _compile_parts(agent, sources)

    def learn(self, buffer: ReplayBuffer, iteration: Iteration) -> dict[str, float]:
        """The iteration's train steps; gives the mean of every metric. One host synchronisation, at the
        end."""
        for optimizer in self.step.optimizers.values():
            optimizer.set_progress(iteration.progress)
        if "tokenizer" in iteration.stages:
            self.agent.tokenizer.set_progress(iteration.progress)
        for source in self.sources:
            source.begin_iteration(self.agent)
        self.step.metrics.begin()
        self.agent.train()
        self._take_steps(buffer, iteration)
        self.agent.eval()
        self.steps += iteration.steps
        if not iteration.steps:
            return {}
        groups = [group for stage in iteration.stages for group in _GROUPS[stage]]
        return self.step.metrics.read(groups, iteration.steps)

    def _take_steps(self, buffer: ReplayBuffer, iteration: Iteration) -> None:
        stages, remaining = iteration.stages, iteration.steps
        key = (stages, id(buffer))
        if self.captures and key not in self._graphs and remaining > _WARM_UP_STEPS:
            self.step(buffer, stages)  # what is compiled is compiled here: side streams trouble it
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UP_STEPS - 1):
                    self.step(buffer, stages)
            torch.cuda.current_stream().wait_stream(side)
            remaining -= _WARM_UP_STEPS
            self._graphs.clear()  # stages only open: an older graph's memory is better used by the new one
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                self.step(buffer, stages)
            self._graphs[key] = graph
        graph = self._graphs.get(key)
        for _ in range(remaining):
            graph.replay() if graph else self.step(buffer, stages)

    def state(self) -> dict[str, Any]:
        """Weights, slow copies, what sources remember, optimisers, clipping, random numbers, step count."""
        cuda = self.device.type == "cuda"
        return {
            "agent": dict(self.agent.state_dict()),
            "sources": [dict(source.state_dict()) for source in self.sources],
            "optimizers": {name: optimizer.state() for name, optimizer in self.step.optimizers.items()},
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if cuda else None,
            "in_a_row": self.step.metrics.in_a_row,
            "steps": self.steps,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what `state` returned; before any graph is captured."""
        self.agent.load_state_dict(state["agent"])
        for source, kept in zip(self.sources, state["sources"], strict=True):
            source.load_state_dict(kept)
        for name, optimizer in self.step.optimizers.items():
            optimizer.load_state(state["optimizers"][name])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.step.metrics.in_a_row.copy_(state["in_a_row"])
        self.steps = int(state["steps"])


def _compiled(function: Any) -> Any:
    return torch.compile(function, dynamic=False)


def _compile_parts(agent: Agent, sources: list[BehaviorSource]) -> None:
    """Compile what the train step calls on agent and sources, from outside."""
    for name in ("encode_with_loss", "tokens_of", "hidden_of", "cost"):
        setattr(agent, name, _compiled(getattr(agent, name)))
    agent.drive.loss = _compiled(agent.drive.loss)
    agent.tokenizer.loss = _compiled(agent.tokenizer.loss)
    for source in sources:
        source.losses = _compiled(source.losses)
        if isinstance(source, Imagination):
            source.step = _compiled(source.step)
