"""Schedule: Table III as iterations."""

from dataclasses import replace

from mirrormark.config import ScheduleConfig, TokenizerPhaseConfig, TrainingConfig
from mirrormark.training.schedule import Schedule


def schedule(tokenizer_learns: bool = False, phase: TokenizerPhaseConfig | None = None, **fields) -> Schedule:
    return Schedule(TrainingConfig(ScheduleConfig(**fields), phase), tokenizer_learns)


def test_stages_open_at_the_papers_episodes():
    opened = {}
    for iteration in schedule().iterations():
        for stage in iteration.stages:
            opened.setdefault(stage, iteration.episodes_after)
    assert opened == {"world_model": 100, "self_prior": 120, "policy": 140}


def test_the_papers_run_has_its_number_of_episodes_and_steps():
    iterations = list(schedule().iterations())
    assert sum(iteration.episodes for iteration in iterations) == 50_000
    # Table III's 500k less the closed first iterations
    assert sum(iteration.steps for iteration in iterations) == 100 * (5_000 - 9)
    assert sum(iteration.evaluation for iteration in iterations) == 100
    assert iterations[-1].evaluation and iterations[-1].checkpoint


def test_the_policy_acts_from_its_own_episode_on_whether_it_has_learned_or_not():
    assert all(
        iteration.policy_acts for iteration in schedule(episodes=200).iterations()
    )  # paper: from 0 (L1)
    later = schedule(episodes=200, policy_acts_from_episode=150)
    first = next(iteration for iteration in later.iterations() if iteration.policy_acts)
    assert first.episodes_after - first.episodes == 150


def test_the_tokenizers_iterations_come_first_and_end_with_an_evaluation():
    phase = TokenizerPhaseConfig(3, first_episodes=32, episodes_per_iteration=8, steps_per_iteration=5)
    iterations = list(schedule(True, phase, episodes=40).iterations())
    assert [iteration.phase for iteration in iterations] == ["tokenizer"] * 3 + ["training"] * 4
    first = iterations[:3]
    assert [(i.episodes, i.steps, i.stages) for i in first] == [(n, 5, ("tokenizer",)) for n in (32, 8, 8)]
    assert [i.evaluation for i in first] == [False, False, True] and first[2].checkpoint
    assert not any(i.policy_acts for i in first) and all(i.episodes_after == 0 for i in first)
    assert iterations[0].progress == 0 and iterations[2].progress < 1 and iterations[3].progress == 0


def test_a_tokenizer_that_has_learned_needs_no_phase():
    config = TrainingConfig(ScheduleConfig(episodes=40), TokenizerPhaseConfig())
    assert Schedule(config, tokenizer_learns=False).tokenizer_iterations == 0
    assert Schedule(config, tokenizer_learns=True).tokenizer_iterations == 28
    assert Schedule(replace(config, tokenizer_phase=None), True).tokenizer_iterations == 0


def test_resuming_continues_the_same_iterations():
    whole = schedule(episodes=300)
    assert list(whole.iterations())[17:] == list(whole.iterations(17))
