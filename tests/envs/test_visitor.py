"""What a visitor may do between two control steps: the mark, the mirror's kind, another's posture."""

import numpy as np
import pytest

from mirrormark.envs.mark import site_near
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.envs.senses import joined, picture

STILL = np.zeros((2, 12), np.float32)


@pytest.fixture
def envs() -> MirrorMarkEnvs:
    envs = MirrorMarkEnvs("infant", 2, measure_view=True)
    envs.reset(seed=0, marked=False)
    return envs


def brow(envs: MirrorMarkEnvs):
    index = next(i for i, surface in enumerate(envs.scene.surfaces) if "head" in surface.geom)
    return site_near(envs.scene.surfaces[index], index, np.array([0.06, 0.02, 0.045]))


def seen(envs: MirrorMarkEnvs) -> list[bool]:
    """Whose mirror shows a mark now."""
    return (envs.sim_state().mark_mask(envs._measuring_eye).sum((1, 2)) > 0).tolist()


def test_a_mark_that_is_stuck_on_is_seen_at_once_and_only_there(envs: MirrorMarkEnvs):
    assert seen(envs) == [False, False]
    envs.stick(1, brow(envs))
    assert envs.mark_present.tolist() == [False, True] and seen(envs) == [False, True]
    info = envs.step(STILL)[4]
    assert np.isnan(info["hand_mark_distance_m"]).tolist() == [True, False]
    envs.take_off(1)
    assert seen(envs) == [False, False]
    info = envs.step(STILL)[4]
    assert not info["mark_present"].any() and not info["mark_removed"].any()


def test_a_stuck_mark_equals_one_that_was_there_from_the_start(envs: MirrorMarkEnvs):
    born = MirrorMarkEnvs("infant", 2, measure_view=True)
    born.reset(seed=0, marked=True)
    for index in range(2):
        envs.stick(index, born.mark_state.site(index))
    for _ in range(3):
        action = np.random.default_rng(0).uniform(-1, 1, (2, 12)).astype(np.float32)
        ours, theirs = envs.step(action), born.step(action)
        assert np.array_equal(ours[0]["vision"], theirs[0]["vision"])
        assert np.array_equal(ours[4]["hand_mark_distance_m"], theirs[4]["hand_mark_distance_m"])


def test_the_mirror_changes_its_kind_at_once_and_keeps_its_place(envs: MirrorMarkEnvs):
    envs.stick(0, brow(envs))
    for kind in ("absent", "covered"):
        envs.set_mirror_kind(kind)
        assert seen(envs) == [False, False] and envs.mirrors[0].kind == kind
        fixed = MirrorMarkEnvs("infant", 2, mirror=MirrorConfig(kind))
        fixed.reset(seed=0, marked=False)
        assert np.array_equal(envs.step(STILL)[0]["vision"], fixed.step(STILL)[0]["vision"])
        envs.reset(seed=0, marked=False)
    with pytest.raises(ValueError, match="at least 1"):
        envs.set_mirror_kind("delayed")


def test_a_mirror_that_becomes_delayed_shows_the_past_from_then_on(envs: MirrorMarkEnvs):
    for _ in range(4):
        envs.step(STILL)
    envs.set_mirror_kind("delayed", 3)
    envs.stick(0, brow(envs))
    shown = []
    for _ in range(4):
        shown.append(seen(envs)[0])
        envs.step(STILL)
    assert shown == [False, False, False, True]


def test_a_posture_goes_on_before_another_mirror(envs: MirrorMarkEnvs):
    action = np.random.default_rng(1).uniform(-1, 1, (2, 12)).astype(np.float32)
    envs.step(action)
    far = MirrorMarkEnvs("infant", 2, mirror=MirrorConfig(distance_m=0.3))
    with pytest.raises(ValueError, match="take_posture came before reset"):
        far.take_posture(envs)
    far.reset(seed=7, marked=False)
    far.take_posture(envs)
    ours, theirs = envs.step(action), far.step(action)
    assert np.array_equal(ours[0]["proprioception"], theirs[0]["proprioception"])
    other = MirrorMarkEnvs("arm", 2)
    other.reset(seed=0)
    with pytest.raises(ValueError, match="same body"):
        far.take_posture(other)


def test_moments_are_drawn_together_as_one_by_one(envs: MirrorMarkEnvs):
    envs.stick(0, brow(envs))
    first = envs.sim_state()
    envs.step(STILL + 0.5)
    both = picture(envs.scene, joined([first.only(0), envs.sim_state().only(1)]), "world", 32, 32)
    assert np.array_equal(both[1], envs.picture(1, width=32, height=32))
    assert not np.array_equal(both[0], both[1])
