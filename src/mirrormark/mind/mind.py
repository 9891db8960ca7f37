"""The whole mind: parts built from one MindConfig, and the verbs that other rooms use."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from mirrormark.mind.codec import Code, Codec, CodecConfig, Prediction
from mirrormark.mind.codec_categorical import CategoricalCodec
from mirrormark.mind.codec_senses import SensesCodec, SymbolicCodec
from mirrormark.mind.dream import Dream, dream
from mirrormark.mind.dynamics import Dynamics, DynamicsConfig
from mirrormark.mind.free_energy import expected_free_energy
from mirrormark.mind.latent import LatentSpec
from mirrormark.mind.losses import LossConfig
from mirrormark.mind.numerics import PercentileRange, ema_update
from mirrormark.mind.outlook import Outlook, OutlookConfig
from mirrormark.mind.policy import Policy, PolicyConfig, Value, ValueConfig
from mirrormark.mind.self_prior import SelfPrior, SelfPriorConfig
from mirrormark.mind.senses import Observation, Senses

EMA_DECAY = 0.98
"""Decay of the slow copies of self-prior and value (paper, Table III)."""


@dataclass(frozen=True)
class ImaginationConfig:
    """Dreams and returns. Defaults: preset paper."""

    horizon: int = 16
    """Imagined control steps (paper)."""
    context: int = 8
    """Latents, the present one included, that a dream starts from and that the policy acts on (public
    code)."""
    remembers: int = 0
    """Control steps of its past that an acting body keeps before it is cut back to the context, and that it
    learns with from life (ours; 100: the whole episode; 0: as many as a dream has): what a hand has covered
    for longer than that is forgotten."""
    discount: float = 0.997
    """γ (paper, Table III)."""
    entropy: float = 3e-4
    """η, weight of the policy's entropy (paper, Table III)."""
    centre_cost: bool = False
    """Subtract the batch mean from G before returns (D11; swift: on)."""
    dropout: bool = False
    """Keep the sequence model's dropout on while imagining (D9; public code: on)."""
    posture_precision: float = 1.0
    """Weight in G of what the joint angles' tokens surprise by, beside 1 for all that follow them (paper: 1;
    ours below: sensory attenuation, after Brown et al. 2013, for codecs whose tokens are not mixed)."""
    range_of: Literal["returns", "excess"] = "returns"
    """S is the range of the returns (paper), or of what they exceed the value by (ours; swift): states that
    differ for good, as marked and unmarked ones, then do not shrink what an action adds."""

    def __post_init__(self) -> None:
        if self.horizon < 1 or self.context < 1:
            raise ValueError("imagination.horizon and imagination.context must be at least 1 control step.")
        if not 0 < self.discount <= 1:
            raise ValueError("imagination.discount must lie in (0, 1].")
        if self.remembers < 0:
            raise ValueError(f"imagination.remembers is {self.remembers}: it cannot be negative.")
        if self.posture_precision < 0:
            raise ValueError("imagination.posture_precision must not be negative: 1 weighs all tokens alike.")


@dataclass(frozen=True)
class MindConfig:
    """Everything a mind is made of. The defaults are the preset paper."""

    codec: CodecConfig = field(default_factory=CodecConfig)
    """E1: observation to latent and back."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    """E2: what happens next."""
    self_prior: SelfPriorConfig = field(default_factory=SelfPriorConfig)
    """E3: how familiar a latent is."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """E4: what to do."""
    value: ValueConfig = field(default_factory=ValueConfig)
    """E4: what is to come."""
    imagination: ImaginationConfig = field(default_factory=ImaginationConfig)
    """Dreams and returns (E11)."""
    outlook: OutlookConfig = field(default_factory=OutlookConfig)
    """What usually follows (ours)."""
    losses: LossConfig = field(default_factory=LossConfig)
    """Weights of E8-E11."""


CODECS: dict[str, type[Codec]] = {
    "categorical": CategoricalCodec,
    "senses": SensesCodec,
    "symbolic": SymbolicCodec,
}


def build_codec(config: CodecConfig, senses: Senses) -> Codec:
    """The codec that CodecConfig.kind names."""
    if config.kind not in CODECS:
        raise ValueError(f"unknown codec.kind {config.kind!r}: use one of {', '.join(CODECS)}")
    return CODECS[config.kind](senses, config)


class SlowCopies(nn.Module):
    """Exponential moving averages of two parts (E10, E11); they never get gradient."""

    def __init__(self, self_prior: SelfPrior, value: Value):
        super().__init__()
        self.self_prior, self.value = copy.deepcopy(self_prior), copy.deepcopy(value)
        self.requires_grad_(False)


class Mind(nn.Module):
    """codec, dynamics, self_prior, policy, value, an outlook or none, and slow copies in `ema`."""

    def __init__(self, config: MindConfig, senses: Senses, actions: int):
        super().__init__()
        i = config.imagination
        if i.context - 1 + i.horizon > config.dynamics.max_length:
            raise ValueError(
                f"imagination.context - 1 + horizon = {i.context - 1 + i.horizon} does not fit into "
                f"dynamics.max_length = {config.dynamics.max_length}"
            )
        if i.remembers and not i.context - 1 + i.horizon <= i.remembers <= config.dynamics.max_length:
            raise ValueError(
                f"imagination.remembers is {i.remembers}: give 0, or a number from what a dream has "
                f"({i.context - 1 + i.horizon}) to dynamics.max_length ({config.dynamics.max_length})."
            )
        if i.remembers and config.policy.acts_on == "prior":
            raise ValueError("imagination.remembers needs policy.acts_on='posterior': leave it at 0.")
        if max(config.losses.value_lived, config.losses.policy_lived) and i.context < 2:
            raise ValueError(
                "losses.value_lived and policy_lived need imagination.context of at least 2: a past."
            )
        if config.policy.acts_on == "prior" and config.losses.policy_lived:
            raise ValueError(
                "losses.policy_lived needs policy.acts_on='posterior': what the policy saw is not remembered."
            )
        if config.policy.acts_on == "prior" and i.context < 2:
            raise ValueError(
                "policy.acts_on='prior' needs imagination.context of at least 2: one frame predicts the next."
            )
        if config.policy.acts_on == "prior" and config.dynamics.chained:
            raise ValueError(
                "policy.acts_on='prior' is the public code's way: set dynamics.chained off with it."
            )
        self.config, self.actions = config, actions
        self.codec = build_codec(config.codec, senses)
        self.dynamics = Dynamics(self.spec, actions, config.dynamics, self.codec.look)
        self.self_prior = SelfPrior(self.spec, config.self_prior)
        seen = self.dynamics.width if config.policy.recalls else config.dynamics.width
        self.policy = Policy(self.dynamics.reading, seen, actions, config.policy)
        self.value = Value(self.dynamics.reading, seen, config.value)
        ahead = config.outlook
        self.outlook = Outlook(self.dynamics.reading, seen, ahead) if ahead.control_steps else None
        self.ema = SlowCopies(self.self_prior, self.value)
        self.return_range = PercentileRange()
        self.register_buffer("precision", self._precision(i.posture_precision), persistent=False)
        self.precision: Tensor
        # On the device, for a captured train step to read: how much of losses.quiet counts by now.
        self.register_buffer("quiet_share", torch.ones(()), persistent=False)
        self.quiet_share: Tensor

    def let_quiet_grow(self, progress: float) -> None:
        """Move along `losses.quiet_ramp`, 0..1 of the phase in which the codec learns."""
        ramp = self.config.losses.quiet_ramp
        self.quiet_share.fill_(min(progress / ramp, 1.0) if ramp else 1.0)

    def _precision(self, weight: float) -> Tensor:
        """Weight of each token in G, (K,): `weight` for the joints' own, 1 for all others."""
        weights = torch.ones(self.spec.K)
        if weight != 1:
            if "proprioception" not in self.codec.tokens:
                raise ValueError(
                    f"imagination.posture_precision = {weight} needs joint angles with tokens of their own: "
                    f"use codec.kind senses or symbolic, or 1."
                )
            weights[self.codec.tokens["proprioception"]] = weight
        return weights

    @property
    def longest_past(self) -> int:
        """Control steps of its past that an acting body keeps at most."""
        i = self.config.imagination
        return i.remembers or i.context - 1 + i.horizon

    @property
    def spec(self) -> LatentSpec:
        """What a latent is."""
        return self.codec.spec

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return self.dynamics.position.device

    def encode(self, observation: Observation, sample: bool = True) -> Code:
        """Observation -> latent (and its posterior)."""
        return self.codec.encode(observation, sample)

    def decode(self, latent: Tensor) -> Prediction:
        """Latent -> what it would look and feel like: images in [-.5, .5], vectors in [-1, 1]."""
        return self.codec.decode(latent)

    def expected_free_energy(self, latent: Tensor) -> Tensor:
        """G of each latent (..., K) -> (...), in nats (E7), tokens weighed by their precision."""
        return expected_free_energy((self.self_prior.per_token_log_prob(latent) * self.precision).sum(-1))

    def cost(self, latent: Tensor, hidden: Tensor) -> Tensor:
        """What the policy lowers, of states (..., K) and (..., D): their G, or the outlook on it."""
        return self.expected_free_energy(latent) if self.outlook is None else self.outlook(latent, hidden)

    def dream(self, context_latent: Tensor, context_action: Tensor, horizon: int | None = None) -> Dream:
        """Imagine under the policy from a real context, as imagination says."""
        i = self.config.imagination
        return dream(
            self.dynamics,
            self.policy,
            context_latent,
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
