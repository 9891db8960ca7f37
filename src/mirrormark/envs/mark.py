"""The mark: what it looks like, where it sits and when it has come off."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirrormark.envs import is_number
from mirrormark.envs.scene import Scene, Surface
from mirrormark.envs.touch import Hands, nearest_hands, time_touches

Floats = NDArray[np.float64]

HALF_THICKNESS_M = 0.0015
"""Half the disc's height: it stands this far off the skin (prototype)."""

LONGEST_HOLD_SIM_STEPS = 1_000_000
"""Far longer than any episode: a mark that cannot be removed."""

_DRAWS = 64
"""Candidate sites drawn at a time; about one in eight is valid on the infant."""


@dataclass(frozen=True)
class MarkConfig:
    """What the mark looks like, where it may sit and what takes it off."""

    radius_m: float = 0.02
    """Radius of the disc (prototype; about 18 of 4,096 pixels when seen in the mirror)."""
    rgb: tuple[float, float, float] = (0.05, 0.85, 0.15)
    """Colour, each channel 0..1 (prototype)."""
    surface: str | None = None
    """Restrict the site to this surface of the body, e.g. "head_geom" (None: all, area-uniform)."""
    site_m: tuple[float, float, float] | None = None
    """Stick the mark at the point of `surface` nearest to this point of its body's frame (None: random)."""
    forward_angle_rad: float = math.radians(60.0)
    """Largest angle between the surface normal and straight ahead (paper, exam)."""
    reach_m: float = 0.02
    """Hand-to-mark surface distance that counts as touching, inclusive (paper, exam)."""
    hold_sim_steps: int = 50
    """Consecutive touching physics steps before the mark comes off (paper, exam)."""

    def __post_init__(self) -> None:
        if not (is_number(self.radius_m) and 0.0 < self.radius_m <= 0.06):
            raise ValueError(f"mark.radius_m is {self.radius_m}; choose a radius above 0 and up to 0.06 m.")
        if not _is_vector(self.rgb) or not all(0.0 <= c <= 1.0 for c in self.rgb):
            raise ValueError(f"mark.rgb is {self.rgb}; give three numbers between 0 and 1.")
        if self.surface is not None and not isinstance(self.surface, str):
            raise ValueError(f"mark.surface is {self.surface!r}; give the name of a surface, or None.")
        if not (is_number(self.reach_m) and 0.0 <= self.reach_m <= 10.0):
            raise ValueError(f"mark.reach_m is {self.reach_m}; choose a distance from 0 to 10 m.")
        hold = self.hold_sim_steps
        if isinstance(hold, bool) or not isinstance(hold, int) or not 1 <= hold <= LONGEST_HOLD_SIM_STEPS:
            raise ValueError(
                f"mark.hold_sim_steps is {hold}; choose a whole number from 1 to {LONGEST_HOLD_SIM_STEPS:,}."
            )
        if not (is_number(self.forward_angle_rad) and 0.0 < self.forward_angle_rad <= math.pi):
            raise ValueError(
                f"mark.forward_angle_rad is {self.forward_angle_rad}; choose an angle between 0 and pi."
            )
        if self.site_m is not None and (self.surface is None or not _is_vector(self.site_m)):
            raise ValueError("mark.site_m needs three numbers and mark.surface, the part it is stuck to.")


def _is_vector(values: Any) -> bool:
    """Whether it is three numbers within bounds."""
    try:
        vector = np.asarray(values, float)
    except (TypeError, ValueError):
        return False
    return vector.shape == (3,) and bool((np.abs(vector) < 1e6).all())


class Site(NamedTuple):
    """A place on the skin: a frame fixed to one of the MuJoCo bodies."""

    surface: int  # index into Scene.surfaces
    body: int  # MuJoCo body id
    pos: np.ndarray  # (3,) centre of the disc in the body's frame
    mat: np.ndarray  # (3,3) columns: two tangents and the outward normal


def draw_site(scene: Scene, config: MarkConfig, rng: np.random.Generator) -> Site:
    """A site drawn evenly by area, or the one that the config names."""
    allowed = _allowed(scene, config)
    if config.site_m is not None:
        return _named_site(scene, config, allowed[0])
    size = np.stack([scene.surfaces[i].size_m for i in allowed])
    # Rejection sampling: `bound` is the largest stretch of area from unit sphere to ellipsoid.
    bound = size.prod(1) / size.min(1)
    for _ in range(1000):
        chosen = np.searchsorted(np.cumsum(bound) / bound.sum(), rng.random(_DRAWS))
        direction = rng.normal(size=(_DRAWS, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        stretch = size[chosen].prod(1) * np.linalg.norm(direction / size[chosen], axis=1)
        even = rng.random(_DRAWS) * bound[chosen] <= stretch
        for k in np.flatnonzero(even & _faces_forward(scene, config, allowed, chosen, direction)):
            site = _site_towards(scene.surfaces[allowed[chosen[k]]], allowed[chosen[k]], direction[k])
            if _valid(scene, config, site):
                return site
    raise ValueError(
        "mark: no valid site was found; widen mark.forward_angle_rad, shrink mark.radius_m or name another"
        " mark.surface."
    )


def _allowed(scene: Scene, config: MarkConfig) -> list[int]:
    names = [surface.geom for surface in scene.surfaces]
    if config.surface is None:
        return list(range(len(names)))
    if config.surface not in names:
        raise ValueError(f"mark.surface is {config.surface!r}; this body offers {', '.join(names)}.")
    return [names.index(config.surface)]


def _faces_forward(
    scene: Scene, config: MarkConfig, allowed: list[int], chosen: np.ndarray, direction: np.ndarray
) -> np.ndarray:
    """Which candidates have a normal near straight ahead (x of the body's frame at rest)."""
    size = np.stack([scene.surfaces[i].size_m for i in allowed])[chosen]
    ahead = np.stack([scene.surfaces[i].mat[0] for i in allowed])[chosen]
    normal = direction / size
    cosine = (normal * ahead).sum(1) / np.linalg.norm(normal, axis=1)
    return cosine >= math.cos(config.forward_angle_rad)


def _site_towards(surface: Surface, index: int, direction: np.ndarray) -> Site:
    """The site on the ellipsoid at `size * direction` (direction: unit vector in the geom's frame)."""
    normal = direction / surface.size_m
    normal = surface.mat @ (normal / np.linalg.norm(normal))
    point = surface.pos_m + surface.mat @ (surface.size_m * direction)
    up = np.array([0.0, 0.0, 1.0]) if abs(normal[2]) < 0.9 else np.array([0.0, 1.0, 0.0])
    right = _cross(up, normal)
    right /= np.linalg.norm(right)
    mat = np.stack([right, _cross(normal, right), normal], axis=1)
    return Site(index, surface.body_id, point + HALF_THICKNESS_M * normal, mat)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a × b for two vectors: np.cross takes fifty times as long, and every reset needs it."""
    (ax, ay, az), (bx, by, bz) = a.tolist(), b.tolist()
    return np.array([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx])


def site_near(surface: Surface, index: int, point_m: np.ndarray) -> Site:
    """The site of a surface towards a point of its body's frame, whether a mark may sit there or not."""
    direction = (surface.mat.T @ (point_m - surface.pos_m)) / surface.size_m
    length = np.linalg.norm(direction)
    if length < 1e-9:
        raise ValueError("mark.site_m is the centre of its surface; give a point nearer to the skin.")
    return _site_towards(surface, index, direction / length)


def _named_site(scene: Scene, config: MarkConfig, index: int) -> Site:
    site = site_near(scene.surfaces[index], index, np.asarray(config.site_m, float))
    if site.mat[0, 2] < math.cos(config.forward_angle_rad):
        raise ValueError(
            "mark.site_m faces away from the mirror; widen mark.forward_angle_rad or move the site."
        )
    if not _valid(scene, config, site):
        raise ValueError("mark.site_m lies over the seeing eye or below the surface's limit; move the site.")
    return site


def _valid(scene: Scene, config: MarkConfig, site: Site) -> bool:
    if site.pos[2] < scene.surfaces[site.surface].min_z_m:
        return False
    over_eye = scene.body.eye_keepout_m + config.radius_m
    return site.body != scene.eye_body_id or bool(np.linalg.norm(site.pos - scene.eye_pos_m) >= over_eye)


class MarkState:
    """A site in each of n environments, and a clock that counts for how long a hand has touched it."""

    def __init__(self, scene: Scene, config: MarkConfig, n: int) -> None:
        self.config = config
        self._hands = Hands(scene.hand_body_ids, scene.hand_pos_m, scene.hand_mat, scene.hand_size_m)
        self.surface = np.zeros(n, np.int64)
        self.body = np.zeros(n, np.int64)
        self.pos = np.zeros((n, 3))
        self.mat = np.tile(np.eye(3), (n, 1, 1))
        self.held_sim_steps = np.zeros(n, np.int64)
        self.reached = np.zeros(n, np.bool_)  # whether a hand has ever touched it for long enough
        self.hand = np.full(n, -1)  # the nearest hand at the end of that control step
        self._poses: tuple[Floats, Floats] | None = None
        self._nearest: tuple[NDArray[np.int64], Floats] | None = None

    def put(self, index: int, site: Site) -> None:
        self.surface[index], self.body[index], self.pos[index], self.mat[index] = site
        self.held_sim_steps[index] = 0
        self.reached[index] = False
        self.hand[index] = -1
        self._nearest = None

    def site(self, index: int) -> Site:
        return Site(int(self.surface[index]), int(self.body[index]), self.pos[index], self.mat[index])

    def set_poses(self, xpos: Floats, xmat: Floats) -> None:
        """The bodies are here now (n, nbody, ...); the clocks stand still."""
        self._poses, self._nearest = (xpos[:, None], xmat[:, None]), None

    def follow(self, xpos: Floats, xmat: Floats) -> None:
        """Follow the physics steps of a control step: xpos (n, S, nbody, 3), xmat (n, S, nbody, 3, 3)."""
        self._poses, self._nearest = (xpos, xmat), None
        config, site = self.config, (self.body, self.pos, self.mat)
        reach = config.radius_m, config.reach_m, config.hold_sim_steps
        when = time_touches(xpos, xmat, self._hands, *site, *reach, self.held_sim_steps)
        now = (when > 0) & ~self.reached
        if now.any():
            own = self.body[now], self.pos[now], self.mat[now]
            self.hand[now], _ = nearest_hands(xpos[now], xmat[now], self._hands, *own, config.radius_m)
        self.reached |= now

    @property
    def nearest_hand(self) -> NDArray[np.int64]:
        """(n,) in the present poses."""
        return self._measured()[0]

    @property
    def distance_m(self) -> Floats:
        """(n,) from the nearest hand in the present poses."""
        return self._measured()[1]

    def _measured(self) -> tuple[NDArray[np.int64], Floats]:
        """Measured when asked for, once."""
        if self._poses is None:
            raise ValueError("the marks have no poses yet; call set_poses or follow first.")
        if self._nearest is None:
            site = self.body, self.pos, self.mat
            self._nearest = nearest_hands(*self._poses, self._hands, *site, self.config.radius_m)
        return self._nearest
