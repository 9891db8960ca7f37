"""A life so small that tests can live it."""

from dataclasses import replace

import torch

from mirrormark.agent.tokenizer import CodecConfig
from mirrormark.presets import IDEAL, PAPER, SMOKE, Preset
from mirrormark.training.env_config import WorldSetup
from mirrormark.training.schedule import ScheduleConfig
from mirrormark.training.trainer import Life

SCHEDULE = ScheduleConfig(
    episodes=16,
    episodes_per_lap=4,
    steps_per_lap=2,
    world_from_episode=0,
    self_prior_from_episode=0,
    policy_from_episode=4,
    exam_every_episodes=8,
    checkpoint_every_laps=1,
)


def symbolic() -> Preset:
    """The symbolic eye with smoke-sized nets: no pixels, no codec phase."""
    mind = replace(SMOKE.mind, codec=CodecConfig(kind="symbolic", bins=8))
    life = replace(SMOKE.life, schedule=SCHEDULE)
    return Preset(IDEAL.world, mind, life)


def cells() -> Preset:
    """Pixels by a frozen codec that has learned nothing, its tokens foreseen cell by cell."""
    return replace(SMOKE, life=replace(SMOKE.life, schedule=SCHEDULE, codec_from="nobody who ever looked"))


def joint() -> Preset:
    """The paper's way, codec and dynamics together, with a narrow categorical codec."""
    codec = CodecConfig(variables=4, classes=8, embedding=128, channels=4, vector_hidden=8)
    imagination = replace(SMOKE.mind.imagination, posture_precision=1.0)
    mind = replace(SMOKE.mind, codec=codec, losses=PAPER.mind.losses, imagination=imagination)
    learner = replace(SMOKE.life.learner, restless_share=0.0)
    life = replace(SMOKE.life, schedule=SCHEDULE, learner=learner, tokens=False)
    return Preset(WorldSetup(), mind, life)


def born(preset: Preset, seed: int = 0) -> Life:
    """A life that has not begun."""
    return Life(preset.world, preset.mind, preset.life, seed, "cpu")


def weights(life: Life) -> dict[str, torch.Tensor]:
    """A copy of all weights."""
    return {name: value.clone() for name, value in life.mind.state_dict().items()}
