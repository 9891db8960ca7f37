"""The paper's agent, small enough to test in milliseconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mirrormark.agent.actor_critic import Policy, TwoHotHead
from mirrormark.agent.agent import Agent, build
from mirrormark.agent.senses import Senses, SenseSpec
from mirrormark.config import (
    ActorCriticConfig,
    CategoricalTokenizerConfig,
    ImaginationConfig,
    PaperAgentConfig,
    SelfPriorConfig,
    WorldModelConfig,
)

ACTIONS = 3
SENSES: Senses = {"vision": SenseSpec("image", 64), "proprioception": SenseSpec("vector", 3)}
TOKENIZER: dict[str, Any] = {"variables": 4, "classes": 5, "channels": 2, "embedding": 64}
SIZES: dict[str, Any] = {
    "world_model": WorldModelConfig(width=16, layers=2, heads=2, ffn=32, max_length=16),
    "self_prior": SelfPriorConfig(width=16, layers=2, heads=2, ffn=32),
    "actor_critic": ActorCriticConfig(policy_hidden=16, value_hidden=16, bins=41),
    "imagination": ImaginationConfig(horizon=5, context=4),
}
"""Of every tiny agent."""


def paper_agent(auxiliary: Any = "tokens", senses: Senses = SENSES, **fields) -> Agent:
    """Without dropout until told to train; fields replace those of the configuration."""
    torch.manual_seed(0)
    tokenizer = CategoricalTokenizerConfig(**TOKENIZER, auxiliary=auxiliary)
    whole: dict[str, Any] = SIZES | {"tokenizer": tokenizer} | fields
    return build(PaperAgentConfig(**whole), senses, ACTIONS).eval()


def observe(senses: Senses, *lead: int) -> dict[str, Tensor]:
    """A random observation."""
    made = {}
    for name, sense in senses.items():
        if sense.kind == "image":
            made[name] = torch.randint(0, 256, (*lead, *sense.shape), dtype=torch.uint8)
        elif sense.kind == "vector":
            made[name] = torch.rand(*lead, sense.size) * 2 - 1
        else:
            made[name] = torch.randint(0, sense.size, (*lead, 1))
    return made


def random_tokens(agent: Agent, *lead: int) -> Tensor:
    """Classes drawn evenly."""
    return torch.stack([torch.randint(0, classes, lead) for classes in agent.spec.classes], -1)


def random_actions(*lead: int) -> Tensor:
    return torch.rand(*lead, ACTIONS) * 2 - 1


def last_layer(of: Policy | TwoHotHead) -> nn.Linear:
    layer = of.network[-1]
    assert isinstance(layer, nn.Linear)
    return layer


@torch.no_grad()
def disturb(agent: Agent, scale: float = 0.5) -> Agent:
    """Weights away from where they start: a value of exactly 0 passes no gradient on."""
    for parameter in agent.parameters():
        parameter.add_(scale * torch.randn_like(parameter) * parameter.shape[-1] ** -0.5)
    return agent
