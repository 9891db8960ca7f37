"""What the eye reads of a MuJoCo model, once, and of each environment, at every picture."""

from __future__ import annotations

import math
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from .geometry import BOX, CAPSULE, CYLINDER, MARK, MAX_LIGHTS, PLANE, SPHERE
from .placement import ON_PANE, PRESENT

Floats = NDArray[np.float64]

KINDS = {
    int(mujoco.mjtGeom.mjGEOM_SPHERE): SPHERE,
    int(mujoco.mjtGeom.mjGEOM_ELLIPSOID): SPHERE,
    int(mujoco.mjtGeom.mjGEOM_CAPSULE): CAPSULE,
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): CYLINDER,
    int(mujoco.mjtGeom.mjGEOM_BOX): BOX,
    int(mujoco.mjtGeom.mjGEOM_PLANE): PLANE,
}
DRAWN_GROUPS = 3
"""MuJoCo draws the geom groups 0, 1 and 2 by default."""
ENDLESS_M = 1000.0
"""Half side of a plane that MuJoCo calls infinite."""


class Geoms(NamedTuple):
    """The drawn primitives, a row each; panes and marks come apart."""

    id: NDArray[np.int32]  # (G,) of the model's geoms
    kind: NDArray[np.int32]
    body: NDArray[np.int32]
    """The body that carries it; ON_PANE for the frame, which moves with the pane."""
    pos: Floats  # (G, 3) in its body, or in the pane's frame
    mat: Floats  # (G, 3, 3)
    size: Floats  # (G, 3)
    rgb: NDArray[np.float32]  # (G, 3)
    emission: NDArray[np.float32]
    in_direct_view: NDArray[np.uint8]


class Camera(NamedTuple):
    """A pinhole fixed to a body; body 0 is the environment."""

    body: int
    pos: Floats  # (3,) in the body's frame
    mat: Floats  # (3, 3) columns right, up, backward
    fovy_rad: float


class Panes(NamedTuple):
    """The mirror's reflecting rectangle in each of N environments."""

    centre: Floats  # (N, 3)
    mat: Floats  # (N, 3, 3) columns right, up, normal towards the body
    half: Floats  # (N, 2) half width, half height
    kind: NDArray[np.int32]  # (N,) PRESENT, ABSENT or COVERED


class Marks(NamedTuple):
    """The mark in each of N environments: a thin disc on a body, whose z axis is the outward normal."""

    body: NDArray[np.int32]  # (N,)
    pos: Floats  # (N, 3) in the body's frame
    mat: Floats  # (N, 3, 3)
    radius_m: Floats  # (N,)
    rgb: NDArray[np.float32]  # (N, 3)
    shown: NDArray[np.bool_]  # (N,) now
    shown_mirror: NDArray[np.bool_]  # (N,) in the mirror, whose image may be older


class Lights(NamedTuple):
    """Directional light and the light that is everywhere."""

    towards: Floats  # (L, 3) unit vectors
    diffuse: NDArray[np.float32]  # (L, 3)
    ambient: NDArray[np.float32]  # (3,)


def no_marks(n: int) -> Marks:
    """N environments without a mark."""
    never = np.zeros(n, bool)
    eyes = np.tile(np.eye(3), (n, 1, 1))
    colour = np.zeros((n, 3), np.float32)
    return Marks(np.zeros(n, np.int32), np.zeros((n, 3)), eyes, np.full(n, 0.02), colour, never, never.copy())


def panes_of(model: mujoco.MjModel, n: int, kind: int = PRESENT) -> Panes:
    """The model's own geom "mirror", in each of n environments."""
    pos, mat, size = _mirror(model)
    return Panes(
        np.tile(pos + mat[:, 2] * size[2], (n, 1)),
        np.tile(mat, (n, 1, 1)),
        np.tile(size[:2], (n, 1)),
        np.full(n, kind, np.int32),
    )


def camera_of(model: mujoco.MjModel, name: str) -> Camera:
    """A camera of the model by name."""
    known = [model.camera(i).name for i in range(model.ncam)]
    if name not in known:
        raise ValueError(f"camera {name!r} is not in the model: use one of {', '.join(known)}.")
    found = known.index(name)
    mat = _rotation(model.cam_quat[found])
    body = int(model.cam_bodyid[found])
    return Camera(body, model.cam_pos[found].copy(), mat, math.radians(model.cam_fovy[found]))


def camera_at(pos: tuple[float, float, float], target: tuple[float, float, float], fovy_rad: float) -> Camera:
    """A camera that stands in the environment and looks at a point, upright."""
    back = np.subtract(pos, target).astype(float)
    back /= np.linalg.norm(back)
    right = np.cross([0.0, 0.0, 1.0], back)
    if (length := np.linalg.norm(right)) < 1e-9:
        raise ValueError("camera target lies straight above or below its pos: move either aside.")
    right /= length
    return Camera(0, np.array(pos, float), np.stack([right, np.cross(back, right), back], axis=1), fovy_rad)


def geoms_of(model: mujoco.MjModel, eye_body: int) -> Geoms:
    """Every drawn geom but "mirror" and "mark_*".

    The camera sits inside its body, so that body's geoms are left out of the direct view, never out of the
    mirrored one; a camera in the environment (body 0) sees everything.
    """
    rows = [g for g in range(model.ngeom) if _is_drawn(model, g)]
    if len(rows) >= MARK:
        raise ValueError(f"the model draws {len(rows)} geoms: the eye has labels for {MARK - 1}.")
    poses = [_local_pose(model, g) for g in rows]
    colours = [_colour(model, g) for g in rows]
    body = np.array([ON_PANE if _is_frame(model, g) else model.geom_bodyid[g] for g in rows], np.int32)
    return Geoms(
        id=np.array(rows, np.int32),
        kind=np.array([KINDS[int(model.geom_type[g])] for g in rows], np.int32),
        body=body,
        pos=np.array([p for p, _ in poses]).reshape(-1, 3),
        mat=np.array([m for _, m in poses]).reshape(-1, 3, 3),
        size=np.array([_size(model, g) for g in rows]).reshape(-1, 3),
        rgb=np.array([rgb for rgb, _ in colours], np.float32).reshape(-1, 3),
        emission=np.array([emission for _, emission in colours], np.float32),
        in_direct_view=np.array([eye_body == 0 or b != eye_body for b in body], np.uint8),
    )


def lights_of(model: mujoco.MjModel) -> Lights:
    """The model's lights: the headlight only ambient, the others only directional and fixed to the
    environment."""
    if np.any(model.vis.headlight.diffuse):
        raise ValueError(
            "the headlight has diffuse light: set it to 0, the eye draws its ambient light only."
        )
    active = [i for i in range(model.nlight) if model.light_active[i]]
    ambient = np.array(model.vis.headlight.ambient, np.float32) * bool(model.vis.headlight.active)
    for i in active:
        directional = model.light_type[i] == mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
        if not directional or model.light_bodyid[i] != 0:
            raise ValueError(f"light {i} is not directional or not fixed to the environment: make it so.")
        ambient = ambient + model.light_ambient[i]
    if len(active) > MAX_LIGHTS:
        raise ValueError(f"the model has {len(active)} lights: the eye draws at most {MAX_LIGHTS}.")
    towards = -np.array([model.light_dir[i] for i in active]).reshape(-1, 3)
    towards /= np.linalg.norm(towards, axis=1, keepdims=True)
    diffuse = np.array([model.light_diffuse[i] for i in active], np.float32).reshape(-1, 3)
    return Lights(towards, diffuse, ambient.astype(np.float32))


def _rotation(quat: Floats) -> Floats:
    mat = np.empty(9)
    mujoco.mju_quat2Mat(mat, quat)
    return mat.reshape(3, 3)


def _mirror(model: mujoco.MjModel) -> tuple[Floats, Floats, Floats]:
    found = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, "mirror")
    if found < 0:
        raise ValueError('the model has no geom "mirror": add a box whose +z face is the pane.')
    return model.geom_pos[found].copy(), _rotation(model.geom_quat[found]), model.geom_size[found].copy()


def _is_frame(model: mujoco.MjModel, g: int) -> bool:
    return model.geom(g).name.startswith("frame_")


def _is_drawn(model: mujoco.MjModel, g: int) -> bool:
    name = model.geom(g).name
    if name == "mirror" or name.startswith("mark_"):
        return False
    if model.geom_group[g] >= DRAWN_GROUPS or model.geom_rgba[g, 3] == 0:
        return False
    if int(model.geom_type[g]) not in KINDS:
        raise ValueError(
            f"geom {name or g} is no sphere, ellipsoid, capsule, cylinder, box or plane: use these."
        )
    return True


def _local_pose(model: mujoco.MjModel, g: int) -> tuple[Floats, Floats]:
    pos, mat = model.geom_pos[g].copy(), _rotation(model.geom_quat[g])
    if not _is_frame(model, g):
        return pos, mat
    mirror_pos, mirror_mat, mirror_size = _mirror(model)
    pane = mirror_pos + mirror_mat[:, 2] * mirror_size[2]
    return mirror_mat.T @ (pos - pane), mirror_mat.T @ mat


def _size(model: mujoco.MjModel, g: int) -> Floats:
    size = model.geom_size[g].copy()
    if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_SPHERE:
        size[:] = size[0]
    elif model.geom_type[g] == mujoco.mjtGeom.mjGEOM_CYLINDER:
        size[:] = size[0], size[0], size[1]
    elif model.geom_type[g] == mujoco.mjtGeom.mjGEOM_PLANE:
        size[:] = *(s or ENDLESS_M for s in size[:2]), 1.0
    return size


def _colour(model: mujoco.MjModel, g: int) -> tuple[Floats, float]:
    """As MuJoCo: the material's colour, unless the geom has one of its own; emission scales the colour."""
    rgba, material = model.geom_rgba[g], model.geom_matid[g]
    if material < 0:
        return rgba[:3], 0.0
    if np.any(model.mat_texid[material] >= 0):
        raise ValueError(f"geom {model.geom(g).name or g} has a texture: the eye draws plain colours only.")
    own = not np.allclose(rgba, (0.5, 0.5, 0.5, 1.0))
    return (rgba if own else model.mat_rgba[material])[:3], float(model.mat_emission[material])
