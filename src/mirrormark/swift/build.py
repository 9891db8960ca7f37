"""Our agent, and what it learns from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mirrormark.agent.actor_critic import Policy, TwoHotHead, mlp, value_head
from mirrormark.agent.agent import Agent
from mirrormark.agent.drive import Drive, NoDrive, SelfPriorDrive
from mirrormark.agent.numerics import TwoHot
from mirrormark.agent.senses import Senses
from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.transformer import BlockStyle
from mirrormark.agent.world_model import WorldModel
from mirrormark.config import GridTokenizerConfig, SwiftAgentConfig
from mirrormark.swift.expected_g import ExpectedG
from mirrormark.swift.on_policy import OnPolicy
from mirrormark.swift.self_prior import PerTokenSelfPrior
from mirrormark.swift.tokenizer import GridTokenizer, SymbolicTokenizer
from mirrormark.training.behavior import BehaviorSource, Imagination

UNIMIX = 0.0005
"""1% on each of 29 tokens would put a random token into every fourth imagined frame."""
MIN_STD, MAX_STD = 0.1, 1.0
"""Of the policy, before tanh."""


def network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return mlp(inputs, hidden, outputs, bias=True, activation=nn.ReLU)


def sigmoid_std(spread: Tensor) -> Tensor:
    """Starts near the widest."""
    return MIN_STD + (MAX_STD - MIN_STD) * torch.sigmoid(spread + 2)


def build(config: SwiftAgentConfig, senses: Senses, actions: int) -> Agent:
    """Our agent."""
    c, a, width = config, config.actor_critic, config.world_model.width
    if isinstance(c.tokenizer, GridTokenizerConfig):
        tokenizer = GridTokenizer(senses, c.tokenizer)
    else:
        tokenizer = SymbolicTokenizer(senses, c.tokenizer)
    spec = tokenizer.spec
    style = BlockStyle(pre_norm=True, gelu=True)  # bears a higher learning rate
    mixer = nn.Linear(spec.total + actions, width)
    world_model = WorldModel(spec, actions, c.world_model, style, UNIMIX, mixer)
    nn.init.normal_(world_model.position, std=0.02)
    state = spec.total + width
    two_hot = TwoHot(a.bins, -c.value_reach, c.value_reach, linear=True)  # costs of both signs may come
    least = c.imagination.context - 1 + c.imagination.horizon
    return Agent(
        c,
        tokenizer,
        world_model,
        PerTokenSelfPrior(spec, c.self_prior),
        # Full strength must be reachable: no bound on the mean (D20).
        Policy(spec, network(state, a.policy_hidden, 2 * actions), sigmoid_std, bounded_mean=False),
        value_head(spec, network(state, a.value_hidden, a.bins), two_hot),
        _drive(c, spec, state),
        joint=False,
        acting_context=c.acting_context or least,
        posture_precision=c.posture_precision,
    )


def _drive(c: SwiftAgentConfig, spec: TokenSpec, state: int) -> Drive:
    if c.drive == "none":
        return NoDrive()
    e = c.expected_g
    if not e.control_steps:
        return SelfPriorDrive()
    two_hot = TwoHot(e.bins, 0.0, e.reach, linear=True)
    return ExpectedG(TwoHotHead(spec, network(state, e.hidden, e.bins), two_hot), e.control_steps)


def sources(agent: Agent, config: SwiftAgentConfig, imagined: int) -> list[BehaviorSource]:
    """Real episodes before imagined paths."""
    i, real = config.imagination, config.on_policy
    if real is None:
        return [Imagination(imagined, i.horizon, i.discount, i.entropy)]
    return [
        OnPolicy(agent, real.windows, real.policy_share, real.value_share, i.discount, i.entropy),
        Imagination(
            imagined,
            i.horizon,
            i.discount,
            i.entropy,
            policy_share=1 - real.policy_share,
            value_share=1 - real.value_share,
        ),
    ]
