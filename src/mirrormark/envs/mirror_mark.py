"""The mirror-mark task: many environments stepped together, and one of them as a Gymnasium environment."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from mirrormark.envs import EPISODE_CONTROL_STEPS, bodies
from mirrormark.envs.mark import MarkConfig, MarkState, Site, draw_site
from mirrormark.envs.mirror import MirrorConfig, MirrorKind, Reflection
from mirrormark.envs.physics import Physics
from mirrormark.envs.raycaster import eye as eyes
from mirrormark.envs.scene import build
from mirrormark.envs.senses import DEFAULT_SENSES, Device, Sense, SimState, make_senses, own_eye, picture

ACTION_REPEAT_SIM_STEPS = 5
"""Physics steps per control step (paper, Table III)."""
SETTLE_SIM_STEPS = 100
"""Physics steps for which the random torque of a reset is held (public code, D14)."""
CONTROL_HZ = 20
"""Control steps per second of simulated time: 5 physics steps of 0.01 s each."""

_PANE_KIND = {
    "present": eyes.PRESENT,
    "delayed": eyes.PRESENT,
    "absent": eyes.ABSENT,
    "covered": eyes.COVERED,
}

Bools = NDArray[np.bool_]
Observation = dict[str, Any]
Info = dict[str, Any]


class MirrorMarkEnvs(VectorEnv[dict[str, Any], np.ndarray, np.ndarray]):
    """A body sits before a mirror. There may be a mark on it that it can see in the mirror only.

    Observation: a dict of senses, by default `vision` uint8 (n, 64, 64, 3) from the right eye and
    `proprioception` float32 (n, A), the joint angles scaled to [-1, 1]. Nothing in it says whether or where
    there is a mark. The sense `cell`, an ablation, does: it tells where in the mirror the mark is seen.
    Action: float32 (n, A) in [-1, 1], the motors' torques; one control step is 5 physics steps of 0.01 s.
    Reward: 0, always. An episode never terminates (a mark that comes off ends nothing) and is truncated
    after `max_episode_steps` control steps (None: never).
    Info, for the experimenter and never for the agent: mark_present, mark_removed, removing_hand,
    mark_surface, mark_site_m, mark_on_left, yoked_touched (of a second, invisible site, for comparison), t;
    with `measure_distance` also hand_mark_distance_m, nearest_hand and yoked_distance_m; with `measure_view`
    also mark_px and mirror_share_of_view.
    reset(options={"marked": False}) leaves the mark off, {"sham": True} makes it invisible; both take one
    value or one for each environment. {"reset_mask": (n,) bools} resets these environments only.

    Environment i depends on its own seed and actions only: it equals an environment that is alone, bit for
    bit on the CPU. Mirrors may differ between environments in kind and delay, not in place and size. With
    `autoreset` a finished environment starts its next episode in the same step (Gymnasium's SAME_STEP): info
    then holds final_obs and final_info, valid where _final_obs and _final_info are True.
    """

    def __init__(
        self,
        body: str = "infant",
        num_envs: int = 1,
        *,
        mirror: MirrorConfig | MirrorKind | Sequence[MirrorConfig] | None = None,
        mark: MarkConfig | None = None,
        tone: str | None = None,
        tone_scale: float = 1.0,
        senses: Sequence[str | Sense] = DEFAULT_SENSES,
        device: Device = "cpu",
        threads: int | None = None,
        autoreset: bool = False,
        max_episode_steps: int | None = EPISODE_CONTROL_STEPS,
        measure_view: bool = False,
        measure_distance: bool = True,
        render_mode: str | None = None,
        camera: str = "behind",
        width: int = 480,
        height: int = 480,
    ) -> None:
        self.num_envs = self.n = n = _count("num_envs", num_envs)
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device is {device!r}; choose cpu or cuda.")
        cores = os.cpu_count() or 1
        threads = cores if threads is None else _count("threads", threads)
        if max_episode_steps is not None:
            max_episode_steps = _count("max_episode_steps", max_episode_steps)
        self.autoreset, self.max_episode_steps = autoreset, max_episode_steps
        self.measure_view, self.measure_distance = measure_view, measure_distance
        self.render_mode = _render_mode(render_mode)
        self._picture = {"camera": camera, "width": width, "height": height}
        self.metadata = _metadata(AutoresetMode.SAME_STEP if autoreset else AutoresetMode.DISABLED)
        if mark is not None and not isinstance(mark, MarkConfig):
            raise ValueError(f"mark is {mark!r}; give a MarkConfig.")
        self.mark = mark or MarkConfig()
        self.mirrors = _mirrors(mirror, n)
        pane = replace(self.mirrors[0], kind="present", delay_control_steps=0)
        self.scene = build(bodies.get(body), pane, tone, tone_scale)
        self.physics = Physics(self.scene, min(n, threads))
        self.actions = len(self.scene.joints)
        self.senses = make_senses(senses)
        for sense in self.senses:
            sense.attach(self.scene, device)
        self.single_observation_space = spaces.Dict({sense.name: sense.space() for sense in self.senses})
        self.single_action_space = spaces.Box(-1.0, 1.0, (self.actions,), np.float32)
        self.action_space = batch_space(self.single_action_space, n)
        self._measuring_eye = own_eye(self.scene, 64, 64, "cpu")
        kinds = np.array([_PANE_KIND[config.kind] for config in self.mirrors], np.int32)
        self._panes = eyes.panes_of(self.scene.model, n)._replace(kind=kinds)
        self._mark_rgb = np.tile(np.array(self.mark.rgb, np.float32), (n, 1))
        self._reflection = Reflection(np.array([config.delay_control_steps for config in self.mirrors]))
        self.state = self.physics.rest(n)
        self._seed, self._t = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self._episode = np.full(n, -1)
        self._marked, self._sham = np.ones(n, np.bool_), np.zeros(n, np.bool_)
        self.mark_state, self.yoked = (MarkState(self.scene, self.mark, n) for _ in range(2))
        self._was_reset = False

    @cached_property
    def observation_space(self) -> spaces.Space:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Built when asked for: its bounds take twice an observation's memory."""
        return batch_space(self.single_observation_space, self.num_envs)

    # An episode ------------------------------------------------------------------------------------------

    def reset(
        self,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
        *,
        marked: ArrayLike | None = None,
        sham: ArrayLike | None = None,
    ) -> tuple[Observation, Info]:
        """Begin an episode in every environment; `marked` and `sham` may also be given as options.

        An int seeds environment i with seed + i; None goes on to the next episode of the seeds in force
        (fresh ones at first). `marked` and `sham` hold until they are given anew; at first every environment
        has a mark and none is a sham.
        """
        options = {"marked": marked, "sham": sham, "reset_mask": None} | _options(options)
        mask, marked, sham = options["reset_mask"], options["marked"], options["sham"]
        chosen = _flags("reset_mask", True if mask is None else mask, self.n)
        if not self._was_reset and not chosen.all():
            raise ValueError("reset: the first reset begins every environment; leave out reset_mask.")
        marked = self._marked if marked is None else _flags("marked", marked, self.n)
        sham = self._sham if sham is None else _flags("sham", sham, self.n)
        self._set_seeds(seed, chosen)
        self._marked = np.where(chosen, marked, self._marked)
        self._sham = np.where(chosen, sham, self._sham)
        if chosen.any():  # MuJoCo's rollout of nothing would crash
            self._begin(chosen)
        self._was_reset = True
        return self._observe(), self._info()

    def step(
        self, actions: NDArray[np.float32]
    ) -> tuple[Observation, NDArray[np.float64], Bools, Bools, Info]:
        """One control step: Gymnasium's five values, each over n environments."""
        self._must_be_reset("step")
        actions = _actions(actions, self.n, self.actions)
        states = self.physics.advance(self.state, actions, ACTION_REPEAT_SIM_STEPS)
        broken = self.physics.broken(states)
        states[broken] = self.state[broken, None]
        self.state = states[:, -1].copy()
        self._t += 1
        xpos, xmat = self.physics.poses(states)  # (n, physics steps, ...)
        self.mark_state.follow(xpos, xmat)
        self.yoked.follow(xpos, xmat)
        self._set_poses(xpos[:, -1], xmat[:, -1])
        if broken.any():
            self._restart(broken)
        truncated = broken.copy()
        if self.max_episode_steps is not None:
            truncated |= self._t >= self.max_episode_steps
        observation, info = self._observe(), self._info()
        info["unstable"] = broken
        ended = truncated & ~broken  # a broken environment has begun anew already
        if self.autoreset and ended.any():
            final = {"final_obs": observation, "final_info": info, "_final_obs": ended, "_final_info": ended}
            observation, info = self.reset(options={"reset_mask": ended})
            info = {**info, **final, "unstable": broken}
        return observation, np.zeros(self.n), np.zeros(self.n, np.bool_), truncated, info

    def _set_seeds(self, seed: int | Sequence[int] | None, chosen: Bools) -> None:
        if seed is None:
            if not self._was_reset:
                self._seed[:] = np.random.SeedSequence().generate_state(self.n, np.uint32)
            self._episode[chosen] += 1
            return
        self._seed[chosen] = _seeds(seed, self.n)[chosen]
        self._episode[chosen] = 0

    def _begin(self, chosen: Bools) -> None:
        """Draw the posture, by one random torque held for a second (D14), and the sites."""
        index = np.flatnonzero(chosen)
        torque = np.empty((len(index), self.actions), np.float32)
        for k, i in enumerate(index.tolist()):
            seed, episode = self._seed[i], self._episode[i]
            torque[k] = _rng(seed, episode, _POSTURE).uniform(-1.0, 1.0, self.actions)
            self.mark_state.put(i, draw_site(self.scene, self.mark, _rng(seed, episode, _MARK)))
            # Drawn like the mark, so equally likely to be touched by a body that sees no mark.
            anywhere = replace(self.mark, site_m=None)
            self.yoked.put(i, draw_site(self.scene, anywhere, _rng(seed, episode, _YOKED)))
        rest = self.physics.rest(len(index))
        settled = self.physics.advance(rest, torque, SETTLE_SIM_STEPS)
        self._t[index] = 0
        broken = self.physics.broken(settled)
        self._warn(index[broken], "that environment begins at rest")
        self.state[index] = np.where(broken[:, None], rest, settled[:, -1])
        xpos, xmat = self.physics.poses(self.state)
        self.mark_state.set_poses(xpos, xmat)
        self.yoked.set_poses(xpos, xmat)
        self._set_poses(xpos, xmat)

    def _set_poses(self, xpos: NDArray[np.float64], xmat: NDArray[np.float64]) -> None:
        self.xpos, self.xmat = np.ascontiguousarray(xpos), np.ascontiguousarray(xmat)
        self._reflection.record(self.xpos, self.xmat, self.mark_present, self._t)

    def _restart(self, broken: Bools) -> None:
        """An environment whose physics broke starts over; the others never notice."""
        self._warn(np.flatnonzero(broken), "that environment begins its next episode")
        self._episode[broken] += 1
        self._begin(broken)

    def _warn(self, envs: NDArray[np.intp], consequence: str) -> None:
        for i in envs:
            warnings.warn(
                f"unstable physics: seed {self._seed[i]}, episode {self._episode[i]}, control step"
                f" {self._t[i]}; {consequence}.",
                RuntimeWarning,
                stacklevel=4,
            )

    # Observations and info ---------------------------------------------------------------------------------

    @property
    def mark_present(self) -> Bools:
        """Environments whose mark is on (a sham mark is on, too: it only cannot be seen)."""
        return self._marked & ~self.mark_state.reached

    def sim_state(self, mark_shown: ArrayLike | None = None) -> SimState:
        """The present as the senses get it; `mark_shown` shows or hides every mark, for paired frames."""
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
        qpos, keys = self.physics.qpos(self.state), _noise_keys(self._seed, self._episode, self._t)
        return SimState(qpos, self.xpos, self.xmat, mirror_xpos, mirror_xmat, self._panes, marks, keys)

    def _observe(self) -> Observation:
        sim_state = self.sim_state()
        return {sense.name: sense.perceive(sim_state) for sense in self.senses}

    def _info(self) -> Info:
        marked, mark, yoked = self._marked, self.mark_state, self.yoked
        info: Info = {
            "mark_present": self.mark_present,
            "mark_removed": marked & mark.reached,
            "removing_hand": np.where(marked, mark.hand, -1),
            "yoked_touched": yoked.reached.copy(),
            "mark_surface": mark.surface.copy(),
            "mark_site_m": mark.pos.copy(),
            "mark_on_left": mark.pos[:, 1] > 0.0,
            "t": self._t.copy(),
        }
        if self.measure_distance:
            info["hand_mark_distance_m"] = np.where(marked, mark.distance_m, np.nan)
            info["nearest_hand"] = mark.nearest_hand.copy()
            info["yoked_distance_m"] = yoked.distance_m.copy()
        if self.measure_view:
            labels = self.sim_state().labels(self._measuring_eye)
            info["mark_px"] = eyes.mark_pixels(labels)
            info["mirror_share_of_view"] = eyes.mirror_share(labels)
        return info

    def paired_frames(self) -> dict[str, Any]:
        """The present seen with and without the mark, for indicators and probes; nothing changes."""
        sense = next((s for s in self.senses if s.name in ("vision", "cell")), None)
        if sense is None:
            raise ValueError("paired_frames needs a sense that sees: add vision or cell to senses.")
        shown, hidden = self.sim_state(mark_shown=True), self.sim_state(mark_shown=False)
        return {
            "with_mark": sense.perceive(shown),
            "without_mark": sense.perceive(hidden),
            "mark_mask": shown.mark_mask(self._measuring_eye),
        }

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture of every environment, by `camera`; None without a render mode."""
        if self.render_mode is None:
            return None
        return tuple(self.picture(i, **self._picture) for i in range(self.n))

    def picture(
        self, index: int = 0, camera: str = "world", width: int = 480, height: int = 480
    ) -> np.ndarray:
        """One environment (height, width, 3) as a camera of the scene sees it."""
        self._must_be_reset("picture")
        return picture(self.scene, self.sim_state().only(index), camera, width, height)[0]

    # Changes between two control steps ---------------------------------------------------------------------

    def stick(self, index: int, site: Site) -> None:
        """Stick the mark of one environment at a site; it leaves its old place."""
        self._must_be_reset("stick")
        self._marked[index] = True
        self.mark_state.put(index, site)
        self._changed()

    def take_off(self, index: int) -> None:
        """Take the mark off without counting it as removed; it can be stuck on again."""
        self._must_be_reset("take_off")
        self._marked[index] = False
        self.mark_state.put(index, self.mark_state.site(index))
        self._changed()

    def set_mirror_kind(self, kind: MirrorKind, delay_control_steps: int = 0) -> None:
        """Make every mirror of this kind, at its old place; a delayed one first shows the present."""
        self._must_be_reset("set_mirror_kind")
        self.mirrors = [replace(m, kind=kind, delay_control_steps=delay_control_steps) for m in self.mirrors]
        self._panes = self._panes._replace(kind=np.full(self.n, _PANE_KIND[kind], np.int32))
        self._reflection = Reflection(np.full(self.n, delay_control_steps))
        for back in range(delay_control_steps + 1):
            self._reflection.record(self.xpos, self.xmat, self.mark_present, self._t - back)

    def take_posture(self, other: "MirrorMarkEnvs") -> None:
        """Take postures and speeds from other environments of the same body; the marks stay as they are."""
        self._must_be_reset("take_posture")
        if (other.n, other.scene.body) != (self.n, self.scene.body):
            raise ValueError("take_posture: as many environments of the same body are needed.")
        self.state = other.state.copy()
        self._set_poses(other.xpos, other.xmat)
        self._changed()

    def _changed(self) -> None:
        """Marks or hands have moved: the present control step shows it already."""
        self.mark_state.set_poses(self.xpos, self.xmat)
        self._reflection.record(self.xpos, self.xmat, self.mark_present, self._t)

    def _must_be_reset(self, what: str) -> None:
        if not self._was_reset:
            raise ValueError(f"{what} came before reset; call reset first.")


class MirrorMarkEnv(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """`MirrorMarkEnvs` with one environment, without the leading axis: its manual is there.

    `gymnasium.make` adds the time limit of 100 control steps. The wrapper RecordVideo needs MoviePy (pip
    install "gymnasium[other]"), render_mode "human" needs pygame ("gymnasium[classic-control]").
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}

    def __init__(self, body: str = "infant", *, render_mode: str | None = None, **arguments: Any) -> None:
        """The arguments of `MirrorMarkEnvs`."""
        self.envs = MirrorMarkEnvs(body, 1, render_mode=render_mode, max_episode_steps=None, **arguments)
        self.render_mode = render_mode
        self.observation_space = self.envs.single_observation_space
        self.action_space = self.envs.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        observation, info = self.envs.reset(None if seed is None else [seed], options)
        return _first(observation), _first(info)

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        actions = _actions(action, None, self.envs.actions)[None]
        observation, _, _, truncated, info = self.envs.step(actions)
        return _first(observation), 0.0, False, bool(truncated[0]), _first(info)

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        pictures = self.envs.render()
        return None if pictures is None else pictures[0]


def make_vec(num_envs: int = 1, **arguments: Any) -> MirrorMarkEnvs:
    """What `gymnasium.make_vec` calls: its users expect environments that reset themselves."""
    arguments.setdefault("autoreset", True)
    return MirrorMarkEnvs(num_envs=num_envs, **arguments)


def _first(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value[0] for name, value in values.items()}


def _metadata(autoreset_mode: AutoresetMode) -> dict[str, Any]:
    return {**MirrorMarkEnv.metadata, "autoreset_mode": autoreset_mode}


# Random numbers -------------------------------------------------------------------------------------------
# One stream for each seed, episode and purpose (D21): noise, posture and mark never disturb one another, and
# environments that differ in one condition share all other luck.

_POSTURE, _MARK, _YOKED = 1, 2, 3


def _rng(seed: int, episode: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng((int(seed), int(episode), purpose))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: neighbouring numbers become unrelated ones."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _noise_keys(
    seed: NDArray[np.int64], episode: NDArray[np.int64], t: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """A key per environment and control step for the eye's counter-based noise."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    key = _mix(seed.astype(np.uint64) + golden)
    key = _mix(key ^ (episode.astype(np.uint64) + golden))
    return _mix(key ^ (t.astype(np.uint64) + golden))


# Arguments, checked before any work ------------------------------------------------------------------------


def _count(name: str, number: Any) -> int:
    if not isinstance(number, Integral) or isinstance(number, bool) or number < 1:
        raise ValueError(f"{name} is {number!r}; give a whole number of at least 1.")
    return int(number)


def _render_mode(mode: Any) -> str | None:
    if mode == "human":
        raise ValueError(
            "render_mode is human, but these environments open no window; choose rgb_array, or make one"
            " environment by gymnasium.make, which shows it with pygame."
        )
    if mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode is {mode!r}; choose rgb_array or None.")
    return mode


def _mirrors(given: Any, n: int) -> list[MirrorConfig]:
    """One mirror for all environments or one for each; their places and sizes must be equal."""
    if isinstance(given, str):
        given = MirrorConfig(kind=given)  # pyright: ignore[reportArgumentType]
    if given is None or isinstance(given, MirrorConfig):
        return [given or MirrorConfig()] * n
    if not isinstance(given, Sequence):
        raise ValueError(f"mirror is {given!r}; give a MirrorConfig, or one for each environment.")
    if len(given) != n or not all(isinstance(config, MirrorConfig) for config in given):
        raise ValueError(
            f"mirror: {len(given)} mirrors for {n} environments; give one MirrorConfig, or one per "
            "environment."
        )
    if len({replace(config, kind="present", delay_control_steps=0) for config in given}) > 1:
        raise ValueError(
            "mirror: these environments' mirrors differ in place or size; make one MirrorMarkEnvs for each."
        )
    return list(given)


def _options(options: Any) -> dict[str, Any]:
    if options is not None and not isinstance(options, dict):
        raise ValueError(f"options is {options!r}; give a dict with marked, sham or reset_mask.")
    unknown = set(options or {}) - {"marked", "sham", "reset_mask"}
    if unknown:
        raise ValueError(
            f"options has {', '.join(sorted(map(str, unknown)))}; reset knows marked, sham and reset_mask."
        )
    return options or {}


MOST_SEED = 2**63 - 2**31
"""Room is left above it for one more seed for each environment."""


def _seeds(given: Any, n: int) -> NDArray[np.int64]:
    """One seed means seed + i for environment i."""
    array = np.asarray(given)
    right = np.issubdtype(array.dtype, np.integer) and array.shape in ((), (n,))
    if not right or (array < 0).any() or (array > MOST_SEED).any():
        raise ValueError(f"seed is {given!r}; give one whole number from 0 to 2**63, or {n} of them.")
    array = array.astype(np.int64)
    return array + np.arange(n) if array.ndim == 0 else array


def _flags(name: str, given: Any, n: int) -> Bools:
    array = np.asarray(given)
    if array.shape not in ((), (n,)) or array.dtype.kind not in "biu":
        raise ValueError(f"{name} has shape {array.shape}; give True, False or {n} of them.")
    return np.broadcast_to(array.astype(np.bool_), (n,))


def _actions(given: Any, n: int | None, width: int) -> NDArray[np.float32]:
    """n rows of `width` torques; n None: one row without its axis."""
    shape = (width,) if n is None else (n, width)
    try:
        action = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"action is {given!r}; give numbers of shape {shape}.") from None
    if action.shape != shape:
        raise ValueError(f"action has shape {action.shape}; give {shape}.")
    if not (np.abs(action) <= 1.0).all():  # NaN fails this too
        raise ValueError("action has numbers that are NaN or outside [-1, 1]; clip them first.")
    return action
