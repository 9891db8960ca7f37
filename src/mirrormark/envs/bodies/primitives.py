"""Writes MJCF geoms and joints, so that bodies read as tables of numbers."""

from __future__ import annotations

from collections.abc import Iterable

from . import Joint

Rgb = tuple[float, float, float]


def numbers(values: Iterable[float]) -> str:
    """Space-separated, in full double precision."""
    return " ".join(repr(float(v)) for v in values)


def geom(shape: str, size: Iterable[float], rgb: Rgb, cls: str = "drawn", **attributes: object) -> str:
    """One <geom> of a default class of the scene. Tuples among the attributes become vectors.

    "drawn" is seen only; "solid" has mass and contacts by the attributes given.
    """
    words: dict[str, object] = {
        "type": shape,
        "class": cls,
        "size": tuple(size),
        "rgba": (*rgb, 1.0),
        **attributes,
    }
    texts = {key: numbers(value) if isinstance(value, tuple) else value for key, value in words.items()}
    return "<geom " + " ".join(f'{key}="{text}"' for key, text in texts.items()) + "/>"


def hinge(joint: Joint, axis: tuple[float, float, float]) -> str:
    """The joint, at its body's origin, with its tone."""
    return (
        f'<joint name="{joint.name}" axis="{numbers(axis)}" range="{numbers(joint.range_rad)}" '
        f'damping="{joint.damping!r}" armature="{joint.armature!r}" '
        f'stiffness="{joint.stiffness!r}" springref="{joint.rest_rad!r}"/>'
    )
