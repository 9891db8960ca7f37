"""The scene: what it finds in the model, what it refuses, and that a new body is one new file."""

import copy
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest

from mirrormark.envs import bodies, physics, scene
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs

TOY = '''
from mirrormark.envs.bodies import Body, Joint, MarkSurface, register
from mirrormark.envs.bodies.primitives import geom, hinge

PINK, GREY = (.8, .5, .5), (.5, .5, .5)

def joints(tone, scale):
    return Joint("lift", (-1.0, 1.0), 0.1, 0.01, scale), Joint("bend", (-2.0, 0.0), 0.1, 0.01, scale, -1.0)

def mjcf(joints):
    lift, bend = joints
    ball = geom("ellipsoid", (.05, .06, .07), PINK, cls="solid", name="ball", contype=1, conaffinity=2)
    hand = geom("ellipsoid", (.01, .01, .03), GREY, cls="solid", name="hand", contype=2, conaffinity=1)
    return f"""<body name="toy">{ball}<camera name="eye" pos=".06 0 0" xyaxes="0 -1 0 0 0 1" fovy="60"/>
      <body pos="0 -.12 -.1">{hinge(lift, (0, 1, 0))}{geom("capsule", (.01, .05), GREY, cls="solid")}
        <body pos="0 0 .1">{hinge(bend, (1, 0, 0))}{hand}</body></body></body>"""

register(Body(
    name="toy", title="Toy", joints=joints("springy", 1.0), rest_pose_rad=(0.0, -0.5), tones=("springy",),
    with_tone=joints, mjcf=mjcf, eye_camera="eye", eye_rest_m=(.06, 0.0, 0.0), hands=("hand",),
    mark_surfaces=(MarkSurface("ball"),), eye_keepout_m=.01, mirror_centre_z_m=0.0, torque_limit_nm=0.5,
))
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bodies.Body]:
    """A third body, as someone would add it: one file beside the others."""
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.setattr(bodies, "__path__", [*bodies.__path__, str(tmp_path)])
    monkeypatch.setattr(bodies, "_registry", dict(bodies._registry))
    yield bodies.get("toy")
    sys.modules.pop("mirrormark.envs.bodies.toy", None)


def test_a_third_body_lives_in_envs_and_gymnasium(toy: bodies.Body) -> None:
    mirror = MirrorConfig(distance_m=0.2, width_m=0.1)
    envs = MirrorMarkEnvs("toy", 2, mirror=mirror)
    observation, info = envs.reset(seed=0)
    assert observation["vision"].std() > 5 and info["mark_present"].all()
    envs.step(np.ones((2, 2), np.float32))
    env = gymnasium.make("mirrormark/Toy-v0", mirror=mirror)
    assert env.action_space.shape == (2,) and env.reset(seed=0)[0]["proprioception"].shape == (2,)
    for env_id in ("mirrormark/Toy-v0", "mirrormark/ToySymbolic-v0"):
        del gymnasium.registry[env_id]


def test_a_third_body_is_one_file(toy: bodies.Body) -> None:
    assert "toy" in bodies.names()
    built = scene.build(toy, MirrorConfig(distance_m=0.2, width_m=0.1))
    model, data = built.model, mujoco.MjData(built.model)
    assert model.nu == 2 and model.actuator("lift").gear[0] == 0.5
    assert [surface.geom for surface in built.surfaces] == ["ball"]
    data.qpos[:] = built.rest_qpos
    data.ctrl[:] = (1.0, -1.0)
    mujoco.mj_step(model, data, 50)
    qpos = data.qpos.copy()
    mujoco.mj_kinematics(model, data)
    xpos, xmat = physics.poses(physics.tree(model), qpos[None])
    np.testing.assert_allclose(xpos[0], data.xpos, atol=1e-9)
    np.testing.assert_allclose(xmat[0], data.xmat.reshape(-1, 3, 3), atol=1e-9)
    assert np.any(np.abs(qpos - built.rest_qpos) > 0.05)


def test_scenes_are_built_once() -> None:
    infant = bodies.get("infant")
    assert scene.build(infant, MirrorConfig()) is scene.build(infant, MirrorConfig())
    assert scene.build(infant, MirrorConfig("covered")) is not scene.build(infant, MirrorConfig())


@pytest.mark.parametrize("name", bodies.names())
def test_local_poses_agree_with_mujoco(name: str) -> None:
    built = scene.build(bodies.get(name))
    model, data, rng = built.model, mujoco.MjData(built.model), np.random.default_rng(0)
    data.qpos[built.qpos_adr] = rng.uniform(*built.range_rad.T)
    mujoco.mj_forward(model, data)

    def index(body: int, pos: np.ndarray, mat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        frame = data.xmat[body].reshape(3, 3)
        return data.xpos[body] + frame @ pos, frame @ mat

    eye_pos, eye_mat = index(built.eye_body_id, built.eye_pos_m, built.eye_mat)
    np.testing.assert_allclose(eye_pos, data.camera(built.body.eye_camera).xpos, atol=1e-9)
    np.testing.assert_allclose(eye_mat, data.camera(built.body.eye_camera).xmat.reshape(3, 3), atol=1e-9)
    assert built.eye_fovy_rad == pytest.approx(math.radians(60))
    for k, g in enumerate(built.hand_geom_ids):
        pos, mat = index(built.hand_body_ids[k], built.hand_pos_m[k], built.hand_mat[k])
        np.testing.assert_allclose(pos, data.geom_xpos[g], atol=1e-9)
        np.testing.assert_allclose(mat, data.geom_xmat[g].reshape(3, 3), atol=1e-9)
        np.testing.assert_array_equal(built.hand_size_m[k], model.geom_size[g])
    for surface in built.surfaces:
        pos, mat = index(surface.body_id, surface.pos_m, surface.mat)
        np.testing.assert_allclose(pos, data.geom(surface.geom).xpos, atol=1e-9)
        np.testing.assert_allclose(mat, data.geom(surface.geom).xmat.reshape(3, 3), atol=1e-9)


def test_unknown_tones_and_bad_scales_are_told_in_a_sentence() -> None:
    infant = bodies.get("infant")
    with pytest.raises(
        ValueError, match="tone 'stiff' is unknown to the infant: use one of flexor, neck, limp"
    ):
        scene.build(infant, tone="stiff")
    for bad in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"tone_scale is .*: give a number of at least 0"):
            scene.build(infant, tone_scale=bad)


def test_a_mark_surface_must_be_an_ellipsoid(toy: bodies.Body) -> None:
    boxy = replace(toy, name="boxy", mjcf=lambda joints: toy.mjcf(joints).replace('"ellipsoid"', '"box"', 1))
    with pytest.raises(ValueError, match="'ball' is not an ellipsoid"):
        scene.build(boxy, MirrorConfig(distance_m=0.2))


def _green_pixels(built: scene.Scene, model: mujoco.MjModel) -> int:
    renderer = mujoco.Renderer(model, 64, 64)
    data = mujoco.MjData(model)
    data.qpos[:] = built.rest_qpos
    mujoco.mj_forward(model, data)
    renderer.update_scene(data, camera=built.body.eye_camera)
    red, green, blue = renderer.render().astype(int).transpose(2, 0, 1)
    renderer.close()
    return int(np.count_nonzero((green > red + 40) & (green > blue + 40)))


@pytest.mark.gl
@pytest.mark.parametrize("name", ["infant", "arm"])
def test_a_placed_mark_shows_in_the_mirror_and_a_parked_one_does_not(name: str) -> None:
    built = scene.build(bodies.get(name))
    model = copy.deepcopy(built.model)
    assert _green_pixels(built, model) == 0
    for surface in built.surfaces:
        spot = surface.pos_m + (surface.size_m[0], 0.0, -0.4 * surface.size_m[2])
        scene.place_mark_for_gl(model, surface.geom, spot, np.array([1.0, 0.0, 0.0]))
        assert _green_pixels(built, model) >= 4
        scene.park_marks(model)
        assert _green_pixels(built, model) == 0


@pytest.mark.gl
def test_the_mirror_swaps_nothing_but_depth() -> None:
    """A mark on the infant's right cheek shows on the right half of what it sees."""
    built = scene.build(bodies.get("infant"))
    model = copy.deepcopy(built.model)
    head = built.surfaces[0]
    scene.place_mark_for_gl(model, head.geom, head.pos_m + (0.06, -0.045, -0.02), np.array([0.8, -0.6, 0.0]))
    renderer, data = mujoco.Renderer(model, 64, 64), mujoco.MjData(model)
    data.qpos[:] = built.rest_qpos
    mujoco.mj_forward(model, data)
    renderer.update_scene(data, camera=built.body.eye_camera)
    image = renderer.render().astype(int)
    renderer.close()
    columns = np.nonzero((image[..., 1] > image[..., 0] + 40) & (image[..., 1] > image[..., 2] + 40))[1]
    assert len(columns) >= 4 and columns.min() >= 32
