"""Motor babbling."""

import numpy as np
import pytest

from mirrormark.envs.babbling import KINDS, Babbling, BabblingConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs


def episode(kind: str, seeds: list[int], steps: int = 60) -> np.ndarray:
    babbling = Babbling(BabblingConfig(kind), actions=12)
    babbling.begin(seeds)
    seen = {"proprioception": np.zeros((len(seeds), 12), np.float32)}
    return np.stack([babbling.act(seen) for _ in range(steps)], axis=1)


@pytest.mark.parametrize("kind", KINDS)
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


def test_bouts_are_held_babbling_with_rests_of_ten_to_forty_control_steps():
    seeds = list(range(300))
    bouts, held = (episode(kind, seeds, steps=100) for kind in ("bouts", "held"))
    moves = bouts.any(-1)
    assert np.array_equal(bouts[moves], held[moves]) and 0.45 < moves.mean() < 0.55
    assert 0.4 < moves[:, 0].mean() < 0.6
    for one in moves:
        turns = np.flatnonzero(np.diff(one))
        assert len(turns) and turns[0] < 40
        assert all(10 <= length <= 40 for length in np.diff(turns))


@pytest.mark.parametrize("lengths", [(0, 10), (20, 10)])
def test_impossible_bouts_are_refused(lengths):
    with pytest.raises(ValueError, match="bout_control_steps"):
        BabblingConfig("bouts", bout_control_steps=lengths)


def test_goal_babbling_reaches_its_postures():
    envs = MirrorMarkEnvs("infant", 32, tone="neck", senses=("proprioception",))
    babbling = Babbling(BabblingConfig("goal"), envs.actions)
    observation, _ = envs.reset(seed=0)
    babbling.begin(range(32))
    for _ in range(25):
        observation, *_ = envs.step(babbling.act(observation))
    arms = np.abs(babbling._values[:, 0, 2:] - observation["proprioception"][:, 2:])
    assert np.median(arms) < 0.35


def test_unknown_babbling_is_named():
    with pytest.raises(ValueError, match="dance"):
        BabblingConfig("dance")  # pyright: ignore[reportArgumentType]
