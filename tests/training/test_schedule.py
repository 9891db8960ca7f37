"""Schedule: Table III as laps."""

import pytest

from mirrormark.training.schedule import Schedule, ScheduleConfig


def test_stages_open_at_the_papers_episodes():
    schedule = Schedule(ScheduleConfig())
    opened = {}
    for lap in schedule.laps():
        for stage in lap.stages:
            opened.setdefault(stage, lap.episodes_after)
    assert opened == {"world": 100, "self_prior": 120, "policy": 140}


def test_the_papers_life_has_its_number_of_episodes_and_steps():
    laps = list(Schedule(ScheduleConfig()).laps())
    assert sum(lap.episodes for lap in laps) == 50_000
    assert sum(lap.steps for lap in laps) == 100 * (5_000 - 9)  # Table III's 500k less the closed first laps
    assert sum(lap.exam for lap in laps) == 100
    assert laps[-1].exam and laps[-1].checkpoint


def test_the_policy_moves_only_after_it_has_learned():
    laps = list(Schedule(ScheduleConfig(episodes=200)).laps())
    first_learning = next(lap.index for lap in laps if "policy" in lap.stages)
    first_moving = next(lap.index for lap in laps if lap.policy_moves)
    assert first_moving == first_learning + 1


def test_codec_laps_come_first_and_end_with_an_exam():
    config = ScheduleConfig(episodes=40, codec_laps=3, codec_first_episodes=32, codec_episodes_per_lap=8)
    laps = list(Schedule(config).laps())
    assert [lap.phase for lap in laps] == ["codec"] * 3 + ["life"] * 4
    assert [lap.episodes for lap in laps[:3]] == [32, 8, 8]
    assert [lap.exam for lap in laps[:3]] == [False, False, True] and laps[2].checkpoint
    assert laps[0].progress == 0 and laps[2].progress < 1 and laps[3].progress == 0


def test_resuming_continues_the_same_laps():
    schedule = Schedule(ScheduleConfig(episodes=300))
    assert list(schedule.laps())[17:] == list(schedule.laps(17))


@pytest.mark.parametrize("field", ["episodes", "episodes_per_lap", "exam_every_episodes"])
def test_zero_is_refused(field):
    with pytest.raises(ValueError, match=f"schedule.{field}"):
        ScheduleConfig(**{field: 0})


def test_the_self_prior_can_stop_learning():
    plan = Schedule(ScheduleConfig(episodes=300, self_prior_until_episode=200))
    learns = [lap.episodes_after for lap in plan.laps() if "self_prior" in lap.stages]
    assert (learns[0], learns[-1]) == (120, 200)
    assert "policy" in plan.lap(plan.total_laps - 1).stages
