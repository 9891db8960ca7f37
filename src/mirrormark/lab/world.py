"""The lab's world: one body before one mirror that a person may change at any instant, without an agent; and
where on its skin a click lands."""

from dataclasses import replace
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormark.envs.mark import HALF_THICKNESS_M, MarkConfig, Site, draw_site, site_near
from mirrormark.envs.mirror import MirrorConfig, Pane
from mirrormark.envs.raycaster import eye as eyes
from mirrormark.envs.scene import Scene
from mirrormark.envs.senses import SimState, own_eye
from mirrormark.training.env_config import EnvConfig

Floats = NDArray[np.float64]

_CANDIDATES = 16
"""Sites tried for a mark that the eye is to see."""
_SKIN_GROUPS = np.array([1, 1, 0, 0, 0, 0], np.uint8)
"""Of MuJoCo's geoms: the body's solid and drawn ones; neither room nor mirror nor what is never drawn."""

_NOTHING = "Nothing there: click on the head or the torso."


class Refused(ValueError):
    """Nothing can be stuck there; the sentence says why."""


class MirrorWorld:
    """A body, a mirror and perhaps a mark, which only a person sticks on."""

    def __init__(
        self, setup: EnvConfig, mirror: MirrorConfig, seed: int, before: "MirrorWorld | None" = None
    ) -> None:
        """before: carry over posture, speed and mark from this one; it must have the same body."""
        alone = replace(setup, threads=1)
        mark = replace(setup.mark, surface=None, site_m=None)
        self.envs = alone.make_envs(1, mirror=mirror, mark=mark)
        self.envs.reset(seed=seed, marked=False)
        if before is not None:
            self.envs.take_posture(before.envs)
            if before.mark_on:
                self.envs.stick(0, before.envs.mark_state.site(0))
        self._eye = own_eye(self.envs.scene, 64, 64, "cpu")
        self.show_through(mirror)

    def has_place_of(self, mirror: MirrorConfig) -> bool:
        """Whether this mirror stands where that one does."""
        return replace(
            mirror, kind=self.mirror.kind, delay_control_steps=self.mirror.delay_control_steps
        ) == (self.mirror)

    def show_through(self, mirror: MirrorConfig) -> None:
        """From now on the mirror, at the same place, is of this kind and delay."""
        self.mirror = mirror
        self.envs.set_mirror_kind(mirror.kind, mirror.delay_control_steps)
        self.perceive()

    # The mark ----------------------------------------------------------------------------------------------

    @property
    def mark_on(self) -> bool:
        return bool(self.envs.mark_present[0])

    @property
    def distance_m(self) -> float:
        """From the nearer hand to the mark; NaN without one."""
        return float(self.envs.mark_state.distance_m[0].min()) if self.mark_on else float("nan")

    def find(self, origin: ArrayLike, direction: ArrayLike) -> Site | None:
        """Where a ray from a person's view meets the skin; None: it meets the mark. Else Refused."""
        envs, scene = self.envs, self.envs.scene
        qpos, xpos, xmat = envs.physics.qpos(envs.state)[0], envs.xpos[0], envs.xmat[0]
        ray = (np.asarray(origin, float), np.asarray(direction, float))
        hit = hit_body(scene, qpos, *ray, self.mirror.reflects)
        site = envs.mark_state.site(0)
        centre = xpos[site.body] + xmat[site.body] @ site.pos
        if self.mark_on and np.linalg.norm(hit.point - centre) <= envs.mark.radius_m:
            return None
        return site_of(scene, envs.mark, hit, xpos, xmat)

    def put(self, site: Site) -> None:
        """There is one mark: it leaves its old place."""
        self.envs.stick(0, site)
        self.perceive()

    def remove(self) -> None:
        self.envs.take_off(0)
        self.perceive()

    def site_in_sight(self, surface: int) -> Site:
        """Of some sites of a surface the one that most pixels of the eye show; on the head only above the
        eyes. Where none is seen, the first. The world stays as it was."""
        envs, scene = self.envs, self.envs.scene
        before = self.envs.mark_state.site(0) if self.mark_on else None
        config = replace(envs.mark, surface=scene.surfaces[surface].geom, site_m=None)
        rng = np.random.default_rng(0)
        sites = [draw_site(scene, config, rng) for _ in range(_CANDIDATES)]
        above = [site for site in sites if site.pos[2] > scene.eye_pos_m[2]]
        if scene.surfaces[surface].body_id == scene.eye_body_id and above:
            sites = above
        pixels = []
        for site in sites:
            envs.stick(0, site)
            pixels.append(int(eyes.mark_pixels(envs.sim_state().labels(self._eye))[0]))
        if before is None:
            envs.take_off(0)
        else:
            envs.stick(0, before)
        return sites[int(np.argmax(pixels))]

    # Time and senses ---------------------------------------------------------------------------------------

    def advance(self, action: NDArray[np.float32]) -> bool:
        """One control step; returns whether physics became unstable and the body was reset."""
        observation, _, _, _, info = self.envs.step(action)
        broken = bool(info["unstable"][0])
        if broken:
            self.envs.take_off(0)  # a reset sticks a mark on
        self.perceive(None if broken else observation)
        return broken

    def perceive(self, observation: dict[str, Any] | None = None) -> None:
        """`seen`, `observation`, `picture` and `mark_px` become those of the present. observation: what the
        environment returned, if it did."""
        self.seen = sim_state = _kept(self.envs.sim_state())
        self.observation = observation or {s.name: s.perceive(sim_state) for s in self.envs.senses}
        self.mark_px = int(eyes.mark_pixels(sim_state.labels(self._eye))[0])
        vision = self.observation.get("vision")
        # A person sees the picture also where the agent has no pixels.
        self.picture: NDArray[np.uint8] = np.asarray(
            self._eye.render(*sim_state[1:]) if vision is None else vision
        )[0]


def _kept(sim_state: SimState) -> SimState:
    """The state with a copy of the mark: the world's may be stuck elsewhere later."""
    marks = sim_state.marks
    return sim_state._replace(marks=marks._replace(pos=marks.pos.copy(), mat=marks.mat.copy()))


# Where a click lands ----------------------------------------------------------------------------------------


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
