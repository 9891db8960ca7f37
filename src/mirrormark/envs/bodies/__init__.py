"""Bodies that can sit before the mirror.

`register` adds a body, from anywhere: every argument `body` then knows its name, and Gymnasium the id
mirrormark/<title>-v0. The modules of this package are imported when a body is first asked for: a new body is
one new file here, or some lines of a script.

What the scene expects of a body's MJCF: x forward, y left, z up, metres; hinge joints named as in `joints`;
geoms that touch things carry contype bit 2 or 4 (the mirror's pane answers to those); geoms that are only
drawn use the class "drawn"; the eye's camera sits on a body whose own geoms never stand in the eye's way; the
frames of the bodies that carry marks point forward in the rest pose.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium

from mirrormark.envs import EPISODE_CONTROL_STEPS


@dataclass(frozen=True)
class Joint:
    """One hinge with its motor."""

    name: str
    range_rad: tuple[float, float]
    damping: float
    """N·m·s/rad."""
    armature: float
    """kg·m²."""
    stiffness: float = 0.0
    """Spring of the body's tone, N·m/rad."""
    rest_rad: float = 0.0
    """Where that spring pulls."""


@dataclass(frozen=True)
class MarkSurface:
    """An ellipsoid geom that may carry a mark."""

    geom: str
    min_z_m: float | None = None
    """Lowest mark centre, in the frame of the geom's body; None: the whole surface."""


@dataclass(frozen=True)
class Body:
    """What the environment must know of a body. Pickled by its name."""

    name: str
    title: str
    """One word: the environment is mirrormark/<title>-v0."""
    joints: tuple[Joint, ...]
    """In the order of actions and of proprioception, with the default tone."""
    rest_pose_rad: tuple[float, ...]
    """A legal posture in the order of `joints`; episodes start from it."""
    tones: tuple[str, ...]
    """Names that `with_tone` knows; the first is the default."""
    with_tone: Callable[[str, float], tuple[Joint, ...]]
    """(tone, scale of its springs) -> joints."""
    mjcf: Callable[[Sequence[Joint]], str]
    """Joints -> the body as children of <worldbody>."""
    eye_camera: str
    eye_rest_m: tuple[float, float, float]
    """Where the eye is in the rest pose; the mirror's distance is measured from here."""
    hands: tuple[str, ...]
    """Collision ellipsoids that can take the mark off."""
    mark_surfaces: tuple[MarkSurface, ...]
    eye_keepout_m: float
    """No part of a mark comes nearer to the eye than this."""
    mirror_centre_z_m: float
    """Height of the pane's centre."""
    torque_limit_nm: float
    """Every motor's limit; action 1 is this torque."""

    def __reduce__(self) -> tuple[Any, ...]:
        return get, (self.name,)


_registry: dict[str, Body] = {}


def register(body: Body) -> Body:
    """Add a body, here and to Gymnasium; the same name again must be the same body."""
    if _registry.get(body.name, body) != body:
        raise ValueError(f"body name {body.name!r} is taken: give the new body another name.")
    if not body.title.isidentifier() or any(
        other.title == body.title and other.name != body.name for other in _registry.values()
    ):
        raise ValueError(f"body title {body.title!r} is taken or not one word: give another title.")
    _registry[body.name] = body
    _register_id(f"mirrormark/{body.title}-v0", body=body.name)
    # An ablation: it is told where the mark is seen.
    _register_id(f"mirrormark/{body.title}Symbolic-v0", body=body.name, senses=("cell", "proprioception"))
    return body


def _register_id(env_id: str, **arguments: Any) -> None:
    if env_id not in gymnasium.registry:
        gymnasium.register(
            env_id,
            entry_point="mirrormark.envs.mirror_mark:MirrorMarkEnv",
            vector_entry_point="mirrormark.envs.mirror_mark:make_vec",
            max_episode_steps=EPISODE_CONTROL_STEPS,
            kwargs=arguments,
        )


def load() -> None:
    """Import every module of this package: each registers its body."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def get(name: str) -> Body:
    if not isinstance(name, str) or name not in names():
        raise ValueError(f"body {name!r} is unknown: use one of {', '.join(names())}.")
    return _registry[name]


def names() -> tuple[str, ...]:
    load()
    return tuple(sorted(_registry))
