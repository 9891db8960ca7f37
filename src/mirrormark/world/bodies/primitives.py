"""Writes MJCF geoms and joints, so that bodies read as tables of numbers."""

from __future__ import annotations

from collections.abc import Iterable

from . import Joint

Rgb = tuple[float, float, float]


def numbers(values: Iterable[float]) -> str:
    """Space-separated, in full double precision."""
    return " ".join(repr(float(v)) for v in values)


def geom(shape: str, size: Iterable[float], rgb: Rgb, *, drawn: bool = True, **attributes: object) -> str:
    """One <geom>; `drawn`: seen only, without mass or contact. Sequences among the attributes become vectors."""
    words = {"type": shape, "size": numbers(size), "rgba": numbers((*rgb, 1.0))}
    if drawn:
        words["class"] = "drawn"
    for key, value in attributes.items():
        words[key] = numbers(value) if isinstance(value, tuple) else str(value)
    return "<geom " + " ".join(f'{key}="{value}"' for key, value in words.items()) + "/>"


def hinge(joint: Joint, axis: tuple[float, float, float]) -> str:
    """The joint, at its body's origin, with its tone."""
    return (
        f'<joint name="{joint.name}" axis="{numbers(axis)}" range="{numbers(joint.range_rad)}" '
        f'damping="{joint.damping!r}" armature="{joint.armature!r}" '
        f'stiffness="{joint.stiffness!r}" springref="{joint.rest_rad!r}"/>'
    )
