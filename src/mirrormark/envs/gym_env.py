"""The environments as Gymnasium environments, one id per body."""

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from mirrormark.envs.mark import MarkConfig
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.envs.senses import DEFAULT_SENSES, Sense

CONTROL_HZ = 20  # 0.01 s × 5 physics steps


class MirrorMarkEnv(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """A body sits before a mirror. There may be a mark on it that it can see in the mirror only.

    Observation: a dict of senses, by default `vision` uint8 (64, 64, 3) from the right eye and
    `proprioception` float32 (A,), the joint angles scaled to [-1, 1]. Nothing in it says whether or where
    there is a mark.
    Action: float32 (A,) in [-1, 1], the motors' torques; one control step is 5 physics steps of 0.01 s.
    Reward: 0, always. An episode is truncated after 100 control steps (5 s) and never terminates: a mark
    that comes off ends nothing.
    Info, for whoever watches and never for the agent: mark_present, mark_removed, hand_mark_distance_m,
    yoked_touched (an invisible second site, for comparison), mark_site_m, mark_surface, mark_on_left, ...
    reset(options={"marked": False}) leaves the mark off, {"sham": True} makes it invisible.
    The ids that end in Symbolic replace `vision` by `cell`, an ablation that is told where the mark is seen.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": CONTROL_HZ}

    def __init__(
        self,
        body: str = "infant",
        *,
        mirror: MirrorConfig | str | None = None,
        mark: MarkConfig | None = None,
        tone: str | None = None,
        tone_scale: float = 1.0,
        senses: Sequence[str | Sense] = DEFAULT_SENSES,
        render_mode: str | None = None,
        camera: str = "behind",
        width: int = 480,
        height: int = 480,
    ) -> None:
        _check_render_mode(render_mode)
        self.render_mode = render_mode
        self._picture = {"camera": camera, "width": width, "height": height}
        self.envs = MirrorMarkEnvs(
            body, 1, mirror=_mirror(mirror), mark=mark, tone=tone, tone_scale=tone_scale, senses=senses
        )
        self.observation_space, self.action_space = _spaces(self.envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        return _first(self.envs.reset(None if seed is None else [seed], **_options(options)))

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        action = np.asarray(action, np.float32)
        if action.shape != (self.envs.actions,):
            raise ValueError(f"action has shape {action.shape}; give ({self.envs.actions},).")
        observation, _, _, truncated, info = self.envs.step(action[None])
        first, facts = _first((observation, info))
        return first, 0.0, False, bool(truncated[0]), facts

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.render_mode is None:
            return None
        return self.envs.render(0, **self._picture)


class MirrorMarkVectorEnv(VectorEnv[dict[str, Any], np.ndarray, np.ndarray]):
    """n environments as one vector environment; a finished environment begins its next episode in the same
    step.

    info then holds final_obs and final_info, valid where _final_obs and _final_info are True.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["rgb_array"],
        "render_fps": CONTROL_HZ,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        *,
        mirror: MirrorConfig | str | None = None,
        render_mode: str | None = None,
        camera: str = "behind",
        width: int = 480,
        height: int = 480,
        **index: Any,
    ) -> None:
        _check_render_mode(render_mode)
        self.num_envs, self.render_mode = num_envs, render_mode
        self._picture = {"camera": camera, "width": width, "height": height}
        self.envs = MirrorMarkEnvs(n=num_envs, mirror=_mirror(mirror), autoreset=True, **index)
        self.single_observation_space, self.single_action_space = _spaces(self.envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.envs.reset(seed, **_options(options))

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        return self.envs.step(actions)

    def render(self) -> tuple[np.ndarray, ...] | None:
        if self.render_mode is None:
            return None
        return tuple(self.envs.render(i, **self._picture) for i in range(self.num_envs))


def _check_render_mode(render_mode: str | None) -> None:
    if render_mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode is {render_mode!r}; choose rgb_array or None.")


def _spaces(envs: MirrorMarkEnvs) -> tuple[spaces.Dict, spaces.Box]:
    return (
        spaces.Dict({sense.name: sense.space() for sense in envs.senses}),
        spaces.Box(-1.0, 1.0, (envs.actions,), np.float32),
    )


def _mirror(mirror: MirrorConfig | str | None) -> MirrorConfig | None:
    return MirrorConfig(kind=mirror) if isinstance(mirror, str) else mirror  # pyright: ignore[reportArgumentType]


def _options(options: dict[str, Any] | None) -> dict[str, Any]:
    options = options or {}
    unknown = set(options) - {"marked", "sham"}
    if unknown:
        raise ValueError(f"options has {', '.join(sorted(unknown))}; reset knows marked and sham.")
    return options


def _first(pair: tuple[dict[str, Any], dict[str, Any]]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    observation, info = pair
    return {k: v[0] for k, v in observation.items()}, {k: v[0] for k, v in info.items()}
