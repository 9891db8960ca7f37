"""The living world of the lab and the mind in it, without any page: what a person can do, as methods."""

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mirrormark.life.rollout import Actor, encode
from mirrormark.show.lab.minds import Minds
from mirrormark.show.lab.record import Recorder, Row
from mirrormark.show.lab.sticking import Refused, hit_body, site_of
from mirrormark.world import bodies
from mirrormark.world import eye as eyes
from mirrormark.world.mark import Site
from mirrormark.world.mirror import MirrorConfig
from mirrormark.world.movement import Movement, MovementKind
from mirrormark.world.senses import Moment, own_eye
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS, Worlds

CONTROL_STEP_S = 0.05
POLICY = "its policy"
MOVERS: tuple[str, ...] = (POLICY, *(f"{kind} everyday movement" for kind in get_args(MovementKind)))
"""Who moves the body."""
CURVE_CONTROL_STEPS = 600
"""How much of G's past is kept: half a minute."""

_PLATE = {"present": eyes.PRESENT, "delayed": eyes.PRESENT, "absent": eyes.ABSENT, "covered": eyes.COVERED}


class Answer(NamedTuple):
    """What the lab says to what a person did."""

    done: bool
    text: str


class Look(NamedTuple):
    """All that a page shows of one instant; it stays as it is while the world goes on."""

    place: int  # changes whenever body or mirror are built anew
    moment: Moment
    qpos: NDArray[np.float64]
    picture: NDArray[np.uint8]  # (64, 64, 3) what the eye sees
    observation: dict[str, Any]
    latent: torch.Tensor | None
    t_s: float
    mark_on: bool
    mark_px: int
    distance_m: float  # nearer hand to the mark; NaN without one
    held_share: float  # of the time that a hand must stay at the mark


@dataclass
class Counts:
    """What has happened since the lab began."""

    stuck: int = 0
    by_itself: int = 0
    by_person: int = 0
    last_s: float = float("nan")
    """How long the last mark stayed on that the body took off itself."""
    last_hand: str = ""


class Session:
    """One body before one mirror with one mind. Every method may be called from any thread."""

    def __init__(self, minds: Minds, body: str | None = None, seed: int = 0) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}: give a whole number of 0 or more.")
        self.lock = threading.RLock()
        self.minds, self.seed = minds, seed
        self.counts, self.recorder = Counts(), Recorder()
        self.mover, self._place = POLICY, 0
        self.set_body(body or minds.first_body)

    # Switches ----------------------------------------------------------------------------------------------

    def set_body(self, body: str) -> None:
        """Another body, with the first mind that fits it."""
        with self.lock:
            bodies.get(body)
            mind = self.minds.names(body)[0]
            self._subject = self.minds.get(mind, body)
            self.body, self.mind_name, self.mirror = body, mind, self._subject.setup.mirror
            self._build(keep=False)

    def set_mind(self, name: str) -> None:
        """Another mind in the same body, which keeps its posture."""
        with self.lock:
            self._subject, self.mind_name = self.minds.get(name, self.body), name
            self._build(keep=True)

    def set_mirror(self, mirror: MirrorConfig) -> None:
        """Another mirror before the same posture; one that cannot be there is refused and nothing changes."""
        with self.lock:
            place = replace(mirror, kind="present", delay_control_steps=0)
            moved = place != replace(self.mirror, kind="present", delay_control_steps=0)
            if moved:
                self._build(keep=True, place=place)
            self.mirror = mirror
            self._past = deque([self._past[-1]], maxlen=mirror.delay_control_steps + 1)
            self._perceive()

    def set_mover(self, mover: str) -> None:
        """Who moves the body from now on."""
        if mover not in MOVERS:
            raise ValueError(f"mover {mover!r} is unknown: choose {', '.join(MOVERS)}.")
        with self.lock:
            self.mover = mover
            self._begin_movement()

    def reset(self, seed: int | None = None) -> None:
        """A new posture: of this seed, or of the next one."""
        with self.lock:
            seed = self.seed + 1 if seed is None else seed
            if seed < 0:
                raise ValueError(f"seed is {seed}: give a whole number of 0 or more.")
            self.seed = seed
            self._build(keep=False)

    # What a person does ------------------------------------------------------------------------------------

    def click(self, origin: ArrayLike, direction: ArrayLike) -> Answer:
        """Stick the mark where a ray (world coordinates) meets the body; on the mark itself: take it off."""
        with self.lock:
            worlds, moment = self.worlds, self.moment()
            xpos, xmat = moment.xpos[0], moment.xmat[0]
            try:
                hit = hit_body(
                    worlds.scene,
                    moment.qpos[0],
                    np.asarray(origin, float),
                    np.asarray(direction, float),
                    self.mirror.reflects,
                )
                if hit is None:
                    return Answer(False, "Nothing there: click on the head or the torso.")
                if self.mark_on and self._is_at_mark(hit.point, xpos, xmat):
                    return self.remove()
                site = site_of(worlds.scene, worlds.mark, hit, xpos, xmat)
            except Refused as refused:
                return Answer(False, str(refused))
            return self.stick(site)

    def stick(self, site: Site) -> Answer:
        """Put the mark at a site; there is one mark, so it leaves its old place."""
        with self.lock:
            self.worlds.patch.put(0, site)
            self.worlds.patch.measure(self.worlds.xpos, self.worlds.xmat)
            self.counts.stuck += 1
            self._stuck_at_s = self.t_s
            self._note_mark()
            where = self.worlds.scene.surfaces[site.surface].geom.removesuffix("_geom")
            if self.mark_px:
                return Answer(True, f"A mark on the {where}: the eye sees it ({self.mark_px} pixels).")
            if self.mirror.kind == "delayed":
                later = self.mirror.delay_control_steps * CONTROL_STEP_S
                return Answer(True, f"A mark on the {where}: the mirror will show it in {later:.1f} s.")
            if not self.mirror.reflects:
                return Answer(
                    True, f"A mark on the {where}; the mirror is {self.mirror.kind}: no eye sees it."
                )
            return Answer(True, f"A mark on the {where}, but from here the eye cannot see it.")

    def remove(self) -> Answer:
        """A person takes the mark off."""
        with self.lock:
            if not self.mark_on:
                return Answer(False, "There is no mark to take off.")
            self._take_off()
            self.counts.by_person += 1
            self._note_mark()
            return Answer(True, "You took the mark off.")

    # Time --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One control step of life: perceive, act, move; the mark may come off."""
        with self.lock:
            worlds, was_on = self.worlds, self.mark_on
            g, action = self._decide()
            self.curve.append((self.t_s, g, was_on))
            _, _, _, _, info = worlds.step(action)
            self._control_steps += 1
            if info["unstable"][0]:  # it began anew, with a mark that nobody stuck on
                self._take_off()
                self._begin_movement()
            elif was_on and worlds.patch.reached[0]:
                self._count_own_removal()
            elif self._control_steps % EPISODE_CONTROL_STEPS == 0 and self.mover != POLICY:
                self._begin_movement()  # everyday movement is drawn an episode at a time
            self._past.append((worlds.xpos, worlds.xmat, worlds.mark_present))
            self._perceive()
            self._record(g, action, was_on)

    @torch.no_grad()
    def _decide(self) -> tuple[float, NDArray[np.float32]]:
        """G of the present frame, and the action (1, A)."""
        mind = self._subject.mind
        if self.mover == POLICY:
            action = self._actor.act(self.observation)
            self.latent = self._actor.latent
            return float(self._actor.expected_free_energy[0]), action
        self.latent = encode(mind, self.observation)
        g = float(mind.expected_free_energy(self.latent)[0])
        return g, self._movement.act(self.observation)

    def _count_own_removal(self) -> None:
        hands, hand = self.worlds.scene.body.hands, int(self.worlds.patch.hand[0])
        self.counts.by_itself += 1
        self.counts.last_s = self.t_s - self._stuck_at_s
        self.counts.last_hand = hands[hand].removesuffix("_geom").replace("_", " ")

    def _record(self, g: float, action: NDArray[np.float32], was_on: bool) -> None:
        if self.recorder.running:
            self.recorder.keep(
                self.look(),
                Row(
                    t_s=self.t_s,
                    body=self.body,
                    mind=self.mind_name,
                    moved_by=self.mover,
                    mirror=self.mirror.kind,
                    mark_on=self.mark_on,
                    mark_px=self.mark_px,
                    removed_by_itself=was_on and bool(self.worlds.patch.hand[0] >= 0) and not self.mark_on,
                    distance_m=self.distance_m,
                    expected_free_energy_nats=g,
                    actions=dict(zip((j.name for j in self.worlds.scene.joints), action[0].tolist())),
                ),
                self.worlds.scene,
            )

    # What there is to see ----------------------------------------------------------------------------------

    @property
    def t_s(self) -> float:
        """Seconds of life since the last reset."""
        return self._control_steps * CONTROL_STEP_S

    @property
    def mark_on(self) -> bool:
        return bool(self.worlds.mark_present[0])

    @property
    def distance_m(self) -> float:
        """From the nearer hand to the mark; NaN without one."""
        return float(self.worlds.patch.distance_m[0].min()) if self.mark_on else float("nan")

    @property
    def subject(self):
        """The mind in use, with the world it grew up in."""
        return self._subject

    def moment(self) -> Moment:
        """The instant as the senses get it, with the lab's own mirror: its kind may change at any time."""
        with self.lock:
            now, on = self.worlds.moment(), self.worlds.mark_present
            xpos, xmat, mirrored = self._past[0]
            marks = now.marks._replace(
                body=now.marks.body.copy(),
                pos=now.marks.pos.copy(),
                mat=now.marks.mat.copy(),
                shown=on,
                shown_mirror=mirrored,
            )
            panes = now.panes._replace(kind=np.array([_PLATE[self.mirror.kind]], np.int32))
            return now._replace(mirror_xpos=xpos, mirror_xmat=xmat, panes=panes, marks=marks)

    def look(self) -> Look:
        """Everything a page or a film needs of the present."""
        with self.lock:
            patch = self.worlds.patch
            return Look(
                place=self._place,
                moment=self._seen,
                qpos=self._seen.qpos[0],
                picture=self.picture,
                observation=self.observation,
                latent=self.latent,
                t_s=self.t_s,
                mark_on=self.mark_on,
                mark_px=self.mark_px,
                distance_m=self.distance_m,
                held_share=min(1.0, int(patch.held_sim_steps[0]) / patch.config.hold_sim_steps),
            )

    def _perceive(self) -> None:
        self._seen = moment = self.moment()
        self.observation = {sense.name: sense.perceive(moment) for sense in self.worlds.senses}
        labels = moment.labels(self._eye)
        self.mark_px = int(eyes.mark_pixels(labels)[0])
        vision = self.observation.get("vision")
        self.picture = self._eye.see(*moment[1:])[0] if vision is None else np.asarray(vision)[0]

    def _note_mark(self) -> None:
        """The mark came or went between two steps: that belongs to the instant the mirror last saw."""
        xpos, xmat, _ = self._past[-1]
        self._past[-1] = (xpos, xmat, self.worlds.mark_present)
        self._perceive()

    # Making worlds -----------------------------------------------------------------------------------------

    def _build(self, keep: bool, place: MirrorConfig | None = None) -> None:
        """A new world; `keep` carries posture and mark over. Fails before anything has changed."""
        place = place or replace(self.mirror, kind="present", delay_control_steps=0)
        setup = replace(self._subject.setup, threads=1)
        worlds = setup.worlds(1, mirror=place, mark=replace(setup.mark, surface=None, site_m=None))
        worlds.reset(seed=self.seed, marked=True)
        worlds.patch.reached[0] = True  # a mark only comes from a person
        if keep:
            _carry_over(self.worlds, worlds)
        else:
            self._control_steps, self._stuck_at_s = 0, 0.0
            self.curve: deque[tuple[float, float, bool]] = deque(maxlen=CURVE_CONTROL_STEPS)
        self.worlds, self.latent = worlds, None
        self._eye = own_eye(worlds.scene, 64, 64, "cpu")
        self._actor = Actor(self._subject.mind, 1)
        self._place += 1
        now = (worlds.xpos, worlds.xmat, worlds.mark_present)
        self._past = deque([now], maxlen=self.mirror.delay_control_steps + 1)
        self._begin_movement()
        self._perceive()

    def _begin_movement(self) -> None:
        """The policy forgets its past; everyday movement draws new torques, from the seed and the time."""
        seed = self.seed * 1_000_003 + self._control_steps
        if self.mover == POLICY:
            self._actor.begin(seed)
            return
        kind: Any = self.mover.partition(" ")[0]
        self._movement = Movement(replace(self._subject.setup.movement, kind=kind), self.worlds.actions)
        self._movement.begin([seed])

    def _take_off(self) -> None:
        self.worlds.patch.reached[0] = True
        self.worlds.patch.held_sim_steps[0] = 0

    def _is_at_mark(self, point: np.ndarray, xpos: np.ndarray, xmat: np.ndarray) -> bool:
        patch = self.worlds.patch
        body = int(patch.body[0])
        centre = xpos[body] + xmat[body] @ patch.pos[0]
        return bool(np.linalg.norm(point - centre) <= self.worlds.mark.radius_m)


def _carry_over(old: Worlds, new: Worlds) -> None:
    """The same body in another world: posture, speed and mark."""
    new.state = old.state.copy()
    new.xpos, new.xmat = old.xpos.copy(), old.xmat.copy()
    if old.mark_present[0]:
        new.patch.put(0, Site(*(np.copy(part) for part in old.patch.site(0))))  # pyright: ignore[reportArgumentType]
        new.patch.measure(new.xpos, new.xmat)
