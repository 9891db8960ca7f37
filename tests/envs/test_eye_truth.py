"""The eye against MuJoCo's own renderer with planar reflectance.

The eye sits inside the head, whose geoms it leaves out of the direct view but not out of the mirror's. MuJoCo
cannot do both in one picture: the truth is put together from three of its pictures, without asking our eye:
  direct    the head and the marks hidden: right wherever a pixel does not show the pane;
  pane      the same as a segmentation: which pixels show the pane;
  mirror    all is shown, but the near plane is pushed past the head's own surface: right on the pane.
MuJoCo's reflection is exact if the pane is black and opaque, shadows are off and the room is made of geoms.
"""

import copy
from contextlib import contextmanager

import mujoco
import numpy as np
import pytest

from mirrormark.envs import bodies
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.raycaster.eye import Eye, camera_of, panes_of
from mirrormark.envs.scene import build, park_marks, place_mark_for_gl

from .eye_envs import Poses, body_poses, own_eye, random_marks, random_qpos

pytestmark = pytest.mark.gl

PAST_THE_HEAD_M = 0.03
HIDDEN = 5  # a geom group that MuJoCo does not draw
OFF = ("SHADOW", "SKYBOX", "HAZE", "FOG")


class Truth:
    """MuJoCo's pictures of one scene."""

    def __init__(self, scene, camera: str, width: int = 64, height: int = 64) -> None:
        self.scene, self.camera = scene, camera
        self.model = copy.copy(scene.model)
        self.data = mujoco.MjData(self.model)
        self._renderer = mujoco.Renderer(self.model, height, width)

    def pose(self, qpos, marks, w: int, surface: str) -> None:
        park_marks(self.model)
        place_mark_for_gl(self.model, surface, marks.pos[w], marks.mat[w][:, 2])
        self.data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def third_person(self) -> np.ndarray:
        return self._shot()

    def own_eye(self) -> np.ndarray:
        with self._hidden_head():
            direct = self._shot()
            self._renderer.enable_segmentation_rendering()
            shown = self._shot()
            self._renderer.disable_segmentation_rendering()
        pane = (shown[..., 0] == self.scene.mirror_geom_id) & (shown[..., 1] == mujoco.mjtObj.mjOBJ_GEOM)
        near, self.model.vis.map.znear = self.model.vis.map.znear, PAST_THE_HEAD_M
        mirror = self._shot()
        self.model.vis.map.znear = near
        return np.where(pane[..., None], mirror, direct)

    def close(self) -> None:
        self._renderer.close()

    @contextmanager
    def _hidden_head(self):
        groups = self.model.geom_group.copy()
        for g in range(self.model.ngeom):
            own = self.model.geom_bodyid[g] == self.scene.eye_body_id
            if own or self.model.geom(g).name.startswith("mark_"):
                self.model.geom_group[g] = HIDDEN
        yield
        self.model.geom_group[:] = groups

    def _shot(self) -> np.ndarray:
        self._renderer.update_scene(self.data, self.camera)
        for flag in OFF:
            self._renderer.scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{flag}")] = 0
        return self._renderer.render().astype(int)


def compare(scene, truth: Truth, eye: Eye, n: int, picture) -> tuple[np.ndarray, np.ndarray]:
    """Largest difference of the three colours at each pixel of n states, and how green the truth is."""
    qpos = random_qpos(scene, n, seed=5)
    marks, surfaces = random_marks(scene, n, seed=6)
    poses = body_poses(scene.model, qpos)
    ours = eye.render(*Poses(*poses, *poses, panes_of(scene.model, n), marks), np.zeros(n, np.uint64), 0)
    theirs = np.empty(ours.shape, int)
    for w in range(n):
        truth.pose(qpos[w], marks, w, surfaces[w])
        theirs[w] = picture(truth)
    truth.close()
    return np.abs(theirs - ours).max(axis=3), theirs[..., 1] - theirs[..., [0, 2]].max(axis=3)


@pytest.mark.parametrize("name", ["infant", "arm"])
def test_own_eye_equals_mujoco(name):
    """Over 200 states: median difference 0 and at most 1% of pixels off by more than 16 of 255."""
    scene = build(bodies.get(name))
    truth, eye = Truth(scene, scene.body.eye_camera), own_eye(scene, sky_rgb=(0, 0, 0))
    off, green = compare(scene, truth, eye, 200, Truth.own_eye)
    assert (green > 100).any(axis=(1, 2)).mean() > 0.3  # the truth does show marks
    assert np.median(off) == 0
    assert (off > 16).mean() <= 0.01
    assert np.median(off[green > 100]) <= 1


def test_a_tilted_mirror_equals_mujoco():
    mirror = MirrorConfig(yaw_rad=0.15, pitch_rad=-0.1, distance_m=0.22)
    scene = build(bodies.get("infant"), mirror)
    truth, eye = Truth(scene, scene.body.eye_camera), own_eye(scene, sky_rgb=(0, 0, 0))
    off, _ = compare(scene, truth, eye, 20, Truth.own_eye)
    assert np.median(off) == 0 and (off > 16).mean() <= 0.01


@pytest.mark.parametrize("camera", ["world", "behind"])
def test_a_third_person_view_equals_mujoco(camera):
    """Here one picture of MuJoCo's is the truth: all is drawn, the mirror included."""
    scene = build(bodies.get("infant"))
    eye = Eye(scene.model, camera_of(scene.model, camera), 120, 90, sky_rgb=(0, 0, 0))
    off, _ = compare(scene, Truth(scene, camera, 120, 90), eye, 10, Truth.third_person)
    assert np.median(off) == 0 and (off > 16).mean() <= 0.01
