"""The senses: objects that make observations of the simulator's state. One, an ablation, knows the mark."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mirrormark.envs.raycaster.eye import (
    MARK,
    MIRRORED,
    NO_CELL,
    Camera,
    Eye,
    Marks,
    Panes,
    camera_of,
    render,
)
from mirrormark.envs.scene import Scene

Device = Literal["cpu", "cuda"]

ABLATION = "ablation: told where the mark is seen"
"""What every output of the symbolic eye must say."""


class SimState(NamedTuple):
    """All that a sense may read of N environments at one control step."""

    qpos: NDArray[np.float64]  # (N, nq)
    xpos: NDArray[np.float64]  # (N, nbody, 3)
    xmat: NDArray[np.float64]  # (N, nbody, 3, 3)
    mirror_xpos: NDArray[np.float64]  # what the mirror shows: the same, or the past
    mirror_xmat: NDArray[np.float64]
    panes: Panes
    marks: Marks
    noise_key: NDArray[np.uint64]  # (N,)

    def only(self, index: int) -> "SimState":
        """One environment, as N = 1."""
        one = slice(index, index + 1)
        panes = Panes._make(field[one] for field in self.panes)
        marks = Marks._make(field[one] for field in self.marks)
        kept = {name: getattr(self, name)[one] for name in self._fields if name not in ("panes", "marks")}
        return SimState(panes=panes, marks=marks, **kept)

    @property
    def visible(self) -> tuple[Any, ...]:
        """What an eye draws from."""
        return self.xpos, self.xmat, self.mirror_xpos, self.mirror_xmat, self.panes, self.marks

    def labels(self, eye: Eye) -> NDArray[np.int16]:
        """What each pixel of an eye shows (N, H, W): see `Eye.segment`."""
        return eye.segment(*self.visible)

    def mark_mask(self, eye: Eye) -> NDArray[np.bool_]:
        """Pixels (N, H, W) that show the mark in the mirror."""
        return self.labels(eye) == MARK + MIRRORED


class Sense(ABC):
    """One entry of the observation."""

    name: str

    @abstractmethod
    def attach(self, scene: Scene, device: Device) -> None:
        """Prepare for a scene, once."""

    @abstractmethod
    def space(self) -> spaces.Space:
        """The space of one environment's observation."""

    @abstractmethod
    def perceive(self, sim_state: SimState) -> Any:
        """Observations of all N environments, first axis N."""


class Vision(Sense):
    """The right eye: 64×64 RGB with a little sensor noise. On a GPU it returns a device array."""

    name = "vision"

    def __init__(self, width: int = 64, height: int = 64, noise: int = 2, biased_noise: bool = False) -> None:
        if isinstance(noise, bool) or not isinstance(noise, int) or not 0 <= noise <= 255:
            raise ValueError(f"noise is {noise!r}; give a whole number of grey levels from 0 to 255.")
        if not isinstance(biased_noise, bool):
            raise ValueError(f"biased_noise is {biased_noise!r}; give True or False.")
        self.width, self.height = width, height
        self.noise, self.biased_noise = noise, biased_noise  # {-2..2}; biased: {-2..1} (D17)

    def attach(self, scene: Scene, device: Device) -> None:
        self.eye = own_eye(scene, self.width, self.height, device)

    def space(self) -> spaces.Space:
        return spaces.Box(0, 255, (self.height, self.width, 3), np.uint8)

    def perceive(self, sim_state: SimState) -> Any:
        return self.eye.render(
            *sim_state.visible,
            noise_key=sim_state.noise_key,
            noise_amplitude=self.noise,
            biased_noise=self.biased_noise,
        )


class Proprioception(Sense):
    """Joint angles clipped to their range, then scaled to [-1, 1] (paper, Table I)."""

    name = "proprioception"

    def attach(self, scene: Scene, device: Device) -> None:
        self._adr = scene.qpos_adr
        self._low, self._high = scene.range_rad[:, 0], scene.range_rad[:, 1]

    def space(self) -> spaces.Space:
        return spaces.Box(-1.0, 1.0, (len(self._adr),), np.float32)

    def perceive(self, sim_state: SimState) -> np.ndarray:
        angle = np.clip(sim_state.qpos[:, self._adr], self._low, self._high)
        scaled = 2.0 * (angle - self._low) / (self._high - self._low) - 1.0
        return np.clip(scaled, -1.0, 1.0).astype(np.float32)


class SymbolicEye(Sense):
    """The symbolic eye, an ablation: in which cell of a 15×15 grid over the mirror the mark is seen.

    225: no mark is seen, as it is hidden, covered, out of view or gone.
    """

    name = "cell"

    def attach(self, scene: Scene, device: Device) -> None:
        self.eye = own_eye(scene, 64, 64, "cpu")

    def space(self) -> spaces.Space:
        return spaces.Box(0, NO_CELL, (1,), np.int64)

    def perceive(self, sim_state: SimState) -> np.ndarray:
        return self.eye.mark_cell(*sim_state.visible)[:, None]


SENSES: dict[str, type[Sense]] = {sense.name: sense for sense in (Vision, Proprioception, SymbolicEye)}
DEFAULT_SENSES = ("vision", "proprioception")
SYMBOLIC_SENSES = ("cell", "proprioception")


def make_senses(wanted: Sequence[str | Sense]) -> list[Sense]:
    """Senses by name or as objects; names must be known and different."""
    if isinstance(wanted, str) or not isinstance(wanted, Sequence):
        raise ValueError(f"senses is {wanted!r}; give a list of names ({', '.join(SENSES)}) or of Senses.")
    senses: list[Sense] = []
    for item in wanted:
        if isinstance(item, Sense):
            senses.append(item)
        elif isinstance(item, str) and item in SENSES:
            senses.append(SENSES[item]())
        else:
            raise ValueError(f"senses: {item!r} is unknown; choose from {', '.join(SENSES)} or pass a Sense.")
    if not senses:
        raise ValueError(f"senses is empty; name at least one of {', '.join(SENSES)}.")
    if len({sense.name for sense in senses}) != len(senses):
        raise ValueError("senses: two senses share a name; give each its own.")
    return senses


def picture(scene: Scene, sim_state: SimState, camera: str, width: int, height: int) -> NDArray[np.uint8]:
    """Pictures (N, height, width, 3) by a camera of the scene: for people, no sense."""
    return render(
        scene.model,
        camera_of(scene.model, camera),
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
    """Several states as the environments of one, so that they are drawn at once."""
    fields = {name: [getattr(sim_state, name) for sim_state in sim_states] for name in SimState._fields}
    panes, marks = fields.pop("panes"), fields.pop("marks")
    return SimState(
        panes=Panes._make(map(np.concatenate, zip(*panes))),
        marks=Marks._make(map(np.concatenate, zip(*marks))),
        **{name: np.concatenate(values) for name, values in fields.items()},
    )


def own_eye(scene: Scene, width: int, height: int, device: Device) -> Eye:
    """The body's own eye at a given resolution."""
    camera = Camera(scene.eye_body_id, scene.eye_pos_m, scene.eye_mat, scene.eye_fovy_rad)
    return Eye(scene.model, camera, width=width, height=height, device=device)
