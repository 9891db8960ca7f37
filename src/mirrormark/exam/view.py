"""Where in the eye's field the mark's reflection lies, hidden or not: geometry only, for scoring runs."""

import numpy as np
from numpy.typing import NDArray

from mirrormark.world.worlds import Worlds


def mark_in_view(worlds: Worlds) -> NDArray[np.bool_]:
    """Whether the reflected centre of the mark falls on the pane and into the field of view, (n,).

    For mirrors that reflect nothing it tells where the reflection would be.
    """
    scene, index = worlds.scene, np.arange(worlds.n)
    body, pane = worlds.patch.body, scene.pane
    mark = worlds.xpos[index, body] + np.einsum("nij,nj->ni", worlds.xmat[index, body], worlds.patch.pos)
    normal = pane.mat[:, 2]
    image = mark - 2.0 * ((mark - pane.centre) @ normal)[:, None] * normal
    head = worlds.xmat[:, scene.eye_body_id]
    eye = worlds.xpos[:, scene.eye_body_id] + head @ scene.eye_pos_m
    ray = image - eye
    # Into the camera's frame: x right, y up, looking along -z.
    seen = np.einsum("nji,nj->ni", head @ scene.eye_mat, ray)
    ahead = seen[:, 2] < 0
    half = np.tan(scene.eye_fovy_rad / 2) * np.abs(seen[:, 2])
    in_field = ahead & (np.abs(seen[:, 0]) <= half) & (np.abs(seen[:, 1]) <= half)
    along = ((pane.centre - eye) @ normal) / (ray @ normal)
    crossing = (eye + along[:, None] * ray - pane.centre) @ pane.mat[:, :2]
    return in_field & (np.abs(crossing) <= pane.half).all(1)
