"""Physics of many environments at once: MuJoCo's threaded rollouts, states in and states out."""

import mujoco
import numpy as np
from mujoco import rollout
from numpy.typing import NDArray

from mirrormark.envs.scene import Scene

Floats = NDArray[np.float64]

_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS
_FASTEST_RAD_PER_S = 1e3  # a limb this fast is numerical trouble, not movement


class Physics:
    """Advances independent copies of one scene. Environment i's result depends on nothing but its own
    input."""

    def __init__(self, scene: Scene, threads: int) -> None:
        self.scene = scene
        model = scene.model
        self._data = [mujoco.MjData(model) for _ in range(max(1, threads))]
        self._rollout = rollout.Rollout(nthread=threads if threads > 1 else 0)
        self.state_size = mujoco.mj_stateSize(model, _STATE)
        self._qpos = slice(1, 1 + model.nq)  # the first number of a full physics state is time
        self._qvel = slice(1 + model.nq, 1 + model.nq + model.nv)

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

    def broken(self, states: Floats) -> NDArray[np.bool_]:
        """Environments (n,) whose rollout (n, steps, S) went unstable.

        MuJoCo answers bad numbers by starting over, which shows as a clock that stands still or runs back.
        """
        finite = np.asarray(np.isfinite(states).all(axis=(1, 2)))
        calm = np.abs(np.where(finite[:, None, None], states[..., self._qvel], 0.0)).max(axis=(1, 2))
        clock = states[:, :, 0]
        ticking = (np.diff(clock, axis=1) > 0).all(axis=1) & (clock[:, 0] > 0)
        return ~(finite & ticking & (calm < _FASTEST_RAD_PER_S))
