"""Builds the MuJoCo model: a body, the mirror before it and the room around both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from . import is_number
from .bodies import Body, Joint
from .bodies.primitives import geom, numbers
from .mirror import WALL_FRONT, MirrorConfig, Pane, mirror_mjcf, pane

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TIMESTEP_S = 0.01
"""Physics step (paper, Table III)."""
CLEARANCE_M = 0.002
"""Least gap between the pane and the body at rest (ours)."""
MARK_THICKNESS_M = 0.003
"""Of the disc (infant.md)."""
MARK_EMISSION = 0.25
"""Share of its colour that the mark shows in the dark, so that it never vanishes in shade (infant.md)."""

WALL_BACK = (0.86, 0.82, 0.75)
WALL_SIDE = (0.76, 0.74, 0.74)
FLOOR = (0.60, 0.52, 0.45)
PARKED_M = (0.0, 0.0, -9.0)


@dataclass(frozen=True, eq=False)
class Surface:
    """An ellipsoid that may carry a mark, in the frame of its MuJoCo body."""

    geom: str
    body_id: int
    pos_m: Floats  # (3,)
    mat: Floats  # (3, 3)
    size_m: Floats  # (3,) semi-axes
    min_z_m: float
    """Lowest mark centre in the body's frame; -inf: no limit."""


@dataclass(frozen=True, eq=False)
class Scene:
    """A compiled model and where things are in it. Callers share it: copy `model` before changing it.

    Pickled by the arguments of `build`.
    """

    model: mujoco.MjModel
    body: Body
    mirror: MirrorConfig
    pane: Pane
    tone: str
    tone_scale: float
    joints: tuple[Joint, ...]
    """(A) in the order of actions and proprioception, as are the arrays below."""
    qpos_adr: Ints  # (A,)
    dof_adr: Ints  # (A,)
    actuator_ids: Ints  # (A,)
    range_rad: Floats  # (A, 2)
    rest_qpos: Floats  # (nq,) in MuJoCo's order
    eye_body_id: int
    eye_pos_m: Floats  # (3,) in the eye's body
    eye_mat: Floats  # (3, 3) columns right, up, backward in the eye's body
    eye_fovy_rad: float
    mirror_geom_id: int
    hand_geom_ids: Ints  # (hands,)
    hand_body_ids: Ints  # (hands,)
    hand_pos_m: Floats  # (hands, 3) in the hand's body
    hand_mat: Floats  # (hands, 3, 3)
    hand_size_m: Floats  # (hands, 3) semi-axes
    surfaces: tuple[Surface, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return build, (self.body, self.mirror, self.tone, self.tone_scale)


def build(
    body: Body, mirror: MirrorConfig | None = None, tone: str | None = None, tone_scale: float = 1.0
) -> Scene:
    """Compile the scene once for each set of arguments; tone None is the body's default."""
    mirror = mirror or MirrorConfig()
    tone = body.tones[0] if tone is None else tone
    if not isinstance(tone, str) or tone not in body.tones:
        raise ValueError(f"tone {tone!r} is unknown to the {body.name}: use one of {', '.join(body.tones)}.")
    if not (is_number(tone_scale) and 0 <= tone_scale <= 1000):
        raise ValueError(f"tone_scale is {tone_scale}: give a number of at least 0 and at most 1000.")
    return _build(body, mirror, tone, tone_scale)


@lru_cache(maxsize=64)
def _build(body: Body, mirror: MirrorConfig, tone: str, tone_scale: float) -> Scene:
    joints = body.with_tone(tone, tone_scale)
    own_pane = pane(mirror, body)
    model = _compile(body, joints, mirror, own_pane)
    scene = _locate(model, body, mirror, own_pane, tone, tone_scale, joints)
    _check_clearance(scene)
    return scene


def _compile(body: Body, joints: tuple[Joint, ...], mirror: MirrorConfig, own_pane: Pane) -> mujoco.MjModel:
    """Every mark surface gets a parked disc, in a body of its own so that its pose can change at run time."""
    spec = mujoco.MjSpec.from_string(_mjcf(body, joints, mirror, own_pane))
    for surface in body.mark_surfaces:
        name = f"mark_{surface.geom}"
        disc = spec.geom(surface.geom).parent.add_body(name=name, pos=PARKED_M)
        disc.add_geom(
            spec.find_default("drawn"),
            name=name,
            type=mujoco.mjtGeom.mjGEOM_CYLINDER,
            size=[0.02, MARK_THICKNESS_M / 2, 0.0],
            material="mark",
        )
    return spec.compile()


def _mjcf(body: Body, joints: tuple[Joint, ...], mirror: MirrorConfig, own_pane: Pane) -> str:
    limit = body.torque_limit_nm
    motors = "".join(
        f'<motor name="{j.name}" joint="{j.name}" gear="{limit!r}" ctrllimited="true" ctrlrange="-1 1"/>'
        for j in joints
    )
    return f"""<mujoco model="{body.name}">
  <compiler angle="radian" inertiafromgeom="true" autolimits="true"/>
  <option timestep="{TIMESTEP_S}" gravity="0 0 0" integrator="implicitfast" iterations="20" cone="pyramidal"/>
  <visual>
    <map znear="0.004" zfar="10"/>
    <quality shadowsize="1024" offsamples="0" numslices="96" numstacks="64"/>
    <headlight ambient=".42 .42 .42" diffuse="0 0 0" specular="0 0 0"/>
    <global offwidth="1280" offheight="1280"/>
  </visual>
  <statistic extent="1" center="0 0 0"/>
  <asset>
    <material name="mirror" rgba="0 0 0 1" specular="0" shininess="0" reflectance="1"/>
    <material name="mark" rgba=".05 .85 .15 1" specular="0" shininess="0" emission="{MARK_EMISSION}"/>
  </asset>
  <default>
    <joint type="hinge" limited="true" solreflimit=".02 1" solimplimit=".95 .99 .001"/>
    <geom condim="1" friction=".3 .005 .0001" solref=".02 1" solimp=".9 .95 .001"/>
    <default class="solid"><geom group="0"/></default>
    <default class="drawn"><geom contype="0" conaffinity="0" mass="0" group="1"/></default>
    <default class="room"><geom type="box" contype="0" conaffinity="0" mass="0" group="2"/></default>
    <default class="pane"><geom type="box" contype="0" conaffinity="6" mass="0" group="2"/></default>
  </default>
  <worldbody>
    <light name="key" pos="0 0 2" dir="-.55 -.25 -.75" diffuse=".38 .38 .38" specular="0 0 0"
      castshadow="false" directional="true"/>
    <light name="fill" pos="1 0 0" dir="-.9 .3 .1" diffuse=".28 .28 .28" specular="0 0 0"
      castshadow="false" directional="true"/>
    {_room()}
    {mirror_mjcf(mirror, own_pane)}
    {_camera("world", (0.48, -0.74, 0.28), (0.09, 0.0, -0.03), 42)}
    {_camera("behind", (-0.40, -0.20, 0.34), (0.24, 0.0, 0.05), 42)}
    {body.mjcf(joints)}
  </worldbody>
  <actuator>{motors}</actuator>
</mujoco>"""


def _camera(name: str, pos: tuple[float, ...], target: tuple[float, ...], fovy_deg: float) -> str:
    """An upright camera that looks from pos at target."""
    ahead = np.subtract(target, pos)
    right = np.cross(ahead, (0.0, 0.0, 1.0))
    axes = f"{numbers(right)} {numbers(np.cross(right, ahead))}"
    return f'<camera name="{name}" pos="{numbers(pos)}" xyaxes="{axes}" fovy="{fovy_deg}"/>'


def _room() -> str:
    """Walls are geoms, because MuJoCo's mirror does not reflect a skybox."""
    panels = {
        "room_back": ((0.01, 1.22, 0.80), (-0.70, 0.0, 0.47), WALL_BACK),
        "room_front": ((0.01, 1.22, 0.80), (1.10, 0.0, 0.47), WALL_FRONT),
        "room_right": ((0.91, 0.01, 0.80), (0.20, -1.21, 0.47), WALL_SIDE),
        "room_left": ((0.91, 0.01, 0.80), (0.20, 1.21, 0.47), WALL_SIDE),
        "room_floor": ((0.91, 1.22, 0.01), (0.20, 0.0, -0.34), FLOOR),
    }
    return "".join(
        geom("box", half, rgb, cls="room", name=name, pos=pos) for name, (half, pos, rgb) in panels.items()
    )


def _locate(
    model: mujoco.MjModel,
    body: Body,
    mirror: MirrorConfig,
    own_pane: Pane,
    tone: str,
    tone_scale: float,
    joints: tuple[Joint, ...],
) -> Scene:
    """Look up every id and local pose once."""
    joint_ids = np.array([model.joint(j.name).id for j in joints])
    qpos_adr = model.jnt_qposadr[joint_ids].astype(np.int64)
    rest_qpos = model.qpos0.copy()
    rest_qpos[qpos_adr] = body.rest_pose_rad
    camera = model.camera(body.eye_camera)
    hands = np.array([model.geom(name).id for name in body.hands])
    return Scene(
        model=model,
        body=body,
        mirror=mirror,
        pane=own_pane,
        tone=tone,
        tone_scale=tone_scale,
        joints=joints,
        qpos_adr=qpos_adr,
        dof_adr=model.jnt_dofadr[joint_ids].astype(np.int64),
        actuator_ids=np.array([model.actuator(j.name).id for j in joints]),
        range_rad=np.array([j.range_rad for j in joints]),
        rest_qpos=rest_qpos,
        eye_body_id=int(model.cam_bodyid[camera.id]),
        eye_pos_m=model.cam_pos[camera.id].copy(),
        eye_mat=_matrix(model.cam_quat[camera.id]),
        eye_fovy_rad=math.radians(model.cam_fovy[camera.id]),
        mirror_geom_id=model.geom("mirror").id,
        hand_geom_ids=hands,
        hand_body_ids=model.geom_bodyid[hands].astype(np.int64),
        hand_pos_m=model.geom_pos[hands],
        hand_mat=np.stack([_matrix(q) for q in model.geom_quat[hands]]),
        hand_size_m=model.geom_size[hands],
        surfaces=tuple(_surface(model, s.geom, s.min_z_m) for s in body.mark_surfaces),
    )


def _surface(model: mujoco.MjModel, name: str, min_z_m: float | None) -> Surface:
    g = model.geom(name).id
    if model.geom_type[g] != mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        raise ValueError(f"mark surface {name!r} is not an ellipsoid: marks are placed on ellipsoids only.")
    return Surface(
        geom=name,
        body_id=int(model.geom_bodyid[g]),
        pos_m=model.geom_pos[g].copy(),
        mat=_matrix(model.geom_quat[g]),
        size_m=model.geom_size[g].copy(),
        min_z_m=-math.inf if min_z_m is None else min_z_m,
    )


def _matrix(quat: Floats) -> Floats:
    mat = np.empty(9)
    mujoco.mju_quat2Mat(mat, quat)
    return mat.reshape(3, 3)


def _check_clearance(scene: Scene) -> None:
    """No part of the body at rest may touch the mirror or its frame (`mj_geomDistance` is exact for both)."""
    model, data = scene.model, mujoco.MjData(scene.model)
    data.qpos[:] = scene.rest_qpos
    mujoco.mj_kinematics(model, data)
    names = [model.geom(g).name for g in range(model.ngeom)]
    mirror_geoms = [g for g, name in enumerate(names) if name == "mirror" or name.startswith("frame_")]
    for g, name in enumerate(names):
        if name.startswith("mark_") or model.geom_bodyid[g] == 0:
            continue
        gap = min(mujoco.mj_geomDistance(model, data, part, g, 1.0, None) for part in mirror_geoms)
        if gap < CLEARANCE_M:
            part, config = name or model.body(model.geom_bodyid[g]).name, scene.mirror
            raise ValueError(
                f"the mirror cuts through the {scene.body.name}'s {part}: raise mirror distance_m "
                f"({config.distance_m}), or lessen yaw_rad ({config.yaw_rad}), "
                f"pitch_rad ({config.pitch_rad}), width_m ({config.width_m}) or height_m ({config.height_m})."
            )


def place_mark_for_gl(
    model: mujoco.MjModel,
    surface_geom: str,
    pos_m: Floats,
    normal: Floats,
    radius_m: float = 0.02,
    rgb: tuple[float, float, float] = (0.05, 0.85, 0.15),
) -> None:
    """Show the mark to MuJoCo's renderer; disc centre and normal are in the frame of the surface's body."""
    disc = model.body(f"mark_{surface_geom}").id
    model.body_pos[disc] = pos_m
    mujoco.mju_quatZ2Vec(model.body_quat[disc], np.asarray(normal, dtype=np.float64))
    disc_geom = model.geom(f"mark_{surface_geom}").id
    model.geom_size[disc_geom, 0] = radius_m
    model.geom_rgba[disc_geom] = (*rgb, 1.0)


def park_marks(model: mujoco.MjModel) -> None:
    """Move every mark out of sight."""
    for body in range(model.nbody):
        if model.body(body).name.startswith("mark_"):
            model.body_pos[body] = PARKED_M
