"""What a training run cannot be lived with, told before it begins: what each part accepts, but not all
together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrormark.agent.agent import AgentConfig
from mirrormark.training.evaluation_dreams import DREAM_CONTROL_STEPS
from mirrormark.training.rollout import FRAMES_PER_EPISODE

if TYPE_CHECKING:
    from mirrormark.training.trainer import TrainingConfig


def check(agent: AgentConfig, config: TrainingConfig) -> None:
    """Refuse what could only fail after hours of work."""
    _check_tokenizer(agent, config)
    frames, longest = (
        config.learner.sequence_frames,
        min(FRAMES_PER_EPISODE, agent.world_model.max_length + 1),
    )
    if frames > longest:
        raise ValueError(
            f"learner.sequence_frames is {frames}: an episode and world_model.max_length allow {longest} "
            "at most."
        )
    if not config.frozen_tokenizer and frames < agent.imagination.context:
        raise ValueError(
            f"learner.sequence_frames is {frames}: without tokens, dreams start in the world model's "
            "batch, and "
            f"imagination.context is {agent.imagination.context}; raise the one, or lower the other."
        )
    if config.learner.high_cost_starts_share and not config.frozen_tokenizer:
        raise ValueError("learner.high_cost_starts_share needs frozen_tokenizer=True: give 0.")
    world_model = agent.world_model
    if world_model.memory_trace and not (world_model.chained and world_model.token_features == "levels"):
        raise ValueError(
            f"world_model.memory_trace is {world_model.memory_trace} and needs world_model.chained and "
            "world_model.token_features='levels': "
            "set both, or give 0."
        )
    _check_lived(agent, config)
    ahead = agent.imagination.context + agent.expected_g.control_steps
    if agent.expected_g.control_steps and frames < ahead:
        raise ValueError(
            f"learner.sequence_frames is {frames}: expected G of {agent.expected_g.control_steps} control "
            "steps "
            f"needs {ahead} at least, context included."
        )
    _check_room(agent)


def _check_tokenizer(agent: AgentConfig, config: TrainingConfig) -> None:
    """Where the tokenizer learns to see."""
    s, learns = config.schedule, agent.tokenizer.kind != "symbolic"
    if s.tokenizer_iterations and not config.frozen_tokenizer:
        raise ValueError(
            "schedule.tokenizer_iterations needs frozen_tokenizer=True: a tokenizer with its own phase is "
            "then frozen."
        )
    if s.tokenizer_iterations and not learns:
        raise ValueError(
            "schedule.tokenizer_iterations is for a tokenizer that learns: the symbolic one does not; give 0."
        )
    if config.tokenizer_from and not config.frozen_tokenizer:
        raise ValueError(
            "tokenizer_from needs frozen_tokenizer=True: a tokenizer that is taken over is frozen."
        )
    if config.frozen_tokenizer and learns and not (s.tokenizer_iterations or config.tokenizer_from):
        raise ValueError(
            "schedule.tokenizer_iterations is 0, and the tokenizer, frozen by frozen_tokenizer=True, would "
            "never learn: give it iterations "
            "or a tokenizer_from."
        )


def _check_lived(agent: AgentConfig, config: TrainingConfig) -> None:
    """What learning from on-policy data needs."""
    i, frames = agent.imagination, config.learner.sequence_frames
    if i.acting_context > frames - 1:
        raise ValueError(
            f"imagination.acting_context is {i.acting_context}: the sequence model never learns more than "
            f"{frames - 1} control steps of past; raise learner.sequence_frames, or remember less."
        )
    if i.context - 1 + i.horizon >= FRAMES_PER_EPISODE:
        raise ValueError(
            f"imagination.context - 1 + horizon = {i.context - 1 + i.horizon}: an episode has "
            f"{FRAMES_PER_EPISODE - 1} control steps."
        )
    if config.handover_share and not agent.expected_g.control_steps:
        raise ValueError(
            "training.handover_share serves expected G only: set agent.expected_g.control_steps, or 0."
        )


def _check_room(agent: AgentConfig) -> None:
    """What the indicator of dreamed removal needs must fit into sequence model and episode."""
    dreamed = agent.imagination.context - 1 + DREAM_CONTROL_STEPS
    if dreamed > agent.world_model.max_length:
        raise ValueError(
            f"world_model.max_length is {agent.world_model.max_length}: the indicator of dreamed removal needs "
            f"{dreamed} steps with context."
        )
    most = FRAMES_PER_EPISODE - 1 - DREAM_CONTROL_STEPS
    if agent.imagination.context > most:
        raise ValueError(
            f"imagination.context is {agent.imagination.context}: the indicator of dreamed removal needs "
            f"{DREAM_CONTROL_STEPS} control "
            f"steps after it, and an episode leaves room for a context of {most} at most."
        )
