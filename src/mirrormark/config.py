"""Configuration of agent and training. A default is the paper's or its public code's; each says which.

Numbers that no preset changes are constants beside the code that reads them, listed in docs/paper.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


def _need(right: bool, sentence: str) -> None:
    if not right:
        raise ValueError(sentence)


# Agent -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CategoricalTokenizerConfig:
    """The paper's tokenizer (E1, Table II)."""

    variables: int = 32
    """Tokens (paper)."""
    classes: int = 32
    """Classes of each token (paper)."""
    embedding: int = 1024
    """Size of an encoded sense and of the mixer's output (paper, Table II)."""
    channels: int = 32
    """Channels of the first convolution; 32 gives Table II's 1024."""
    hidden: int = 32
    """Hidden units of the joints' encoder and decoder (paper, Table II)."""
    auxiliary: Literal["tokens", "embedding", "off"] = "tokens"
    """What the decoders' own loss decodes: the stopped inverse mixers' output (paper), the mixer's embedding
    (public code), nothing (D4)."""

    def __post_init__(self) -> None:
        _need(self.classes >= 2, f"tokenizer.classes is {self.classes}: give at least 2.")
        _need(
            self.embedding == 32 * self.channels,
            f"tokenizer.embedding must be 32 × channels = {32 * self.channels}, got {self.embedding}.",
        )


@dataclass(frozen=True)
class SymbolicTokenizerConfig:
    """Joint bins and the symbolic eye's cell: nothing is learned."""

    bins: int = 64
    """Classes of a joint's token, evenly over [-1, 1] (ours)."""

    def __post_init__(self) -> None:
        _need(self.bins >= 2, f"tokenizer.bins is {self.bins}: give at least 2.")


@dataclass(frozen=True)
class GridTokenizerConfig(SymbolicTokenizerConfig):
    """Ours: joint bins, one FSQ token for the scene, and FSQ tokens for the cells of a 4×4 grid."""

    channels: int = 48
    """Channels at half the image's side; doubled at each further halving (ours)."""
    widest: int = 4
    """The coarse maps have at most so many times `channels` (ours)."""
    posture_width: int = 512
    """Width of the network from joint angles to the decoder's coarse map (ours)."""
    levels: tuple[int, ...] = (5, 5, 5)
    """Levels of a vision token's scalars; odd, so that a token can be exactly inactive (ours)."""
    tokens_per_cell: int = 1
    """Vision tokens in each cell (ours)."""
    scene_tokens: int = 1
    """Vision tokens for the view as a whole (ours): a room without its mirror is said once."""
    encoder_sees: Literal["image", "surprise"] = "surprise"
    """The image, or also its difference from what the decoder paints from the joint angles alone (ours)."""
    vision_token_dropout: float = 0.1
    """Share of frames that the decoder must paint from the joint angles alone while learning (ours)."""
    rate: float = 0.4
    """Weight of the rate term that keeps vision tokens inactive unless they serve (ours)."""
    rate_ramp: float = 0.5
    """Share of the tokenizer's phase over which that weight grows from 0 (ours): a cell that falls inactive
    before its tokens mean anything to the decoder stays so."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("vision_token_dropout", "rate_ramp"):
            value = getattr(self, name)
            _need(0 <= value <= 1, f"tokenizer.{name} is a share: give a number from 0 to 1, not {value}.")
        _need(self.rate >= 0, f"tokenizer.rate is {self.rate}: it cannot be negative.")


@dataclass(frozen=True)
class WorldModelConfig:
    """E2. Defaults: the paper's."""

    width: int = 512
    """Size of e_t and h_t (paper, Table II)."""
    layers: int = 2
    """Transformer blocks (paper, Table II)."""
    heads: int = 8
    """Attention heads (paper, Table II)."""
    ffn: int = 1024
    """Width inside the blocks (public code)."""
    dropout: float = 0.1
    """Dropout while learning (paper, Table II)."""
    max_length: int = 64
    """Longest sequence in control steps (public code's batches, D6)."""

    def __post_init__(self) -> None:
        _need(
            0 <= self.dropout < 1, f"world_model.dropout is {self.dropout}: give a share from 0 to below 1."
        )
        _need(self.width % self.heads == 0, "world_model.width must be a multiple of world_model.heads.")


@dataclass(frozen=True)
class SelfPriorConfig:
    """E3. Defaults: the public code's (D7)."""

    width: int = 128
    """Size of a token's embedding (public code, D7)."""
    layers: int = 2
    """Transformer blocks (public code, D7)."""
    heads: int = 8
    """Attention heads (public code, D7)."""
    ffn: int = 256
    """Width inside the blocks (public code, D7)."""

    def __post_init__(self) -> None:
        _need(self.width % self.heads == 0, "self_prior.width must be a multiple of self_prior.heads.")


@dataclass(frozen=True)
class ActorCriticConfig:
    """E4: sizes of policy and value."""

    policy_hidden: int = 128
    """Hidden units of the policy (paper, Table II)."""
    value_hidden: int = 256
    """Hidden units of the value (paper, Table II)."""
    bins: int = 255
    """Classes of the value's two-hot (paper, Table II)."""

    def __post_init__(self) -> None:
        _need(self.bins >= 2, f"actor_critic.bins is {self.bins}: give at least 2.")


@dataclass(frozen=True)
class ImaginationConfig:
    """Imagined paths and returns (E11). Defaults: the paper's."""

    horizon: int = 16
    """Imagined control steps (paper)."""
    context: int = 8
    """Frames, the present one included, from which imagination starts (public code)."""
    discount: float = 0.997
    """γ (paper, Table III)."""
    entropy: float = 3e-4
    """η, weight of the policy's entropy (paper, Table III)."""

    def __post_init__(self) -> None:
        _need(
            self.horizon >= 1 and self.context >= 1,
            "imagination.horizon and imagination.context must be at least 1 control step.",
        )
        _need(0 < self.discount <= 1, "imagination.discount must lie in (0, 1].")


@dataclass(frozen=True)
class PaperAgentConfig:
    """The paper's agent. What the paper leaves open is as in its public code (docs/paper.md)."""

    kind: Literal["paper"] = "paper"
    """Which builder reads this."""
    tokenizer: CategoricalTokenizerConfig = field(default_factory=CategoricalTokenizerConfig)
    """E1: observation to tokens and back."""
    world_model: WorldModelConfig = field(default_factory=WorldModelConfig)
    """E2: what happens next."""
    self_prior: SelfPriorConfig = field(default_factory=SelfPriorConfig)
    """E3: how familiar a frame is."""
    actor_critic: ActorCriticConfig = field(default_factory=ActorCriticConfig)
    """E4: policy and value."""
    imagination: ImaginationConfig = field(default_factory=ImaginationConfig)
    """Imagined paths and returns."""
    as_public_code: bool = False
    """Where paper and public code disagree, do as the code: an action mixer of two layers (Da), imagination
    and acting on a prior sample, blind to the present frame (D10, Dd, De), losses weighted by γ^t (P3)."""
    drive: Literal["self_prior", "none"] = "self_prior"
    """What the policy lowers: G (E7), or nothing but its own predictability (a control)."""

    def __post_init__(self) -> None:
        _check_imagination(self.imagination, self.world_model)
        _need(
            not (self.as_public_code and self.imagination.context < 2),
            "imagination.context must be at least 2 with as_public_code: one frame predicts the next.",
        )


@dataclass(frozen=True)
class ExpectedGConfig:
    """Expected G under babbling: what the policy lowers instead of the present frame's G."""

    control_steps: int = 24
    """Over how many control steps of motor babbling G is predicted; 0: the present frame's G (ours)."""
    hidden: int = 256
    """Hidden units (ours)."""
    bins: int = 151
    """Classes of the two-hot (ours)."""
    reach: float = 150.0
    """Its bins span 0 to this, in nats (ours)."""

    def __post_init__(self) -> None:
        _need(self.control_steps >= 0, "expected_g.control_steps must not be negative: 0 leaves it out.")
        _need(
            self.bins >= 2 and self.reach > 0, "expected_g.bins must be at least 2, expected_g.reach above 0."
        )


@dataclass(frozen=True)
class OnPolicyConfig:
    """Real episodes of the policy as a source of what it learns from, beside imagination."""

    policy_share: float = 0.97
    """Share of real episodes in the policy's loss (ours)."""
    value_share: float = 0.9
    """Share of real episodes in the value's loss (ours)."""
    windows: int = 64
    """Windows of the newest episodes in a batch (ours)."""

    def __post_init__(self) -> None:
        for name in ("policy_share", "value_share"):
            value = getattr(self, name)
            _need(0 <= value <= 1, f"on_policy.{name} is a share: give a number from 0 to 1, not {value}.")
        _need(self.windows >= 1, f"on_policy.windows is {self.windows}: give at least 1.")


@dataclass(frozen=True)
class ActionNoiseConfig:
    """The acting policy's noise, an AR(1) process. Imagination draws it anew at every step."""

    rho: float = 0.95
    """Its correlation from one control step to the next (ours): 1.2 s."""
    final_rho: float | None = 0.0
    """What ρ falls to by the end of training, with which a trained agent acts; None: it stays (ours)."""
    decay_power: float = 6.0
    """How slowly at first: 1 in equal steps, 2 by the square of progress, and so on (ours)."""

    def __post_init__(self) -> None:
        for name in ("rho", "final_rho"):
            value = getattr(self, name)
            _need(0 <= (value or 0) < 1, f"action_noise.{name} is {value}: give a number from 0 to below 1.")
        _need(self.decay_power > 0, f"action_noise.decay_power is {self.decay_power}: give a number above 0.")

    def at(self, progress: float) -> float:
        """ρ at a progress of 0 to 1."""
        final = self.rho if self.final_rho is None else self.final_rho
        return self.rho + (final - self.rho) * progress**self.decay_power


@dataclass(frozen=True)
class SwiftAgentConfig:
    """Ours: an actor-critic (PPO's clipped objective) on the tokens of a frozen tokenizer, whose only cost
    comes from a learned density; imagination adds a few percent of what it learns from."""

    kind: Literal["swift"] = "swift"
    """Which builder reads this."""
    tokenizer: GridTokenizerConfig | SymbolicTokenizerConfig = field(default_factory=GridTokenizerConfig)
    """Observation to tokens and back."""
    world_model: WorldModelConfig = field(
        default_factory=lambda: WorldModelConfig(256, 4, 8, 768, 0.1, max_length=80)
    )
    """Half of the paper's width, twice its layers."""
    self_prior: SelfPriorConfig = field(default_factory=lambda: SelfPriorConfig(128, 3, 4, 512))
    """Deeper than the paper's: vision is to be predicted from posture."""
    actor_critic: ActorCriticConfig = field(default_factory=lambda: ActorCriticConfig(256, 256, 255))
    """Policy and value."""
    imagination: ImaginationConfig = field(
        # A removal takes ten control steps of touch, which the context must show. A discount of .97 makes a
        # reach of 20 steps not worth what it saves.
        default_factory=lambda: ImaginationConfig(context=16, discount=0.99, entropy=1e-3)
    )
    """Imagined paths and returns."""
    acting_context: int = 79
    """Control steps of its past that an acting agent keeps before it is cut back to `imagination.context`,
    and that it learns with from real episodes; 0: as many as imagination has (ours)."""
    posture_precision: float = 0.05
    """Weight in G of the joint tokens, beside 1 for all others (ours; sensory attenuation, after Brown et al.
    2013): else the policy tends its posture and leaves the mark alone."""
    value_reach: float = 5000.0
    """The value's bins span ± this, evenly in nats (ours)."""
    expected_g: ExpectedGConfig = field(default_factory=ExpectedGConfig)
    """The drive: expected G under babbling, or G."""
    on_policy: OnPolicyConfig | None = field(default_factory=OnPolicyConfig)
    """Real episodes as a source beside imagination; None: imagination alone."""
    action_noise: ActionNoiseConfig = field(default_factory=ActionNoiseConfig)
    """Noise of the acting policy."""
    drive: Literal["self_prior", "none"] = "self_prior"
    """What the policy lowers: G of the self-prior, or expected G where `expected_g.control_steps` is above 0;
    or nothing but its own predictability (a control)."""

    def __post_init__(self) -> None:
        i, w = self.imagination, self.world_model
        _check_imagination(i, w)
        least = i.context - 1 + i.horizon
        _need(
            not self.acting_context or least <= self.acting_context <= w.max_length,
            f"acting_context is {self.acting_context}: give 0, or a number from what imagination has "
            f"({least}) to world_model.max_length ({w.max_length}).",
        )
        _need(
            self.on_policy is None or i.context >= 2,
            "imagination.context must be at least 2 with on_policy: a past.",
        )
        _need(
            self.posture_precision >= 0, "posture_precision must not be negative: 1 weighs all tokens alike."
        )
        _need(self.value_reach > 0, f"value_reach is {self.value_reach}: give a number above 0.")


AgentConfig = PaperAgentConfig | SwiftAgentConfig


def _check_imagination(imagination: ImaginationConfig, world_model: WorldModelConfig) -> None:
    steps = imagination.context + imagination.horizon
    _need(
        steps <= world_model.max_length,
        f"imagination.context + horizon = {steps} does not fit into world_model.max_length = "
        f"{world_model.max_length}: raise the one, or lower the others.",
    )


# Training --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OptimizerConfig:
    """Learning rate of one group of parameters; what else belongs to it is a table in training/optim.py."""

    learning_rate: float = 3e-5
    """Step size (not in the paper; public code, D6)."""
    final_learning_rate: float | None = None
    """Where a cosine from `learning_rate` ends; None keeps it constant (ours)."""
    eps: float = 1e-5
    """Added to Adam's denominator (paper, Table III; public code: 1e-8 for world model and self-prior,
    O1)."""

    def __post_init__(self) -> None:
        _need(self.learning_rate > 0, f"learning_rate is {self.learning_rate}: give a number above 0.")


@dataclass(frozen=True)
class OptimizersConfig:
    """One for each group of parameters."""

    tokenizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(1e-3, 5e-5))
    """The tokenizer in a phase of its own (ours)."""
    world_model: OptimizerConfig = field(default_factory=OptimizerConfig)
    """World model; in joint training the tokenizer, too."""
    self_prior: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Self-prior."""
    policy: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Policy."""
    value: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Value."""
    drive: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The drive, where it learns (ours)."""


@dataclass(frozen=True)
class BatchConfig:
    """What one train step draws."""

    sequences: int = 32
    """Sequences in a world-model batch (public code, D6)."""
    sequence_frames: int = 64
    """Frames in each of them (public code, D6)."""
    self_prior_frames: int = 2048
    """Frames in a self-prior batch (public code: 32 × 64, D6)."""
    diet_window: int = 64
    """The self-prior's frames come in windows of so many consecutive ones (public code, S3)."""
    diet_marked_share: float = 0.05
    """Share of the self-prior's frames from marked episodes (paper: about 5%; D5)."""
    diet_babbling_only: bool = True
    """The self-prior learns from motor babbling only, not from the policy's episodes (D5)."""
    imagined: int = 1024
    """Imagined paths in a policy batch (public code, D6)."""
    tokenizer_frames: int = 512
    """Frames in a batch of the tokenizer's own phase (ours)."""
    tokenizer_marked_share: float = 0.5
    """Share of marked episodes among them (ours: as in replay, half)."""

    def __post_init__(self) -> None:
        for name in ("sequences", "self_prior_frames", "diet_window", "imagined", "tokenizer_frames"):
            _need(getattr(self, name) >= 1, f"batch.{name} is {getattr(self, name)}: give at least 1.")
        _need(
            self.sequence_frames >= 2,
            "batch.sequence_frames must be at least 2: a frame is predicted from the one before.",
        )
        for name in ("diet_marked_share", "tokenizer_marked_share"):
            value = getattr(self, name)
            _need(0 <= value <= 1, f"batch.{name} is a share: give a number from 0 to 1, not {value}.")


@dataclass(frozen=True)
class ScheduleConfig:
    """When the agent gathers, learns and is evaluated. Defaults: the paper's."""

    episodes: int = 50_000
    """Episodes in all, after the tokenizer's phase where there is one (paper Table III)."""
    episodes_per_iteration: int = 10
    """New episodes of an iteration (paper Table III)."""
    steps_per_iteration: int = 100
    """Train steps after them (paper Table III)."""
    policy_acts_from_episode: int = 0
    """The policy moves its share of the episodes from here on (public code, L1)."""
    world_model_from_episode: int = 100
    """The world model learns from here on (paper Table III)."""
    self_prior_from_episode: int = 120
    """The self-prior learns from here on (paper Table III)."""
    policy_from_episode: int = 140
    """Policy and value learn from here on (paper Table III)."""
    evaluate_every_episodes: int = 500
    """Evaluation and snapshot after each so many episodes (paper Table III)."""
    checkpoint_every_iterations: int = 10
    """Iterations between checkpoints; the last one and Ctrl-C write one too (ours)."""

    def __post_init__(self) -> None:
        for name in (
            "episodes",
            "episodes_per_iteration",
            "evaluate_every_episodes",
            "checkpoint_every_iterations",
        ):
            _need(getattr(self, name) >= 1, f"schedule.{name} is {getattr(self, name)}: give at least 1.")
        for name in (
            "steps_per_iteration",
            "policy_acts_from_episode",
            "world_model_from_episode",
            "self_prior_from_episode",
            "policy_from_episode",
        ):
            _need(
                getattr(self, name) >= 0, f"schedule.{name} is {getattr(self, name)}: it cannot be negative."
            )


@dataclass(frozen=True)
class TokenizerPhaseConfig:
    """A phase in which the tokenizer alone learns, on single babbling frames, before it is frozen (ours)."""

    iterations: int = 28
    """Iterations of the phase."""
    first_episodes: int = 512
    """Episodes with which its buffer is first filled."""
    episodes_per_iteration: int = 256
    """New episodes before each further iteration."""
    steps_per_iteration: int = 900
    """Train steps of an iteration."""
    buffer_episodes: int = 2_048
    """Newest episodes that the phase draws frames from; they are the first of the replay buffer then."""
    source: str | None = None
    """A run, checkpoint or snapshot whose tokenizer is taken over, frozen; the phase is then left out.
    shipped: the one that comes with the package for this body, where there is one."""

    def __post_init__(self) -> None:
        for name in ("iterations", "first_episodes", "episodes_per_iteration", "steps_per_iteration"):
            _need(
                getattr(self, name) >= (name == "first_episodes"),
                f"tokenizer_phase.{name} is {getattr(self, name)}: it is too small.",
            )
        _need(
            self.buffer_episodes >= 2,
            f"tokenizer_phase.buffer_episodes is {self.buffer_episodes}: give at least 2, for two groups.",
        )


@dataclass(frozen=True)
class EvaluationConfig:
    """How many held-out episodes stand behind the indicators."""

    babbling_episodes: int = 256
    """Held-out episodes of motor babbling, three quarters of them marked (ours)."""
    pairs: int = 512
    """Most paired frames, with and without mark (ours)."""
    policy_episodes: int = 128
    """Marked episodes moved by the policy (ours; the exam proper has its own number)."""

    def __post_init__(self) -> None:
        _need(
            min(self.babbling_episodes, self.policy_episodes) >= 4 and self.pairs >= 1,
            "evaluation needs at least 4 babbling and policy episodes and 1 pair.",
        )


@dataclass(frozen=True)
class TrainingConfig:
    """Schedule, batches, optimisers and replay of one training run."""

    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """When it gathers, learns and is evaluated."""
    tokenizer_phase: TokenizerPhaseConfig | None = None
    """A frozen tokenizer, learned before the rest; None: tokenizer and world model learn together (paper)."""
    batch: BatchConfig = field(default_factory=BatchConfig)
    """What one train step draws."""
    optim: OptimizersConfig = field(default_factory=OptimizersConfig)
    """Learning rates."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Held-out episodes behind the indicators."""
    replay_episodes: int = 1000
    """Episodes kept, a quarter each of four groups, first in first out (paper Table III; D22)."""
    marked_share: float = 0.5
    """Share of marked episodes (paper Table III)."""
    policy_share: float = 0.5
    """Share of episodes that the policy moves, once it does (paper: half)."""
    handover_share: float = 0.0
    """Share of these in which motor babbling takes over at some control step, so that expected G sees what
    follows on what the policy does (ours; 0 = off)."""
    precision: Literal["fp32", "tf32", "bf16"] = "tf32"
    """Of matrix products and convolutions on a GPU. tf32: as the public code. bf16: autocast; logits, KL,
    returns and optimisers stay fp32. Always fp32 on a CPU."""
    cuda_graph: bool = True
    """Compile the train step and capture it in a CUDA graph, on a GPU."""

    def __post_init__(self) -> None:
        _need(self.replay_episodes >= 4, "replay_episodes must be at least 4, one episode for each group.")
        for name in ("marked_share", "policy_share", "handover_share"):
            value = getattr(self, name)
            _need(0 <= value <= 1, f"training.{name} is a share: give a number from 0 to 1, not {value}.")
