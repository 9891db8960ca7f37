"""The MuJoCo model as instances of a few unit meshes, so that a whole body moves with one message each."""

import math
from typing import Any, NamedTuple

import mujoco
import numpy as np
import trimesh
from numpy.typing import NDArray

from mirrormark.envs.raycaster.eye import Geoms, geoms_of
from mirrormark.envs.raycaster.geometry import BOX, CAPSULE, CYLINDER, SPHERE

Floats = NDArray[np.float64]

_BALLS = {"bead": 0.022, "ball": 0.06, "globe": math.inf}
"""Up to which radius a sphere is which mesh: software that draws for a machine without a GPU counts
triangles."""


class Mesh(NamedTuple):
    """Triangles."""

    vertices: NDArray[Any]  # (V, 3)
    faces: NDArray[Any]  # (F, 3)


class Instances(NamedTuple):
    """Copies of one unit mesh, each fixed to a body."""

    body: NDArray[np.int64]  # (N,)
    pos: Floats  # (N, 3) in the body
    quat: Floats  # (N, 4) in the body
    scale: Floats  # (N, 3)
    rgb: NDArray[np.uint8]  # (N, 3) linear light: viser's instances take colours so

    def placed(self, xpos: Floats, xmat: Floats) -> tuple[Floats, Floats]:
        """World positions (N, 3) and quaternions (N, 4) for the bodies' poses (bodies, …)."""
        turns = np.array([quat_of(mat) for mat in xmat])
        pos = xpos[self.body] + np.einsum("nij,nj->ni", xmat[self.body], self.pos)
        return pos, _times(turns[self.body], self.quat)


def unit_meshes() -> dict[str, Mesh]:
    """Radius or half side 1; beads, balls and globes are spheres, each finer than the one before; a rod is an
    open tube, a drum has lids."""
    spheres = {name: trimesh.creation.icosphere(subdivisions=2 + k) for k, name in enumerate(_BALLS)}
    box = trimesh.creation.box((2.0, 2.0, 2.0))
    # Every face of the box with corners of its own: shared ones would be shaded round.
    block = Mesh(box.vertices[box.faces].reshape(-1, 3), np.arange(36).reshape(12, 3))
    tube, lid = _tube(32), _lid(32)
    return {name: _typed(Mesh(ball.vertices, ball.faces)) for name, ball in spheres.items()} | {
        "block": _typed(block),
        "rod": _typed(tube),
        "drum": _typed(_joined(tube, lid, Mesh(lid.vertices * (1, 1, -1), lid.faces[:, ::-1]))),
    }


def instances_of(model: mujoco.MjModel) -> dict[str, Instances]:
    """The drawn geoms of the body (not of the room, the mirror or the marks) by unit mesh."""
    geoms = geoms_of(model, 0)
    parts: dict[str, list[tuple]] = {name: [] for name in (*_BALLS, "block", "rod", "drum")}
    for g in range(len(geoms.id)):
        if geoms.body[g] > 0:
            for mesh, offset, scale in _pieces(geoms, g):
                pos = geoms.pos[g] + geoms.mat[g] @ offset
                parts[mesh].append((geoms.body[g], pos, quat_of(geoms.mat[g]), scale, _linear(geoms.rgb[g])))
    return {
        mesh: Instances(
            body=np.array([row[0] for row in rows], np.int64),
            pos=np.array([row[1] for row in rows]),
            quat=np.array([row[2] for row in rows]),
            scale=np.array([row[3] for row in rows], float),
            rgb=np.array([row[4] for row in rows], np.uint8),
        )
        for mesh, rows in parts.items()
        if rows
    }


def _pieces(geoms: Geoms, g: int) -> list[tuple[str, tuple[float, float, float], tuple]]:
    """Unit mesh, offset and scale; a capsule is a rod between two balls."""
    kind, (x, y, z) = geoms.kind[g], geoms.size[g]
    if kind == SPHERE:
        return [(_ball(max(x, y, z)), (0, 0, 0), (x, y, z))]
    if kind == CAPSULE:
        ends = [(_ball(x), (0, 0, sign * y), (x, x, x)) for sign in (-1, 1)]
        return [("rod", (0, 0, 0), (x, x, y)), *ends]
    if kind == CYLINDER:
        return [("drum", (0, 0, 0), (x, y, z))]
    if kind == BOX:
        return [("block", (0, 0, 0), (x, y, z))]
    raise ValueError("a body with a plane cannot be shown in the lab: build it from other primitives.")


def _ball(radius_m: float) -> str:
    return next(name for name, largest_m in _BALLS.items() if radius_m <= largest_m)


def quat_of(mat: Floats) -> Floats:
    """Quaternion (w, x, y, z) of a rotation."""
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, np.ascontiguousarray(mat, float).ravel())
    return quat


def _times(a: Floats, b: Floats) -> Floats:
    """Hamilton products of quaternions (N, 4)."""
    w, v, s, u = a[:, :1], a[:, 1:], b[:, :1], b[:, 1:]
    return np.concatenate([w * s - (v * u).sum(1, keepdims=True), w * u + s * v + np.cross(v, u)], axis=1)


def _linear(rgb: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Undo the sRGB curve of a colour 0..1."""
    curve = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return np.round(255 * curve).astype(np.uint8)


def _tube(sides: int) -> Mesh:
    angle = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(angle), np.sin(angle)], 1)
    vertices = np.concatenate([np.insert(ring, 2, -1, 1), np.insert(ring, 2, 1, 1)])
    i, j = np.arange(sides), (np.arange(sides) + 1) % sides
    faces = np.concatenate([np.stack([i, j, j + sides], 1), np.stack([i, j + sides, i + sides], 1)])
    return Mesh(vertices, faces)


def _lid(sides: int) -> Mesh:
    angle = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(angle), np.sin(angle), np.ones(sides)], 1)
    i, j = np.arange(sides), (np.arange(sides) + 1) % sides
    return Mesh(np.concatenate([ring, [(0, 0, 1)]]), np.stack([i, j, np.full(sides, sides)], 1))


def _joined(*meshes: Mesh) -> Mesh:
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes[:-1])])
    return Mesh(
        np.concatenate([mesh.vertices for mesh in meshes]),
        np.concatenate([mesh.faces + start for mesh, start in zip(meshes, starts)]),
    )


def _typed(mesh: Mesh) -> Mesh:
    return Mesh(np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces, np.uint32))
