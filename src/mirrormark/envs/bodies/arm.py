"""The arm: a desk robot with one eye and one six-joint arm, our own design from primitives.

It gives the paper's robot setting: a fixed head and torso that carry the eye and the mark, and an arm mounted
beside them that can reach every site and rests out of the eye's way. Head and torso are one MuJoCo body with
the eye, so the own mark is seen only in the mirror. Sizes, damping and tone are ours, chosen so that it fits
before the infant's mirror and moves on the infant's time scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import Body, Joint, MarkSurface, register
from .primitives import geom, hinge, numbers

TORQUE_LIMIT_NM = 1.0
"""As the infant's (paper, Table I)."""

JOINTS = (
    Joint("base_yaw", (-0.6, 1.6), damping=0.60, armature=0.010),
    Joint("shoulder_pitch", (-0.6, 1.9), damping=0.60, armature=0.010),
    Joint("upper_roll", (-1.2, 1.6), damping=0.50, armature=0.008),
    Joint("elbow_pitch", (0.0, 2.6), damping=0.45, armature=0.006),
    Joint("fore_roll", (-1.6, 1.6), damping=0.30, armature=0.004),
    Joint("wrist_pitch", (-1.6, 1.6), damping=0.25, armature=0.003),
)
"""Damping in N·m·s/rad, armature in kg·m² (ours, after the infant's)."""
REST_RAD = (0.6, -0.1, 0.3, 2.1, 0.5, 0.5)
"""The arm bent before the robot's right side."""
TONE = ((0.7, 0.9), (0.7, 0.0), (0.7, 0.25), (0.8, 2.1), (0.6, 0.5), (0.5, 0.5))
"""Springs of the sprung tone: (N·m/rad, rest angle) in the order of JOINTS."""

TORSO_HALF_M, TORSO_POS_M, TORSO_KG = (0.070, 0.092, 0.102), (0.0, 0.0, -0.062), 4.0
HEAD_HALF_M, HEAD_POS_M, HEAD_KG = (0.066, 0.080, 0.062), (0.000, 0.0, 0.122), 1.5
SHOULDER_POS_M = (0.035, -0.175, -0.030)
UPPER_RADIUS_M, UPPER_M, UPPER_KG = 0.019, 0.175, 0.30
FORE_RADIUS_M, FORE_M, FORE_KG = 0.015, 0.150, 0.18
TIP_HALF_M, TIP_PAST_WRIST_M, TIP_KG = (0.014, 0.014, 0.030), 0.050, 0.08
EYE_POS_M = (0.0805, 0.0, 0.128)
"""Just before the lens."""
MARK_BELOW_TORSO_CENTRE_M = 0.05

SHELL, PANEL, DARK = (0.45, 0.58, 0.76), (0.93, 0.92, 0.90), (0.20, 0.21, 0.25)
LINK, JOINT, TIP = (0.95, 0.62, 0.28), (0.36, 0.37, 0.42), (0.85, 0.32, 0.28)
LENS, GLINT, STOOL = (0.10, 0.13, 0.22), (0.95, 0.97, 1.0), (0.66, 0.56, 0.46)


def with_tone(tone: str, scale: float) -> tuple[Joint, ...]:
    """sprung: each joint is pulled to a bent posture before the robot; limp: no springs."""
    if tone == "limp":
        return JOINTS
    return tuple(replace(j, stiffness=scale * k, rest_rad=rest) for j, (k, rest) in zip(JOINTS, TONE))


def mjcf(joints: Sequence[Joint]) -> str:
    yaw, pitch, roll, elbow, fore_roll, wrist = joints
    fixed: dict[str, Any] = {"cls": "solid", "contype": 1, "conaffinity": 6}
    moving: dict[str, Any] = {"cls": "solid", "contype": 2, "conaffinity": 1}
    upper = moving | {"mass": UPPER_KG, "fromto": (0, 0, 0, 0, 0, UPPER_M)}
    fore = moving | {"mass": FORE_KG, "fromto": (0, 0, 0, 0, 0, FORE_M)}
    tip_pos = (0, 0, TIP_PAST_WRIST_M)
    return f"""
    <body name="robot">
      {geom("ellipsoid", TORSO_HALF_M, SHELL, name="torso", pos=TORSO_POS_M, mass=TORSO_KG, **fixed)}
      {geom("ellipsoid", HEAD_HALF_M, PANEL, name="head", pos=HEAD_POS_M, mass=HEAD_KG, **fixed)}
      {geom("cylinder", (0.20, 0.012), STOOL, name="stool", pos=(0, -0.06, -0.170), mass=1.0, **fixed)}
      {_looks()}
      <camera name="eye" pos="{numbers(EYE_POS_M)}" xyaxes="0 -1 0 .173648 0 .984808" fovy="60"/>
      <body name="turret" pos="{numbers(SHOULDER_POS_M)}">
        {hinge(yaw, (0, 0, 1))}
        {geom("sphere", (0.030,), JOINT, mass=0.15, cls="solid", contype=0, conaffinity=0)}
        <body name="upper">
          {hinge(pitch, (0, 1, 0))}
          {hinge(roll, (0, 0, 1))}
          {geom("capsule", (UPPER_RADIUS_M,), LINK, name="upper_geom", **upper)}
          {geom("sphere", (0.024,), JOINT, pos=(0, 0, UPPER_M))}
          <body name="fore" pos="0 0 {UPPER_M}">
            {hinge(elbow, (0, 1, 0))}
            {hinge(fore_roll, (0, 0, 1))}
            {geom("capsule", (FORE_RADIUS_M,), LINK, name="fore_geom", **fore)}
            {geom("sphere", (0.019,), JOINT, pos=(0, 0, FORE_M))}
            <body name="pointer" pos="0 0 {FORE_M}">
              {hinge(wrist, (0, 1, 0))}
              {geom("ellipsoid", TIP_HALF_M, TIP, name="tip", pos=tip_pos, mass=TIP_KG, **moving)}
              {geom("capsule", (0.009,), DARK, fromto=(0, 0, 0, 0, 0, 0.03))}
            </body>
          </body>
        </body>
      </body>
    </body>"""


def _looks() -> str:
    """A lens with a glint, ears, an antenna, a neck, the stool's foot and the post of the arm."""
    x, y, z = EYE_POS_M
    post = (SHOULDER_POS_M[0], SHOULDER_POS_M[1], -0.16, *SHOULDER_POS_M)
    return "".join(
        [
            geom("ellipsoid", (0.020, 0.024, 0.024), DARK, pos=(x - 0.024, y, z)),
            geom("ellipsoid", (0.014, 0.017, 0.017), LENS, pos=(x - 0.0155, y, z)),
            geom("sphere", (0.0045,), GLINT, pos=(x - 0.006, y + 0.006, z + 0.006)),
            geom("cylinder", (0.022, 0.008), LINK, pos=(0.0, 0.081, 0.122), euler=(1.5708, 0, 0)),
            geom("cylinder", (0.022, 0.008), LINK, pos=(0.0, -0.081, 0.122), euler=(1.5708, 0, 0)),
            geom("capsule", (0.004,), DARK, fromto=(-0.02, 0, 0.17, -0.03, 0, 0.215)),
            geom("sphere", (0.012,), TIP, pos=(-0.03, 0, 0.222)),
            geom("cylinder", (0.034, 0.02), DARK, pos=(0, 0, 0.050)),
            geom("cylinder", (0.06, 0.075), STOOL, pos=(0.0, -0.06, -0.255)),
            geom("capsule", (0.026,), JOINT, fromto=post),
        ]
    )


ARM = register(
    Body(
        name="arm",
        title="Arm",
        joints=with_tone("sprung", 1.0),
        rest_pose_rad=REST_RAD,
        tones=("sprung", "limp"),
        with_tone=with_tone,
        mjcf=mjcf,
        eye_camera="eye",
        eye_rest_m=EYE_POS_M,
        hands=("tip",),
        mark_surfaces=(
            MarkSurface("head"),
            MarkSurface("torso", min_z_m=TORSO_POS_M[2] - MARK_BELOW_TORSO_CENTRE_M),
        ),
        eye_keepout_m=0.026,
        mirror_centre_z_m=0.073,
        torque_limit_nm=TORQUE_LIMIT_NM,
    )
)
