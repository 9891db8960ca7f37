"""A scripted reacher that knows where the mark is: it shows that the task can be done, and nothing else.

It looks up postures that bring a hand to the mark in a library of collision-free ones, sharpens the best by a
local search and drives the joints there within the motors' limits. The exam reports it as an upper bound; no
agent learns from it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import mujoco
import numpy as np

from mirrormark.envs.mark import Site
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.envs.scene import Scene
from mirrormark.envs.touch import Hands, hand_to_site

LIBRARY_POSTURES = 6000
SHARPEN_STEPS = 120
PATIENCE_CONTROL_STEPS = 24
"""How long one posture is tried before the next best."""
DEEPEST_CONTACT_M = 0.004
GAIN_NM_PER_RAD = 12.0
DAMPING_NM_S_PER_RAD = 0.6


class _Target(NamedTuple):
    """What is to be touched: a disc somewhere on the body."""

    site: Site
    radius_m: float


@dataclass
class _Plan:
    targets: list[np.ndarray]  # postures (A,), best first
    current: int = 0
    since: int = 0


class Oracle:
    """Reaches for the mark in every world of `envs`, whatever the mirror shows."""

    def __init__(self, envs: MirrorMarkEnvs, seed: int = 0) -> None:
        self.envs = envs
        self._seed = seed

    def begin(self) -> None:
        """Plan for the marks that are on now; call it after the worlds' reset."""
        envs = self.envs
        rng = np.random.default_rng(self._seed)
        angle = envs.physics.qpos(envs.state)[:, envs.scene.qpos_adr]
        targets = [_Target(envs.mark_state.site(i), envs.mark.radius_m) for i in range(envs.n)]
        self._plans = [
            _Plan(_postures(envs.scene, target, angle[i], rng)) for i, target in enumerate(targets)
        ]

    def act(self, observation: object = None) -> np.ndarray:
        """The next torques (n, A). The observation is not needed: the oracle knows."""
        envs, scene = self.envs, self.envs.scene
        angle = envs.physics.qpos(envs.state)[:, scene.qpos_adr]
        speed = envs.physics.qvel(envs.state)[:, scene.dof_adr]
        target = np.stack([self._target(i) for i in range(envs.n)])
        stiffness = np.array([joint.stiffness for joint in scene.joints])
        rest = np.array([joint.rest_rad for joint in scene.joints])
        torque = GAIN_NM_PER_RAD * (target - angle) - DAMPING_NM_S_PER_RAD * speed
        torque += stiffness * (angle - rest)  # hold against the body's own tone
        return np.clip(torque / scene.body.torque_limit_nm, -1.0, 1.0).astype(np.float32)

    def _target(self, i: int) -> np.ndarray:
        plan = self._plans[i]
        near = self.envs.mark_state.held_sim_steps[i] > 0
        plan.since = 0 if near else plan.since + 1
        if plan.since > PATIENCE_CONTROL_STEPS:
            plan.current, plan.since = (plan.current + 1) % len(plan.targets), 0
        return plan.targets[plan.current]


def _postures(scene: Scene, target: _Target, now: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Up to four postures that touch the site, for each hand the nearest two, soonest reached first."""
    library, hand_centre, site_frames = _library(scene)
    site_xpos, site_xmat = site_frames[target.site.body]
    site_m = site_xpos + site_xmat @ target.site.pos
    found: list[tuple[float, np.ndarray]] = []
    for hand in range(len(scene.hand_body_ids)):
        nearest = np.argsort(np.linalg.norm(hand_centre[:, hand] - site_m, axis=1))[:40]
        scored = sorted(
            (_distance(scene, library[k], hand, target) + 0.004 * np.abs(library[k] - now).max(), k)
            for k in nearest
        )
        for _, k in scored[:2]:
            posture, distance = _sharpen(scene, library[k], hand, target, rng)
            found.append((distance + 0.001 * np.abs(posture - now).max(), posture))
    return [posture for _, posture in sorted(found, key=lambda item: item[0])]


def _sharpen(
    scene: Scene, posture: np.ndarray, hand: int, target: _Target, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Local search among collision-free neighbours of a posture."""
    moves = _chain(scene, hand)
    best, distance = posture, _distance(scene, posture, hand, target)
    for step in range(SHARPEN_STEPS):
        if distance < 0.003:
            break
        width = 0.25 * (1.0 - step / SHARPEN_STEPS) + 0.02
        trial = best + moves * rng.normal(0.0, width, len(best))
        trial = np.clip(trial, scene.range_rad[:, 0], scene.range_rad[:, 1])
        nearer = _distance(scene, trial, hand, target)
        if nearer < distance and _free(scene, trial):
            best, distance = trial, nearer
    return best, distance


def _chain(scene: Scene, hand: int) -> np.ndarray:
    """1 for joints that move this hand, else 0 (A,)."""
    model = scene.model
    ancestors, body = set(), int(scene.hand_body_ids[hand])
    while body:
        ancestors.add(body)
        body = int(model.body_parentid[body])
    owner = model.jnt_bodyid[[model.joint(joint.name).id for joint in scene.joints]]
    return np.array([float(b in ancestors) for b in owner])


def _pose(scene: Scene, posture: np.ndarray) -> mujoco.MjData:
    data = _scratch(scene)
    data.qpos[:] = scene.rest_qpos
    data.qpos[scene.qpos_adr] = posture
    mujoco.mj_kinematics(scene.model, data)
    return data


def _free(scene: Scene, posture: np.ndarray) -> bool:
    data = _pose(scene, posture)
    mujoco.mj_comPos(scene.model, data)
    mujoco.mj_collision(scene.model, data)
    return all(data.contact[k].dist > -DEEPEST_CONTACT_M for k in range(data.ncon))


def _distance(scene: Scene, posture: np.ndarray, hand: int, target: _Target) -> float:
    data = _pose(scene, posture)
    hands = Hands(scene.hand_body_ids, scene.hand_pos_m, scene.hand_mat, scene.hand_size_m)
    xmat = data.xmat.reshape(-1, 3, 3)
    site = target.site
    return hand_to_site(data.xpos, xmat, hands, hand, site.body, site.pos, site.mat, target.radius_m)


@lru_cache(maxsize=8)
def _scratch(scene: Scene) -> mujoco.MjData:
    return mujoco.MjData(scene.model)


@lru_cache(maxsize=8)
def _library(scene: Scene) -> tuple[np.ndarray, np.ndarray, dict[int, tuple[np.ndarray, np.ndarray]]]:
    """Collision-free postures (P, A), their hand centres (P, hands, 3), and the frames of bodies that carry
    marks. Joints that move no hand (the neck) stay at rest, so these frames are the same in all postures."""
    rng = np.random.default_rng(0)
    reach = np.max([_chain(scene, hand) for hand in range(len(scene.hand_body_ids))], axis=0)
    rest = scene.rest_qpos[scene.qpos_adr]
    postures, centres = [], []
    while len(postures) < LIBRARY_POSTURES:
        posture = np.where(reach > 0, rng.uniform(scene.range_rad[:, 0], scene.range_rad[:, 1]), rest)
        if not _free(scene, posture):
            continue
        postures.append(posture)
        centres.append(_scratch(scene).geom_xpos[scene.hand_geom_ids].copy())
    data = _pose(scene, rest)
    frames = {
        s.body_id: (data.xpos[s.body_id].copy(), data.xmat[s.body_id].reshape(3, 3).copy())
        for s in scene.surfaces
    }
    return np.array(postures), np.array(centres), frames
