"""What a life cannot be lived with, told before it begins: what each part accepts, but not all together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrormark.agent.agent import MindConfig
from mirrormark.training.evaluation_dreams import DREAM_CONTROL_STEPS
from mirrormark.training.rollout import FRAMES_PER_EPISODE

if TYPE_CHECKING:
    from mirrormark.training.trainer import LifeConfig


def check(mind: MindConfig, config: LifeConfig) -> None:
    """Refuse what could only fail after hours of work."""
    _check_codec(mind, config)
    frames, longest = config.learner.world_frames, min(FRAMES_PER_EPISODE, mind.dynamics.max_length + 1)
    if frames > longest:
        raise ValueError(
            f"learner.world_frames is {frames}: an episode and dynamics.max_length allow {longest} at most."
        )
    if not config.tokens and frames < mind.imagination.context:
        raise ValueError(
            f"learner.world_frames is {frames}: without tokens, dreams start in the world model's batch, and "
            f"imagination.context is {mind.imagination.context}; raise the one, or lower the other."
        )
    if config.learner.restless_share and not config.tokens:
        raise ValueError("learner.restless_share needs tokens=True: give 0.")
    dynamics = mind.dynamics
    if dynamics.recalls and not (dynamics.chained and dynamics.reads == "levels"):
        raise ValueError(
            f"dynamics.recalls is {dynamics.recalls} and needs dynamics.chained and dynamics.reads='levels': "
            "set both, or give 0."
        )
    _check_lived(mind, config)
    ahead = mind.imagination.context + mind.outlook.control_steps
    if mind.outlook.control_steps and frames < ahead:
        raise ValueError(
            f"learner.world_frames is {frames}: an outlook of {mind.outlook.control_steps} control steps "
            f"needs {ahead} at least, context included."
        )
    _check_room(mind)


def _check_codec(mind: MindConfig, config: LifeConfig) -> None:
    """Where the codec learns to see."""
    s, learns = config.schedule, mind.codec.kind != "symbolic"
    if s.codec_laps and not config.tokens:
        raise ValueError("schedule.codec_laps needs tokens=True: a codec with its own phase is then frozen.")
    if s.codec_laps and not learns:
        raise ValueError("schedule.codec_laps is for a codec that learns: the symbolic one does not; give 0.")
    if config.codec_from and not config.tokens:
        raise ValueError("codec_from needs tokens=True: a codec that is taken over is frozen.")
    if config.tokens and learns and not (s.codec_laps or config.codec_from):
        raise ValueError(
            "schedule.codec_laps is 0, and the codec, frozen by tokens=True, would never learn: give it laps "
            "or a codec_from."
        )


def _check_lived(mind: MindConfig, config: LifeConfig) -> None:
    """What learning from life needs."""
    i, frames = mind.imagination, config.learner.world_frames
    if i.remembers > frames - 1:
        raise ValueError(
            f"imagination.remembers is {i.remembers}: the sequence model never learns more than "
            f"{frames - 1} control steps of past; raise learner.world_frames, or remember less."
        )
    if i.context - 1 + i.horizon >= FRAMES_PER_EPISODE:
        raise ValueError(
            f"imagination.context - 1 + horizon = {i.context - 1 + i.horizon}: an episode has "
            f"{FRAMES_PER_EPISODE - 1} control steps."
        )
    if config.let_go_share and not mind.outlook.control_steps:
        raise ValueError("life.let_go_share serves an outlook only: set mind.outlook.control_steps, or 0.")


def _check_room(mind: MindConfig) -> None:
    """What gate 4 dreams must fit into sequence model and episode."""
    dreamed = mind.imagination.context - 1 + DREAM_CONTROL_STEPS
    if dreamed > mind.dynamics.max_length:
        raise ValueError(
            f"dynamics.max_length is {mind.dynamics.max_length}: gate 4 dreams {dreamed} steps with context."
        )
    most = FRAMES_PER_EPISODE - 1 - DREAM_CONTROL_STEPS
    if mind.imagination.context > most:
        raise ValueError(
            f"imagination.context is {mind.imagination.context}: gate 4 dreams {DREAM_CONTROL_STEPS} control "
            f"steps after it, and an episode leaves room for a context of {most} at most."
        )
