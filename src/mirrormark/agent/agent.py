"""The whole agent: its parts, and the verbs that other packages use. Builders put it together: `build` for
the paper's, `mirrormark.swift.build` for ours."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from mirrormark.agent.actor_critic import Policy, TwoHotHead, paper_policy, paper_value
from mirrormark.agent.drive import Drive, NoDrive, SelfPriorDrive
from mirrormark.agent.losses import Loss, expected_free_energy
from mirrormark.agent.numerics import ema_update
from mirrormark.agent.self_prior import PaperSelfPrior, SelfPrior
from mirrormark.agent.senses import Observation, Senses
from mirrormark.agent.tokenizer import Encoding, Prediction, Tokenizer
from mirrormark.agent.tokenizer_paper import UNIMIX, PaperTokenizer
from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.transformer import BlockStyle
from mirrormark.agent.world_model import Start, WorldModel
from mirrormark.config import AgentConfig, PaperAgentConfig

EMA_DECAY = 0.98
"""Decay of the slow copies of self-prior and value (paper, Table III)."""


class EMACopies(nn.Module):
    """Exponential moving averages of two parts (E10, E11); they never get gradient."""

    def __init__(self, self_prior: SelfPrior, value: TwoHotHead):
        super().__init__()
        self.self_prior, self.value = copy.deepcopy(self_prior), copy.deepcopy(value)
        self.requires_grad_(False)

    def train(self, mode: bool = True) -> EMACopies:
        """Without dropout, always."""
        return super().train(False)


class Agent(nn.Module):
    """tokenizer, world_model, self_prior, policy, value, drive, and slow copies in `ema`."""

    def __init__(
        self,
        config: AgentConfig,
        tokenizer: Tokenizer,
        world_model: WorldModel,
        self_prior: SelfPrior,
        policy: Policy,
        value: TwoHotHead,
        drive: Drive,
        joint: bool,
        start: Start = "posterior",
        acting_context: int | None = None,
        posture_precision: float = 1.0,
    ):
        """joint: tokenizer and world model learn together. start: what the policy acts on, in imagination as
        before the mirror (D10, Dd). acting_context: control steps of its past that an acting agent keeps;
        None: what imagination starts from."""
        super().__init__()
        self.config, self.joint = config, joint
        self.start: Start = start
        self.tokenizer, self.world_model, self.self_prior = tokenizer, world_model, self_prior
        self.policy, self.value, self.drive = policy, value, drive
        self.ema = EMACopies(self_prior, value)
        self.context = config.imagination.context
        self.acting_context = (
            self.context - (start == "posterior") if acting_context is None else acting_context
        )
        self.register_buffer("precision", self._precision(posture_precision), persistent=False)
        self.precision: Tensor

    def _precision(self, posture: float) -> Tensor:
        """Weight of each token in G, (K,): of the joints' own, and 1 of all others."""
        weights = torch.ones(self.spec.K)
        if posture != 1:
            weights[self.tokenizer.slices["proprioception"]] = posture
        return weights

    @property
    def spec(self) -> TokenSpec:
        """How many tokens a frame has."""
        return self.tokenizer.spec

    @property
    def actions(self) -> int:
        """Number of actions."""
        return self.world_model.actions

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return self.world_model.position.device

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by optimiser."""
        tokenizer, world_model = list(self.tokenizer.parameters()), list(self.world_model.parameters())
        groups = {"world_model": [*tokenizer, *world_model] if self.joint else world_model}
        for name in ("self_prior", "policy", "value", "drive"):
            groups[name] = list(getattr(self, name).parameters())
        groups["tokenizer"] = [] if self.joint else tokenizer
        return {name: parameters for name, parameters in groups.items() if parameters}

    def encode(self, observation: Observation, sample: bool = True) -> Encoding:
        """Observation -> tokens (and their posterior)."""
        return self.tokenizer.encode(observation, sample)

    def encode_with_loss(self, observation: Observation) -> tuple[Encoding, Loss]:
        """The same while the tokenizer learns along (E8); of tokens that a frozen one has left, loss 0. The
        only place that asks which."""
        if "tokens" in observation:
            tokens = observation["tokens"].long()
            return Encoding(tokens), Loss(torch.zeros((), device=tokens.device), {})
        return self.tokenizer.loss(observation)

    def tokens_of(self, observation: Observation) -> Tensor:
        """Tokens (..., K) of stored frames, without gradient."""
        if "tokens" in observation:
            return observation["tokens"].long()
        with torch.no_grad():
            return self.encode(observation).tokens

    def decode(self, tokens: Tensor) -> Prediction:
        """Tokens -> what they look and feel like: images in [-.5, .5], vectors in [-1, 1]."""
        return self.tokenizer.decode(tokens)

    def expected_free_energy(self, tokens: Tensor) -> Tensor:
        """G of each frame, (..., K) -> (...), in nats (E7), tokens weighed by their precision."""
        return expected_free_energy((self.self_prior.per_token_log_prob(tokens) * self.precision).sum(-1))

    def cost(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """What the policy lowers, of paths (B, T, K) and (B, T, D): (B, T) nats."""
        return self.drive.cost(self, tokens, hidden)

    def hidden_of(self, tokens: Tensor, action: Tensor) -> Tensor:
        """What the sequence model holds at each frame of a window, (B, T, K) and (B, T, A) -> (B, T, D): of
        the frames before it; nothing at the first."""
        hidden = self.world_model(tokens[:, :-1], action[:, :-1], dropout=False).float()
        return torch.cat((torch.zeros_like(hidden[:, :1]), hidden), 1)

    def update_ema(self, learned: Iterable[str]) -> None:
        """Let the slow copies follow what has learned; after the optimisers' steps."""
        for name in set(learned) & {"self_prior", "value"}:
            ema_update(getattr(self.ema, name), getattr(self, name), EMA_DECAY)


def action_mixer(inputs: int, width: int, layers: int = 1) -> nn.Sequential:
    """One linear layer (paper), or two with norms (public code, Da); neither has biases."""
    mixer: list[nn.Module] = [nn.Linear(inputs, width, bias=False)]
    if layers == 2:
        mixer += [nn.LayerNorm(width), nn.ELU(), nn.Linear(width, width, bias=False), nn.LayerNorm(width)]
    return nn.Sequential(*mixer)


def build(config: PaperAgentConfig, senses: Senses, actions: int) -> Agent:
    """The paper's agent."""
    c, code = config, config.as_public_code
    tokenizer = PaperTokenizer(senses, c.tokenizer)
    spec, width = tokenizer.spec, c.world_model.width
    style = BlockStyle(attention_bias=False, norm_eps=1e-6)  # Db
    mixer = action_mixer(spec.total + actions, width, 2 if code else 1)
    return Agent(
        c,
        tokenizer,
        WorldModel(spec, actions, c.world_model, style, UNIMIX, mixer),
        PaperSelfPrior(spec, c.self_prior),
        paper_policy(spec, width, actions, c.actor_critic.policy_hidden),
        paper_value(spec, width, c.actor_critic.value_hidden, c.actor_critic.bins),
        NoDrive() if c.drive == "none" else SelfPriorDrive(),
        joint=True,
        start="prior" if code else "posterior",
    )
