"""The codec's pool is not kept in checkpoints: a resumed life fills it again, to the last frame."""

from dataclasses import replace

import pytest
import torch
from tiny_trainers import born

from mirrormark.presets import SMOKE
from mirrormark.training.replay_buffer import Episodes
from mirrormark.training.trainer import Life


def without(episodes: Episodes, broken: int) -> Episodes:
    """Less those of the first worlds."""
    observation = {name: value[broken:] for name, value in episodes.observation.items()}
    return Episodes(observation, *(value[broken:] for value in episodes[1:]))


def breaking(life: Life, broken: dict[int, int], gathered: list[int]) -> Life:
    """So many worlds break in those laps, each time they are lived."""
    real = life.gather

    def gather(lap):
        gathered.append(lap.index)
        return without(real(lap), broken.get(lap.index, 0))

    life.gather = gather  # type: ignore[method-assign]
    return life


@pytest.mark.parametrize("marked_share", [0.5, 0.0], ids=["half", "none"])
@pytest.mark.parametrize("first_episodes", [4, 20], ids=["a few", "more than room"])
@pytest.mark.parametrize("broken", [{}, {1: 1, 3: 1}, {0: 1, 4: 1}], ids=["sound", "middle", "ends"])
def test_a_resumed_pool_is_the_uninterrupted_one(broken, first_episodes, marked_share):
    laps = 5
    schedule = replace(
        SMOKE.life.schedule, codec_laps=laps + 1, codec_first_episodes=first_episodes, codec_steps_per_lap=0
    )
    config = replace(SMOKE.life, schedule=schedule, pool_episodes=8, marked_share=marked_share)
    preset = replace(SMOKE, life=config)
    straight = breaking(born(preset), broken, [])
    for index in range(laps):
        straight.live(straight.schedule.lap(index))
    gathered: list[int] = []
    resumed = breaking(born(preset), broken, gathered)
    resumed.load_state(straight.state())
    one, other = straight.pool, resumed.pool
    assert one is not None and other is not None
    assert one.written == other.written and one.counts == other.counts
    assert torch.equal(one.action, other.action) and torch.equal(one._newest, other._newest)
    assert all(torch.equal(kept, other.observation[name]) for name, kept in one.observation.items())
    assert 0 not in gathered and gathered == sorted(gathered)  # what was overwritten is not gathered again
