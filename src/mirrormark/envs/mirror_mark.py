"""Many environments, stepped together: a body before a mirror, with or without a mark."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormark.envs import arguments, bodies, kinematics
from mirrormark.envs.camera import picture
from mirrormark.envs.mark import MarkConfig, MarkState, Site, draw_site
from mirrormark.envs.mirror import MirrorConfig, MirrorKind
from mirrormark.envs.physics import Physics
from mirrormark.envs.raycaster import eye as eyes
from mirrormark.envs.reflection import Reflection
from mirrormark.envs.scene import build
from mirrormark.envs.seeding import MARK, POSTURE, YOKED, noise_keys, rng_for
from mirrormark.envs.senses import DEFAULT_SENSES, Device, Sense, SimState, make_senses, own_eye

ACTION_REPEAT_SIM_STEPS = 5
"""Physics steps per control step (paper, Table III)."""
EPISODE_CONTROL_STEPS = 100
"""Control steps per episode, 5 s (paper, Table III)."""
SETTLE_SIM_STEPS = 100
"""Physics steps for which the random torque of a reset is held (public code, D14)."""

_PANE_KIND = {
    "present": eyes.PRESENT,
    "delayed": eyes.PRESENT,
    "absent": eyes.ABSENT,
    "covered": eyes.COVERED,
}

Bools = NDArray[np.bool_]
Observation = dict[str, Any]
Info = dict[str, Any]


class MirrorMarkEnvs:
    """n environments of one body before one mirror.

    Environment i depends on its own seed and actions only: it equals an environment that is alone, bit for
    bit on the CPU. Mirrors may differ between environments in kind and delay, not in place and size (use two
    `MirrorMarkEnvs` for that). With `autoreset` a finished environment starts its next episode in the same
    step (Gymnasium SAME_STEP).
    """

    def __init__(
        self,
        body: str = "infant",
        n: int = 1,
        *,
        mirror: MirrorConfig | Sequence[MirrorConfig] | None = None,
        mark: MarkConfig | None = None,
        tone: str | None = None,
        tone_scale: float = 1.0,
        senses: Sequence[str | Sense] = DEFAULT_SENSES,
        device: Device = "cpu",
        autoreset: bool = False,
        threads: int | None = None,
        measure_view: bool = False,
    ) -> None:
        n = arguments.count(n)
        arguments.device(device)
        self.n, self.autoreset, self.measure_view = n, autoreset, measure_view
        self.mark = arguments.mark(mark)
        self.mirrors = arguments.mirrors(mirror, n)
        pane = replace(self.mirrors[0], kind="present", delay_control_steps=0)
        self.scene = build(bodies.get(body), pane, tone, tone_scale)
        self.physics = Physics(self.scene, min(n, threads or os.cpu_count() or 1))
        self.tree = kinematics.tree(self.scene.model)
        self.actions = len(self.scene.joints)
        self.senses = make_senses(senses)
        for sense in self.senses:
            sense.attach(self.scene, device)
        self._measuring_eye = own_eye(self.scene, 64, 64, "cpu")
        kinds = np.array([_PANE_KIND[config.kind] for config in self.mirrors], np.int32)
        self._panes = eyes.panes_of(self.scene.model, n)._replace(kind=kinds)
        self._mark_rgb = np.tile(np.array(self.mark.rgb, np.float32), (n, 1))
        self._reflection = Reflection(np.array([config.delay_control_steps for config in self.mirrors]))
        self.state = self.physics.rest(n)
        self._seed, self._t = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self._episode = np.full(n, -1)
        self._wears, self._sham = np.ones(n, np.bool_), np.zeros(n, np.bool_)
        self.mark_state, self.yoked = (MarkState(self.scene, self.mark, n) for _ in range(2))
        self._begun = False

    # An episode ------------------------------------------------------------------------------------------

    def reset(
        self,
        seed: int | Sequence[int] | None = None,
        marked: ArrayLike | None = None,
        sham: ArrayLike | None = None,
        only: Bools | None = None,
    ) -> tuple[Observation, Info]:
        """Begin an episode in every environment, or in `only` some.

        An int seeds environment i with seed + i; None goes on to the next episode of the seeds in force
        (fresh ones at first). `marked` (n,) says who wears a mark (at first: all), `sham` whose mark is
        invisible (none).
        """
        chosen = arguments.flags("only", True if only is None else only, self.n)
        if not self._begun and not chosen.all():
            raise ValueError("reset: the first reset must begin every environment; call it without `only`.")
        self._reseed(seed, chosen)
        if marked is not None:
            self._wears = np.where(chosen, arguments.flags("marked", marked, self.n), self._wears)
        if sham is not None:
            self._sham = np.where(chosen, arguments.flags("sham", sham, self.n), self._sham)
        self._begin(chosen)
        self._begun = True
        return self._observe(), self._info()

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Observation, NDArray[np.float64], Bools, Bools, Info]:
        """One control step: Gymnasium's five values, each over n environments. The reward is 0, always."""
        self._must_have_begun("step")
        action = arguments.actions(action, self.n, self.actions)
        states = self.physics.advance(self.state, action, ACTION_REPEAT_SIM_STEPS)
        broken = self.physics.broken(states)
        states[broken] = self.state[broken, None]
        self.state = states[:, -1].copy()
        self._t += 1
        self._follow(states)
        if broken.any():
            self._recover(broken)
        truncated = (self._t >= EPISODE_CONTROL_STEPS) | broken
        observation, info = self._observe(), self._info()
        info["unstable"] = broken
        ended = truncated & ~broken  # a broken environment has begun anew already
        if self.autoreset and ended.any():
            final = {"final_obs": observation, "final_info": info, "_final_obs": ended, "_final_info": ended}
            observation, info = self.reset(only=ended)
            info = {**info, **final, "unstable": broken}
        return observation, np.zeros(self.n), np.zeros(self.n, np.bool_), truncated, info

    def _reseed(self, seed: int | Sequence[int] | None, chosen: Bools) -> None:
        if seed is None:
            if not self._begun:
                self._seed[:] = np.random.SeedSequence().generate_state(self.n, np.uint32)
            self._episode[chosen] += 1
            return
        self._seed[chosen] = arguments.seeds(seed, self.n)[chosen]
        self._episode[chosen] = 0

    def _begin(self, chosen: Bools) -> None:
        """Reset posture by one random torque held for a second (D14), and draw fresh sites."""
        index = np.flatnonzero(chosen)
        torque = np.empty((len(index), self.actions), np.float32)
        for k, i in enumerate(index.tolist()):
            seed, episode = self._seed[i], self._episode[i]
            torque[k] = rng_for(seed, episode, POSTURE).uniform(-1.0, 1.0, self.actions)
            self.mark_state.put(i, draw_site(self.scene, self.mark, rng_for(seed, episode, MARK)))
            # Drawn like the mark, so equally likely to be touched by a body that sees no mark.
            anywhere = replace(self.mark, site_m=None)
            self.yoked.put(i, draw_site(self.scene, anywhere, rng_for(seed, episode, YOKED)))
        rest = self.physics.rest(len(index))
        settled = self.physics.advance(rest, torque, SETTLE_SIM_STEPS)
        self._t[index] = 0
        broken = self.physics.broken(settled)
        self._report(index[broken], "that environment begins at rest")
        self.state[index] = np.where(broken[:, None], rest, settled[:, -1])
        xpos, xmat = kinematics.poses(self.tree, self.physics.qpos(self.state))
        self.mark_state.measure(xpos, xmat)
        self.yoked.measure(xpos, xmat)
        self._show(xpos, xmat)

    def _follow(self, states: NDArray[np.float64]) -> None:
        """Follow the hands through every physics step (n, S) of a control step."""
        n, steps = states.shape[:2]
        xpos, xmat = kinematics.poses(self.tree, self.physics.qpos(states).reshape(n * steps, -1))
        xpos, xmat = xpos.reshape(n, steps, -1, 3), xmat.reshape(n, steps, -1, 3, 3)
        self.mark_state.follow(xpos, xmat)
        self.yoked.follow(xpos, xmat)
        self._show(xpos[:, -1], xmat[:, -1])

    def _show(self, xpos: NDArray[np.float64], xmat: NDArray[np.float64]) -> None:
        self.xpos, self.xmat = np.ascontiguousarray(xpos), np.ascontiguousarray(xmat)
        self._reflection.record(self.xpos, self.xmat, self.mark_present, self._t)

    def _recover(self, broken: Bools) -> None:
        """An environment whose physics broke starts over; the others never notice."""
        self._report(np.flatnonzero(broken), "that environment begins its next episode")
        self._episode[broken] += 1
        self._begin(broken)

    def _report(self, envs: NDArray[np.intp], consequence: str) -> None:
        for i in envs:
            warnings.warn(
                f"unstable physics: seed {self._seed[i]}, episode {self._episode[i]}, control step"
                f" {self._t[i]}; {consequence}.",
                RuntimeWarning,
                stacklevel=4,
            )

    # What there is to sense and to know ---------------------------------------------------------------------

    @property
    def mark_present(self) -> Bools:
        """Environments whose mark is still on (a sham counts: it only cannot be seen)."""
        return self._wears & ~self.mark_state.reached

    def sim_state(self, mark_shown: ArrayLike | None = None) -> SimState:
        """The instant as the senses get it; `mark_shown` overrides what is worn, for paired frames."""
        mirror_xpos, mirror_xmat, mirrored = self._reflection.at(self._t)
        now, mirrored = self.mark_present & ~self._sham, mirrored & ~self._sham
        if mark_shown is not None:
            now = mirrored = np.broadcast_to(np.asarray(mark_shown, np.bool_), self.n)
        mark_state, radius = self.mark_state, np.full(self.n, self.mark.radius_m)
        marks = eyes.Marks(
            mark_state.body.astype(np.int32),
            mark_state.pos,
            mark_state.mat,
            radius,
            self._mark_rgb,
            now,
            mirrored,
        )
        qpos, keys = self.physics.qpos(self.state), noise_keys(self._seed, self._episode, self._t)
        return SimState(qpos, self.xpos, self.xmat, mirror_xpos, mirror_xmat, self._panes, marks, keys)

    def _observe(self) -> Observation:
        sim_state = self.sim_state()
        return {sense.name: sense.perceive(sim_state) for sense in self.senses}

    def _info(self) -> Info:
        wears, yoked = self._wears, self.yoked.distance_m.min(1)
        info: Info = {
            "mark_present": self.mark_present,
            "mark_removed": wears & self.mark_state.reached,
            "hand_mark_distance_m": np.where(wears, self.mark_state.distance_m.min(1), np.nan),
            "nearest_hand": self.mark_state.distance_m.argmin(1),
            "removing_hand": np.where(wears, self.mark_state.hand, -1),
            "yoked_touched": self.yoked.reached.copy(),
            "yoked_distance_m": yoked,
            "mark_surface": self.mark_state.surface.copy(),
            "mark_site_m": self.mark_state.pos.copy(),
            "mark_on_left": self.mark_state.pos[:, 1] > 0.0,
            "t": self._t.copy(),
        }
        if self.measure_view:
            labels = self.sim_state().labels(self._measuring_eye)
            info["mark_px"] = eyes.mark_pixels(labels)
            info["mirror_share_of_view"] = eyes.mirror_share(labels)
        return info

    def paired_frames(self) -> dict[str, Any]:
        """The present seen with and without the mark, for indicators and probes; environments do not
        change."""
        sense = next((s for s in self.senses if s.name in ("vision", "cell")), None)
        if sense is None:
            raise ValueError("paired_frames needs a sense that sees: add vision or cell to senses.")
        shown, hidden = self.sim_state(mark_shown=True), self.sim_state(mark_shown=False)
        return {
            "with_mark": sense.perceive(shown),
            "without_mark": sense.perceive(hidden),
            "mark_mask": shown.mark_mask(self._measuring_eye),
        }

    def render(
        self, index: int = 0, camera: str = "world", width: int = 480, height: int = 480
    ) -> np.ndarray:
        """A third person's picture (height, width, 3) of one environment, by the same ray-caster: no
        OpenGL."""
        self._must_have_begun("render")
        return picture(self.scene, self.sim_state().only(index), camera, width, height)[0]

    # A visitor's hand ---------------------------------------------------------------------------------------

    def stick(self, index: int, site: Site) -> None:
        """Stick the mark at a site, between two control steps; it leaves its old place."""
        self._must_have_begun("stick")
        self._wears[index] = True
        self.mark_state.put(index, site)
        self._touched()

    def take_off(self, index: int) -> None:
        """Take the mark off; nobody is said to have removed it. A mark can be stuck on again."""
        self._must_have_begun("take_off")
        self._wears[index] = False
        self.mark_state.put(index, self.mark_state.site(index))
        self._touched()

    def set_mirror_kind(self, kind: MirrorKind, delay_control_steps: int = 0) -> None:
        """From now on the mirrors, at their old place, are of this kind; a delayed one holds the present."""
        self._must_have_begun("set_mirror_kind")
        self.mirrors = [replace(m, kind=kind, delay_control_steps=delay_control_steps) for m in self.mirrors]
        self._panes = self._panes._replace(kind=np.full(self.n, _PANE_KIND[kind], np.int32))
        self._reflection = Reflection(np.full(self.n, delay_control_steps))
        for back in range(delay_control_steps + 1):
            self._reflection.record(self.xpos, self.xmat, self.mark_present, self._t - back)

    def take_posture(self, other: "MirrorMarkEnvs") -> None:
        """Go on from the postures and speeds of other environments of the same body; marks stay as they
        are."""
        self._must_have_begun("take_posture")
        if (other.n, other.scene.body) != (self.n, self.scene.body):
            raise ValueError("take_posture: as many environments of the same body are needed.")
        self.state = other.state.copy()
        self._show(other.xpos, other.xmat)
        self._touched()

    def _touched(self) -> None:
        """Marks or hands were moved between two steps: that belongs to the instant last seen."""
        self.mark_state.measure(self.xpos, self.xmat)
        self._reflection.record(self.xpos, self.xmat, self.mark_present, self._t)

    def _must_have_begun(self, what: str) -> None:
        if not self._begun:
            raise ValueError(f"{what} came before reset; call reset first.")
