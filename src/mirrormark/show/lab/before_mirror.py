"""The lab's world: one body before one mirror that a person may change at any instant, without a mind."""

from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirrormark.life.setup import WorldSetup
from mirrormark.show.lab.sticking import hit_body, site_of
from mirrormark.world import eye as eyes
from mirrormark.world.mark import Site
from mirrormark.world.mirror import MirrorConfig
from mirrormark.world.senses import Moment, own_eye

_PLATE = {"present": eyes.PRESENT, "delayed": eyes.PRESENT, "absent": eyes.ABSENT, "covered": eyes.COVERED}


class BeforeMirror:
    """A body, a mirror and perhaps a mark, which only a person sticks on.

    The mirror's kind and delay are the lab's own doing: `Worlds` has a plain mirror at the same place, which
    is all that physics knows of it, and what is seen is put together here.
    """

    def __init__(
        self, setup: WorldSetup, mirror: MirrorConfig, seed: int, before: "BeforeMirror | None" = None
    ) -> None:
        """before: carry over posture, speed and mark from this one; it must have the same body."""
        alone = replace(setup, threads=1)
        mark = replace(setup.mark, surface=None, site_m=None)
        self.worlds = alone.worlds(1, mirror=_plain(mirror), mark=mark)
        self.worlds.reset(seed=seed, marked=True)
        self.take_off()
        if before is not None:
            self._carry_over(before)
        self._eye = own_eye(self.worlds.scene, 64, 64, "cpu")
        self._past = deque([self._now()])
        self.show_through(mirror)

    def _carry_over(self, before: "BeforeMirror") -> None:
        old, new = before.worlds, self.worlds
        new.state = old.state.copy()
        new.xpos, new.xmat = old.xpos.copy(), old.xmat.copy()
        if before.mark_on:
            site = old.patch.site(0)
            new.patch.put(0, site._replace(pos=site.pos.copy(), mat=site.mat.copy()))
            new.patch.measure(new.xpos, new.xmat)

    def has_place_of(self, mirror: MirrorConfig) -> bool:
        """Whether this mirror stands where that one does."""
        return _plain(mirror) == _plain(self.mirror)

    def show_through(self, mirror: MirrorConfig) -> None:
        """From now on the mirror, at the same place, is of this kind and delay."""
        self.mirror = mirror
        self._past = deque([self._past[-1]], maxlen=mirror.delay_control_steps + 1)
        self.perceive()

    # The mark ----------------------------------------------------------------------------------------------

    @property
    def mark_on(self) -> bool:
        return bool(self.worlds.mark_present[0])

    @property
    def distance_m(self) -> float:
        """From the nearer hand to the mark; NaN without one."""
        return float(self.worlds.patch.distance_m[0].min()) if self.mark_on else float("nan")

    def find(self, origin: ArrayLike, direction: ArrayLike) -> Site | None:
        """Where a ray from a person's eye meets the skin; None: it meets the mark. Else Refused."""
        scene, (xpos, xmat, _) = self.worlds.scene, self._now()
        qpos = self.worlds.physics.qpos(self.worlds.state)[0]
        ray = (np.asarray(origin, float), np.asarray(direction, float))
        hit = hit_body(scene, qpos, *ray, self.mirror.reflects)
        patch, body = self.worlds.patch, int(self.worlds.patch.body[0])
        centre = xpos[0, body] + xmat[0, body] @ patch.pos[0]
        if self.mark_on and np.linalg.norm(hit.point - centre) <= self.worlds.mark.radius_m:
            return None
        return site_of(scene, self.worlds.mark, hit, xpos[0], xmat[0])

    def put(self, site: Site) -> None:
        """There is one mark: it leaves its old place."""
        self.worlds.patch.put(0, site)
        self.worlds.patch.measure(self.worlds.xpos, self.worlds.xmat)
        self._note_mark()

    def remove(self) -> None:
        self.take_off()
        self._note_mark()

    def take_off(self) -> None:
        """Without looking again."""
        self.worlds.patch.reached[0] = True
        self.worlds.patch.held_sim_steps[0] = 0

    def _note_mark(self) -> None:
        """The mark came or went between two steps: that belongs to the instant the mirror last saw."""
        self._past[-1] = self._now()
        self.perceive()

    # Time and sight ----------------------------------------------------------------------------------------

    def advance(self, action: NDArray[np.float32]) -> bool:
        """One control step; whether physics broke, and the body began anew."""
        _, _, _, _, info = self.worlds.step(action)
        broken = bool(info["unstable"][0])
        if broken:
            self.take_off()  # a new episode brings a mark that nobody stuck on
        self._past.append(self._now())
        self.perceive()
        return broken

    def moment(self) -> Moment:
        """The instant as the senses get it; nothing in it changes later."""
        now, (xpos, xmat, mirrored) = self.worlds.moment(), self._past[0]
        marks = now.marks._replace(
            body=now.marks.body.copy(),
            pos=now.marks.pos.copy(),
            mat=now.marks.mat.copy(),
            shown=self.worlds.mark_present,
            shown_mirror=mirrored,
        )
        panes = now.panes._replace(kind=np.array([_PLATE[self.mirror.kind]], np.int32))
        return now._replace(mirror_xpos=xpos, mirror_xmat=xmat, panes=panes, marks=marks)

    def perceive(self) -> None:
        """Look anew: `seen`, `observation`, `picture` and `mark_px` are of the present."""
        self.seen = moment = self.moment()
        self.observation = {sense.name: sense.perceive(moment) for sense in self.worlds.senses}
        self.mark_px = int(eyes.mark_pixels(moment.labels(self._eye))[0])
        vision = self.observation.get("vision")
        # A mind without pixels sees no picture, but people do.
        self.picture: NDArray[np.uint8] = np.asarray(
            self._eye.see(*moment[1:]) if vision is None else vision
        )[0]

    def _now(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        return self.worlds.xpos, self.worlds.xmat, self.worlds.mark_present


def _plain(mirror: MirrorConfig) -> MirrorConfig:
    return replace(mirror, kind="present", delay_control_steps=0)
