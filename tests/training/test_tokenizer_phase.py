"""The tokenizer's pool is not kept in checkpoints: a resumed life fills it again, to the last frame."""

from dataclasses import replace

import pytest
import torch
from tiny_trainers import born

from mirrormark.presets import SMOKE
from mirrormark.training.replay_buffer import Episodes
from mirrormark.training.trainer import Trainer


def without(episodes: Episodes, broken: int) -> Episodes:
    """Less those of the first worlds."""
    observation = {name: value[broken:] for name, value in episodes.observation.items()}
    return Episodes(observation, *(value[broken:] for value in episodes[1:]))


def breaking(trainer: Trainer, broken: dict[int, int], collected: list[int]) -> Trainer:
    """So many worlds break in those iterations, each time they are lived."""
    real = trainer.collect

    def collect(iteration):
        collected.append(iteration.index)
        return without(real(iteration), broken.get(iteration.index, 0))

    trainer.collect = collect  # type: ignore[method-assign]
    return trainer


@pytest.mark.parametrize("marked_share", [0.5, 0.0], ids=["half", "none"])
@pytest.mark.parametrize("first_episodes", [4, 20], ids=["a few", "more than room"])
@pytest.mark.parametrize("broken", [{}, {1: 1, 3: 1}, {0: 1, 4: 1}], ids=["sound", "middle", "ends"])
def test_a_resumed_pool_is_the_uninterrupted_one(broken, first_episodes, marked_share):
    iterations = 5
    schedule = replace(
        SMOKE.training.schedule,
        tokenizer_iterations=iterations + 1,
        tokenizer_first_episodes=first_episodes,
        tokenizer_steps_per_iteration=0,
    )
    config = replace(SMOKE.training, schedule=schedule, pool_episodes=8, marked_share=marked_share)
    preset = replace(SMOKE, training=config)
    straight = breaking(born(preset), broken, [])
    for index in range(iterations):
        straight.run_iteration(straight.schedule.iteration(index))
    collected: list[int] = []
    resumed = breaking(born(preset), broken, collected)
    resumed.load_state(straight.state())
    one, other = straight.pool, resumed.pool
    assert one is not None and other is not None
    assert one.written == other.written and one.counts == other.counts
    assert torch.equal(one.action, other.action) and torch.equal(one._newest, other._newest)
    assert all(torch.equal(kept, other.observation[name]) for name, kept in one.observation.items())
    assert 0 not in collected and collected == sorted(collected)  # what was overwritten is not gathered again
