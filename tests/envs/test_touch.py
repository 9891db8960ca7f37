"""The distance that decides the exam, against MuJoCo's own collision code."""

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrormark.envs.touch import (
    PARALLEL_ENVS,
    Hands,
    hand_to_site,
    nearest_hands,
    point_to_ellipsoid,
    time_touches,
)

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


Arrays = tuple[np.ndarray, np.ndarray]


def _poses(gaps_m: list[float]) -> Arrays:
    """One environment; body 1 is a ball for a hand, body 2 carries a tiny disc, a given gap away at each
    step."""
    xpos = np.zeros((1, len(gaps_m), 3, 3))
    xpos[0, :, 2, 0] = 0.01 + np.array(gaps_m)
    return xpos, np.tile(np.eye(3), (1, len(gaps_m), 3, 1, 1))


def _touch(gaps_m: list[float], held: np.ndarray, reach_m: float = 0.02) -> int:
    site = np.array([2]), np.zeros((1, 3)), FACING
    return int(time_touches(*_poses(gaps_m), BALL, *site, 1e-6, reach_m, 50, held)[0])


def test_forty_nine_steps_do_not_remove_and_fifty_do():
    held = np.zeros(1, np.int64)
    assert _touch([0.0199] * 49, held) == 0
    assert held[0] == 49
    assert _touch([0.0199], held) == 1


def test_an_interruption_starts_the_clock_again():
    held = np.zeros(1, np.int64)
    _touch([0.0] * 30 + [0.0201] + [0.0] * 10, held)
    assert held[0] == 10


def test_the_step_of_removal_is_exact_within_a_control_step():
    held = np.array([47])
    assert _touch([0.01] * 5, held) == 3


def test_reach_is_inclusive():
    site = np.array([2]), np.zeros((1, 3)), FACING
    exact = float(nearest_hands(*_poses([0.3, 0.015]), BALL, *site, 1e-6)[1][0])
    assert exact == pytest.approx(0.015, abs=1e-9)
    for reach, expected in ((exact, 1), (exact - 1e-9, 0)):
        held = np.zeros(1, np.int64)
        _touch([0.015], held, reach)
        assert held[0] == expected


def _random(n: int, steps: int, hands: int, spread_m: float, seed: int) -> tuple[Arrays, Hands, tuple]:
    """Poses of bodies that drift over the steps, hands of all shapes and sites turned all ways."""
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(rng.normal(size=(n, steps, hands + 1, 3, 3)))[0]
    xpos = rng.normal(0, spread_m, (n, 1, hands + 1, 3)) + rng.normal(0, 0.01, (n, steps, hands + 1, 3))
    size = rng.uniform(0.005, 0.06, (hands, 3))
    pos, mat = rng.normal(0, 0.02, (hands, 3)), np.linalg.qr(rng.normal(size=(hands, 3, 3)))[0]
    site = np.full(n, hands), rng.normal(0, 0.02, (n, 3)), np.linalg.qr(rng.normal(size=(n, 3, 3)))[0]
    return (xpos, turned), Hands(np.arange(hands), pos, mat, size), site


@settings(max_examples=60, deadline=None)
@given(
    hands=st.integers(1, 3),
    spread_m=st.floats(0.005, 0.2),
    radius_m=st.floats(1e-4, 0.06),
    reach_m=st.floats(0.0, 0.08),
    hold=st.integers(1, 7),
    seed=st.integers(0, 2**32),
)
def test_far_hands_are_skipped_without_changing_a_removal(hands, spread_m, radius_m, reach_m, hold, seed):
    """Against every exact distance at every physics step, bit for bit; reach is also set to one of them."""
    n, steps = 3, 5
    (xpos, xmat), all_hands, site = _random(n, steps, hands, spread_m, seed)
    exact = np.array(
        [
            [
                [
                    hand_to_site(
                        xpos[w, s], xmat[w, s], all_hands, h, hands, site[1][w], site[2][w], radius_m
                    )
                    for h in range(hands)
                ]
                for s in range(steps)
            ]
            for w in range(n)
        ]
    )
    for reach in (reach_m, float(np.median(exact)), float(exact.min())):
        held = np.arange(n)
        when = time_touches(xpos, xmat, all_hands, *site, radius_m, reach, hold, held)
        for w, touching in enumerate((exact <= reach).any(2)):
            clock = [w]
            for now in touching:
                clock.append((clock[-1] + 1) * int(now))
            full = [s for s in range(1, steps + 1) if clock[s] >= hold]
            assert (held[w], when[w]) == (clock[-1], full[0] if full else 0)
    nearest, distance = nearest_hands(xpos, xmat, all_hands, *site, radius_m)
    assert np.array_equal(nearest, exact[:, -1].argmin(1)) and np.array_equal(distance, exact[:, -1].min(1))


def test_threads_change_nothing():
    n = PARALLEL_ENVS + 3
    (xpos, xmat), hands, site = _random(n, 5, 2, 0.05, 0)

    def run(rows: slice) -> tuple[np.ndarray, ...]:
        held, own = np.full(n, 48)[rows], [part[rows] for part in site]
        when = time_touches(xpos[rows], xmat[rows], hands, *own, 0.02, 0.02, 50, held)
        return when, held, *nearest_hands(xpos[rows], xmat[rows], hands, *own, 0.02)

    for together, apart in zip(run(slice(None)), run(slice(0, 5))):
        assert np.array_equal(together[:5], apart)
    assert run(slice(None))[0].any()
