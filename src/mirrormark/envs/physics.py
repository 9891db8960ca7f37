"""The physics of many environments at once: MuJoCo's threaded rollouts, and the body poses of their states.

`mujoco.rollout` gives states only. Running MuJoCo's own kinematics on each of them from Python would cost
more than the physics, so joint angles become poses in compiled code of our own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import mujoco
import numba
import numpy as np
from mujoco import rollout
from numpy.typing import NDArray

from mirrormark.envs.scene import Scene

Floats = NDArray[np.float64]

PARALLEL_ENVS = 512
"""From this many postures on, starting threads costs less than it saves."""

_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS
_FASTEST_RAD_PER_S = 1e3  # a limb this fast is numerical trouble, not movement


class Physics:
    """Steps independent copies of one scene: what comes of environment i depends on its own input only."""

    def __init__(self, scene: Scene, threads: int) -> None:
        self.scene, self._threads, self._tree = scene, threads, tree(scene.model)
        model = scene.model
        self._data = [mujoco.MjData(model) for _ in range(max(1, threads))]
        self._rollout = rollout.Rollout(nthread=threads if threads > 1 else 0)
        self.state_size = mujoco.mj_stateSize(model, _STATE)
        self._qpos = slice(1, 1 + model.nq)  # the first number of a full physics state is time
        self._qvel = slice(1 + model.nq, 1 + model.nq + model.nv)

    def __reduce__(self) -> tuple[Any, ...]:
        return Physics, (self.scene, self._threads)  # threads and MuJoCo's own memory cannot be pickled

    def rest(self, n: int) -> Floats:
        """States (n, S) of the body at rest."""
        data = self._data[0]
        mujoco.mj_resetData(self.scene.model, data)
        data.qpos[:] = self.scene.rest_qpos
        state = np.empty(self.state_size)
        mujoco.mj_getState(self.scene.model, data, state, _STATE)
        return np.tile(state, (n, 1))

    def advance(self, state: Floats, action: NDArray[np.float32], sim_steps: int) -> Floats:
        """Hold `action` (n, A) for some physics steps; returns every state (n, sim_steps, S)."""
        control = np.zeros((len(state), 1, self.scene.model.nu))
        control[:, 0, self.scene.actuator_ids] = action
        states, _ = self._rollout.rollout(
            self.scene.model, self._data, state, np.repeat(control, sim_steps, axis=1), skip_checks=False
        )
        return np.asarray(states, np.float64)

    def qpos(self, state: Floats) -> Floats:
        return np.ascontiguousarray(state[..., self._qpos])

    def qvel(self, state: Floats) -> Floats:
        return np.ascontiguousarray(state[..., self._qvel])

    def poses(self, state: Floats) -> tuple[Floats, Floats]:
        """Every body's pose: (..., S) -> xpos (..., nbody, 3), xmat (..., nbody, 3, 3)."""
        qpos = self.qpos(state)
        xpos, xmat = poses(self._tree, qpos.reshape(-1, qpos.shape[-1]))
        return xpos.reshape(*state.shape[:-1], -1, 3), xmat.reshape(*state.shape[:-1], -1, 3, 3)

    def broken(self, states: Floats) -> NDArray[np.bool_]:
        """Environments (n,) whose rollout (n, steps, S) went unstable.

        MuJoCo answers bad numbers by starting over, which shows as a clock that stands still or runs back.
        """
        finite = np.asarray(np.isfinite(states).all(axis=(1, 2)))
        calm = np.abs(np.where(finite[:, None, None], states[..., self._qvel], 0.0)).max(axis=(1, 2))
        clock = states[:, :, 0]
        ticking = (np.diff(clock, axis=1) > 0).all(axis=1) & (clock[:, 0] > 0)
        return ~(finite & ticking & (calm < _FASTEST_RAD_PER_S))


class Tree(NamedTuple):
    """A model's bodies (B) and hinges (J), as arrays in the order in which the compiled code takes them."""

    parent: NDArray[np.int32]  # (B,)
    joint_count: NDArray[np.int32]  # (B,)
    first_joint: NDArray[np.int32]  # (B,)
    body_pos: Floats  # (B, 3) in the parent's frame
    body_mat: Floats  # (B, 3, 3) in the parent's frame
    qpos_adr: NDArray[np.int32]  # (J,)
    reference: Floats  # (J,) angle at which the joint turns nothing
    axis: Floats  # (J, 3) in the body's frame
    anchor: Floats  # (J, 3) in the body's frame


def tree(model: mujoco.MjModel) -> Tree:
    """Read the tables once per model."""
    if np.any(model.jnt_type != mujoco.mjtJoint.mjJNT_HINGE):
        raise ValueError("kinematics knows hinge joints only: build the body from hinges.")
    body_mat = np.empty((model.nbody, 9))
    for body in range(model.nbody):
        mujoco.mju_quat2Mat(body_mat[body], model.body_quat[body])
    return Tree(
        parent=model.body_parentid.astype(np.int32),
        joint_count=model.body_jntnum.astype(np.int32),
        first_joint=model.body_jntadr.astype(np.int32),
        body_pos=model.body_pos.copy(),
        body_mat=body_mat.reshape(-1, 3, 3),
        qpos_adr=model.jnt_qposadr.astype(np.int32),
        reference=model.qpos0[model.jnt_qposadr].copy(),
        axis=model.jnt_axis.copy(),
        anchor=model.jnt_pos.copy(),
    )


@numba.njit(cache=True)
def turn(w, b, x, y, z, angle, xmat):
    """Post-multiply the pose of body b in environment w by a rotation about the unit axis (x, y, z)."""
    c = math.cos(angle)
    s = math.sin(angle)
    k = 1.0 - c
    for i in range(3):
        m0 = xmat[w, b, i, 0]
        m1 = xmat[w, b, i, 1]
        m2 = xmat[w, b, i, 2]
        xmat[w, b, i, 0] = m0 * (k * x * x + c) + m1 * (k * x * y + s * z) + m2 * (k * x * z - s * y)
        xmat[w, b, i, 1] = m0 * (k * x * y - s * z) + m1 * (k * y * y + c) + m2 * (k * y * z + s * x)
        xmat[w, b, i, 2] = m0 * (k * x * z + s * y) + m1 * (k * y * z - s * x) + m2 * (k * z * z + c)


@numba.njit(cache=True)
def pose_env(
    w,
    qpos,
    parent,
    joint_count,
    first_joint,
    body_pos,
    body_mat,
    qpos_adr,
    reference,
    axis,
    anchor,
    xpos,
    xmat,
):
    """Write every body's pose in environment w. Parents precede children, as MuJoCo numbers them."""
    for i in range(3):
        xpos[w, 0, i] = 0.0
        for j in range(3):
            xmat[w, 0, i, j] = 1.0 if i == j else 0.0
    for b in range(1, parent.shape[0]):
        p = parent[b]
        for i in range(3):
            r0 = xmat[w, p, i, 0]
            r1 = xmat[w, p, i, 1]
            r2 = xmat[w, p, i, 2]
            xpos[w, b, i] = xpos[w, p, i] + r0 * body_pos[b, 0] + r1 * body_pos[b, 1] + r2 * body_pos[b, 2]
            for j in range(3):
                xmat[w, b, i, j] = r0 * body_mat[b, 0, j] + r1 * body_mat[b, 1, j] + r2 * body_mat[b, 2, j]
        for k in range(first_joint[b], first_joint[b] + joint_count[b]):
            # The anchor keeps its place while the body turns about it.
            a0 = anchor[k, 0]
            a1 = anchor[k, 1]
            a2 = anchor[k, 2]
            for i in range(3):
                xpos[w, b, i] += xmat[w, b, i, 0] * a0 + xmat[w, b, i, 1] * a1 + xmat[w, b, i, 2] * a2
            turn(w, b, axis[k, 0], axis[k, 1], axis[k, 2], qpos[w, qpos_adr[k]] - reference[k], xmat)
            for i in range(3):
                xpos[w, b, i] -= xmat[w, b, i, 0] * a0 + xmat[w, b, i, 1] * a1 + xmat[w, b, i, 2] * a2


def _pose_envs(
    qpos, parent, joint_count, first_joint, body_pos, body_mat, qpos_adr, reference, axis, anchor, xpos, xmat
):
    for w in numba.prange(qpos.shape[0]):
        pose_env(
            w, qpos, parent, joint_count, first_joint, body_pos, body_mat,
            qpos_adr, reference, axis, anchor, xpos, xmat,
        )  # fmt: skip


_serial = numba.njit(cache=True)(_pose_envs)
_parallel = numba.njit(cache=True, parallel=True)(_pose_envs)


def poses(tree: Tree, qpos: Floats) -> tuple[Floats, Floats]:
    """qpos (N, nq) -> xpos (N, B, 3), xmat (N, B, 3, 3)."""
    n, n_bodies = qpos.shape[0], tree.parent.shape[0]
    xpos, xmat = np.empty((n, n_bodies, 3)), np.empty((n, n_bodies, 3, 3))
    run = _parallel if n >= PARALLEL_ENVS else _serial
    run(np.ascontiguousarray(qpos, dtype=np.float64), *tree, xpos, xmat)
    return xpos, xmat
