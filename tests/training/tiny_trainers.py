"""A training run so small that tests can live it."""

from dataclasses import replace

import torch

from mirrormark.agent.tokenizer import TokenizerConfig
from mirrormark.presets import PAPER, SMOKE, SYMBOLIC, Config
from mirrormark.training.env_config import EnvConfig
from mirrormark.training.schedule import ScheduleConfig
from mirrormark.training.trainer import Trainer

SCHEDULE = ScheduleConfig(
    episodes=16,
    episodes_per_iteration=4,
    steps_per_iteration=2,
    world_model_from_episode=0,
    self_prior_from_episode=0,
    policy_from_episode=4,
    evaluate_every_episodes=8,
    checkpoint_every_iterations=1,
)


def symbolic() -> Config:
    """The symbolic eye with smoke-sized nets: no pixels, no tokenizer phase."""
    agent = replace(SMOKE.agent, tokenizer=TokenizerConfig(kind="symbolic", bins=8))
    trainer = replace(SMOKE.training, schedule=SCHEDULE)
    return Config(SYMBOLIC.env, agent, trainer)


def cells() -> Config:
    """Pixels by a frozen tokenizer that has learned nothing, its tokens foreseen cell by cell."""
    return replace(
        SMOKE, training=replace(SMOKE.training, schedule=SCHEDULE, tokenizer_from="nobody who ever looked")
    )


def joint() -> Config:
    """The paper's way, tokenizer and dynamics together, with a narrow categorical tokenizer."""
    tokenizer = TokenizerConfig(variables=4, classes=8, embedding=128, channels=4, vector_hidden=8)
    imagination = replace(SMOKE.agent.imagination, posture_precision=1.0)
    agent = replace(SMOKE.agent, tokenizer=tokenizer, losses=PAPER.agent.losses, imagination=imagination)
    learner = replace(SMOKE.training.learner, high_cost_starts_share=0.0)
    trainer = replace(SMOKE.training, schedule=SCHEDULE, learner=learner, frozen_tokenizer=False)
    return Config(EnvConfig(), agent, trainer)


def born(preset: Config, seed: int = 0) -> Trainer:
    """A training run that has not begun."""
    return Trainer(preset.env, preset.agent, preset.training, seed, "cpu")


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    """A copy of all weights."""
    return {name: value.clone() for name, value in trainer.agent.state_dict().items()}
