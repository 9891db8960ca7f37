"""Where a click lands: a ray through the scene, off the mirror if it meets it, to a place on the skin."""

from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from mirrormark.envs.mark import HALF_THICKNESS_M, MarkConfig, Site, site_near
from mirrormark.envs.mirror import Pane
from mirrormark.envs.scene import Scene

Floats = NDArray[np.float64]

_SKIN_GROUPS = np.array([1, 1, 0, 0, 0, 0], np.uint8)
"""Of MuJoCo's geoms: the body's solid and drawn ones; neither room nor mirror nor what is never drawn."""

_NOTHING = "Nothing there: click on the head or the torso."


class Refused(ValueError):
    """Nothing can be stuck there; the sentence says why."""


class Hit(NamedTuple):
    """Where a ray meets the body."""

    geom: int
    body: int  # MuJoCo body id
    point: Floats  # (3,) world
    normal: Floats  # (3,) world, outward


def hit_body(scene: Scene, qpos: Floats, origin: Floats, direction: Floats, reflects: bool) -> Hit:
    """What a ray meets first in a posture; a ray that meets the pane goes on from there, reflected."""
    data = mujoco.MjData(scene.model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(scene.model, data)
    length = np.linalg.norm(direction)
    if not (np.isfinite(length) and length > 0 and np.isfinite(origin).all()):
        raise Refused(_NOTHING)
    direction = direction / length
    hit, far = _cast(scene.model, data, origin, direction)
    to_pane, from_behind = _meet_pane(scene.pane, origin, direction)
    if to_pane < far:
        if from_behind or not reflects:
            raise Refused("The mirror is in the way: turn the view.")
        normal = scene.pane.mat[:, 2]
        reflected = direction - 2 * (direction @ normal) * normal
        hit, _ = _cast(scene.model, data, origin + to_pane * direction + 1e-6 * normal, reflected)
    if hit is None:
        raise Refused(_NOTHING)
    return hit


def _cast(
    model: mujoco.MjModel, data: mujoco.MjData, origin: Floats, direction: Floats
) -> tuple[Hit | None, float]:
    geom, normal = np.array([-1], np.int32), np.zeros(3)
    distance = mujoco.mj_ray(model, data, origin, direction, _SKIN_GROUPS, True, -1, geom, normal)
    found = int(geom[0])
    if found < 0 or model.geom(found).name.startswith("mark_"):  # parked far below
        return None, np.inf
    return Hit(found, int(model.geom_bodyid[found]), origin + distance * direction, normal), distance


def _meet_pane(pane: Pane, origin: Floats, direction: Floats) -> tuple[float, bool]:
    """Distance to the pane's rectangle (inf: missed) and whether it is met from behind."""
    slope = float(direction @ pane.mat[:, 2])
    if abs(slope) < 1e-9:
        return np.inf, False
    distance = float((pane.centre - origin) @ pane.mat[:, 2]) / slope
    spot = (origin + distance * direction - pane.centre) @ pane.mat[:, :2]
    if distance <= 0 or (np.abs(spot) > pane.half).any():
        return np.inf, False
    return distance, slope > 0


def site_of(scene: Scene, mark: MarkConfig, hit: Hit, xpos: Floats, xmat: Floats) -> Site:
    """The site of a hit; xpos (bodies, 3) and xmat (bodies, 3, 3) are the posture's."""
    surfaces = [i for i, surface in enumerate(scene.surfaces) if surface.body_id == hit.body]
    if not surfaces:
        part = spoken(scene.model.body(hit.body).name)
        raise Refused(f"That is its {part}: a mark sticks to the head and the torso.")
    frame = xmat[hit.body]
    point, normal = frame.T @ (hit.point - xpos[hit.body]), frame.T @ hit.normal
    centres = [scene.surfaces[i] for i in surfaces]
    depth = [np.linalg.norm(s.mat.T @ (point - s.pos_m) / s.size_m) for s in centres]
    nearest = surfaces[int(np.argmin(depth))]
    if scene.model.geom_rbound[hit.geom] < mark.radius_m:
        # Eyes, nose and mouth are smaller than the mark: it lies on the face below them, as in the exam.
        site = site_near(scene.surfaces[nearest], nearest, point)
    else:
        site = Site(nearest, hit.body, point + HALF_THICKNESS_M * normal, _upright(normal))
    over_eye = scene.body.eye_keepout_m + mark.radius_m
    if site.body == scene.eye_body_id and np.linalg.norm(site.pos - scene.eye_pos_m) < over_eye:
        raise Refused("That would cover the eye that sees: choose another place.")
    return site


def _upright(normal: Floats) -> Floats:
    """Axes of a disc whose z is the normal."""
    up = np.array([0.0, 0.0, 1.0]) if abs(normal[2]) < 0.9 else np.array([0.0, 1.0, 0.0])
    right = np.cross(up, normal)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(normal, right), normal], axis=1)


def spoken(name: str) -> str:
    """A part's name as people say it: r_hand_geom is the right hand."""
    words = name.removesuffix("_geom").split("_")
    return " ".join(
        {"r": "right", "l": "left", "fore": "forearm", "upper": "upper arm"}.get(w, w) for w in words
    )
