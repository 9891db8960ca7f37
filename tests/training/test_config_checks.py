"""What could only fail after hours, or would be silently left out, is refused at once."""

from dataclasses import replace

import pytest

from mirrormark.agent.actor_critic import ValueConfig
from mirrormark.agent.agent import ImaginationConfig
from mirrormark.agent.world_model import WorldModelConfig
from mirrormark.presets import PAPER, PRESETS, SWIFT
from mirrormark.training.config_checks import check
from mirrormark.training.learner import LearnerConfig
from mirrormark.training.schedule import ScheduleConfig
from mirrormark.training.trainer import TrainingConfig


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_lived(name):
    check(PRESETS[name].agent, PRESETS[name].training)


def test_dreams_of_frames_start_in_the_batch_which_must_hold_their_past():
    learner = replace(PAPER.training.learner, sequence_frames=PAPER.agent.imagination.context)
    check(PAPER.agent, replace(PAPER.training, learner=learner))
    with pytest.raises(ValueError, match=r"learner\.sequence_frames is 7.*context is 8"):
        check(PAPER.agent, replace(PAPER.training, learner=replace(learner, sequence_frames=7)))


def test_a_frozen_tokenizer_must_have_learned_somewhere():
    schedule = replace(SWIFT.training.schedule, tokenizer_iterations=0)
    check(SWIFT.agent, replace(SWIFT.training, schedule=schedule, tokenizer_from="shipped"))
    with pytest.raises(ValueError, match=r"schedule\.tokenizer_iterations is 0.*never learn"):
        check(SWIFT.agent, replace(SWIFT.training, schedule=schedule))


def test_a_context_leaves_room_for_what_dreamed_removal_dreams():
    def collected_with(context: int) -> None:
        agent = replace(PAPER.agent, world_model=replace(PAPER.agent.world_model, max_length=200))
        agent = replace(agent, imagination=replace(agent.imagination, context=context))
        check(agent, replace(PAPER.training, learner=replace(PAPER.training.learner, sequence_frames=101)))

    collected_with(80)
    with pytest.raises(ValueError, match=r"imagination\.context is 81.*a context of 80 at most"):
        collected_with(81)


@pytest.mark.parametrize("change", [{"chained": False}, {"token_features": "classes"}])
def test_what_would_recall_nothing_is_refused(change):
    agent = replace(SWIFT.agent, world_model=replace(SWIFT.agent.world_model, **change))
    with pytest.raises(ValueError, match=r"world_model\.memory_trace is 0\.97 and needs"):
        check(agent, SWIFT.training)


def test_high_cost_starts_need_tokens():
    learner = replace(PAPER.training.learner, high_cost_starts_share=0.5)
    with pytest.raises(ValueError, match=r"learner\.high_cost_starts_share needs frozen_tokenizer=True"):
        check(PAPER.agent, replace(PAPER.training, learner=learner))


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        (LearnerConfig, {"tokenizer_marked_share": 7.0}, "learner.tokenizer_marked_share"),
        (ScheduleConfig, {"tokenizer_iterations": 1, "tokenizer_first_episodes": 0}, "schedule.tokenizer_first_episodes"),
        (ScheduleConfig, {"tokenizer_iterations": 1, "tokenizer_episodes_per_iteration": 0}, "schedule.tokenizer_episodes_per_iteration"),
        (ScheduleConfig, {"policy_from_episode": -1}, "schedule.policy_from_episode"),
        (ScheduleConfig, {"self_prior_from_episode": -1}, "schedule.self_prior_from_episode"),
        (ImaginationConfig, {"acting_context": -1}, "imagination.acting_context"),
        (WorldModelConfig, {"unimix": 1.0}, "world_model.unimix"),
        (WorldModelConfig, {"dropout": -0.1}, "world_model.dropout"),
        (ValueConfig, {"bins": 1}, "value.bins"),
        (ValueConfig, {"reach": 0.0}, "value.reach"),
        (TrainingConfig, {"pool_episodes": 1}, "training.pool_episodes"),
    ],
)  # fmt: skip
def test_a_number_that_makes_no_sense_is_named(kind, fields, named):
    with pytest.raises(ValueError, match=named.replace(".", r"\.")):
        kind(**fields)


def test_without_a_phase_of_its_own_the_tokenizers_episodes_do_not_matter():
    ScheduleConfig(tokenizer_iterations=0, tokenizer_first_episodes=0, tokenizer_episodes_per_iteration=0)
