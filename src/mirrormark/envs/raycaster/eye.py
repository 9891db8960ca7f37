"""The eye: a camera of N environments, by a ray-caster with one true mirror. It needs no OpenGL.

`Eye.render` gives colours, `Eye.segment` what each pixel shows: the same rays. MuJoCo's own renderer with
planar reflectance is the ground truth (tests/envs/test_eye_truth.py).
"""

from __future__ import annotations

from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..mirror import CLOTH, PANE_HALF_M, WALL_FRONT
from ..scene import MARK_EMISSION, MARK_THICKNESS_M
from . import cpu
from .arrays import (
    Camera,
    Geoms,
    Lights,
    Marks,
    Panes,
    camera_at,
    camera_of,
    geoms_of,
    lights_of,
    no_marks,
    panes_of,
)
from .geometry import MARK, MIRRORED, NOTHING, PANE
from .placement import ABSENT, COVERED, PRESENT, State, Static

__all__ = [
    "ABSENT", "COVERED", "MARK", "MIRRORED", "NOTHING", "NO_CELL", "PANE", "PRESENT",
    "Camera", "Eye", "Geoms", "Marks", "Panes",
    "camera_at", "camera_of", "geoms_of", "mark_pixels", "mirror_share", "no_marks", "panes_of", "render",
]  # fmt: skip

Floats = NDArray[np.float64]

NOISE = 2
"""Pixel noise is a whole number from -2 to 2 (paper, Table III)."""
GRID = 15
"""Cells along each side of the mirror for `Eye.mark_cell` (ours)."""
NO_CELL = GRID * GRID
"""The cell of a mark that is not seen."""
MAX_PIXELS = 8192
"""Of a picture's side (ours)."""
SKY_RGB = (0.70, 0.76, 0.82)
"""Where a ray leaves the room (ours)."""


class Eye:
    """A camera for N environments of one model.

    mark_in_direct_view: whether the mark can be seen without the mirror. None: not by the body's own eye
    (D12), but by a camera in the environment. wall_rgb, cloth_rgb: pane of an absent and of a covered mirror.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        camera: Camera,
        width: int = 64,
        height: int = 64,
        device: Literal["cpu", "cuda"] = "cpu",
        mark_in_direct_view: bool | None = None,
        wall_rgb: ArrayLike = WALL_FRONT,
        cloth_rgb: ArrayLike = CLOTH,
        sky_rgb: ArrayLike = SKY_RGB,
    ) -> None:
        _check_size(width, height, MAX_PIXELS)
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device {device!r} is unknown: use cpu or cuda.")
        self.width, self.height, self.device = width, height, device
        self.camera = camera
        self.geoms = geoms_of(model, camera.body)
        self.bodies = model.nbody
        self._mark_in_direct_view = camera.body == 0 if mark_in_direct_view is None else mark_in_direct_view
        near_m = float(model.vis.map.znear * model.stat.extent)
        panes = np.array([(0.0, 0.0, 0.0), wall_rgb, cloth_rgb], np.float32)
        self._static = _static(
            self.geoms, lights_of(model), camera, width, height, near_m, panes, np.array(sky_rgb, np.float32)
        )
        self._cuda: Any = None
        if device == "cuda":
            from .cuda import CudaEye

            self._cuda = CudaEye(self._static)

    def render(
        self,
        xpos: Floats,
        xmat: Floats,
        mirror_xpos: Floats,
        mirror_xmat: Floats,
        panes: Panes,
        marks: Marks,
        noise_key: NDArray[np.uint64],
        noise_amplitude: int = NOISE,
        biased_noise: bool = False,
    ) -> Any:
        """Colours, uint8 (N, H, W, 3), with noise that depends on key, pixel and channel alone.

        biased_noise: from -amplitude to amplitude - 1, as in the public code (D17).
        CPU: a fresh NumPy array. CUDA: a device array that the call after the next one overwrites.
        """
        state = self._state(xpos, xmat, mirror_xpos, mirror_xmat, panes, marks, noise_key)
        if self._cuda is not None:
            return self._cuda.render(state, noise_amplitude, biased_noise)
        image = np.empty((len(xpos), self.height, self.width, 3), np.uint8)
        no_labels = np.empty((0, 0, 0), np.int16)
        cpu.render(self._static, state, noise_amplitude, biased_noise, image, no_labels)
        return image

    def segment(
        self, xpos: Floats, xmat: Floats, mirror_xpos: Floats, mirror_xmat: Floats, panes: Panes, marks: Marks
    ) -> NDArray[np.int16]:
        """What each pixel shows, int16 (N, H, W), always as NumPy.

        A row of `geoms`, MARK, PANE or NOTHING; MIRRORED is added to what is seen in the mirror.
        """
        state = self._state(
            xpos, xmat, mirror_xpos, mirror_xmat, panes, marks, np.zeros(len(xpos), np.uint64)
        )
        if self._cuda is not None:
            return self._cuda.segment(state)
        labels = np.empty((len(xpos), self.height, self.width), np.int16)
        cpu.render(self._static, state, 0, False, np.empty((0, 0, 0, 0), np.uint8), labels)
        return labels

    def mark_cell(
        self, xpos: Floats, xmat: Floats, mirror_xpos: Floats, mirror_xmat: Floats, panes: Panes, marks: Marks
    ) -> NDArray[np.int64]:
        """Where on the pane the mark is seen, (N,): a cell of a 15 x 15 grid, by rows from the upper left.

        NO_CELL where the mirror shows no mark. The ray through the middle of the mark's pixels meets the
        pane in this cell. Only rays near the mark are cast, by the CPU.
        """
        state = self._state(
            xpos, xmat, mirror_xpos, mirror_xmat, panes, marks, np.zeros(len(xpos), np.uint64)
        )
        count, u, v = cpu.find_mark(self._static, state).T
        u, v = u / np.maximum(count, 1), v / np.maximum(count, 1)
        body = self.camera.body
        turn = xmat[:, body] @ self.camera.mat  # (N, 3, 3)
        eye = xpos[:, body] + xmat[:, body] @ self.camera.pos
        ray = turn[:, :, 0] * u[:, None] + turn[:, :, 1] * v[:, None] - turn[:, :, 2]
        to_pane, slope = _dots(panes.centre - eye, panes.mat[:, :, 2]), _dots(ray, panes.mat[:, :, 2])
        spot = eye + ray * (to_pane / np.where(slope == 0, 1.0, slope))[:, None] - panes.centre
        across = _dots(spot, panes.mat[:, :, 0]) / panes.half[:, 0]
        down = -_dots(spot, panes.mat[:, :, 1]) / panes.half[:, 1]
        column, row = (
            np.clip(np.floor((x + 1) * GRID / 2), 0, GRID - 1).astype(np.int64) for x in (across, down)
        )
        return np.where(count > 0, row * GRID + column, NO_CELL)

    def _state(
        self,
        xpos: Floats,
        xmat: Floats,
        mirror_xpos: Floats,
        mirror_xmat: Floats,
        panes: Panes,
        marks: Marks,
        noise_key: NDArray[np.uint64],
    ) -> State:
        n = len(xpos)
        for name, poses in (("xpos", xpos), ("mirror_xpos", mirror_xpos)):
            if poses.shape != (n, self.bodies, 3):
                raise ValueError(
                    f"{name} has shape {poses.shape}: give (environments, {self.bodies} bodies, 3)."
                )
        for name, poses in (("xmat", xmat), ("mirror_xmat", mirror_xmat)):
            if poses.shape != (n, self.bodies, 3, 3):
                raise ValueError(
                    f"{name} has shape {poses.shape}: give (environments, {self.bodies} bodies, 3, 3)."
                )
        for name, rows in (("panes", panes.kind), ("marks", marks.body), ("noise_key", noise_key)):
            if len(rows) != n:
                raise ValueError(f"{name} has {len(rows)} rows: give one for each of the {n} environments.")
        shown = np.stack([marks.shown & self._mark_in_direct_view, marks.shown_mirror], axis=1)
        xpos, xmat = _as(xpos, np.float64), _as(xmat, np.float64)
        return State(
            xpos,
            xmat,
            xpos if mirror_xpos is xpos else _as(mirror_xpos, np.float64),
            xmat if mirror_xmat is xmat else _as(mirror_xmat, np.float64),
            _as(panes.centre, np.float64),
            _as(panes.mat, np.float64),
            _as(panes.half, np.float64),
            _as(panes.kind, np.int32),
            _as(marks.body, np.int32),
            _as(marks.pos, np.float64),
            _as(marks.mat, np.float64),
            _as(marks.radius_m, np.float64),
            _as(marks.rgb, np.float32),
            _as(shown, np.uint8),
            _as(noise_key, np.uint64),
        )


def mark_pixels(labels: NDArray[np.int16]) -> NDArray[np.int64]:
    """How many pixels show the mark in the mirror (N,)."""
    return (labels == MARK + MIRRORED).sum(axis=(1, 2))


def mirror_share(labels: NDArray[np.int16]) -> Floats:
    """Share of the view that the mirror's image fills (N,)."""
    return (labels >= MIRRORED).mean(axis=(1, 2))


def render(
    model: mujoco.MjModel,
    camera: Camera,
    xpos: Floats,
    xmat: Floats,
    panes: Panes,
    marks: Marks,
    width: int,
    height: int,
    samples: int = 2,
    mirror_xpos: Floats | None = None,
    mirror_xmat: Floats | None = None,
) -> NDArray[np.uint8]:
    """A view for people, uint8 (N, H, W, 3), by the CPU: no noise, samples x samples rays a pixel."""
    _check_size(width, height, MAX_PIXELS // samples)
    eye = Eye(model, camera, width * samples, height * samples)
    pane = (xpos if mirror_xpos is None else mirror_xpos, xmat if mirror_xmat is None else mirror_xmat)
    fine = eye.render(xpos, xmat, *pane, panes, marks, np.zeros(len(xpos), np.uint64), 0)
    blocks = fine.reshape(len(xpos), height, samples, width, samples, 3)
    return np.rint(blocks.mean(axis=(2, 4))).astype(np.uint8)


def _check_size(width: Any, height: Any, most: int) -> None:
    for name, pixels in (("width", width), ("height", height)):
        whole = isinstance(pixels, (int, np.integer)) and not isinstance(pixels, bool)
        if not whole or not 1 <= pixels <= most:
            raise ValueError(f"{name} is {pixels!r}: give a whole number of pixels from 1 to {most}.")


def _as(values: Any, dtype: Any) -> Any:
    return np.ascontiguousarray(values, dtype)


def _dots(a: Floats, b: Floats) -> Floats:
    return np.einsum("ni,ni->n", a, b)


def _static(
    geoms: Geoms,
    lights: Lights,
    camera: Camera,
    width: int,
    height: int,
    near_m: float,
    pane_rgb: NDArray[np.float32],
    sky_rgb: NDArray[np.float32],
) -> Static:
    top = np.tan(camera.fovy_rad / 2)
    side = top * width / height
    return Static(
        *(_as(getattr(geoms, name), getattr(geoms, name).dtype) for name in Static._fields[:8]),
        camera_body=np.array([camera.body], np.int32),
        camera_pos=_as(camera.pos, np.float64),
        camera_mat=_as(camera.mat, np.float64),
        columns=(((np.arange(width) + 0.5) / width * 2 - 1) * side).astype(np.float32),
        rows=((1 - (np.arange(height) + 0.5) / height * 2) * top).astype(np.float32),
        edge=np.array([side, top, near_m]),
        light=_as(lights.towards, np.float64),
        diffuse=_as(lights.diffuse, np.float32),
        ambient=_as(lights.ambient, np.float32),
        pane_half=np.array([PANE_HALF_M]),
        mark_half=np.array([MARK_THICKNESS_M / 2]),
        mark_emission=np.array([MARK_EMISSION], np.float32),
        pane_rgb=pane_rgb,
        sky_rgb=sky_rgb,
    )
