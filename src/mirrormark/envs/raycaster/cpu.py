"""The eye on the CPU: a row of pixels at a time, so that intersections run in SIMD; environments in
parallel."""

from __future__ import annotations

import zlib
from pathlib import Path

import numba
import numpy as np

from .geometry import (
    BOX,
    CAPSULE,
    CYLINDER,
    FAR,
    FORWARD,
    LENGTH,
    MARK,
    MIRRORED,
    NOTHING,
    PANE,
    RECORD,
    RIGHT,
    SPHERE,
    UP,
    hit_box,
    hit_capsule,
    hit_cylinder,
    hit_plane,
    hit_sphere,
    mix,
    on_pane,
    paint,
    scalar,
    shade,
)
from .placement import PRESENT, camera_of, kind_of, place


def _run_of(hit, capsule: bool):
    @scalar
    def meet(record, u, v, near, depth, seen, g):
        """Meet one primitive with a run of pixels of a row."""
        ox, oy, oz, length = record[0], record[1], record[2], record[LENGTH]
        ax, bx = record[FORWARD] + v * record[UP], record[RIGHT]
        ay, by = record[FORWARD + 1] + v * record[UP + 1], record[RIGHT + 1]
        az, bz = record[FORWARD + 2] + v * record[UP + 2], record[RIGHT + 2]
        for i in range(u.shape[0]):
            dx, dy, dz = ax + u[i] * bx, ay + u[i] * by, az + u[i] * bz
            if capsule:
                t = hit(ox, oy, oz, dx, dy, dz, near[i], length)
            else:
                t = hit(ox, oy, oz, dx, dy, dz, near[i])
            closer = t < depth[i]
            depth[i] = t if closer else depth[i]
            seen[i] = g if closer else seen[i]

    return meet


_spheres, _capsules = _run_of(hit_sphere, False), _run_of(hit_capsule, True)
_cylinders, _boxes = _run_of(hit_cylinder, False), _run_of(hit_box, False)
_planes = _run_of(hit_plane, False)


@scalar
def _row(kinds, records, bounds, columns, v, y, first, last, near, depth, seen):
    """Nearest primitive of each pixel from column `first` to before `last`; -1: none."""
    for i in range(first, last):
        depth[i] = FAR
        seen[i] = -1
    for g in range(kinds.shape[0]):
        if y < bounds[g, 2] or y >= bounds[g, 3]:
            continue
        a, b = max(first, bounds[g, 0]), min(last, bounds[g, 1])
        if a >= b:
            continue
        u, n, d, s, k = columns[a:b], near[a:b], depth[a:b], seen[a:b], np.int32(g)
        if kinds[g] == SPHERE:
            _spheres(records[g], u, v, n, d, s, k)
        elif kinds[g] == CAPSULE:
            _capsules(records[g], u, v, n, d, s, k)
        elif kinds[g] == CYLINDER:
            _cylinders(records[g], u, v, n, d, s, k)
        elif kinds[g] == BOX:
            _boxes(records[g], u, v, n, d, s, k)
        else:
            _planes(records[g], u, v, n, d, s, k)


@scalar
def _placed(static, state, w):
    """Kinds, records and bounds of one environment's primitives, in both views."""
    geoms = static.kind.shape[0]
    kinds = np.empty(geoms + 2, np.int32)
    records = np.empty((2, geoms + 2, RECORD), np.float32)
    bounds = np.empty((2, geoms + 2, 4), np.int32)
    for g in range(geoms + 2):
        kinds[g] = kind_of(static, g)
    for view in range(2):
        camera = camera_of(static, state, w, view)
        for g in range(geoms + 2):
            place(static, state, w, view, g, camera, records[view, g], bounds[view, g])
    return kinds, records, bounds


@scalar
def _render_rows(static, state, w, first_row, last_row, amplitude, biased, image, labels):
    """Draw some rows of one environment's view into `image` and `labels`; an empty array is left alone."""
    geoms, width = static.kind.shape[0], static.columns.shape[0]
    kinds, records, bounds = _placed(static, state, w)
    near = np.full(width, static.edge[2], np.float32)
    depth, seen = np.empty((2, width), np.float32), np.empty((2, width), np.int32)
    mirror = np.empty(width, np.uint8)
    pane, columns, reflects = geoms + 1, static.columns, state.pane_kind[w] == PRESENT
    key = mix(state.noise_key[w])
    for y in range(first_row, last_row):
        v = static.rows[y]
        _row(kinds, records[0], bounds[0], columns, v, y, 0, width, near, depth[0], seen[0])
        a, b = width, 0
        for x in range(width):
            mirror[x] = 0
            if seen[0, x] == pane and reflects and on_pane(records[0, pane], columns[x], v, depth[0, x]):
                mirror[x] = 1
                a, b = min(a, x), x + 1
        if a < b:
            _row(kinds, records[1], bounds[1], columns, v, y, a, b, depth[0], depth[1], seen[1])
        for x in range(width):
            view = np.int64(mirror[x])
            g = seen[view, x]
            if labels.shape[0] > 0:
                label = NOTHING if g < 0 else (g if g < geoms else (MARK if g == geoms else PANE))
                labels[w, y, x] = label + view * MIRRORED
            if image.shape[0] > 0:
                rgb = (static.sky_rgb[0], static.sky_rgb[1], static.sky_rgb[2])
                if g >= 0:
                    t = depth[view, x]
                    rgb = shade(kinds[g], records[view, g], columns[x], v, t, static.ambient, static.diffuse)
                paint(image[w, y, x], rgb[0], rgb[1], rgb[2], key, y * width + x, amplitude, biased)


@scalar
def _find(static, state, w, found):
    """How many pixels show the mark in the mirror, and the sums of their u and v: only where it could be."""
    geoms, width, columns = static.kind.shape[0], static.columns.shape[0], static.columns
    found[w, 0], found[w, 1], found[w, 2] = 0.0, 0.0, 0.0
    if state.pane_kind[w] != PRESENT or not state.mark_shown[w, 1]:
        return
    kinds, records, bounds = _placed(static, state, w)
    pane, (a, b, top, bottom) = records[0, geoms + 1], bounds[1, geoms]
    near = np.full(width, static.edge[2], np.float32)
    depth, seen = np.empty((2, width), np.float32), np.empty((2, width), np.int32)
    for y in range(top, bottom):
        v = static.rows[y]
        _row(kinds, records[0], bounds[0], columns, v, y, a, b, near, depth[0], seen[0])
        _row(kinds, records[1], bounds[1], columns, v, y, a, b, depth[0], depth[1], seen[1])
        for x in range(a, b):
            mirrored = seen[0, x] == geoms + 1 and on_pane(pane, columns[x], v, depth[0, x])
            if mirrored and seen[1, x] == geoms:
                found[w, 0] += 1.0
                found[w, 1] += columns[x]
                found[w, 2] += v


SOURCES = zlib.crc32(
    b"".join(Path(__file__).with_name(f"{name}.py").read_bytes() for name in ("geometry", "placement", "cpu"))
)
"""numba's cache on disk notices a change only in the file of the function it keeps; but a closure's value is
part of the cache's key: closures over this number are compiled anew when any of these files changes."""


def _compiled():
    sources = SOURCES

    @numba.njit(cache=True, parallel=True, error_model="numpy")
    def render_parallel(static, state, bands, amplitude, biased, image, labels):
        """Every environment, each cut into `bands` bands of rows."""
        height = static.rows.shape[0] + 0 * sources
        for item in numba.prange(state.xpos.shape[0] * bands):
            w, band = item // bands, item % bands
            first, last = height * band // bands, height * (band + 1) // bands
            _render_rows(static, state, w, first, last, amplitude, biased, image, labels)

    @numba.njit(cache=True, error_model="numpy")
    def render_serial(static, state, amplitude, biased, image, labels):
        """The same without threads: nothing to start, and safe in a forked process."""
        for w in range(state.xpos.shape[0]):
            _render_rows(
                static, state, w, 0 * sources, static.rows.shape[0], amplitude, biased, image, labels
            )

    @numba.njit(cache=True, parallel=True, error_model="numpy")
    def find_mark_parallel(static, state, found):
        """The mark of every environment."""
        for w in numba.prange(state.xpos.shape[0] + 0 * sources):
            _find(static, state, w, found)

    @numba.njit(cache=True, error_model="numpy")
    def find_mark_serial(static, state, found):
        """The same without threads."""
        for w in range(state.xpos.shape[0] + 0 * sources):
            _find(static, state, w, found)

    return render_parallel, render_serial, find_mark_parallel, find_mark_serial


_render_parallel, _render_serial, _find_mark_parallel, _find_mark_serial = _compiled()


def render(static, state, amplitude: int, biased: bool, image, labels) -> None:
    """Fill `image` (N, H, W, 3) uint8 and `labels` (N, H, W) int16; an array without environments is left
    alone."""
    threads = numba.get_num_threads()
    envs = state.xpos.shape[0]
    if threads == 1 or (envs == 1 and static.rows.shape[0] <= 64):
        _render_serial(static, state, amplitude, int(biased), image, labels)
    else:
        bands = 1 if envs >= threads else -(-threads // envs)
        _render_parallel(static, state, bands, amplitude, int(biased), image, labels)


def find_mark(static, state) -> np.ndarray:
    """Pixels that show the mark in the mirror, and the sums of their u and v, (N, 3)."""
    found = np.empty((state.xpos.shape[0], 3))
    (_find_mark_serial if numba.get_num_threads() == 1 or len(found) == 1 else _find_mark_parallel)(
        static, state, found
    )
    return found
