"""A world's twin: the same instant with left and right exchanged.

A body that is its own mirror image can live every episode twice: what the twin senses is what this body would
have sensed, had the posture, all actions and the place of the mark been mirror-inverted (the room's light
stays where it is). Nothing is made up: only physics that would have gone the same way is not done again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormark.world.senses import Moment
from mirrormark.world.worlds import Observation, Worlds

_SIDES = {"r_": "l_", "l_": "r_"}
_ACROSS = np.array([1.0, -1.0, 1.0])
_ACROSS_BOTH = np.outer(_ACROSS, _ACROSS)
"""Of a rotation, seen from either side: M R M."""


class Twin:
    """What the twins of some worlds sense and do."""

    def __init__(self, worlds: Worlds) -> None:
        scene = worlds.scene
        if scene.body.odd_joints is None:
            raise ValueError(
                f"the {scene.body.name} is not its own mirror image, or does not say so (odd_joints), and has"
                " no twin: leave life.reflects off."
            )
        self._worlds = worlds
        self._joint = _partners([joint.name for joint in scene.joints])
        self._sign = np.where([joint.name in scene.body.odd_joints for joint in scene.joints], -1.0, 1.0)
        self._body = _partners([scene.model.body(i).name for i in range(scene.model.nbody)])

    def observe(self) -> Observation:
        """What the twins sense now."""
        moment = self.moment(self._worlds.moment())
        return {sense.name: sense.perceive(moment) for sense in self._worlds.senses}

    def act(self, action: NDArray[Any]) -> NDArray[Any]:
        """What the twins do (..., A) where the worlds' bodies do this."""
        return (action[..., self._joint] * self._sign).astype(action.dtype)

    def moment(self, moment: Moment) -> Moment:
        """All that there is to sense for the twins."""
        angles, adr = moment.qpos.copy(), self._worlds.scene.qpos_adr
        angles[:, adr] = moment.qpos[:, adr[self._joint]] * self._sign
        panes, marks = moment.panes, moment.marks
        return moment._replace(
            qpos=angles,
            xpos=np.ascontiguousarray(moment.xpos[:, self._body] * _ACROSS),
            xmat=np.ascontiguousarray(moment.xmat[:, self._body] * _ACROSS_BOTH),
            mirror_xpos=np.ascontiguousarray(moment.mirror_xpos[:, self._body] * _ACROSS),
            mirror_xmat=np.ascontiguousarray(moment.mirror_xmat[:, self._body] * _ACROSS_BOTH),
            panes=panes._replace(centre=panes.centre * _ACROSS, mat=_pane(panes.mat)),
            marks=marks._replace(
                body=self._body[marks.body].astype(np.int32),
                pos=marks.pos * _ACROSS,
                mat=marks.mat * _ACROSS_BOTH,
            ),
        )


def _pane(mat: NDArray[np.float64]) -> NDArray[np.float64]:
    """Its columns are right, up and normal: mirrored, right would point left."""
    mirrored = mat * _ACROSS[:, None]
    mirrored[:, :, 0] *= -1.0
    return mirrored


def _partners(names: list[str]) -> NDArray[np.int64]:
    """For each, which one is its mirror image: r_hand's is l_hand, head's is head."""
    return np.array([names.index(_SIDES.get(name[:2], name[:2]) + name[2:]) for name in names])
