"""Where the pane is, what a mirror may be, and that its kind never touches the physics."""

import math
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrormark.envs import bodies, scene
from mirrormark.envs.mirror import MirrorConfig, pane

INFANT = bodies.get("infant")


def test_the_default_pane_is_the_paper_s() -> None:
    mirror = pane(MirrorConfig(), INFANT)
    np.testing.assert_allclose(mirror.centre, (0.26918, 0.0, 0.073), atol=1e-12)
    np.testing.assert_allclose(mirror.mat, [[0, 0, -1], [-1, 0, 0], [0, 1, 0]], atol=1e-12)
    np.testing.assert_allclose(mirror.half, (0.10, 0.15))


def test_tilts_turn_about_the_centre_as_documented() -> None:
    straight = pane(MirrorConfig(), INFANT)
    yawed, pitched = pane(MirrorConfig(yaw_rad=0.2), INFANT), pane(MirrorConfig(pitch_rad=0.2), INFANT)
    np.testing.assert_array_equal(yawed.centre, straight.centre)
    np.testing.assert_array_equal(pitched.centre, straight.centre)
    # Positive yaw faces the body's right (-y), positive pitch leans the top towards the body (-x).
    np.testing.assert_allclose(yawed.mat[:, 2], (-math.cos(0.2), -math.sin(0.2), 0.0), atol=1e-12)
    np.testing.assert_allclose(yawed.mat[:, 1], (0, 0, 1), atol=1e-12)
    np.testing.assert_allclose(pitched.mat[:, 1], (-math.sin(0.2), 0.0, math.cos(0.2)), atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    yaw=st.floats(-0.3, 0.3),
    pitch=st.floats(-0.3, 0.3),
    distance=st.floats(0.25, 0.5),
    width=st.floats(0.05, 0.25),
)
def test_the_compiled_plate_is_the_pane(yaw: float, pitch: float, distance: float, width: float) -> None:
    config = MirrorConfig(distance_m=distance, yaw_rad=yaw, pitch_rad=pitch, width_m=width)
    built = scene.build(INFANT, config)
    model, data = built.model, mujoco.MjData(built.model)
    mujoco.mj_kinematics(model, data)
    g, pane = built.mirror_geom_id, built.pane
    mat = data.geom_xmat[g].reshape(3, 3)
    np.testing.assert_allclose(mat, pane.mat, atol=1e-9)
    np.testing.assert_allclose(np.linalg.det(mat), 1.0)
    np.testing.assert_allclose(data.geom_xpos[g] + mat[:, 2] * model.geom_size[g, 2], pane.centre, atol=1e-9)
    np.testing.assert_allclose(model.geom_size[g, :2], pane.half)
    for side in ("right", "left", "top", "bottom"):
        bar = model.geom(f"frame_{side}").id
        face = data.geom_xpos[bar] + mat[:, 2] * model.geom_size[bar, 2]
        assert (face - pane.centre) @ pane.mat[:, 2] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "broken"}, "kind 'broken' is unknown: use one of present, absent, covered, delayed"),
        ({"kind": "delayed"}, "delay_control_steps is 0: a delayed mirror needs at least 1"),
        ({"delay_control_steps": 3}, "only kind 'delayed' takes a delay"),
        ({"kind": "delayed", "delay_control_steps": -1}, "whole number"),
        ({"kind": "delayed", "delay_control_steps": 1.5}, "whole number"),
        (
            {"kind": "delayed", "delay_control_steps": 10**9},
            "delay_control_steps is 1000000000: give at most 100",
        ),
        ({"distance_m": 0.0}, "distance_m is 0.0: give a number of metres above 0"),
        ({"distance_m": math.nan}, "distance_m is nan"),
        ({"width_m": -0.1}, "width_m is -0.1"),
        ({"height_m": math.inf}, "height_m is inf"),
        ({"yaw_rad": math.nan}, "yaw_rad is nan: give an angle"),
        ({"pitch_rad": 2.0}, "pitch_rad is 2.0: give an angle"),
    ],
)
def test_impossible_configs_are_told_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        MirrorConfig(**options)


@pytest.mark.parametrize("name", ["infant", "arm"])
@pytest.mark.parametrize(
    "options",
    [
        {"distance_m": 0.001},
        {"distance_m": 0.03},
        {"yaw_rad": 1.35, "width_m": 0.6},
        {"pitch_rad": -1.2, "height_m": 0.8},
    ],
)
def test_a_mirror_through_the_body_is_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"mirror cuts through|behind the mirror"):
        scene.build(bodies.get(name), MirrorConfig(**options))


@pytest.mark.parametrize("name", ["infant", "arm"])
def test_mirrors_of_every_kind_share_their_physics(name: str) -> None:
    endings = []
    for config in (
        MirrorConfig(),
        MirrorConfig("absent"),
        MirrorConfig("covered"),
        MirrorConfig("delayed", delay_control_steps=4),
    ):
        built = scene.build(bodies.get(name), config, tone="limp")
        data, rng = mujoco.MjData(built.model), np.random.default_rng(0)
        data.qpos[:] = built.rest_qpos
        struck = 0
        for _ in range(40):
            data.ctrl[:] = rng.uniform(-1, 1, built.model.nu)
            for _ in range(80):
                mujoco.mj_step(built.model, data)
                struck += any(built.mirror_geom_id in contact.geom for contact in data.contact)
        assert struck > 0, "the pane was never touched, so this would prove nothing"
        endings.append(data.qpos.copy())
    for ending in endings[1:]:
        np.testing.assert_array_equal(ending, endings[0])


def test_only_reflecting_kinds_reflect() -> None:
    for config in (MirrorConfig(), MirrorConfig("delayed", delay_control_steps=1)):
        model = scene.build(INFANT, config).model
        assert model.mat_reflectance[model.geom("mirror").matid[0]] == 1.0
        assert tuple(model.geom("mirror").rgba) == (0, 0, 0, 1)
    wall = scene.build(INFANT, MirrorConfig("absent")).model
    cloth = scene.build(INFANT, MirrorConfig("covered")).model
    assert wall.geom("mirror").matid[0] == cloth.geom("mirror").matid[0] == -1
    np.testing.assert_array_equal(wall.geom("mirror").rgba, wall.geom("room_front").rgba)
    np.testing.assert_array_equal(wall.geom("frame_top").rgba, wall.geom("room_front").rgba)
    assert not np.array_equal(cloth.geom("mirror").rgba, wall.geom("mirror").rgba)
