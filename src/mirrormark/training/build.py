"""Which builder belongs to which kind of configuration."""

from __future__ import annotations

import importlib
from typing import Any

from mirrormark.agent.agent import Agent
from mirrormark.agent.senses import Senses
from mirrormark.config import AgentConfig
from mirrormark.training.behavior import BehaviorSource

BUILDERS = {
    "paper": ("mirrormark.agent.agent:build", "mirrormark.training.behavior:sources"),
    "swift": ("mirrormark.swift.build:build", "mirrormark.swift.build:sources"),
}
"""The configuration's `kind` -> what builds the agent, what builds its behavior sources."""


def build_agent(config: AgentConfig, senses: Senses, actions: int) -> Agent:
    """A new agent, its weights drawn from torch's default random numbers."""
    return _function(config.kind, 0)(config, senses, actions)


def build_sources(agent: Agent, imagined: int) -> list[BehaviorSource]:
    """What its policy and value learn from; imagined: paths in a batch."""
    return _function(agent.config.kind, 1)(agent, agent.config, imagined)


def _function(kind: str, which: int) -> Any:
    module, name = BUILDERS[kind][which].split(":")
    return getattr(importlib.import_module(module), name)
