"""What a person sees in the mirror: the true reflection for one viewer, a picture that lies on the pane."""

import math

import numpy as np
from numpy.typing import NDArray

from mirrormark.envs.mirror import Pane
from mirrormark.envs.raycaster.eye import Eye, camera_at
from mirrormark.envs.scene import Scene
from mirrormark.envs.senses import SimState

TEXELS = (420, 280)
"""Rows and columns of the picture on the pane."""
_RAYS = 420
"""Side of the view through which the pane is seen before it is laid flat."""


class PaneEye(Eye):
    """A viewer's eye that sees nothing but the mirror, however much stands between them.

    The page draws what stands before the mirror itself; here it would leave a second outline.
    """

    def __init__(self, scene: Scene, viewer: NDArray[np.float64]) -> None:
        self.pane = scene.pane
        away = viewer - self.pane.centre
        distance = float(np.linalg.norm(away))
        corners = _corners(self.pane) - viewer
        cosines = corners @ -away / (np.linalg.norm(corners, axis=1) * distance)
        half_rad = min(math.acos(float(np.clip(cosines.min(), -1, 1))) * 1.02, math.radians(80))
        camera = camera_at(tuple(viewer), tuple(self.pane.centre), 2 * half_rad)
        super().__init__(scene.model, camera, _RAYS, _RAYS, mark_in_direct_view=False)
        self._static = self._static._replace(in_direct_view=np.zeros_like(self._static.in_direct_view))
        self._pick = self._texels(viewer)

    def _texels(self, viewer: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and column of the view that each texel of the pane shows."""
        rows, columns = TEXELS
        wide, high = 0.995 * self.pane.half  # a ray beside the pane would show what is behind it
        down = high * (1 - (2 * np.arange(rows) + 1) / rows)
        across = wide * ((2 * np.arange(columns) + 1) / columns - 1)
        spots = self.pane.centre + (
            across[None, :, None] * self.pane.mat[:, 0] + down[:, None, None] * self.pane.mat[:, 1]
        )
        right, up, back = ((spots - viewer) @ self.camera.mat).transpose(2, 0, 1)
        scale = _RAYS / 2 / math.tan(self.camera.fovy_rad / 2)
        depth = np.maximum(-back, 1e-6)
        pick_row = _RAYS / 2 - up / depth * scale
        pick_column = _RAYS / 2 + right / depth * scale
        return _within(pick_row), _within(pick_column)

    def picture(self, sim_state: SimState) -> NDArray[np.uint8]:
        """The pane as the viewer sees it, laid flat (rows, columns, 3), upright for the body."""
        seen = self.render(
            sim_state.xpos, sim_state.xmat, sim_state.mirror_xpos, sim_state.mirror_xmat, sim_state.panes, sim_state.marks,
            sim_state.noise_key, 0,
        )[0]  # fmt: skip
        return seen[self._pick]


def in_front(pane: Pane, viewer: NDArray[np.float64]) -> bool:
    """Whether the viewer can see into the mirror; nearer than 2 cm there is nothing to see."""
    return float((viewer - pane.centre) @ pane.mat[:, 2]) > 0.02


def _corners(pane: Pane) -> NDArray[np.float64]:
    signs = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)])
    return pane.centre + (signs * pane.half) @ pane.mat[:, :2].T


def _within(pick: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.clip(np.floor(pick), 0, _RAYS - 1).astype(np.int64)
