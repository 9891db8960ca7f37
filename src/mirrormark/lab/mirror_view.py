"""The lab's world: one body before one mirror that a person may change at any instant, without an agent."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormark.envs.mark import Site
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.raycaster import eye as eyes
from mirrormark.envs.senses import SimState, own_eye
from mirrormark.lab.sticking import hit_body, site_of
from mirrormark.training.env_config import EnvConfig


class BeforeMirror:
    """A body, a mirror and perhaps a mark, which only a person sticks on."""

    def __init__(
        self, setup: EnvConfig, mirror: MirrorConfig, seed: int, before: "BeforeMirror | None" = None
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
        return float(self.envs.mark_state.distance_m[0]) if self.mark_on else float("nan")

    def find(self, origin: ArrayLike, direction: ArrayLike) -> Site | None:
        """Where a ray from a person's eye meets the skin; None: it meets the mark. Else Refused."""
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

    # Time and sight ----------------------------------------------------------------------------------------

    def advance(self, action: NDArray[np.float32]) -> bool:
        """One control step; whether physics broke, and the body began anew."""
        observation, _, _, _, info = self.envs.step(action)
        broken = bool(info["unstable"][0])
        if broken:
            self.envs.take_off(0)  # a new episode brings a mark that nobody stuck on
        self.perceive(None if broken else observation)
        return broken

    def perceive(self, observation: dict[str, Any] | None = None) -> None:
        """`seen`, `observation`, `picture` and `mark_px` become those of the present; the world may have been
        observed already."""
        self.seen = sim_state = _kept(self.envs.sim_state())
        self.observation = observation or {s.name: s.perceive(sim_state) for s in self.envs.senses}
        self.mark_px = int(eyes.mark_pixels(sim_state.labels(self._eye))[0])
        vision = self.observation.get("vision")
        # An agent without pixels sees no picture, but people do.
        self.picture: NDArray[np.uint8] = np.asarray(
            self._eye.render(*sim_state[1:]) if vision is None else vision
        )[0]


def _kept(sim_state: SimState) -> SimState:
    """The instant with a mark of its own: the world's may be stuck elsewhere later."""
    marks = sim_state.marks
    return sim_state._replace(marks=marks._replace(pos=marks.pos.copy(), mat=marks.mat.copy()))
