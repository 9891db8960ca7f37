"""A third person's view of a world, by the same ray-caster as the eye: no OpenGL."""

import numpy as np
from numpy.typing import NDArray

from mirrormark.envs.raycaster import eye as eyes
from mirrormark.envs.scene import Scene
from mirrormark.envs.senses import Moment


def picture(scene: Scene, moment: Moment, camera: str, width: int, height: int) -> NDArray[np.uint8]:
    """Pictures (N, height, width, 3) of the N worlds of a moment, by a camera of the scene."""
    return eyes.render(
        scene.model,
        eyes.camera_of(scene.model, camera),
        moment.xpos,
        moment.xmat,
        moment.panes,
        moment.marks,
        width,
        height,
        mirror_xpos=moment.mirror_xpos,
        mirror_xmat=moment.mirror_xmat,
    )


def joined(moments: list[Moment]) -> Moment:
    """Several moments as the worlds of one, so that they are drawn at once."""
    fields = {name: [getattr(moment, name) for moment in moments] for name in Moment._fields}
    panes, marks = fields.pop("panes"), fields.pop("marks")
    return Moment(
        panes=eyes.Panes._make(map(np.concatenate, zip(*panes))),
        marks=eyes.Marks._make(map(np.concatenate, zip(*marks))),
        **{name: np.concatenate(values) for name, values in fields.items()},
    )
