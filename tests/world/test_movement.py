"""Everyday movement."""

import numpy as np
import pytest

from mirrormark.world.movement import Movement, MovementConfig
from mirrormark.world.worlds import Worlds


def episode(kind: str, seeds: list[int], steps: int = 60) -> np.ndarray:
    movement = Movement(MovementConfig(kind), actions=12)
    movement.begin(seeds)
    seen = {"proprioception": np.zeros((len(seeds), 12), np.float32)}
    return np.stack([movement.act(seen) for _ in range(steps)], axis=1)


@pytest.mark.parametrize("kind", ["iid", "held", "goal"])
def test_actions_are_legal_and_depend_on_their_own_seed_only(kind):
    together, alone = episode(kind, [4, 5, 6]), episode(kind, [5])
    assert (np.abs(together) <= 1).all()
    assert np.array_equal(together[1], alone[0])
    assert not np.array_equal(together[0], together[1])


def test_holds_are_drawn_per_episode_up_to_the_longest():
    actions = episode("held", list(range(200)), steps=80)
    holds = []
    for one in actions:
        changes = np.flatnonzero((np.diff(one, axis=0) != 0).any(1)) + 1
        assert len(set(np.diff([0, *changes]))) == 1
        holds.append(changes[0])
    assert min(holds) == 1 and max(holds) == 16


def test_goal_babbling_reaches_its_postures():
    worlds = Worlds("infant", 32, tone="neck", senses=("proprioception",))
    movement = Movement(MovementConfig("goal"), worlds.actions)
    observation, _ = worlds.reset(seed=0)
    movement.begin(range(32))
    for _ in range(25):
        observation, *_ = worlds.step(movement.act(observation))
    arms = np.abs(movement._values[:, 0, 2:] - observation["proprioception"][:, 2:])
    assert np.median(arms) < 0.35


def test_unknown_movement_is_named():
    with pytest.raises(ValueError, match="dance"):
        MovementConfig("dance")  # pyright: ignore[reportArgumentType]
