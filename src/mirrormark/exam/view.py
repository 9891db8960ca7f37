"""Where in the eye's field the mark's reflection lies, hidden or not: geometry only, for scoring runs."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirrormark.envs.mirror_mark import MirrorMarkEnvs


class Place(NamedTuple):
    """Of the mark's centre, reflected. For mirrors that reflect nothing: where it would be."""

    field: NDArray[np.float64]  # (n, 2) right and up in the field of view; its edges are at -1 and 1
    pane: NDArray[np.float64]  # (n, 2) right and up on the pane, in the same way
    ahead: NDArray[np.bool_]  # (n,)


def reflected_mark(envs: MirrorMarkEnvs) -> Place:
    """Where the eye would see the mark's centre if nothing stood before it."""
    scene, index = envs.scene, np.arange(envs.n)
    body, pane = envs.mark_state.body, scene.pane
    mark = envs.xpos[index, body] + np.einsum("nij,nj->ni", envs.xmat[index, body], envs.mark_state.pos)
    normal = pane.mat[:, 2]
    image = mark - 2.0 * ((mark - pane.centre) @ normal)[:, None] * normal
    head = envs.xmat[:, scene.eye_body_id]
    eye = envs.xpos[:, scene.eye_body_id] + head @ scene.eye_pos_m
    ray = image - eye
    # Into the camera's frame: x right, y up, looking along -z.
    seen = np.einsum("nji,nj->ni", head @ scene.eye_mat, ray)
    depth = np.maximum(-seen[:, 2], 1e-9)
    field = seen[:, :2] / (np.tan(scene.eye_fovy_rad / 2) * depth)[:, None]
    along = ((pane.centre - eye) @ normal) / (ray @ normal)
    crossing = (eye + along[:, None] * ray - pane.centre) @ pane.mat[:, :2]
    return Place(field, crossing / pane.half, seen[:, 2] < 0)


def mark_in_view(envs: MirrorMarkEnvs) -> NDArray[np.bool_]:
    """Whether the reflected centre of the mark falls on the pane and into the field of view, (n,)."""
    place = reflected_mark(envs)
    return place.ahead & (np.abs(place.field) <= 1).all(1) & (np.abs(place.pane) <= 1).all(1)
