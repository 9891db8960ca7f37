"""Geoms, mark and pane in the frames of the camera and of its reflection in the mirror: scalar functions.

The mirror is a second view: from the camera reflected in the pane, whose rays start at the pane. For a planar
mirror this equals following the reflected ray, so the same intersections serve both views.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .geometry import (
    BOX,
    CAPSULE,
    CYLINDER,
    EMISSION,
    FORWARD,
    INVERSE,
    LENGTH,
    LIGHT,
    PLANE,
    RGB,
    RIGHT,
    UP,
    scalar,
)

PRESENT, ABSENT, COVERED = range(3)
DIRECT, REFLECTED = range(2)
ON_PANE = -1
"""In place of a body: the primitive moves with the pane."""


class Static(NamedTuple):
    """What all environments share; arrays, for either device."""

    kind: Any  # (G,) int32
    body: Any  # (G,) int32, ON_PANE for the frame
    pos: Any  # (G, 3) float64
    mat: Any  # (G, 3, 3) float64
    size: Any  # (G, 3) float64
    rgb: Any  # (G, 3) float32
    emission: Any  # (G,) float32
    in_direct_view: Any  # (G,) uint8
    camera_body: Any  # (1,) int32
    camera_pos: Any  # (3,) float64
    camera_mat: Any  # (3, 3) float64, columns right, up, backward
    columns: Any  # (W,) float32, u of each column
    rows: Any  # (H,) float32, v of each row
    edge: Any  # (3,) float64: u at the right edge, v at the upper edge, nearest depth drawn
    light: Any  # (L, 3) float64, unit vectors towards the lights
    diffuse: Any  # (L, 3) float32
    ambient: Any  # (3,) float32
    pane_half: Any  # (1,) float64, half thickness of the pane, which lies behind the pane
    mark_half: Any  # (1,) float64, half thickness of the mark
    mark_emission: Any  # (1,) float32
    pane_rgb: Any  # (3, 3) float32, of a pane PRESENT (its edge and back), ABSENT, COVERED
    sky_rgb: Any  # (3,) float32


class State(NamedTuple):
    """What differs between environments and steps; arrays over N environments."""

    xpos: Any  # (N, bodies, 3) float64
    xmat: Any  # (N, bodies, 3, 3) float64
    mirror_xpos: Any
    mirror_xmat: Any
    pane_centre: Any  # (N, 3) float64
    pane_mat: Any  # (N, 3, 3) float64, columns right, up, normal towards the body
    pane_half: Any  # (N, 2) float64
    pane_kind: Any  # (N,) int32
    mark_body: Any  # (N,) int32
    mark_pos: Any  # (N, 3) float64
    mark_mat: Any  # (N, 3, 3) float64
    mark_radius: Any  # (N,) float64
    mark_rgb: Any  # (N, 3) float32
    mark_shown: Any  # (N, 2) uint8, for each view
    noise_key: Any  # (N,) uint64


@scalar
def dot(a, b):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@scalar
def turn(mat, x, y, z):
    """mat @ (x, y, z)."""
    return (
        mat[0, 0] * x + mat[0, 1] * y + mat[0, 2] * z,
        mat[1, 0] * x + mat[1, 1] * y + mat[1, 2] * z,
        mat[2, 0] * x + mat[2, 1] * y + mat[2, 2] * z,
    )


@scalar
def carried(origin, frame, pos, mat):
    """Position and axes in the environment of what is fixed to a frame."""
    x, y, z = turn(frame, pos[0], pos[1], pos[2])
    return (
        (origin[0] + x, origin[1] + y, origin[2] + z),
        turn(frame, mat[0, 0], mat[1, 0], mat[2, 0]),
        turn(frame, mat[0, 1], mat[1, 1], mat[2, 1]),
        turn(frame, mat[0, 2], mat[1, 2], mat[2, 2]),
    )


@scalar
def mirrored(vector, n):
    """The vector reflected in a plane through the origin."""
    k = 2.0 * (vector[0] * n[0] + vector[1] * n[1] + vector[2] * n[2])
    return vector[0] - k * n[0], vector[1] - k * n[1], vector[2] - k * n[2]


@scalar
def camera_of(static, state, w, view):
    """Position, right, up and forward of an environment's camera, or of its reflection."""
    b = static.camera_body[0]
    eye, right, up, back = carried(state.xpos[w, b], state.xmat[w, b], static.camera_pos, static.camera_mat)
    forward = (-back[0], -back[1], -back[2])
    if view == REFLECTED:
        m, c = state.pane_mat[w], state.pane_centre[w]
        n = (m[0, 2], m[1, 2], m[2, 2])
        x, y, z = mirrored((eye[0] - c[0], eye[1] - c[1], eye[2] - c[2]), n)
        eye = (c[0] + x, c[1] + y, c[2] + z)
        right, up, forward = mirrored(right, n), mirrored(up, n), mirrored(forward, n)
    return eye, right, up, forward


@scalar
def drawn(static, state, w, view, g):
    """Whether this view draws the primitive; rows past the geoms are the mark and the pane."""
    geoms = static.kind.shape[0]
    if view == REFLECTED and state.pane_kind[w] != PRESENT:
        return False
    if g == geoms:
        return state.mark_shown[w, view] != 0
    if g > geoms:
        return view == DIRECT
    if static.body[g] == ON_PANE and state.pane_kind[w] == ABSENT:
        return False
    return view == REFLECTED or static.in_direct_view[g] != 0


@scalar
def kind_of(static, g):
    geoms = static.kind.shape[0]
    if g < geoms:
        return static.kind[g]
    return CYLINDER if g == geoms else BOX


@scalar
def pose_of(static, state, w, view, g):
    """Environment position and axes of a primitive in the poses that this view shows."""
    geoms = static.kind.shape[0]
    if g > geoms:
        m, c = state.pane_mat[w], state.pane_centre[w]
        right, up, n = (m[0, 0], m[1, 0], m[2, 0]), (m[0, 1], m[1, 1], m[2, 1]), (m[0, 2], m[1, 2], m[2, 2])
        k = static.pane_half[0]
        return (c[0] - k * n[0], c[1] - k * n[1], c[2] - k * n[2]), right, up, n
    b = state.mark_body[w] if g == geoms else static.body[g]
    if b == ON_PANE:
        return carried(state.pane_centre[w], state.pane_mat[w], static.pos[g], static.mat[g])
    if g == geoms:
        if view == REFLECTED:
            return carried(
                state.mirror_xpos[w, b], state.mirror_xmat[w, b], state.mark_pos[w], state.mark_mat[w]
            )
        return carried(state.xpos[w, b], state.xmat[w, b], state.mark_pos[w], state.mark_mat[w])
    if view == REFLECTED:
        return carried(state.mirror_xpos[w, b], state.mirror_xmat[w, b], static.pos[g], static.mat[g])
    return carried(state.xpos[w, b], state.xmat[w, b], static.pos[g], static.mat[g])


@scalar
def size_of(static, state, w, g):
    """Half extents that scale the primitive to its unit form, and a capsule's half length over its radius."""
    geoms = static.kind.shape[0]
    if g == geoms:
        return state.mark_radius[w], state.mark_radius[w], static.mark_half[0], 0.0
    if g > geoms:
        return state.pane_half[w, 0], state.pane_half[w, 1], static.pane_half[0], 0.0
    x, y, z = static.size[g, 0], static.size[g, 1], static.size[g, 2]
    if static.kind[g] == CAPSULE:
        return x, x, x, y / x
    return x, y, z, 0.0


@scalar
def seen_along(axis, camera):
    """A vector's components along the camera's right, up and forward."""
    return dot(axis, camera[1]), dot(axis, camera[2]), dot(axis, camera[3])


@scalar
def scaled(vector, k):
    return vector[0] * k, vector[1] * k, vector[2] * k


@scalar
def frame_of(centre, a, b, c, near):
    """Least and greatest u and v of a box with these half edges, of its part beyond `near`, for the camera.

    They are those of its corners there and of the points where its edges meet the near plane.
    """
    u0, u1, v0, v1 = 1e9, -1e9, 1e9, -1e9
    for i in range(8):
        p, q, r = (1.0 if i & 1 else -1.0), (1.0 if i & 2 else -1.0), (1.0 if i & 4 else -1.0)
        x = centre[0] + p * a[0] + q * b[0] + r * c[0]
        y = centre[1] + p * a[1] + q * b[1] + r * c[1]
        z = centre[2] + p * a[2] + q * b[2] + r * c[2]
        if z > near:
            u, v = x / z, y / z
            u0, u1, v0, v1 = min(u0, u), max(u1, u), min(v0, v), max(v1, v)
            continue
        for k in range(3):  # edges from this hidden corner to its neighbours
            edge = scaled(a, -2.0 * p) if k == 0 else (scaled(b, -2.0 * q) if k == 1 else scaled(c, -2.0 * r))
            if z + edge[2] > near:
                s = (near - z) / edge[2]
                u, v = (x + s * edge[0]) / near, (y + s * edge[1]) / near
                u0, u1, v0, v1 = min(u0, u), max(u1, u), min(v0, v), max(v1, v)
    return u0, u1, v0, v1


@scalar
def clip(x, most):
    """A whole number from 0 to `most`."""
    return math.floor(max(0.0, min(x, most)))


@scalar
def bound(static, frame, bounds):
    """Write the columns (bounds[0:2]) and rows (bounds[2:4]) of a frame of u and v; whether there are any."""
    u0, u1, v0, v1 = frame
    if u0 > u1:
        return False
    width, height = static.columns.shape[0], static.rows.shape[0]
    across, down = 0.5 * width / static.edge[0], 0.5 * height / static.edge[1]
    # A pixel's centre is at its index plus one half; a pixel of slack at either side covers rounding.
    bounds[0], bounds[1] = (
        clip(0.5 * width + u0 * across - 1, width),
        clip(0.5 * width + u1 * across + 2, width),
    )
    bounds[2], bounds[3] = (
        clip(0.5 * height - v1 * down - 1, height),
        clip(0.5 * height - v0 * down + 2, height),
    )
    return bounds[0] < bounds[1] and bounds[2] < bounds[3]


@scalar
def write_light(record, static, state, w, g, ax, ay, az):
    """Write what light the primitive gives back."""
    geoms = static.kind.shape[0]
    for k in range(3):
        axis = ax if k == 0 else (ay if k == 1 else az)
        for i in range(static.light.shape[0]):
            record[LIGHT + 3 * i + k] = dot(static.light[i], axis)
        if g < geoms:
            record[RGB + k] = static.rgb[g, k]
        else:
            record[RGB + k] = state.mark_rgb[w, k] if g == geoms else static.pane_rgb[state.pane_kind[w], k]
    record[EMISSION] = static.emission[g] if g < geoms else (static.mark_emission[0] if g == geoms else 0.0)


@scalar
def place(static, state, w, view, g, camera, record, bounds):
    """Write the record of a primitive and its bounds in the image, which are empty if this view lacks it."""
    bounds[0], bounds[1], bounds[2], bounds[3] = 0, 0, 0, 0
    if not drawn(static, state, w, view, g):
        return
    place, ax, ay, az = pose_of(static, state, w, view, g)
    sx, sy, sz, length = size_of(static, state, w, g)
    eye = camera[0]
    away = (eye[0] - place[0], eye[1] - place[1], eye[2] - place[2])
    x, y, z = seen_along(ax, camera), seen_along(ay, camera), seen_along(az, camera)
    tall = 0.0 if kind_of(static, g) == PLANE else sz * (1.0 + length)
    centre = scaled(seen_along(away, camera), -1.0)
    frame = frame_of(centre, scaled(x, sx), scaled(y, sy), scaled(z, tall), static.edge[2])
    if not bound(static, frame, bounds):
        return
    record[LENGTH] = length
    for k in range(3):
        axis = ax if k == 0 else (ay if k == 1 else az)
        along = x if k == 0 else (y if k == 1 else z)
        inverse = 1.0 / (sx if k == 0 else (sy if k == 1 else sz))
        record[k] = dot(away, axis) * inverse
        record[RIGHT + k], record[UP + k], record[FORWARD + k] = scaled(along, inverse)
        record[INVERSE + k] = inverse
    write_light(record, static, state, w, g, ax, ay, az)
