"""The eye on a GPU: a thread for each primitive, then a thread for each pixel.

numba-cuda compiles the scalar functions of `geometry` and `placement`, as numba does for the CPU. It fuses
float32 arithmetic differently, so edge pixels may differ from the CPU's; the noise is the same.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
from numba import cuda as numba_cuda
from numpy.typing import NDArray

from .cpu import SOURCES
from .geometry import (
    BOX,
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
    UP,
    hit,
    mix,
    on_pane,
    paint,
    scalar,
    shade,
)
from .placement import PRESENT, State, Static, camera_of, place

# Gone from NumPy 2.5, but numba-cuda 0.30 does not start without it.
vars(np).setdefault("row_stack", np.vstack)

cuda: Any = numba_cuda  # its type stubs describe kernels as plain functions

BLOCK = (8, 16)
"""Pixels of a thread block, across and down; a warp covers a mark of 8 x 4."""
PLACE_BLOCK = 64
ALIGNMENT = 256
"""Bytes; all that changes between calls travels in one buffer, because each copy costs 0.1 ms."""


@scalar
def nearest(kinds, records, bounds, x, y, u, v, near):
    """Depth and row of the first primitive that a pixel's ray enters beyond `near`; row -1: none."""
    depth, seen = FAR, -1
    for g in range(kinds.shape[0]):
        if x < bounds[g, 0] or x >= bounds[g, 1] or y < bounds[g, 2] or y >= bounds[g, 3]:
            continue
        r = records[g]
        dx = (r[FORWARD] + v * r[UP]) + u * r[RIGHT]
        dy = (r[FORWARD + 1] + v * r[UP + 1]) + u * r[RIGHT + 1]
        dz = (r[FORWARD + 2] + v * r[UP + 2]) + u * r[RIGHT + 2]
        t = hit(kinds[g], r[0], r[1], r[2], dx, dy, dz, near, r[LENGTH])
        if t < depth:
            depth, seen = t, g
    return depth, seen


def _compiled():
    sources = SOURCES

    @cuda.jit(cache=True)
    def placement_kernel(static, state, records, bounds):
        """One thread for each environment, view and primitive."""
        primitives = records.shape[2] + 0 * sources
        i = cuda.grid(1)
        if i >= records.shape[0] * 2 * primitives:
            return
        w, view, g = i // (2 * primitives), (i // primitives) % 2, i % primitives
        camera = camera_of(static, state, w, view)
        place(static, state, w, view, g, camera, records[w, view, g], bounds[w, view, g])

    @cuda.jit(cache=True)
    def render_kernel(
        kinds,
        records,
        bounds,
        columns,
        rows,
        edge,
        ambient,
        diffuse,
        sky,
        pane_kind,
        keys,
        amplitude,
        biased,
        image,
        labels,
        draw,
    ):
        """One thread for each pixel; writes `image` if draw, else `labels`."""
        x, y, w = cuda.grid(3)
        if x >= columns.shape[0] or y >= rows.shape[0] or w >= records.shape[0]:
            return
        u, v, view, geoms = columns[x], rows[y], 0, kinds.shape[0] - 2 + 0 * sources
        t, g = nearest(kinds, records[w, 0], bounds[w, 0], x, y, u, v, np.float32(edge[2]))
        if g == geoms + 1 and pane_kind[w] == PRESENT and on_pane(records[w, 0, g], u, v, t):
            view = 1
            t, g = nearest(kinds, records[w, 1], bounds[w, 1], x, y, u, v, t)
        if draw:
            rgb = (sky[0], sky[1], sky[2])
            if g >= 0:
                rgb = shade(kinds[g], records[w, view, g], u, v, t, ambient, diffuse)
            spot = y * columns.shape[0] + x
            paint(image[w, y, x], rgb[0], rgb[1], rgb[2], mix(keys[w]), spot, amplitude, biased)
        else:
            label = NOTHING if g < 0 else (g if g < geoms else (MARK if g == geoms else PANE))
            labels[w, y, x] = label + view * MIRRORED

    return placement_kernel, render_kernel


placement_kernel, render_kernel = _compiled()


def _part(buffer: Any, start: int, field: NDArray[Any]) -> Any:
    """The bytes of a buffer that hold a field, as an array like it."""
    return buffer[start : start + field.nbytes].view(field.dtype).reshape(field.shape)


class CudaEye:
    """Device buffers for as many environments as the last call had, and the two kernels."""

    def __init__(self, static: Static) -> None:
        if not cuda.is_available():
            raise ValueError(
                "device is cuda, but numba finds no CUDA GPU: use device cpu, or install numba-cuda."
            )
        self._host_static = static
        kinds = np.append(static.kind, (CYLINDER, BOX)).astype(np.int32)
        self._static = Static(*(cuda.to_device(field) for field in static))
        self._kinds: Any = cuda.to_device(kinds)
        self._envs = 0
        self._turn = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return CudaEye, (self._host_static,)  # the device's buffers cannot be pickled

    def render(self, state: State, amplitude: int, biased: bool) -> Any:
        """Two images take turns, so that one may be read while the next is drawn."""
        self._upload(state)
        self._turn = 1 - self._turn
        self._render(self._images[self._turn], self._no_labels, amplitude, biased, True)
        return self._images[self._turn]

    def segment(self, state: State) -> NDArray[np.int16]:
        self._upload(state)
        s = self._static
        labels = cuda.device_array((len(state.xpos), s.rows.shape[0], s.columns.shape[0]), np.int16)
        self._render(self._images[0], labels, 0, False, False)
        return labels.copy_to_host()

    def _allocate(self, state: State) -> None:
        self._envs = n = len(state.xpos)
        primitives = len(self._kinds)
        size = (n, self._static.rows.shape[0], self._static.columns.shape[0], 3)
        starts = list(accumulate((-(-field.nbytes // ALIGNMENT) * ALIGNMENT for field in state), initial=0))
        self._here, self._there = np.zeros(starts[-1], np.uint8), cuda.device_array(starts[-1], np.uint8)
        self._staged = [_part(self._here, start, field) for start, field in zip(starts, state)]
        self._state = State(*(_part(self._there, start, field) for start, field in zip(starts, state)))
        self._records = cuda.device_array((n, 2, primitives, RECORD), np.float32)
        self._bounds = cuda.device_array((n, 2, primitives, 4), np.int32)
        self._images = [cuda.device_array(size, np.uint8) for _ in range(2)]
        self._no_labels = cuda.device_array((1, 1, 1), np.int16)

    def _upload(self, state: State) -> None:
        if self._envs != len(state.xpos):
            self._allocate(state)
        for staged, field in zip(self._staged, state):
            staged[:] = field
        self._there.copy_to_device(self._here)

    def _render(self, image: Any, labels: Any, amplitude: int, biased: bool, draw: bool) -> None:
        s, state = self._static, self._state
        n, primitives = len(state.xpos), len(self._kinds)
        blocks = -(-n * 2 * primitives // PLACE_BLOCK)
        placement_kernel[blocks, PLACE_BLOCK](s, state, self._records, self._bounds)
        grid = (-(-s.columns.shape[0] // BLOCK[0]), -(-s.rows.shape[0] // BLOCK[1]), n)
        render_kernel[grid, (*BLOCK, 1)](
            self._kinds,
            self._records,
            self._bounds,
            s.columns,
            s.rows,
            s.edge,
            s.ambient,
            s.diffuse,
            s.sky_rgb,
            state.pane_kind,
            state.noise_key,
            amplitude,
            int(biased),
            image,
            labels,
            draw,
        )
