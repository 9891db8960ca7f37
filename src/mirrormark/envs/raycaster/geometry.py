"""Rays against primitives, light and noise, as scalar functions that numba compiles for the CPU and for CUDA.

A primitive is met in its own scaled frame, where an ellipsoid is the unit sphere and a box the unit cube; its
record (written by `placement`) holds the camera in that frame. A pixel's ray is forward + u * right + v * up:
its parameter t is the depth along the camera's axis. Only where a ray enters a primitive counts: as in
MuJoCo's renderer, what is seen from inside is not drawn.
"""

from __future__ import annotations

import math

import numba
import numpy as np

SPHERE, CAPSULE, CYLINDER, BOX, PLANE = range(5)

# A record: camera position, right, up and forward in the primitive's scaled frame; a capsule's half length
# over its radius; 1 / size; colour; emission; each light's direction in the primitive's frame.
RIGHT, UP, FORWARD, LENGTH, INVERSE, RGB, EMISSION, LIGHT = 3, 6, 9, 12, 13, 16, 19, 20
MAX_LIGHTS = 4
RECORD = LIGHT + 3 * MAX_LIGHTS

# Labels: a geom's row in the table, or one of these; MIRRORED is added to what is seen in the mirror.
MARK, PANE, NOTHING, MIRRORED = 1000, 1001, 1002, 2048

# float32, so that numba does not widen the arithmetic to float64.
FAR, ZERO, HALF, ONE, BYTE = np.float32(1e9), np.float32(0), np.float32(0.5), np.float32(1), np.float32(255)
TINY = np.float32(1e-12)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S27, S30, S31, S21, S20 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(21), np.uint64(20)
FIELD, BIT = np.uint64((1 << 20) - 1), np.uint64(1)

scalar = numba.njit(error_model="numpy", forceinline=True)


@scalar
def hit_sphere(ox, oy, oz, dx, dy, dz, near):
    """Where the ray enters the unit sphere beyond `near`, else FAR."""
    a = dx * dx + dy * dy + dz * dz
    middle = -(ox * dx + oy * dy + oz * dz) / a
    qx, qy, qz = ox + middle * dx, oy + middle * dy, oz + middle * dz
    gap = ONE - (qx * qx + qy * qy + qz * qz)
    t = middle - math.sqrt(max(gap, ZERO) / a)
    return t if gap >= ZERO and t > near else FAR


@scalar
def hit_capsule(ox, oy, oz, dx, dy, dz, near, length):
    """Radius 1 about the z axis from -length to length."""
    a = max(dx * dx + dy * dy, TINY)
    middle = -(ox * dx + oy * dy) / a
    qx, qy = ox + middle * dx, oy + middle * dy
    gap = ONE - (qx * qx + qy * qy)
    side = middle - math.sqrt(max(gap, ZERO) / a)
    z = oz + side * dz
    cap = hit_sphere(ox, oy, oz - (length if z > ZERO else -length), dx, dy, dz, near)
    side = side if side > near else FAR
    return FAR if gap < ZERO else (side if abs(z) <= length else cap)


@scalar
def hit_cylinder(ox, oy, oz, dx, dy, dz, near):
    """Radius 1 about the z axis from -1 to 1, with its flat ends."""
    a = max(dx * dx + dy * dy, TINY)
    middle = -(ox * dx + oy * dy) / a
    qx, qy = ox + middle * dx, oy + middle * dy
    gap = ONE - (qx * qx + qy * qy)
    reach = math.sqrt(max(gap, ZERO) / a)
    dz = dz if abs(dz) > TINY else TINY
    t0, t1 = (-ONE - oz) / dz, (ONE - oz) / dz
    enter, leave = max(middle - reach, min(t0, t1)), min(middle + reach, max(t0, t1))
    return enter if gap >= ZERO and enter <= leave and enter > near else FAR


@scalar
def hit_box(ox, oy, oz, dx, dy, dz, near):
    """The cube from -1 to 1."""
    dx = dx if abs(dx) > TINY else TINY
    dy = dy if abs(dy) > TINY else TINY
    dz = dz if abs(dz) > TINY else TINY
    x0, x1 = (-ONE - ox) / dx, (ONE - ox) / dx
    y0, y1 = (-ONE - oy) / dy, (ONE - oy) / dy
    z0, z1 = (-ONE - oz) / dz, (ONE - oz) / dz
    enter = max(max(min(x0, x1), min(y0, y1)), min(z0, z1))
    leave = min(min(max(x0, x1), max(y0, y1)), max(z0, z1))
    return enter if enter <= leave and enter > near else FAR


@scalar
def hit_plane(ox, oy, oz, dx, dy, dz, near):
    """The square from -1 to 1 at z = 0, seen from above only."""
    t = -oz / (dz if dz < -TINY else -TINY)
    inside = abs(ox + t * dx) <= ONE and abs(oy + t * dy) <= ONE
    return t if inside and oz > ZERO and dz < ZERO and t > near else FAR


@scalar
def hit(kind, ox, oy, oz, dx, dy, dz, near, length):
    """Any primitive."""
    if kind == SPHERE:
        return hit_sphere(ox, oy, oz, dx, dy, dz, near)
    if kind == CAPSULE:
        return hit_capsule(ox, oy, oz, dx, dy, dz, near, length)
    if kind == CYLINDER:
        return hit_cylinder(ox, oy, oz, dx, dy, dz, near)
    if kind == BOX:
        return hit_box(ox, oy, oz, dx, dy, dz, near)
    return hit_plane(ox, oy, oz, dx, dy, dz, near)


@scalar
def point(record, u, v, t):
    """The ray's point at depth t in the primitive's scaled frame."""
    x = record[0] + t * (record[FORWARD] + u * record[RIGHT] + v * record[UP])
    y = record[1] + t * (record[FORWARD + 1] + u * record[RIGHT + 1] + v * record[UP + 1])
    z = record[2] + t * (record[FORWARD + 2] + u * record[RIGHT + 2] + v * record[UP + 2])
    return x, y, z


@scalar
def on_pane(record, u, v, t):
    """Whether a point of the pane lies on its reflecting face."""
    x, y, z = point(record, u, v, t)
    return z >= abs(x) and z >= abs(y)


@scalar
def normal(kind, record, u, v, t):
    """Outward normal in the primitive's own unscaled frame, not yet of unit length."""
    x, y, z = point(record, u, v, t)
    if kind == SPHERE:
        return x * record[INVERSE], y * record[INVERSE + 1], z * record[INVERSE + 2]
    if kind == CAPSULE:
        return x, y, z - max(-record[LENGTH], min(record[LENGTH], z))
    if kind == CYLINDER:
        if abs(abs(z) - ONE) < abs(math.sqrt(x * x + y * y) - ONE):
            return ZERO, ZERO, z
        return x, y, ZERO
    if kind == BOX:
        if abs(z) >= abs(x) and abs(z) >= abs(y):
            return ZERO, ZERO, z
        return (x, ZERO, ZERO) if abs(x) >= abs(y) else (ZERO, y, ZERO)
    return ZERO, ZERO, ONE


@scalar
def shade(kind, record, u, v, t, ambient, diffuse):
    """MuJoCo's fixed-function look without specular light and shadows; components in 0..1."""
    x, y, z = normal(kind, record, u, v, t)
    shrink = ONE / math.sqrt(max(x * x + y * y + z * z, TINY))
    glow = record[EMISSION]
    red, green, blue = glow + ambient[0], glow + ambient[1], glow + ambient[2]
    for i in range(diffuse.shape[0]):
        k = LIGHT + 3 * i
        lit = max((x * record[k] + y * record[k + 1] + z * record[k + 2]) * shrink, ZERO)
        red, green, blue = red + lit * diffuse[i, 0], green + lit * diffuse[i, 1], blue + lit * diffuse[i, 2]
    return (min(red * record[RGB], ONE), min(green * record[RGB + 1], ONE), min(blue * record[RGB + 2], ONE))


@scalar
def mix(x):
    """splitmix64's finaliser: a bijection of 64 bits that looks random."""
    x = (x ^ (x >> S30)) * MIX_1
    x = (x ^ (x >> S27)) * MIX_2
    return x ^ (x >> S31)


@scalar
def noise(bits, amplitude, biased):
    """A whole number in -amplitude..amplitude from 21 bits; the lowest flips the sign: exactly symmetric.

    Biased (0 or 1): in -amplitude..amplitude - 1, without the flip (the public code's, D17).
    """
    values = np.uint64(2 * amplitude + 1 - biased)
    size = np.int64(((bits >> BIT) & FIELD) * values >> S20) - amplitude
    return -size if bits & BIT and not biased else size


@scalar
def paint(pixel, red, green, blue, key, place_in_image, amplitude, biased):
    """Write one pixel with its noise: a function of key, place and channel alone."""
    bits = mix(key + np.uint64(place_in_image) * GOLDEN)
    for channel in range(3):
        value = np.int64((red if channel == 0 else (green if channel == 1 else blue)) * BYTE + HALF)
        value += noise(bits, amplitude, biased)
        pixel[channel] = np.uint8(max(0, min(255, value)))
        bits >>= S21
