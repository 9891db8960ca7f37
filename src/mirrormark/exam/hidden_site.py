"""Where a body can be touched but not seen in its mirror: measured for any body, not assumed.

Candidates lie evenly on the body's mark surfaces, turned away from the mirror. They are checked in
every tenth frame of some episodes of motor babbling; of those never seen, the one that the oracle reaches
best is taken.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import mujoco
import numpy as np

from mirrormark.envs.mark import MarkState, Site, site_near
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS
from mirrormark.envs.raycaster.eye import Eye
from mirrormark.envs.scene import Scene
from mirrormark.envs.senses import SimState, joined, own_eye
from mirrormark.exam.oracle import Oracle
from mirrormark.training.env_config import EnvConfig, babbling_of

DIRECTIONS = 120
"""Candidate directions on each surface (ours)."""
LARGEST_AHEAD = 0.2
"""Largest cosine between a candidate's normal and straight ahead: 78° and more to the side (ours)."""
BABBLING_EPISODES = 6
"""Episodes of motor babbling in which a candidate must not be seen once (ours)."""
CHECK_EVERY_CONTROL_STEPS = 10
TRIED_SITES = 10
"""Unseen candidates that the oracle tries: those that motor babbling came nearest to (ours)."""
ORACLE_TRIES = 4
"""Runs of the oracle at each unseen candidate; it must reach the site in half of them (ours)."""
CLEARANCE_M = 0.04
"""Free space straight out of a candidate at rest: a site in the neck has none (ours)."""
_SEED = 2**41


class HiddenSite(NamedTuple):
    surface: str
    site_m: tuple[float, float, float]  # in the frame of the surface's body


@lru_cache(maxsize=16)
def hidden_site(setup: EnvConfig) -> HiddenSite | None:
    """The site for this body, tone and mirror; None where every site within reach is seen."""
    blind = replace(setup, senses=("proprioception",))
    scene = blind.make_envs(1).scene
    unseen = _unseen(blind, _candidates(scene, setup.mark.radius_m))[:TRIED_SITES]
    if not unseen:
        return None
    reached, distance_m = _reached(blind, unseen)
    best = min(range(len(unseen)), key=lambda k: (-reached[k], distance_m[k]))
    if 2 * reached[best] < ORACLE_TRIES:
        return None
    x, y, z = (round(float(value), 4) for value in unseen[best].pos)
    return HiddenSite(scene.surfaces[unseen[best].surface].geom, (x, y, z))


def _candidates(scene: Scene, radius_m: float) -> list[Site]:
    """Evenly on each surface (a golden spiral), where a mark may be, turned away from straight ahead."""
    height = 1 - 2 * (np.arange(DIRECTIONS) + 0.5) / DIRECTIONS
    turn = np.pi * (1 + 5**0.5) * np.arange(DIRECTIONS)
    ring = np.sqrt(1 - height**2)
    directions = np.stack([ring * np.cos(turn), ring * np.sin(turn), height], axis=1)
    sites = [
        site_near(surface, index, surface.pos_m + surface.mat @ (surface.size_m * direction))
        for index, surface in enumerate(scene.surfaces)
        for direction in directions
    ]
    eye_m = scene.body.eye_keepout_m + radius_m
    return [
        site
        for site in sites
        if site.mat[0, 2] <= LARGEST_AHEAD
        and site.pos[2] >= scene.surfaces[site.surface].min_z_m
        and (site.body != scene.eye_body_id or np.linalg.norm(site.pos - scene.eye_pos_m) >= eye_m)
        and _uncovered(scene, site)
    ]


def _uncovered(scene: Scene, site: Site) -> bool:
    """Whether nothing of the body covers the site at rest."""
    data = mujoco.MjData(scene.model)
    data.qpos[:] = scene.rest_qpos
    mujoco.mj_kinematics(scene.model, data)
    mat = data.xmat[site.body].reshape(3, 3)
    start, out = data.xpos[site.body] + mat @ site.pos, mat @ site.mat[:, 2]
    hit_m = mujoco.mj_ray(scene.model, data, start, out, None, 1, -1, np.zeros(1, np.int32))
    return hit_m < 0 or hit_m > CLEARANCE_M


def _unseen(setup: EnvConfig, sites: list[Site]) -> list[Site]:
    """Sites of which no pixel is seen in some episodes of motor babbling, the nearest to hands first."""
    states, scene = _babbling(setup)
    checked, every = joined(states[::CHECK_EVERY_CONTROL_STEPS]), joined(states)
    eye, hands = own_eye(scene, 64, 64, "cpu"), MarkState(scene, setup.mark, len(every.xpos))
    near = {
        k: _nearest_m(hands, every, site) for k, site in enumerate(sites) if not _is_seen(eye, checked, site)
    }
    return [sites[k] for k in sorted(near, key=lambda k: near[k])]


def _babbling(setup: EnvConfig) -> tuple[list[SimState], Scene]:
    """Every frame of the episodes. A mark changes no movement: the same episodes serve all candidates."""
    envs = setup.make_envs(BABBLING_EPISODES)
    observation, _ = envs.reset(seed=_SEED, marked=True)
    babbling = babbling_of(setup, envs)
    babbling.begin(range(_SEED, _SEED + envs.n))
    states = []
    for _ in range(EPISODE_CONTROL_STEPS):
        observation, *_ = envs.step(babbling.act(observation))
        states.append(envs.sim_state())
    return states, envs.scene


def _is_seen(eye: Eye, states: SimState, site: Site) -> bool:
    n = len(states.xpos)
    shown = np.ones(n, np.bool_)
    marks = states.marks._replace(
        body=np.full(n, site.body, np.int32),
        pos=np.tile(site.pos, (n, 1)),
        mat=np.tile(site.mat, (n, 1, 1)),
        shown=shown,
        shown_mirror=shown,
    )
    return bool(states._replace(marks=marks).mark_mask(eye).any())


def _nearest_m(hands: MarkState, states: SimState, site: Site) -> float:
    hands.body[:], hands.pos[:], hands.mat[:] = site.body, site.pos, site.mat
    hands.set_poses(states.xpos, states.xmat)
    return float(hands.distance_m.min())


def _reached(setup: EnvConfig, sites: list[Site]) -> tuple[np.ndarray, np.ndarray]:
    """How often the oracle holds its hand at each site for long enough, and how near it comes on average."""
    envs = setup.make_envs(len(sites) * ORACLE_TRIES)
    envs.reset(seed=_SEED, marked=True)
    for world, site in enumerate(sites * ORACLE_TRIES):
        envs.stick(world, site)
    oracle = Oracle(envs)
    oracle.begin()
    distance_m = np.zeros(envs.n)
    for _ in range(EPISODE_CONTROL_STEPS):
        info = envs.step(oracle.act())[4]
        distance_m += envs.mark_state.distance_m / EPISODE_CONTROL_STEPS
    shape = (ORACLE_TRIES, len(sites))
    return info["mark_removed"].reshape(shape).sum(0), distance_m.reshape(shape).mean(0)
