"""The distance that decides the exam, against MuJoCo's own collision code."""

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormark.envs.touch import PARALLEL_ENVS, Hands, hand_to_site, point_to_ellipsoid, time_touches

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
        hands = Hands(np.array([1]), np.zeros((1, 3)), np.eye(3)[None], HAND[None])
        xmat = data.xmat.reshape(-1, 3, 3)
        ours = hand_to_site(data.xpos, xmat, hands, 0, 2, np.zeros(3), np.eye(3), 0.02)
        assert ours == pytest.approx(truth, abs=2 * THIN_M)


coordinate = st.floats(-0.2, 0.2)


@given(coordinate, coordinate, coordinate)
def test_point_distance_is_not_beaten_by_any_surface_point(x, y, z):
    distance = point_to_ellipsoid(x, y, z, *HAND)
    direction = np.random.default_rng(0).normal(size=(400, 3))
    surface = HAND * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    assert distance <= np.linalg.norm(surface - [x, y, z], axis=1).min() + 1e-9
    assert (distance == 0) == (((np.array([x, y, z]) / HAND) ** 2).sum() <= 1)


BALL = Hands(np.array([1]), np.zeros((1, 3)), np.eye(3)[None], np.full((1, 3), 0.01))
FACING = np.array([[[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]])  # the disc looks along x


def _touch(gaps_m: list[float], held: np.ndarray, reach_m: float = 0.02) -> tuple[np.ndarray, np.ndarray]:
    """One environment; body 1 is a ball for a hand, body 2 carries a tiny disc, a given gap away at each
    step."""
    xpos = np.zeros((1, len(gaps_m), 3, 3))
    xpos[0, :, 2, 0] = 0.01 + np.array(gaps_m)
    xmat = np.tile(np.eye(3), (1, len(gaps_m), 3, 1, 1))
    return time_touches(xpos, xmat, BALL, np.array([2]), np.zeros((1, 3)), FACING, 1e-6, reach_m, 50, held)


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
    exact = float(_touch([0.015], np.zeros(1, np.int64))[0][0, 0])
    assert exact == pytest.approx(0.015, abs=1e-9)
    for reach, expected in ((exact, 1), (exact - 1e-9, 0)):
        held = np.zeros(1, np.int64)
        _touch([0.015], held, reach)
        assert held[0] == expected


def test_threads_change_nothing():
    rng = np.random.default_rng(0)
    n = PARALLEL_ENVS + 3
    xpos = rng.normal(0, 0.05, (n, 5, 3, 3))
    xmat = np.tile(np.eye(3), (n, 5, 3, 1, 1))
    sites = np.full(n, 2), np.zeros((n, 3)), np.tile(FACING, (n, 1, 1))

    def run(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        held = np.full(n, 48)[rows]
        return time_touches(xpos[rows], xmat[rows], BALL, *(s[rows] for s in sites), 0.02, 0.02, 50, held)

    for together, apart in zip(run(slice(None)), run(slice(0, 5))):
        assert np.array_equal(together[:5], apart)
