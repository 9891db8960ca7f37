"""The infant: head and arms of an 18-month-old, seated; trunk and legs do not move.

Sizes, masses and damping are those of infant.md's table (after MIMo's 18-month body); joint ranges and torque are
the paper's Table I. The right arm's axes follow the ISB shoulder (Y-X-Y, as OpenSim's MoBL-ARMS names its joints);
the left arm is its mirror image. Only what is drawn, never what moves or collides, is shaped for looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import Body, Joint, MarkSurface, register
from .primitives import geom, hinge

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
MARK_BELOW_CHEST_CENTRE_M = 0.05

SKIN, CHEEK, LIP = (0.95, 0.77, 0.65), (0.97, 0.62, 0.57), (0.82, 0.36, 0.38)
ONESIE, TRIM = (0.52, 0.60, 0.90), (0.98, 0.94, 0.86)
HAIR, EYE_WHITE, PUPIL = (0.48, 0.30, 0.17), (0.98, 0.98, 0.98), (0.16, 0.10, 0.08)


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
    trunk = {"drawn": False, "contype": 1, "conaffinity": 6}
    return f"""
    <body name="trunk">
      {geom("ellipsoid", CHEST_HALF_M, ONESIE, name="chest", pos=(0, 0, CHEST_Z_M), mass=CHEST_KG, **trunk)}
      {geom("ellipsoid", BELLY_HALF_M, ONESIE, name="belly", pos=BELLY_POS_M, mass=BELLY_KG, **trunk)}
      {geom("ellipsoid", PELVIS_HALF_M, ONESIE, name="pelvis", pos=(0, 0, PELVIS_Z_M), mass=PELVIS_KG, **trunk)}
      {_trunk_looks()}
      <body name="head" pos="0 0 {NECK_Z_M}">
        {hinge(by_name["neck_yaw"], (0, 0, 1))}
        {hinge(by_name["neck_pitch"], (0, -1, 0))}
        <body name="skull" pos="{HEAD_CENTRE_M[0]} 0 {HEAD_CENTRE_M[2] - NECK_Z_M!r}">
          {geom("ellipsoid", HEAD_HALF_M, SKIN, name="head_geom", mass=HEAD_KG, drawn=False, contype=9, conaffinity=6)}
          {_face()}
          <camera name="right_eye" pos="{EYE_IN_HEAD_M[0]} {EYE_IN_HEAD_M[1]} {EYE_IN_HEAD_M[2]}"
            xyaxes="0 -1 0 .207912 0 .978148" fovy="60"/>
        </body>
      </body>
      {_arm("r", by_name)}
      {_arm("l", by_name)}
    </body>"""


def _arm(side: str, by_name: dict[str, Joint]) -> str:
    sign = 1.0 if side == "r" else -1.0
    elv, elev, rot, flexion, pro_sup = (by_name[f"{side}_{j.name}"] for j in ARM)
    touching = {"drawn": False, "contype": 2 if side == "r" else 4, "conaffinity": 5 if side == "r" else 3}
    upper = (0, 0, 0, 0, 0, -UPPER_ARM_M)
    fore = (0, 0, -0.01, 0, 0, -FOREARM_M)
    return f"""
    <body name="{side}_upper" pos="0 {-sign * SHOULDER_Y_M} 0">
      {hinge(elv, (0, 0, sign))}
      {hinge(elev, (-sign, 0, 0))}
      {hinge(rot, (0, 0, sign))}
      {
        geom(
            "capsule",
            (UPPER_ARM_RADIUS_M,),
            ONESIE,
            name=f"{side}_upper_geom",
            fromto=upper,
            mass=UPPER_ARM_KG,
            drawn=False,
            contype=0,
            conaffinity=8,
        )
    }
      {
        geom(
            "sphere",
            (ELBOW_RADIUS_M,),
            ONESIE,
            name=f"{side}_elbow_geom",
            pos=(0, 0, -UPPER_ARM_M),
            mass=0,
            **touching,
        )
    }
      <body name="{side}_fore" pos="0 0 {-UPPER_ARM_M}">
        {hinge(flexion, (0, -1, 0))}
        {hinge(pro_sup, (0, 0, sign))}
        {
        geom(
            "capsule",
            (FOREARM_RADIUS_M,),
            SKIN,
            name=f"{side}_fore_geom",
            fromto=fore,
            mass=FOREARM_KG,
            **touching,
        )
    }
        <body name="{side}_hand" pos="0 0 {-FOREARM_M}">
          {
        geom(
            "ellipsoid",
            HAND_HALF_M,
            SKIN,
            name=f"{side}_hand_geom",
            pos=(0, 0, -HAND_PAST_WRIST_M),
            mass=HAND_KG,
            **touching,
        )
    }
          {_fingers(sign)}
        </body>
      </body>
    </body>"""


def _trunk_looks() -> str:
    parts = [
        geom("capsule", (0.026,), ONESIE, fromto=(0, -SHOULDER_Y_M, -0.002, 0, SHOULDER_Y_M, -0.002)),
        geom("capsule", (0.032,), SKIN, fromto=(0, 0, 0, 0.004, 0, 0.075)),
    ]
    for y in (-1, 1):
        parts.append(
            geom("capsule", (0.037,), ONESIE, fromto=(0.02, 0.05 * y, -0.285, 0.135, 0.085 * y, -0.295))
        )
    return "".join(parts)


def _face() -> str:
    parts = [
        geom("ellipsoid", (0.0737, 0.0731, 0.0711), HAIR, name="hair", pos=(-0.016, 0, 0.017)),
        geom("ellipsoid", (0.008, 0.008, 0.0075), SKIN, pos=(0.0741, 0, -0.0205)),
        geom("capsule", (0.005,), LIP, fromto=(0.0627, -0.012, -0.043, 0.0627, 0.012, -0.043)),
    ]
    for y in (-1, 1):
        parts += [
            geom("ellipsoid", (0.0095, 0.015, 0.0115), EYE_WHITE, pos=(0.06968, 0.028 * y, -0.004)),
            geom("ellipsoid", (0.005, 0.009, 0.0095), PUPIL, pos=(0.07438, 0.028 * y, -0.004)),
            geom("ellipsoid", (0.004, 0.011, 0.009), CHEEK, pos=(0.05966, 0.038 * y, -0.030)),
            geom("ellipsoid", (0.012, 0.008, 0.018), SKIN, pos=(-0.004, 0.072 * y, -0.004)),
        ]
    return "".join(parts)


def _fingers(sign: float) -> str:
    parts = [
        geom("capsule", (0.0062,), SKIN, fromto=(x, 0, -0.0693, 1.15 * x, 0, -tip))
        for x, tip in ((-0.017, 0.0905), (-0.006, 0.0955), (0.006, 0.0965), (0.016, 0.0925))
    ]
    parts.append(geom("capsule", (0.0068,), SKIN, fromto=(0.017, 0, -0.0264, 0.033, 0.004 * sign, -0.0462)))
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
