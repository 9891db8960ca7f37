"""A third person's view of an environment, by the same ray-caster as the eye: no OpenGL."""

import numpy as np
from numpy.typing import NDArray

from mirrormark.envs.raycaster import eye as eyes
from mirrormark.envs.scene import Scene
from mirrormark.envs.senses import SimState


def picture(scene: Scene, sim_state: SimState, camera: str, width: int, height: int) -> NDArray[np.uint8]:
    """Pictures (N, height, width, 3) of the N environments of a moment, by a camera of the scene."""
    return eyes.render(
        scene.model,
        eyes.camera_of(scene.model, camera),
        sim_state.xpos,
        sim_state.xmat,
        sim_state.panes,
        sim_state.marks,
        width,
        height,
        mirror_xpos=sim_state.mirror_xpos,
        mirror_xmat=sim_state.mirror_xmat,
    )


def joined(sim_states: list[SimState]) -> SimState:
    """Several moments as the environments of one, so that they are drawn at once."""
    fields = {name: [getattr(sim_state, name) for sim_state in sim_states] for name in SimState._fields}
    panes, marks = fields.pop("panes"), fields.pop("marks")
    return SimState(
        panes=eyes.Panes._make(map(np.concatenate, zip(*panes))),
        marks=eyes.Marks._make(map(np.concatenate, zip(*marks))),
        **{name: np.concatenate(values) for name, values in fields.items()},
    )
