"""Whether a hand touches a mark: the exact distance between an ellipsoid and a disc.

A mark comes off when a hand stays near it, so this distance decides the exam. It is computed in closed form
where the disc's inside is nearest, and by a one-dimensional search along its rim otherwise; a test compares
it with MuJoCo's own collision code. A hand that is far cannot touch, which needs no exact distance to tell.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARALLEL_ENVS = 128
"""From this many environments on, starting threads costs less than it saves."""

ROUNDING_M = 1e-9
"""More than distances are ever off by rounding, far less than matters."""

_RIM_STARTS = 8
_RIM_GAP = 2.0 * math.sin(math.pi / 16)  # from any point of the rim to the nearest start, in radii
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
def disc_to_ellipsoid(centre, u, v, normal, radius, size, limit):
    """Distance between a disc and a solid ellipsoid, both in the ellipsoid's frame; 0 if they meet.

    With a limit of 0 or more only whether the distance is above it is right: the search stops when that is
    sure. Below 0 the distance is exact.
    """
    inside = _inside_distance(centre, u, v, normal, radius, size)
    if inside >= 0.0:
        return inside
    step = 2.0 * math.pi / _RIM_STARTS
    best, best_angle = 1e9, 0.0
    for k in range(_RIM_STARTS):
        distance = _rim_distance(k * step, centre, u, v, radius, size)
        if distance < best:
            best, best_angle = distance, k * step
    if limit >= 0.0 and (best <= limit or best > limit + _RIM_GAP * radius + ROUNDING_M):
        return best
    low, high = best_angle - step, best_angle + step
    x1, x2 = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    f1 = _rim_distance(x1, centre, u, v, radius, size)
    f2 = _rim_distance(x2, centre, u, v, radius, size)
    for _ in range(16):
        if limit >= 0.0 and min(f1, f2) <= limit:
            break
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
def _place(xpos, xmat, w, s, body, pos, i):
    """Row i of pos, a point in a body's frame, in the environment's frame at step s of environment w."""
    x, y, z = pos[i, 0], pos[i, 1], pos[i, 2]
    return (
        xpos[w, s, body, 0]
        + xmat[w, s, body, 0, 0] * x
        + xmat[w, s, body, 0, 1] * y
        + xmat[w, s, body, 0, 2] * z,
        xpos[w, s, body, 1]
        + xmat[w, s, body, 1, 0] * x
        + xmat[w, s, body, 1, 1] * y
        + xmat[w, s, body, 1, 2] * z,
        xpos[w, s, body, 2]
        + xmat[w, s, body, 2, 0] * x
        + xmat[w, s, body, 2, 1] * y
        + xmat[w, s, body, 2, 2] * z,
    )


@njit(cache=True)
def _axis(xmat, w, s, body, mat, i, k):
    """Column k of row i of mat, a frame in a body's frame, in the environment's frame."""
    x, y, z = mat[i, 0, k], mat[i, 1, k], mat[i, 2, k]
    return (
        xmat[w, s, body, 0, 0] * x + xmat[w, s, body, 0, 1] * y + xmat[w, s, body, 0, 2] * z,
        xmat[w, s, body, 1, 0] * x + xmat[w, s, body, 1, 1] * y + xmat[w, s, body, 1, 2] * z,
        xmat[w, s, body, 2, 0] * x + xmat[w, s, body, 2, 1] * y + xmat[w, s, body, 2, 2] * z,
    )


@njit(cache=True)
def _dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@njit(cache=True)
def _from_hand(xpos, xmat, w, s, hands, h, site_body, site_pos, site_mat, i):
    """Site i in the frame of hand h's ellipsoid, at step s of environment w: centre, two tangents, normal."""
    body = hands.body[h]
    ax, ay, az = (
        _axis(xmat, w, s, body, hands.mat, h, 0),
        _axis(xmat, w, s, body, hands.mat, h, 1),
        _axis(xmat, w, s, body, hands.mat, h, 2),
    )
    site, hand = (
        _place(xpos, xmat, w, s, site_body[i], site_pos, i),
        _place(xpos, xmat, w, s, body, hands.pos, h),
    )
    gap = (site[0] - hand[0], site[1] - hand[1], site[2] - hand[2])
    u = _axis(xmat, w, s, site_body[i], site_mat, i, 0)
    v = _axis(xmat, w, s, site_body[i], site_mat, i, 1)
    n = _axis(xmat, w, s, site_body[i], site_mat, i, 2)
    return (
        (_dot(gap, ax), _dot(gap, ay), _dot(gap, az)),
        (_dot(u, ax), _dot(u, ay), _dot(u, az)),
        (_dot(v, ax), _dot(v, ay), _dot(v, az)),
        (_dot(n, ax), _dot(n, ay), _dot(n, az)),
    )


@njit(cache=True)
def _distance(xpos, xmat, w, s, hands, h, site_body, site_pos, site_mat, i, radius):
    """From hand h to site i, at step s of environment w."""
    centre, u, v, n = _from_hand(xpos, xmat, w, s, hands, h, site_body, site_pos, site_mat, i)
    size = (hands.size[h, 0], hands.size[h, 1], hands.size[h, 2])
    return disc_to_ellipsoid(centre, u, v, n, radius, size, -1.0)


@njit(cache=True)
def _is_far(xpos, xmat, w, s, hands, h, site_body, site_pos, i, limit):
    """Whether the spheres around hand and site are farther than `limit` apart: so are hand and site."""
    site = _place(xpos, xmat, w, s, site_body[i], site_pos, i)
    hand = _place(xpos, xmat, w, s, hands.body[h], hands.pos, h)
    gap = (site[0] - hand[0], site[1] - hand[1], site[2] - hand[2])
    return math.sqrt(_dot(gap, gap)) > limit + max(hands.size[h, 0], hands.size[h, 1], hands.size[h, 2])


@njit(cache=True)
def _touches(xpos, xmat, w, s, hands, site_body, site_pos, site_mat, radius, reach):
    """Whether the exact distance of any hand from environment w's site at step s is at most `reach`.

    The cheapest sure answer comes first: from spheres, from the site's centre, from the whole disc.
    """
    surely_far = reach + radius + ROUNDING_M
    for h in range(hands.body.shape[0]):
        if _is_far(xpos, xmat, w, s, hands, h, site_body, site_pos, w, surely_far):
            continue
        centre, u, v, n = _from_hand(xpos, xmat, w, s, hands, h, site_body, site_pos, site_mat, w)
        size = (hands.size[h, 0], hands.size[h, 1], hands.size[h, 2])
        from_centre = point_to_ellipsoid(centre[0], centre[1], centre[2], size[0], size[1], size[2])
        if from_centre > surely_far:
            continue
        if from_centre < reach - _RIM_GAP * radius - ROUNDING_M:
            return True
        if disc_to_ellipsoid(centre, u, v, n, radius, size, reach) <= reach:
            return True
    return False


def _time_envs(xpos, xmat, hands, site_body, site_pos, site_mat, radius, reach, hold, held):
    # No slices below: views of one array count references with atomics, which stalls threads on one another.
    reached = np.zeros(xpos.shape[0], np.int64)
    for w in prange(xpos.shape[0]):
        for s in range(xpos.shape[1]):
            touching = _touches(xpos, xmat, w, s, hands, site_body, site_pos, site_mat, radius, reach)
            held[w] = held[w] + 1 if touching else 0
            if held[w] >= hold and reached[w] == 0:
                reached[w] = s + 1
    return reached


@njit(cache=True)
def _from_centre(xpos, xmat, w, s, hands, h, site_body, site_pos, site_mat):
    """From hand h to the centre of environment w's site."""
    centre, _, _, _ = _from_hand(xpos, xmat, w, s, hands, h, site_body, site_pos, site_mat, w)
    return point_to_ellipsoid(
        centre[0], centre[1], centre[2], hands.size[h, 0], hands.size[h, 1], hands.size[h, 2]
    )


def _measure_envs(xpos, xmat, hands, site_body, site_pos, site_mat, radius):
    """The hand nearest to the site's centre first: the exact distance is mostly needed for no other."""
    last, count = xpos.shape[1] - 1, hands.body.shape[0]
    nearest, distance = np.zeros(xpos.shape[0], np.int64), np.empty(xpos.shape[0])
    for w in prange(xpos.shape[0]):
        first, least = 0, math.inf
        for h in range(count):
            away = _from_centre(xpos, xmat, w, last, hands, h, site_body, site_pos, site_mat)
            if away < least:
                first, least = h, away
        nearest[w] = first
        distance[w] = _distance(xpos, xmat, w, last, hands, first, site_body, site_pos, site_mat, w, radius)
        for h in range(count):
            away = _from_centre(xpos, xmat, w, last, hands, h, site_body, site_pos, site_mat)
            if h == first or away > distance[w] + radius + ROUNDING_M:
                continue
            d = _distance(xpos, xmat, w, last, hands, h, site_body, site_pos, site_mat, w, radius)
            if d < distance[w] or (d == distance[w] and h < nearest[w]):
                nearest[w], distance[w] = h, d
    return nearest, distance


_time_serial, _measure_serial = njit(cache=True)(_time_envs), njit(cache=True)(_measure_envs)
_time_parallel = njit(cache=True, parallel=True)(_time_envs)
_measure_parallel = njit(cache=True, parallel=True)(_measure_envs)


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
) -> Ints:
    """Follow S physics steps of N environments: xpos (N, S, nbody, 3), xmat (N, S, nbody, 3, 3).

    `held` (N,) counts consecutive touching physics steps and is carried on in place. Returns the physics step
    (1..S) that made `hold_sim_steps` full, or 0.
    """
    run = _time_parallel if len(xpos) >= PARALLEL_ENVS else _time_serial
    return run(xpos, xmat, hands, site_body, site_pos, site_mat, radius_m, reach_m, hold_sim_steps, held)


def nearest_hands(
    xpos: Floats,
    xmat: Floats,
    hands: Hands,
    site_body: Ints,
    site_pos: Floats,
    site_mat: Floats,
    radius_m: float,
) -> tuple[Ints, Floats]:
    """The nearest hand (N,) at the last of S physics steps, and its exact distance (N,)."""
    run = _measure_parallel if len(xpos) >= PARALLEL_ENVS else _measure_serial
    return run(xpos, xmat, hands, site_body, site_pos, site_mat, radius_m)


def hand_to_site(
    xpos: Floats, xmat: Floats, hands: Hands, hand: int, body: int, pos: Floats, mat: Floats, radius_m: float
) -> float:
    """Distance from one hand to one site in one environment: xpos (nbody, 3), xmat (nbody, 3, 3)."""
    at = np.array([body]), pos[None], mat[None]
    return _distance(xpos[None, None], xmat[None, None], 0, 0, hands, hand, *at, 0, radius_m)
