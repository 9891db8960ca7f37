"""What could only fail after hours, or would be silently left out, is refused at once."""

from dataclasses import replace

import pytest

from mirrormark.life.checks import check
from mirrormark.life.learner import LearnerConfig
from mirrormark.life.live import LifeConfig
from mirrormark.life.schedule import ScheduleConfig
from mirrormark.mind.dynamics import DynamicsConfig
from mirrormark.mind.mind import ImaginationConfig
from mirrormark.mind.policy import ValueConfig
from mirrormark.presets import PAPER, PRESETS, SWIFT


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_lived(name):
    check(PRESETS[name].mind, PRESETS[name].life)


def test_dreams_of_frames_start_in_the_batch_which_must_hold_their_past():
    learner = replace(PAPER.life.learner, world_frames=PAPER.mind.imagination.context)
    check(PAPER.mind, replace(PAPER.life, learner=learner))
    with pytest.raises(ValueError, match=r"learner\.world_frames is 7.*context is 8"):
        check(PAPER.mind, replace(PAPER.life, learner=replace(learner, world_frames=7)))


def test_a_frozen_codec_must_have_learned_somewhere():
    schedule = replace(SWIFT.life.schedule, codec_laps=0)
    check(SWIFT.mind, replace(SWIFT.life, schedule=schedule, codec_from="shipped"))
    with pytest.raises(ValueError, match=r"schedule\.codec_laps is 0.*never learn"):
        check(SWIFT.mind, replace(SWIFT.life, schedule=schedule))


def test_a_context_leaves_room_for_what_gate_four_dreams():
    def lived_with(context: int) -> None:
        mind = replace(PAPER.mind, dynamics=replace(PAPER.mind.dynamics, max_length=200))
        mind = replace(mind, imagination=replace(mind.imagination, context=context))
        check(mind, replace(PAPER.life, learner=replace(PAPER.life.learner, world_frames=101)))

    lived_with(80)
    with pytest.raises(ValueError, match=r"imagination\.context is 81.*a context of 80 at most"):
        lived_with(81)


@pytest.mark.parametrize("change", [{"chained": False}, {"reads": "classes"}])
def test_what_would_recall_nothing_is_refused(change):
    mind = replace(SWIFT.mind, dynamics=replace(SWIFT.mind.dynamics, **change))
    with pytest.raises(ValueError, match=r"dynamics\.recalls is 0\.97 and needs"):
        check(mind, SWIFT.life)


def test_restless_dreams_need_tokens():
    learner = replace(PAPER.life.learner, restless_share=0.5)
    with pytest.raises(ValueError, match=r"learner\.restless_share needs tokens=True"):
        check(PAPER.mind, replace(PAPER.life, learner=learner))


@pytest.mark.parametrize(
    ("kind", "fields", "named"),
    [
        (LearnerConfig, {"codec_marked_share": 7.0}, "learner.codec_marked_share"),
        (ScheduleConfig, {"codec_laps": 1, "codec_first_episodes": 0}, "schedule.codec_first_episodes"),
        (ScheduleConfig, {"codec_laps": 1, "codec_episodes_per_lap": 0}, "schedule.codec_episodes_per_lap"),
        (ScheduleConfig, {"policy_from_episode": -1}, "schedule.policy_from_episode"),
        (ScheduleConfig, {"self_prior_from_episode": -1}, "schedule.self_prior_from_episode"),
        (ImaginationConfig, {"remembers": -1}, "imagination.remembers"),
        (DynamicsConfig, {"unimix": 1.0}, "dynamics.unimix"),
        (DynamicsConfig, {"dropout": -0.1}, "dynamics.dropout"),
        (ValueConfig, {"bins": 1}, "value.bins"),
        (ValueConfig, {"reach": 0.0}, "value.reach"),
        (LifeConfig, {"pool_episodes": 1}, "life.pool_episodes"),
    ],
)  # fmt: skip
def test_a_number_that_makes_no_sense_is_named(kind, fields, named):
    with pytest.raises(ValueError, match=named.replace(".", r"\.")):
        kind(**fields)


def test_without_a_phase_of_its_own_the_codecs_episodes_do_not_matter():
    ScheduleConfig(codec_laps=0, codec_first_episodes=0, codec_episodes_per_lap=0)
