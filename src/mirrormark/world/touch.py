"""How far a hand is from a mark: the exact distance between an ellipsoid and a disc.

A mark comes off when a hand stays near it, so this distance decides the exam. It is computed
in closed form where the disc's inside is nearest, and by a one-dimensional search along its
rim otherwise; the test compares it with MuJoCo's own collision code.
"""

import math

from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARALLEL_WORLDS = 128
"""From this many worlds on, starting threads costs less than it saves."""

_RIM_STARTS = 12
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class Hands(NamedTuple):
    """The collision ellipsoids of the hands, each in its MuJoCo body's frame."""

    body: Ints  # (hands,)
    pos: Floats  # (hands, 3)
    mat: Floats  # (hands, 3, 3)
    size: Floats  # (hands, 3)


@njit(cache=True)
def point_to_ellipsoid(x: float, y: float, z: float, a: float, b: float, c: float) -> float:
    """Distance from a point to a solid, axis-aligned ellipsoid (0 inside), by Newton's method."""
    if (x / a) ** 2 + (y / b) ** 2 + (z / c) ** 2 <= 1.0:
        return 0.0
    # The nearest point is s_i² p_i / (s_i² + t) with t > 0 the root of a convex, falling function,
    # so Newton from the left (t = 0) climbs to it without overshooting.
    t = 0.0
    for _ in range(60):
        u, v, w = a * a + t, b * b + t, c * c + t
        fx, fy, fz = a * x / u, b * y / v, c * z / w
        value = fx * fx + fy * fy + fz * fz - 1.0
        if value < 1e-13:
            break
        t += value / (2.0 * (fx * fx / u + fy * fy / v + fz * fz / w))
    qx, qy, qz = a * a * x / (a * a + t), b * b * y / (b * b + t), c * c * z / (c * c + t)
    return math.sqrt((x - qx) ** 2 + (y - qy) ** 2 + (z - qz) ** 2)


@njit(cache=True)
def _rim_distance(angle, centre, u, v, radius, size):
    cos, sin = radius * math.cos(angle), radius * math.sin(angle)
    return point_to_ellipsoid(
        centre[0] + cos * u[0] + sin * v[0],
        centre[1] + cos * u[1] + sin * v[1],
        centre[2] + cos * u[2] + sin * v[2],
        size[0],
        size[1],
        size[2],
    )


@njit(cache=True)
def _inside_distance(centre, u, v, normal, radius, size):
    """Distance if the disc's inside is nearest; -1 if its rim is."""
    offset = centre[0] * normal[0] + centre[1] * normal[1] + centre[2] * normal[2]
    extent = math.sqrt((size[0] * normal[0]) ** 2 + (size[1] * normal[1]) ** 2 + (size[2] * normal[2]) ** 2)
    if abs(offset) >= extent:  # the plane misses the ellipsoid: its extreme point is nearest to the plane
        sign = 1.0 if offset > 0 else -1.0
        du = dv = 0.0
        for i in range(3):
            extreme = sign * size[i] * size[i] * normal[i] / extent - centre[i]
            du += extreme * u[i]
            dv += extreme * v[i]
        return abs(offset) - extent if du * du + dv * dv <= radius * radius else -1.0
    # The plane cuts the ellipsoid: zero if the centre of the cut (an ellipse) lies on the disc.
    uu = vv = uv = ru = rv = 0.0
    for i in range(3):
        scale = 1.0 / (size[i] * size[i])
        uu += scale * u[i] * u[i]
        vv += scale * v[i] * v[i]
        uv += scale * u[i] * v[i]
        ru -= scale * centre[i] * u[i]
        rv -= scale * centre[i] * v[i]
    determinant = uu * vv - uv * uv
    pu, pv = (ru * vv - rv * uv) / determinant, (rv * uu - ru * uv) / determinant
    return 0.0 if pu * pu + pv * pv <= radius * radius else -1.0


@njit(cache=True)
def disc_to_ellipsoid(centre, u, v, normal, radius, size):
    """Distance between a disc and a solid ellipsoid, both in the ellipsoid's frame; 0 if they meet."""
    inside = _inside_distance(centre, u, v, normal, radius, size)
    if inside >= 0.0:
        return inside
    step = 2.0 * math.pi / _RIM_STARTS
    best, best_angle = 1e9, 0.0
    for k in range(_RIM_STARTS):
        distance = _rim_distance(k * step, centre, u, v, radius, size)
        if distance < best:
            best, best_angle = distance, k * step
    low, high = best_angle - step, best_angle + step
    x1, x2 = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    f1 = _rim_distance(x1, centre, u, v, radius, size)
    f2 = _rim_distance(x2, centre, u, v, radius, size)
    for _ in range(22):
        if f1 < f2:
            high, x2, f2 = x2, x1, f1
            x1 = high - _GOLDEN * (high - low)
            f1 = _rim_distance(x1, centre, u, v, radius, size)
        else:
            low, x1, f1 = x1, x2, f2
            x2 = low + _GOLDEN * (high - low)
            f2 = _rim_distance(x2, centre, u, v, radius, size)
    return min(best, min(f1, f2))


@njit(cache=True)
def _carry(xpos, xmat, pos, i):
    """Coordinate i of a point given in a body's frame, in the world's."""
    return xpos[i] + xmat[i, 0] * pos[0] + xmat[i, 1] * pos[1] + xmat[i, 2] * pos[2]


@njit(cache=True)
def hand_to_site(xpos, xmat, hand_body, hand_pos, hand_mat, size, site_body, site_pos, site_mat, radius):
    """Distance from one hand to one site in one world, given the poses of all bodies."""
    hand_x, site_x = xmat[hand_body], xmat[site_body]
    centre, frame = np.zeros(3), np.zeros((3, 3))
    for i in range(3):  # axis i of the world
        gap = _carry(xpos[site_body], site_x, site_pos, i) - _carry(xpos[hand_body], hand_x, hand_pos, i)
        for j in range(3):  # axis j of the hand's ellipsoid
            axis = (
                hand_x[i, 0] * hand_mat[0, j] + hand_x[i, 1] * hand_mat[1, j] + hand_x[i, 2] * hand_mat[2, j]
            )
            centre[j] += axis * gap
            for k in range(3):  # axis k of the site
                frame[k, j] += axis * (
                    site_x[i, 0] * site_mat[0, k]
                    + site_x[i, 1] * site_mat[1, k]
                    + site_x[i, 2] * site_mat[2, k]
                )
    return disc_to_ellipsoid(centre, frame[0], frame[1], frame[2], radius, size)


@njit(cache=True)
def _surely_farther(xpos, xmat, hand_body, hand_pos, size, site_body, site_pos, radius, limit):
    """A cheap bound by enclosing spheres, so that most physics steps need no exact distance."""
    square = 0.0
    for i in range(3):
        site = _carry(xpos[site_body], xmat[site_body], site_pos, i)
        square += (site - _carry(xpos[hand_body], xmat[hand_body], hand_pos, i)) ** 2
    return math.sqrt(square) > limit + radius + max(size[0], size[1], size[2])


@njit(cache=True)
def _time_world(xpos, xmat, hands, site_body, site_pos, site_mat, radius, reach, hold, held, distance):
    """One world's physics steps: fills `distance` (hands,), returns the clock and the step that filled it."""
    hand_body, hand_pos, hand_mat, hand_size = hands
    reached, last = 0, xpos.shape[0] - 1
    for s in range(xpos.shape[0]):
        touching = False
        for h in range(hand_body.shape[0]):
            if s < last and (
                touching
                or _surely_farther(
                    xpos[s],
                    xmat[s],
                    hand_body[h],
                    hand_pos[h],
                    hand_size[h],
                    site_body,
                    site_pos,
                    radius,
                    reach,
                )
            ):
                continue
            d = hand_to_site(
                xpos[s], xmat[s], hand_body[h], hand_pos[h], hand_mat[h], hand_size[h],
                site_body, site_pos, site_mat, radius,
            )  # fmt: skip
            touching = touching or d <= reach
            if s == last:
                distance[h] = d
        held = held + 1 if touching else 0
        if held >= hold and reached == 0:
            reached = s + 1
    return held, reached


def _time_worlds(xpos, xmat, hands, site_body, site_pos, site_mat, radius, reach, hold, held):
    worlds = xpos.shape[0]
    distance = np.empty((worlds, hands[0].shape[0]))
    reached = np.zeros(worlds, np.int64)
    for w in prange(worlds):
        held[w], reached[w] = _time_world(
            xpos[w], xmat[w], hands, site_body[w], site_pos[w], site_mat[w],
            radius, reach, hold, held[w], distance[w],
        )  # fmt: skip
    return distance, reached


_serial = njit(cache=True)(_time_worlds)
_parallel = njit(cache=True, parallel=True)(_time_worlds)


def time_touches(
    xpos: Floats,
    xmat: Floats,
    hands: Hands,
    site_body: Ints,
    site_pos: Floats,
    site_mat: Floats,
    radius_m: float,
    reach_m: float,
    hold_sim_steps: int,
    held: Ints,
) -> tuple[Floats, Ints]:
    """Follow S physics steps of N worlds: xpos (N, S, nbody, 3), xmat (N, S, nbody, 3, 3).

    `held` (N,) counts consecutive touching physics steps and is carried on in place. Returns the distance of every
    hand (N, hands) at the last step, and the physics step (1..S) at which `hold_sim_steps` was reached, or 0.
    """
    run = _parallel if len(xpos) >= PARALLEL_WORLDS else _serial
    return run(xpos, xmat, hands, site_body, site_pos, site_mat, radius_m, reach_m, hold_sim_steps, held)
