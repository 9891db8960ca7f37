"""Schedule: Table III as iterations."""

import pytest

from mirrormark.training.schedule import Schedule, ScheduleConfig


def test_stages_open_at_the_papers_episodes():
    schedule = Schedule(ScheduleConfig())
    opened = {}
    for iteration in schedule.iterations():
        for stage in iteration.stages:
            opened.setdefault(stage, iteration.episodes_after)
    assert opened == {"world_model": 100, "self_prior": 120, "policy": 140}


def test_the_papers_life_has_its_number_of_episodes_and_steps():
    iterations = list(Schedule(ScheduleConfig()).iterations())
    assert sum(iteration.episodes for iteration in iterations) == 50_000
    assert sum(iteration.steps for iteration in iterations) == 100 * (
        5_000 - 9
    )  # Table III's 500k less the closed first iterations
    assert sum(iteration.evaluate for iteration in iterations) == 100
    assert iterations[-1].evaluate and iterations[-1].checkpoint


def test_the_policy_moves_only_after_it_has_learned():
    iterations = list(Schedule(ScheduleConfig(episodes=200)).iterations())
    first_learning = next(iteration.index for iteration in iterations if "policy" in iteration.stages)
    first_moving = next(iteration.index for iteration in iterations if iteration.policy_moves)
    assert first_moving == first_learning + 1


def test_tokenizer_iterations_come_first_and_end_with_an_exam():
    config = ScheduleConfig(
        episodes=40, tokenizer_iterations=3, tokenizer_first_episodes=32, tokenizer_episodes_per_iteration=8
    )
    iterations = list(Schedule(config).iterations())
    assert [iteration.phase for iteration in iterations] == ["tokenizer"] * 3 + ["training"] * 4
    assert [iteration.episodes for iteration in iterations[:3]] == [32, 8, 8]
    assert [iteration.evaluate for iteration in iterations[:3]] == [False, False, True] and iterations[
        2
    ].checkpoint
    assert iterations[0].progress == 0 and iterations[2].progress < 1 and iterations[3].progress == 0


def test_resuming_continues_the_same_iterations():
    schedule = Schedule(ScheduleConfig(episodes=300))
    assert list(schedule.iterations())[17:] == list(schedule.iterations(17))


@pytest.mark.parametrize("field", ["episodes", "episodes_per_iteration", "evaluate_every_episodes"])
def test_zero_is_refused(field):
    with pytest.raises(ValueError, match=f"schedule.{field}"):
        ScheduleConfig(**{field: 0})


def test_the_self_prior_can_stop_learning():
    plan = Schedule(ScheduleConfig(episodes=300, self_prior_until_episode=200))
    learns = [iteration.episodes_after for iteration in plan.iterations() if "self_prior" in iteration.stages]
    assert (learns[0], learns[-1]) == (120, 200)
    assert "policy" in plan.iteration(plan.total_iterations - 1).stages
