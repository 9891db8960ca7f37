"""What a visitor may do between two control steps: the mark, the mirror's kind, another's posture."""

import numpy as np
import pytest

from mirrormark.envs.camera import joined, picture
from mirrormark.envs.mark import site_near
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import Worlds

STILL = np.zeros((2, 12), np.float32)


@pytest.fixture
def worlds() -> Worlds:
    worlds = Worlds("infant", 2, measure_view=True)
    worlds.reset(seed=0, marked=False)
    return worlds


def brow(worlds: Worlds):
    index = next(i for i, surface in enumerate(worlds.scene.surfaces) if "head" in surface.geom)
    return site_near(worlds.scene.surfaces[index], index, np.array([0.06, 0.02, 0.045]))


def seen(worlds: Worlds) -> list[bool]:
    """Whose mirror shows a mark now."""
    return (worlds.moment().mark_mask(worlds._measuring_eye).sum((1, 2)) > 0).tolist()


def test_a_mark_that_is_stuck_on_is_seen_at_once_and_only_there(worlds: Worlds):
    assert seen(worlds) == [False, False]
    worlds.stick(1, brow(worlds))
    assert worlds.mark_present.tolist() == [False, True] and seen(worlds) == [False, True]
    info = worlds.step(STILL)[4]
    assert np.isnan(info["hand_mark_distance_m"]).tolist() == [True, False]
    worlds.take_off(1)
    assert seen(worlds) == [False, False]
    info = worlds.step(STILL)[4]
    assert not info["mark_present"].any() and not info["mark_removed"].any()


def test_a_stuck_mark_equals_one_that_was_there_from_the_start(worlds: Worlds):
    born = Worlds("infant", 2, measure_view=True)
    born.reset(seed=0, marked=True)
    for world in range(2):
        worlds.stick(world, born.patch.site(world))
    for _ in range(3):
        action = np.random.default_rng(0).uniform(-1, 1, (2, 12)).astype(np.float32)
        ours, theirs = worlds.step(action), born.step(action)
        assert np.array_equal(ours[0]["vision"], theirs[0]["vision"])
        assert np.array_equal(ours[4]["hand_mark_distance_m"], theirs[4]["hand_mark_distance_m"])


def test_the_mirror_changes_its_kind_at_once_and_keeps_its_place(worlds: Worlds):
    worlds.stick(0, brow(worlds))
    for kind in ("absent", "covered"):
        worlds.set_mirror_kind(kind)
        assert seen(worlds) == [False, False] and worlds.mirrors[0].kind == kind
        fixed = Worlds("infant", 2, mirror=MirrorConfig(kind))
        fixed.reset(seed=0, marked=False)
        assert np.array_equal(worlds.step(STILL)[0]["vision"], fixed.step(STILL)[0]["vision"])
        worlds.reset(seed=0, marked=False)
    with pytest.raises(ValueError, match="at least 1"):
        worlds.set_mirror_kind("delayed")


def test_a_mirror_that_becomes_delayed_shows_the_past_from_then_on(worlds: Worlds):
    for _ in range(4):
        worlds.step(STILL)
    worlds.set_mirror_kind("delayed", 3)
    worlds.stick(0, brow(worlds))
    shown = []
    for _ in range(4):
        shown.append(seen(worlds)[0])
        worlds.step(STILL)
    assert shown == [False, False, False, True]


def test_a_posture_goes_on_before_another_mirror(worlds: Worlds):
    action = np.random.default_rng(1).uniform(-1, 1, (2, 12)).astype(np.float32)
    worlds.step(action)
    far = Worlds("infant", 2, mirror=MirrorConfig(distance_m=0.3))
    with pytest.raises(ValueError, match="take_posture came before reset"):
        far.take_posture(worlds)
    far.reset(seed=7, marked=False)
    far.take_posture(worlds)
    ours, theirs = worlds.step(action), far.step(action)
    assert np.array_equal(ours[0]["proprioception"], theirs[0]["proprioception"])
    other = Worlds("arm", 2)
    other.reset(seed=0)
    with pytest.raises(ValueError, match="same body"):
        far.take_posture(other)


def test_moments_are_drawn_together_as_one_by_one(worlds: Worlds):
    worlds.stick(0, brow(worlds))
    first = worlds.moment()
    worlds.step(STILL + 0.5)
    both = picture(worlds.scene, joined([first.only(0), worlds.moment().only(1)]), "world", 32, 32)
    assert np.array_equal(both[1], worlds.render(1, width=32, height=32))
    assert not np.array_equal(both[0], both[1])
