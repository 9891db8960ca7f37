"""The mirror: where it is, what it is made of and what it shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from . import is_number
from .bodies import Body
from .bodies.primitives import geom

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

PANE_HALF_M = 0.003
"""Half thickness of the box behind the reflecting face (ours)."""
FRAME_HALF_M = (0.008, 0.006)
"""Half width and half depth of the frame's bars (ours)."""
WALL_FRONT, WOOD, CLOTH = (0.68, 0.69, 0.76), (0.50, 0.33, 0.18), (0.62, 0.50, 0.56)
"""Colours: the wall behind an absent mirror, the frame, the cover."""

LONGEST_DELAY_CONTROL_STEPS = 100
"""A whole episode; every environment keeps the poses of that many control steps (ours)."""

MirrorKind = Literal["present", "absent", "covered", "delayed"]


@dataclass(frozen=True)
class MirrorConfig:
    """The mirror before the body. Its pane collides alike whatever its kind."""

    kind: MirrorKind = "present"
    """present: reflects; absent: drawn as wall; covered: drawn as cloth; delayed: reflects the past."""
    delay_control_steps: int = 0
    """Age of the reflection: 1 to 100 when delayed, else 0 (ours)."""
    distance_m: float = 0.177
    """From the eye at rest, straight ahead, to the pane (paper, exam)."""
    yaw_rad: float = 0.0
    """Turn about the vertical through the pane's centre; positive faces the body's right (ours)."""
    pitch_rad: float = 0.0
    """Turn about the pane's own horizontal; positive leans the top towards the body (ours)."""
    width_m: float = 0.20
    """(paper, exam)"""
    height_m: float = 0.30
    """(paper, exam)"""

    def __post_init__(self) -> None:
        if self.kind not in get_args(MirrorKind):
            raise ValueError(
                f"mirror kind {self.kind!r} is unknown: use one of {', '.join(get_args(MirrorKind))}."
            )
        self._check_delay()
        for field in ("distance_m", "width_m", "height_m"):
            value = getattr(self, field)
            if not (is_number(value) and 0 < value <= 10):
                raise ValueError(f"mirror {field} is {value}: give a number of metres above 0 and up to 10.")
        for field in ("yaw_rad", "pitch_rad"):
            value = getattr(self, field)
            if not (is_number(value) and abs(value) < math.pi / 2):
                raise ValueError(f"mirror {field} is {value}: give an angle between -pi/2 and pi/2.")

    def _check_delay(self) -> None:
        steps = self.delay_control_steps
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise ValueError(
                f"mirror delay_control_steps is {steps!r}: give a whole number of control steps."
            )
        if self.kind == "delayed" and steps == 0:
            raise ValueError("mirror delay_control_steps is 0: a delayed mirror needs at least 1.")
        if self.kind != "delayed" and steps > 0:
            raise ValueError(
                f"mirror delay_control_steps is {steps}: only kind 'delayed' takes a delay, so set it to 0."
            )
        if steps > LONGEST_DELAY_CONTROL_STEPS:
            raise ValueError(
                f"mirror delay_control_steps is {steps}: give at most {LONGEST_DELAY_CONTROL_STEPS}, an"
                " episode's length."
            )

    @property
    def reflects(self) -> bool:
        return self.kind in ("present", "delayed")


class Pane(NamedTuple):
    """The reflecting rectangle in the environment's frame."""

    centre: Floats  # (3,)
    mat: Floats  # (3, 3) columns: right (as the body sees it), up, normal towards the body
    half: Floats  # (2,) half width, half height


def pane(config: MirrorConfig, body: Body) -> Pane:
    """The pane's exact pose; the mirror turns about its own centre."""
    eye = np.array(body.eye_rest_m)
    centre = np.array([eye[0] + config.distance_m, 0.0, body.mirror_centre_z_m])
    upright = np.array([[0.0, 0.0, -1.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    cy, sy = math.cos(config.yaw_rad), math.sin(config.yaw_rad)
    cp, sp = math.cos(config.pitch_rad), math.sin(config.pitch_rad)
    yaw = np.array([[cy, -sy, 0.0], [sy, cy, 0.0], [0.0, 0.0, 1.0]])
    pitch = np.array([[1.0, 0.0, 0.0], [0.0, cp, -sp], [0.0, sp, cp]])
    mat = yaw @ upright @ pitch
    if (eye - centre) @ mat[:, 2] <= 0:
        raise ValueError(
            f"the {body.name}'s eye is behind the mirror: lessen mirror yaw_rad ({config.yaw_rad}) or "
            f"pitch_rad ({config.pitch_rad}), or raise distance_m ({config.distance_m})."
        )
    return Pane(centre, mat, np.array([config.width_m / 2, config.height_m / 2]))


def mirror_mjcf(config: MirrorConfig, pane: Pane) -> str:
    """The mirror is a box whose +z face is the pane; the frame's face is flush with it."""
    wide, high = pane.half
    rim, depth = FRAME_HALF_M
    paint = WOOD if config.kind != "absent" else WALL_FRONT
    boxes = {
        "mirror": ((wide, high, PANE_HALF_M), (0.0, 0.0, -PANE_HALF_M)),
        "frame_right": ((rim, high + 2 * rim, depth), (wide + rim, 0.0, -depth)),
        "frame_left": ((rim, high + 2 * rim, depth), (-wide - rim, 0.0, -depth)),
        "frame_top": ((wide, rim, depth), (0.0, high + rim, -depth)),
        "frame_bottom": ((wide, rim, depth), (0.0, -high - rim, -depth)),
        "frame_back": ((wide, high, depth - PANE_HALF_M), (0.0, 0.0, -PANE_HALF_M - depth)),
    }
    xyaxes = (*pane.mat[:, 0], *pane.mat[:, 1])
    parts = []
    for name, (half, offset) in boxes.items():
        look = {"cls": "room", "pos": tuple(pane.centre + pane.mat @ offset), "xyaxes": xyaxes}
        rgb = paint
        if name == "mirror":
            look["cls"] = "pane"
            rgb = (0.0, 0.0, 0.0) if config.reflects else CLOTH if config.kind == "covered" else WALL_FRONT
            if config.reflects:
                look["material"] = "mirror"
        parts.append(geom("box", half, rgb, name=name, **look))
    return "".join(parts)


class Reflection:
    """What the mirrors show: the present, or for delayed ones the past, and frame 0 before there is one.

    Keeps as many past poses as the longest delay asks for.
    """

    def __init__(self, delay_control_steps: NDArray[np.int64]) -> None:
        self._delay = delay_control_steps
        self._length = int(delay_control_steps.max()) + 1
        self._envs = np.arange(len(delay_control_steps))
        self._past: list[NDArray] = []  # poses and mark, each (length, n, ...): a ring over time

    def record(self, xpos: Floats, xmat: Floats, shown: Bools, t: NDArray[np.int64]) -> None:
        """Remember the poses and whether the mark is on, at control step t (n,) of each environment."""
        if self._length == 1:
            self._now = (xpos, xmat, shown)
            return
        now = (xpos, xmat, shown)
        if not self._past:
            self._past = [np.zeros((self._length, *part.shape), part.dtype) for part in now]
        for kept, part in zip(self._past, now):
            kept[t % self._length, self._envs] = part

    def at(self, t: NDArray[np.int64]) -> tuple[Floats, Floats, Bools]:
        """The poses and the mark that the mirrors show at control step t (n,)."""
        if not self._past:
            return self._now
        slot = np.maximum(t - self._delay, 0) % self._length
        xpos, xmat, shown = self._past
        return xpos[slot, self._envs], xmat[slot, self._envs], shown[slot, self._envs]
