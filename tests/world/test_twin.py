"""A twin senses what the body would have sensed with left and right exchanged: an inverted life agrees."""

import numpy as np
import pytest

from mirrormark.world.mark import Site
from mirrormark.world.mirror import MirrorConfig
from mirrormark.world.senses import Vision
from mirrormark.world.twin import Twin
from mirrormark.world.worlds import Worlds

ACROSS = np.array([1.0, -1.0, 1.0])


def inverted(worlds: Worlds, twin: Twin) -> Worlds:
    """Worlds of their own, in the mirror-inverted posture and speed, with the marks on the other side."""
    other = Worlds("infant", worlds.n, senses=worlds.senses, mirror=worlds.mirrors, mark=worlds.mark)
    other.reset(seed=0)
    other._seed, other._episode = worlds._seed.copy(), worlds._episode.copy()  # equal sensor noise
    scene = worlds.scene
    for part in (1 + scene.qpos_adr, 1 + scene.model.nq + scene.dof_adr):  # after the time: angles, speeds
        other.state[:, part] = twin.act(worlds.state[:, part])
        assert np.array_equal(twin.act(other.state[:, part]), worlds.state[:, part])
    for i in range(worlds.n):
        for patch, theirs in ((other.patch, worlds.patch), (other.yoked, worlds.yoked)):
            site: Site = theirs.site(i)
            patch.put(i, site._replace(pos=site.pos * ACROSS, mat=site.mat * np.outer(ACROSS, ACROSS)))
    return other


@pytest.mark.parametrize("senses", [("vision", "proprioception"), ("cell", "proprioception")])
def test_a_twin_senses_what_an_inverted_life_brings(senses):
    mirrors = [MirrorConfig(kind=kind) for kind in ("present", "present", "covered", "absent")] * 3
    worlds = Worlds("infant", 12, senses=senses, mirror=mirrors)
    worlds.reset(seed=5)
    twin = Twin(worlds)
    other = inverted(worlds, twin)
    rng = np.random.default_rng(0)
    for _ in range(20):  # an episode of torques that are held, so that marks come off on the way
        action = rng.uniform(-1, 1, (12, worlds.actions)).astype(np.float32)
        for _ in range(5):
            _, _, _, _, info = worlds.step(action)
            seen, _, _, _, theirs = other.step(twin.act(action))
        for name, value in twin.observe().items():
            # Where bodies touch, the solver's last digits differ; pixels at edges and cells then may, too.
            same = np.abs(np.asarray(value, float) - np.asarray(seen[name], float)) <= 1e-3
            assert same.mean() > 0.99, name
        for name in ("mark_present", "yoked_touched", "mark_surface"):
            assert np.array_equal(info[name], theirs[name]), name
        assert np.array_equal(info["mark_on_left"], ~theirs["mark_on_left"])
    assert info["mark_removed"].any()  # else the marks told nothing


def test_a_turned_mirror_is_turned_the_other_way_for_a_twin():
    worlds = Worlds("infant", 2, mirror=MirrorConfig(yaw_rad=0.1))
    worlds.reset(seed=1)
    other = Worlds("infant", 2, mirror=MirrorConfig(yaw_rad=-0.1))
    other.reset(seed=1)
    panes, expected = Twin(worlds).moment(worlds.moment()).panes, other.moment().panes
    assert np.allclose(panes.centre, expected.centre) and np.allclose(panes.mat, expected.mat)
    assert not np.allclose(panes.mat, worlds.moment().panes.mat)


def test_twins_act_with_the_other_arm_and_look_the_other_way():
    worlds = Worlds("infant", 1)
    action = np.arange(1, 13, dtype=np.float32)[None] / 12
    twin = Twin(worlds).act(action)
    assert np.array_equal(twin[0, 2:7], action[0, 7:12]) and np.array_equal(twin[0, 7:12], action[0, 2:7])
    assert twin[0, 0] == action[0, 0] and twin[0, 1] == -action[0, 1]


def test_a_body_with_one_arm_has_no_twin():
    with pytest.raises(ValueError, match=r"the arm is not .* leave life\.reflects off"):
        Twin(Worlds("arm", 1))


@pytest.mark.gpu
def test_a_twins_view_on_a_gpu_is_the_cpus_and_leaves_the_bodys_own_alone():
    views = []
    for device in ("cpu", "cuda"):
        worlds = Worlds("infant", 4, senses=[Vision(noise=0)], device=device)
        observation, _ = worlds.reset(seed=2)
        twins = Twin(worlds).observe()
        views.append([np.asarray(_host(seen["vision"]), int) for seen in (observation, twins)])
    for here, there in zip(*views):
        assert (np.abs(here - there) > 2).mean() < 0.01
    assert (np.abs(views[1][0] - views[1][1]) > 2).mean() > 0.05


def _host(image):
    return image.copy_to_host() if hasattr(image, "copy_to_host") else image
