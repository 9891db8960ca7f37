"""The distance that decides the exam, against MuJoCo's own collision code."""

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormark.world.touch import hand_to_site, point_to_ellipsoid, time_touches

HAND = np.array([0.028, 0.016, 0.046])
THIN_M = 1e-5
TWO = f"""<mujoco><worldbody>
  <body><freejoint/><geom type="ellipsoid" size="{HAND[0]} {HAND[1]} {HAND[2]}"/></body>
  <body><freejoint/><geom type="cylinder" size=".02 {THIN_M}"/></body>
</worldbody></mujoco>"""


def test_distance_equals_mujocos():
    model = mujoco.MjModel.from_xml_string(TWO)
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for _ in range(500):
        data.qpos[:] = rng.normal(0, 0.035, 14)
        data.qpos[3:7] = rng.normal(size=4)
        data.qpos[10:14] = rng.normal(size=4)
        mujoco.mj_normalizeQuat(model, data.qpos)
        mujoco.mj_kinematics(model, data)
        truth = max(0.0, mujoco.mj_geomDistance(model, data, 0, 1, 1.0, None))
        zero, eye = np.zeros(3), np.eye(3)
        xmat = data.xmat.reshape(-1, 3, 3)
        ours = hand_to_site(data.xpos, xmat, 1, zero, eye, HAND, 2, zero, eye, 0.02)
        assert ours == pytest.approx(truth, abs=2 * THIN_M)


coordinate = st.floats(-0.2, 0.2)


@given(coordinate, coordinate, coordinate)
def test_point_distance_is_not_beaten_by_any_surface_point(x, y, z):
    distance = point_to_ellipsoid(x, y, z, *HAND)
    direction = np.random.default_rng(0).normal(size=(400, 3))
    surface = HAND * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    assert distance <= np.linalg.norm(surface - [x, y, z], axis=1).min() + 1e-9
    assert (distance == 0) == (((np.array([x, y, z]) / HAND) ** 2).sum() <= 1)


def _poses(distances_m: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """One world; body 1 is a ball-like hand, body 2 carries the site, a given gap away along x at each step."""
    xpos = np.zeros((1, len(distances_m), 3, 3))
    xpos[0, :, 2, 0] = 0.01 + np.array(distances_m)
    return xpos, np.tile(np.eye(3), (1, len(distances_m), 3, 1, 1))


def _touch(distances_m: list[float], held: np.ndarray, hold: int = 50) -> tuple[np.ndarray, np.ndarray]:
    facing = np.array([[[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]])  # the disc looks along x
    return time_touches(
        *_poses(distances_m),
        np.array([1]), np.zeros((1, 3)), np.eye(3)[None], np.full((1, 3), 0.01),
        np.array([2]), np.zeros((1, 3)), facing, np.array([1e-6]),
        np.array([0.02]), np.array([hold]), held,
    )  # fmt: skip


def test_forty_nine_steps_do_not_remove_and_fifty_do():
    held = np.zeros(1, np.int64)
    assert _touch([0.0199] * 49, held)[1][0] == 0
    assert held[0] == 49
    assert _touch([0.0199], held)[1][0] == 1


def test_an_interruption_starts_the_clock_again():
    held = np.zeros(1, np.int64)
    _touch([0.0] * 30 + [0.0201] + [0.0] * 10, held)
    assert held[0] == 10


def test_the_step_of_removal_is_exact_within_a_control_step():
    held = np.array([47])
    assert _touch([0.01] * 5, held)[1][0] == 3


def test_reach_is_inclusive():
    held = np.zeros(1, np.int64)
    distance, _ = _touch([0.015], held)
    assert distance[0, 0] == pytest.approx(0.015, abs=1e-9)
    exact = float(distance[0, 0])
    facing = np.array([[[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]])
    for reach, expected in ((exact, 1), (exact - 1e-9, 0)):
        held = np.zeros(1, np.int64)
        time_touches(
            *_poses([0.015]),
            np.array([1]), np.zeros((1, 3)), np.eye(3)[None], np.full((1, 3), 0.01),
            np.array([2]), np.zeros((1, 3)), facing, np.array([1e-6]),
            np.array([reach]), np.array([50]), held,
        )  # fmt: skip
        assert held[0] == expected
