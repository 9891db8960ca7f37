"""The whole agent: parts built from one AgentConfig, and the verbs that other rooms use."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from mirrormark.agent.actor_critic import Policy, PolicyConfig, Value, ValueConfig
from mirrormark.agent.dream import Dream, dream
from mirrormark.agent.expected_g import ExpectedG, ExpectedGConfig
from mirrormark.agent.free_energy import expected_free_energy
from mirrormark.agent.losses import LossConfig
from mirrormark.agent.numerics import PercentileRange, ema_update
from mirrormark.agent.self_prior import SelfPrior, SelfPriorConfig
from mirrormark.agent.senses import Observation, Senses
from mirrormark.agent.tokenizer import Encoding, Prediction, Tokenizer, TokenizerConfig
from mirrormark.agent.tokenizer_grid import GridTokenizer, SymbolicTokenizer
from mirrormark.agent.tokenizer_paper import PaperTokenizer
from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.world_model import WorldModel, WorldModelConfig

EMA_DECAY = 0.98
"""Decay of the slow copies of self-prior and value (paper, Table III)."""


@dataclass(frozen=True)
class ImaginationConfig:
    """Dreams and returns. Defaults: preset paper."""

    horizon: int = 16
    """Imagined control steps (paper)."""
    context: int = 8
    """Tokens, the present one included, that a dream starts from and that the policy acts on (public
    code)."""
    acting_context: int = 0
    """Control steps of its past that an acting body keeps before it is cut back to the context, and that it
    learns with from on-policy data (ours; 100: the whole episode; 0: as many as a dream has): what a hand has
    covered for longer than that is forgotten."""
    discount: float = 0.997
    """γ (paper, Table III)."""
    entropy: float = 3e-4
    """η, weight of the policy's entropy (paper, Table III)."""
    subtract_mean_cost: bool = False
    """Subtract the batch mean from G before returns (D11; swift: on)."""
    dropout: bool = False
    """Keep the sequence model's dropout on while imagining (D9; public code: on)."""
    posture_precision: float = 1.0
    """Weight in G of what the joint angles' tokens surprise by, beside 1 for all that follow them (paper: 1;
    ours below: sensory attenuation, after Brown et al. 2013, for tokenizers whose tokens are not mixed)."""
    range_of: Literal["returns", "advantage"] = "returns"
    """S is the range of the returns (paper), or of what they exceed the value by (ours; swift): states that
    differ for good, as marked and unmarked ones, then do not shrink what an action adds."""

    def __post_init__(self) -> None:
        if self.horizon < 1 or self.context < 1:
            raise ValueError("imagination.horizon and imagination.context must be at least 1 control step.")
        if not 0 < self.discount <= 1:
            raise ValueError("imagination.discount must lie in (0, 1].")
        if self.acting_context < 0:
            raise ValueError(f"imagination.acting_context is {self.acting_context}: it cannot be negative.")
        if self.posture_precision < 0:
            raise ValueError("imagination.posture_precision must not be negative: 1 weighs all tokens alike.")


@dataclass(frozen=True)
class AgentConfig:
    """Everything an agent is made of. The defaults are the preset paper."""

    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """E1: observation to tokens and back."""
    world_model: WorldModelConfig = field(default_factory=WorldModelConfig)
    """E2: what happens next."""
    self_prior: SelfPriorConfig = field(default_factory=SelfPriorConfig)
    """E3: how familiar a frame's tokens is."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """E4: what to do."""
    value: ValueConfig = field(default_factory=ValueConfig)
    """E4: what is to come."""
    imagination: ImaginationConfig = field(default_factory=ImaginationConfig)
    """Dreams and returns (E11)."""
    expected_g: ExpectedGConfig = field(default_factory=ExpectedGConfig)
    """What usually follows (ours)."""
    losses: LossConfig = field(default_factory=LossConfig)
    """Weights of E8-E11."""


TOKENIZERS: dict[str, type[Tokenizer]] = {
    "categorical": PaperTokenizer,
    "grid": GridTokenizer,
    "symbolic": SymbolicTokenizer,
}


def build_tokenizer(config: TokenizerConfig, senses: Senses) -> Tokenizer:
    """The tokenizer that TokenizerConfig.kind names."""
    if config.kind not in TOKENIZERS:
        raise ValueError(f"unknown tokenizer.kind {config.kind!r}: use one of {', '.join(TOKENIZERS)}")
    return TOKENIZERS[config.kind](senses, config)


class EMACopies(nn.Module):
    """Exponential moving averages of two parts (E10, E11); they never get gradient."""

    def __init__(self, self_prior: SelfPrior, value: Value):
        super().__init__()
        self.self_prior, self.value = copy.deepcopy(self_prior), copy.deepcopy(value)
        self.requires_grad_(False)


class Agent(nn.Module):
    """tokenizer, dynamics, self_prior, policy, value, expected G or none, and slow copies in `ema`."""

    def __init__(self, config: AgentConfig, senses: Senses, actions: int):
        super().__init__()
        i = config.imagination
        if i.context - 1 + i.horizon > config.world_model.max_length:
            raise ValueError(
                f"imagination.context - 1 + horizon = {i.context - 1 + i.horizon} does not fit into "
                f"world_model.max_length = {config.world_model.max_length}"
            )
        if (
            i.acting_context
            and not i.context - 1 + i.horizon <= i.acting_context <= config.world_model.max_length
        ):
            raise ValueError(
                f"imagination.acting_context is {i.acting_context}: give 0, or a number from what a dream "
                "has "
                f"({i.context - 1 + i.horizon}) to world_model.max_length ({config.world_model.max_length})."
            )
        if i.acting_context and config.policy.acts_on == "prior":
            raise ValueError("imagination.acting_context needs policy.acts_on='posterior': leave it at 0.")
        if max(config.losses.value_on_policy_share, config.losses.policy_on_policy_share) and i.context < 2:
            raise ValueError(
                "losses.value_on_policy_share and policy_on_policy_share need imagination.context of at "
                "least 2: a past."
            )
        if config.policy.acts_on == "prior" and config.losses.policy_on_policy_share:
            raise ValueError(
                "losses.policy_on_policy_share needs policy.acts_on='posterior': what the policy saw is "
                "not remembered."
            )
        if config.policy.acts_on == "prior" and i.context < 2:
            raise ValueError(
                "policy.acts_on='prior' needs imagination.context of at least 2: one frame predicts the next."
            )
        if config.policy.acts_on == "prior" and config.world_model.chained:
            raise ValueError(
                "policy.acts_on='prior' is the public code's way: set world_model.chained off with it."
            )
        self.config, self.actions = config, actions
        self.tokenizer = build_tokenizer(config.tokenizer, senses)
        self.world_model = WorldModel(self.spec, actions, config.world_model, self.tokenizer.posture_renderer)
        self.self_prior = SelfPrior(self.spec, config.self_prior)
        seen = self.world_model.width if config.policy.reads_memory_trace else config.world_model.width
        self.policy = Policy(self.world_model.features, seen, actions, config.policy)
        self.value = Value(self.world_model.features, seen, config.value)
        ahead = config.expected_g
        self.expected_g = ExpectedG(self.world_model.features, seen, ahead) if ahead.control_steps else None
        self.ema = EMACopies(self.self_prior, self.value)
        self.return_range = PercentileRange()
        self.register_buffer("precision", self._precision(i.posture_precision), persistent=False)
        self.precision: Tensor
        # On the device, for a captured train step to read: how much of losses.rate counts by now.
        self.register_buffer("rate_share", torch.ones(()), persistent=False)
        self.rate_share: Tensor

    def set_rate_progress(self, progress: float) -> None:
        """Move along `losses.rate_ramp`, 0..1 of the phase in which the tokenizer learns."""
        ramp = self.config.losses.rate_ramp
        self.rate_share.fill_(min(progress / ramp, 1.0) if ramp else 1.0)

    def _precision(self, weight: float) -> Tensor:
        """Weight of each token in G, (K,): `weight` for the joints' own, 1 for all others."""
        weights = torch.ones(self.spec.K)
        if weight != 1:
            if "proprioception" not in self.tokenizer.slices:
                raise ValueError(
                    f"imagination.posture_precision = {weight} needs joint angles with tokens of their own: "
                    f"use tokenizer.kind senses or symbolic, or 1."
                )
            weights[self.tokenizer.slices["proprioception"]] = weight
        return weights

    @property
    def longest_past(self) -> int:
        """Control steps of its past that an acting body keeps at most."""
        i = self.config.imagination
        return i.acting_context or i.context - 1 + i.horizon

    @property
    def spec(self) -> TokenSpec:
        """What a frame's tokens is."""
        return self.tokenizer.spec

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return self.world_model.position.device

    def encode(self, observation: Observation, sample: bool = True) -> Encoding:
        """Observation -> tokens (and its posterior)."""
        return self.tokenizer.encode(observation, sample)

    def decode(self, tokens: Tensor) -> Prediction:
        """Tokens -> what it would look and feel like: images in [-.5, .5], vectors in [-1, 1]."""
        return self.tokenizer.decode(tokens)

    def expected_free_energy(self, tokens: Tensor) -> Tensor:
        """G of each frame's tokens (..., K) -> (...), in nats (E7), tokens weighed by their precision."""
        return expected_free_energy((self.self_prior.per_token_log_prob(tokens) * self.precision).sum(-1))

    def cost(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """What the policy lowers, of states (..., K) and (..., D): their G, or expected G on it."""
        return (
            self.expected_free_energy(tokens) if self.expected_g is None else self.expected_g(tokens, hidden)
        )

    def dream(self, context_tokens: Tensor, context_action: Tensor, horizon: int | None = None) -> Dream:
        """Imagine under the policy from a real context, as imagination says."""
        i = self.config.imagination
        return dream(
            self.world_model,
            self.policy,
            context_tokens,
            context_action,
            i.horizon if horizon is None else horizon,
            i.dropout,
        )

    def update_ema(self, self_prior: bool = True, value: bool = True) -> None:
        """Let the slow copies follow; call after the optimisers' steps."""
        if self_prior:
            ema_update(self.ema.self_prior, self.self_prior, EMA_DECAY)
        if value:
            ema_update(self.ema.value, self.value, EMA_DECAY)
