"""The infant: head and arms of an 18-month-old, seated; trunk and legs do not move.

Sizes, masses and damping are those of infant.md's table (after MIMo's 18-month body); joint ranges and torque
are the paper's Table I. The right arm's axes follow the ISB shoulder (Y-X-Y, as OpenSim's MoBL-ARMS names its
joints); the left arm is its mirror image. Looks are drawn-only geoms: they change neither motion nor contact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import Body, Joint, MarkSurface, register
from .primitives import geom, hinge, numbers

TORQUE_LIMIT_NM = 1.0
"""Paper, Table I."""

NECK = (
    Joint("neck_pitch", (-0.30, 0.10), damping=0.6, armature=0.010),
    Joint("neck_yaw", (-0.30, 0.30), damping=0.6, armature=0.010),
)
ARM = (
    Joint("elv_angle", (-0.87, 2.09), damping=0.60, armature=0.010),
    Joint("shoulder_elv", (0.17, 2.70), damping=0.60, armature=0.010),
    Joint("shoulder_rot", (-0.87, 0.79), damping=0.60, armature=0.010),
    Joint("elbow_flexion", (0.0, 2.27), damping=0.45, armature=0.006),
    Joint("pro_sup", (-1.57, 1.57), damping=0.30, armature=0.004),
)
"""Ranges: paper, Table I. Damping (N·m·s/rad) and armature (kg·m²): infant.md."""
ARM_REST_RAD = (0.5, 0.7, -0.5, 2.0, 0.0)
"""Start posture (infant.md)."""

NECK_TONE_STIFFNESS = 3.3
"""N·m/rad: full torque just reaches the limit of the yaw (infant.md)."""
NECK_TONE_DAMPING = 1.5
"""N·m·s/rad (infant.md)."""
ARM_TONE = ((0.7, 1.0), (0.7, 1.1), (1.0, -0.4), (0.8, 2.1), (0.6, 0.0))
"""Flexor tone: (N·m/rad, rest angle) in the order of ARM (infant.md)."""

CHEST_HALF_M, CHEST_Z_M, CHEST_KG = (0.062, 0.088, 0.105), -0.060, 2.2
BELLY_HALF_M, BELLY_POS_M, BELLY_KG = (0.066, 0.084, 0.085), (0.004, 0.0, -0.165), 2.0
PELVIS_HALF_M, PELVIS_Z_M, PELVIS_KG = (0.075, 0.090, 0.065), -0.245, 1.5
NECK_Z_M = 0.045
HEAD_HALF_M, HEAD_CENTRE_M, HEAD_KG = (0.076, 0.071, 0.079), (0.012, 0.0, 0.122), 1.9
SHOULDER_Y_M = 0.100
UPPER_ARM_RADIUS_M, UPPER_ARM_M, UPPER_ARM_KG = 0.025, 0.115, 0.30
ELBOW_RADIUS_M = 0.0245
FOREARM_RADIUS_M, FOREARM_M, FOREARM_KG = 0.021, 0.092, 0.19
HAND_HALF_M, HAND_PAST_WRIST_M, HAND_KG = (0.028, 0.016, 0.046), 0.044, 0.10
EYE_IN_HEAD_M = (0.08018, -0.028, -0.004)
"""From the head's centre: just before the right eyeball (infant.md)."""
EYE_DOWN_RAD = math.radians(12)
"""Downward pitch of the gaze (infant.md)."""
MARK_BELOW_CHEST_CENTRE_M = 0.05

SKIN, CHEEK, NOSE, LIP = (0.97, 0.80, 0.69), (0.97, 0.62, 0.58), (0.96, 0.74, 0.64), (0.80, 0.34, 0.38)
ONESIE, DIAPER, HAIR = (0.58, 0.66, 0.94), (0.97, 0.96, 0.93), (0.55, 0.36, 0.20)
EYE_WHITE, IRIS = (1.0, 1.0, 1.0), (0.20, 0.13, 0.12)


def with_tone(tone: str, scale: float) -> tuple[Joint, ...]:
    """flexor: neck and arms pulled to a flexed posture; neck: the neck alone; limp: no springs."""
    neck = NECK
    if tone != "limp":
        neck = tuple(replace(j, damping=NECK_TONE_DAMPING, stiffness=NECK_TONE_STIFFNESS) for j in NECK)
    arm = ARM
    if tone == "flexor":
        arm = tuple(replace(j, stiffness=scale * k, rest_rad=rest) for j, (k, rest) in zip(ARM, ARM_TONE))
    return neck + tuple(replace(j, name=f"{side}_{j.name}") for side in "rl" for j in arm)


def mjcf(joints: Sequence[Joint]) -> str:
    by_name = {j.name: j for j in joints}
    solid: dict[str, Any] = {"cls": "solid", "contype": 1, "conaffinity": 6}
    inner: dict[str, Any] = solid | {"group": 3}
    pelvis = (0, 0, PELVIS_Z_M)
    skull = numbers((HEAD_CENTRE_M[0], 0, HEAD_CENTRE_M[2] - NECK_Z_M))
    head: dict[str, Any] = {"cls": "solid", "contype": 9, "conaffinity": 6}
    return f"""
    <body name="trunk">
      {geom("ellipsoid", CHEST_HALF_M, ONESIE, name="chest", pos=(0, 0, CHEST_Z_M), mass=CHEST_KG, **solid)}
      {geom("ellipsoid", BELLY_HALF_M, ONESIE, name="belly", pos=BELLY_POS_M, mass=BELLY_KG, **inner)}
      {geom("ellipsoid", PELVIS_HALF_M, DIAPER, name="pelvis", pos=pelvis, mass=PELVIS_KG, **solid)}
      {_trunk_looks()}
      <body name="head" pos="0 0 {NECK_Z_M}">
        {hinge(by_name["neck_yaw"], (0, 0, 1))}
        {hinge(by_name["neck_pitch"], (0, -1, 0))}
        <body name="skull" pos="{skull}">
          {geom("ellipsoid", HEAD_HALF_M, SKIN, name="head_geom", mass=HEAD_KG, **head)}
          {_face()}
          <camera name="right_eye" pos="{numbers(EYE_IN_HEAD_M)}"
            xyaxes="0 -1 0 {math.sin(EYE_DOWN_RAD)!r} 0 {math.cos(EYE_DOWN_RAD)!r}" fovy="60"/>
        </body>
      </body>
      {_arm("r", by_name)}
      {_arm("l", by_name)}
    </body>"""


def _arm(side: str, by_name: dict[str, Joint]) -> str:
    """The left arm's axes are the right's with x and z negated. The elbow's ball hides in the sleeve."""
    sign = 1.0 if side == "r" else -1.0
    elv, elev, rot, flexion, pro_sup = (by_name[f"{side}_{j.name}"] for j in ARM)
    solid: dict[str, Any] = {
        "cls": "solid",
        "contype": 2 if side == "r" else 4,
        "conaffinity": 5 if side == "r" else 3,
    }
    upper: dict[str, Any] = {"cls": "solid", "contype": 0, "conaffinity": 8, "mass": UPPER_ARM_KG}
    upper |= {"fromto": (0, 0, 0, 0, 0, -UPPER_ARM_M)}
    ball: dict[str, Any] = solid | {"group": 3, "mass": 0}
    fore = solid | {"mass": FOREARM_KG, "fromto": (0, 0, -0.01, 0, 0, -FOREARM_M)}
    elbow, palm = (0, 0, -UPPER_ARM_M), (0, 0, -HAND_PAST_WRIST_M)
    return f"""
    <body name="{side}_upper" pos="0 {-sign * SHOULDER_Y_M!r} 0">
      {hinge(elv, (0, 0, sign))}
      {hinge(elev, (-sign, 0, 0))}
      {hinge(rot, (0, 0, sign))}
      {geom("capsule", (UPPER_ARM_RADIUS_M,), ONESIE, name=f"{side}_upper_geom", **upper)}
      {geom("sphere", (ELBOW_RADIUS_M,), ONESIE, name=f"{side}_elbow_geom", pos=elbow, **ball)}
      <body name="{side}_fore" pos="{numbers(elbow)}">
        {hinge(flexion, (0, -1, 0))}
        {hinge(pro_sup, (0, 0, sign))}
        {geom("capsule", (FOREARM_RADIUS_M,), SKIN, name=f"{side}_fore_geom", **fore)}
        <body name="{side}_hand" pos="0 0 {-FOREARM_M}">
          {geom("ellipsoid", HAND_HALF_M, SKIN, name=f"{side}_hand_geom", pos=palm, mass=HAND_KG, **solid)}
          {_fingers(sign)}
        </body>
      </body>
    </body>"""


def _trunk_looks() -> str:
    """Shoulders, a round tummy in place of the undrawn belly, legs and feet."""
    parts = [
        geom("capsule", (0.026,), ONESIE, fromto=(0, -SHOULDER_Y_M, -0.002, 0, SHOULDER_Y_M, -0.002)),
        geom("ellipsoid", (0.085, 0.099, 0.103), ONESIE, name="tummy", pos=(0.002, 0, -0.198)),
    ]
    for y in (-1, 1):
        parts += [
            geom("capsule", (0.043,), SKIN, fromto=(0.03, 0.055 * y, -0.282, 0.115, 0.105 * y, -0.287)),
            geom(
                "ellipsoid",
                (0.022, 0.026, 0.040),
                SKIN,
                pos=(0.165, 0.125 * y, -0.283),
                euler=(-0.25 * y, 0.15, 0),
            ),
        ]
    return "".join(parts)


def _on_head(y: float, z: float, out_m: float = 0.0) -> tuple[float, float, float]:
    """The point of the face at (y, z) from the head's centre, moved forward by out_m."""
    a, b, c = HEAD_HALF_M
    return (a * math.sqrt(1 - (y / b) ** 2 - (z / c) ** 2) + out_m, y, z)


def _face() -> str:
    """Hair and jowls lie beyond 60° from forward, where no mark goes; only eyes and nose stand out."""
    mouth = _on_head(0, -0.046, -0.001)
    parts = [
        geom("ellipsoid", (0.074, 0.0755, 0.066), HAIR, name="hair", pos=(-0.031, 0, 0.029)),
        geom("ellipsoid", (0.024, 0.011, 0.011), HAIR, pos=(0.006, 0.001, 0.085), euler=(0, 0.7, 0.5)),
        geom("ellipsoid", (0.050, 0.0750, 0.041), SKIN, name="jowls", pos=(0.000, 0, -0.033)),
        geom("ellipsoid", (0.0075, 0.0085, 0.0070), NOSE, pos=_on_head(0, -0.021, 0.001)),
    ]
    for y in (-1, 1):
        eye = 0.028 * y
        corner = _on_head(0.0145 * y, -0.0405, -0.001)
        tilt = (0, 0.42, 0.68 * y)
        parts += [
            geom("ellipsoid", (0.0105, 0.0155, 0.0165), EYE_WHITE, pos=(0.0682, eye, -0.004)),
            geom("ellipsoid", (0.0072, 0.0132, 0.0145), IRIS, pos=(0.0722, eye - 0.001 * y, -0.005)),
            geom("sphere", (0.0040,), EYE_WHITE, pos=(0.0757, eye + 0.004, 0.001)),
            geom(
                "capsule",
                (0.0023,),
                HAIR,
                fromto=(*_on_head(0.020 * y, 0.0205), *_on_head(0.034 * y, 0.0200)),
            ),
            geom("capsule", (0.0034,), LIP, fromto=(*mouth, *corner)),
            geom(
                "ellipsoid",
                (0.0045, 0.012, 0.010),
                CHEEK,
                pos=_on_head(0.040 * y, -0.030, -0.0022),
                euler=tilt,
            ),
            geom("ellipsoid", (0.012, 0.010, 0.017), SKIN, pos=(-0.006, 0.073 * y, -0.006)),
        ]
    return "".join(parts)


def _fingers(sign: float) -> str:
    parts = [
        geom("capsule", (0.0078,), SKIN, fromto=(x, 0, -0.066, 1.2 * x, 0, -tip))
        for x, tip in ((-0.0155, 0.0855), (0.0, 0.0915), (0.0155, 0.0865))
    ]
    parts.append(geom("capsule", (0.0078,), SKIN, fromto=(0.017, 0, -0.026, 0.032, 0.004 * sign, -0.044)))
    return "".join(parts)


INFANT = register(
    Body(
        name="infant",
        title="Infant",
        joints=with_tone("flexor", 1.0),
        rest_pose_rad=(0.0, 0.0, *ARM_REST_RAD, *ARM_REST_RAD),
        tones=("flexor", "neck", "limp"),
        with_tone=with_tone,
        mjcf=mjcf,
        eye_camera="right_eye",
        eye_rest_m=(
            HEAD_CENTRE_M[0] + EYE_IN_HEAD_M[0],
            EYE_IN_HEAD_M[1],
            HEAD_CENTRE_M[2] + EYE_IN_HEAD_M[2],
        ),
        hands=("r_hand_geom", "l_hand_geom"),
        mark_surfaces=(
            MarkSurface("head_geom"),
            MarkSurface("chest", min_z_m=CHEST_Z_M - MARK_BELOW_CHEST_CENTRE_M),
        ),
        eye_keepout_m=0.015,
        mirror_centre_z_m=0.073,
        torque_limit_nm=TORQUE_LIMIT_NM,
    )
)
