"""A training run so small that a test can have one."""

from dataclasses import replace

import torch

from mirrormark.agent.tokenizer import Tokenizer
from mirrormark.config import CategoricalTokenizerConfig, PaperAgentConfig, SymbolicTokenizerConfig
from mirrormark.presets import PAPER, SMOKE, SYMBOLIC, Config
from mirrormark.training.schedule import Iteration
from mirrormark.training.trainer import Trainer

ALL = ("world_model", "self_prior", "policy")
SCHEDULE = replace(
    SMOKE.training.schedule,
    episodes=16,
    episodes_per_iteration=4,
    steps_per_iteration=2,
    policy_from_episode=4,
    policy_acts_from_episode=4,
    evaluate_every_episodes=8,
    checkpoint_every_iterations=1,
)


def symbolic() -> Config:
    """The symbolic eye with smoke's networks and all that swift has: no pixels, no phase of the tokenizer."""
    agent = replace(SMOKE.agent, tokenizer=SymbolicTokenizerConfig(bins=8))
    return Config(SYMBOLIC.env, agent, replace(SMOKE.training, schedule=SCHEDULE))


def pixels() -> Config:
    """smoke, whose tokenizer has a phase of its own."""
    return replace(SMOKE, training=replace(SMOKE.training, schedule=SCHEDULE))


def joint(as_public_code: bool = False) -> Config:
    """The paper's agent with narrow networks: tokenizer and world model learn together."""
    small = SMOKE.agent
    agent = PaperAgentConfig(
        tokenizer=CategoricalTokenizerConfig(variables=4, classes=8, embedding=128, channels=4, hidden=8),
        world_model=replace(small.world_model, dropout=0.1),
        self_prior=small.self_prior,
        actor_critic=small.actor_critic,
        imagination=replace(PAPER.agent.imagination, context=4, horizon=4),
        as_public_code=as_public_code,
    )
    batch = replace(SMOKE.training.batch, diet_window=4)
    training = replace(
        SMOKE.training, schedule=SCHEDULE, batch=batch, tokenizer_phase=None, handover_share=0.0
    )
    return Config(PAPER.env, agent, training)


def newborn(preset: Config, seed: int = 0, tokenizer: Tokenizer | None = None) -> Trainer:
    """A run that has not begun."""
    return Trainer(preset.env, preset.agent, preset.training, seed, "cpu", tokenizer)


def frozen(preset: Config, seed: int = 0) -> Trainer:
    """The same with the tokenizer as it was drawn, frozen, and its phase left out."""
    return newborn(preset, seed, newborn(preset, seed=9).agent.tokenizer)


def iteration(stages=ALL, steps=3, index=0, policy_acts=True, progress=0.0) -> Iteration:
    phase = "tokenizer" if stages == ("tokenizer",) else "training"
    acts = policy_acts and phase == "training"
    return Iteration(index, phase, 4, 4, steps, stages, acts, False, False, progress)


def with_episodes(trainer: Trainer, iterations: int = 1) -> Trainer:
    """With the episodes of some iterations in its buffer, and nothing learned."""
    for index in range(iterations):
        trainer.buffer.extend(trainer.collect(iteration(index=index)))
    return trainer


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    """A copy of all weights."""
    return {name: value.clone() for name, value in trainer.agent.state_dict().items()}
