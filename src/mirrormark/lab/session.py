"""The lab without a page: a world, an agent in it, and all that a person can do, as methods."""

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mirrormark.agent.acting import Actor, encode
from mirrormark.envs import bodies
from mirrormark.envs.babbling import Babbling, BabblingKind
from mirrormark.envs.mark import Site
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS
from mirrormark.envs.senses import SimState
from mirrormark.lab.agents import Agents
from mirrormark.lab.mirror_view import BeforeMirror
from mirrormark.lab.record import Recorder, Row
from mirrormark.lab.sticking import Refused, spoken

CONTROL_STEP_S = 0.05
POLICY = "its policy"
MOVERS: tuple[str, ...] = (POLICY, *(f"{kind} motor babbling" for kind in get_args(BabblingKind)))
"""Who moves the body."""
CURVE_CONTROL_STEPS = 600
"""How much of G's past is kept: half a minute."""


class Answer(NamedTuple):
    """What the lab says to what a person did."""

    done: bool
    text: str


class Look(NamedTuple):
    """All that a page shows of one instant; it stays as it is while the world goes on."""

    place: int  # changes whenever body or mirror are built anew
    sim_state: SimState
    picture: NDArray[np.uint8]  # (64, 64, 3) what the eye sees
    observation: dict[str, Any]
    tokens: torch.Tensor | None
    t_s: float
    mark_on: bool
    mark_px: int
    distance_m: float  # nearer hand to the mark; NaN without one


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
    """One body before one mirror with one agent. Every method may be called from any thread."""

    def __init__(self, agents: Agents, body: str | None = None, seed: int = 0) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}: give a whole number of 0 or more.")
        self.lock = threading.RLock()
        self.agents, self.seed = agents, seed
        self.counts, self.recorder = Counts(), Recorder()
        self.mover, self._place = POLICY, 0
        self.set_body(body or agents.first_body)

    # Switches ----------------------------------------------------------------------------------------------

    def set_body(self, body: str) -> None:
        """Another body, with the first agent that fits it and the mirror that this agent grew up with."""
        with self.lock:
            bodies.get(body)
            self.agent_name = self.agents.names(body)[0]
            self.body, self.candidate = body, self.agents.get(self.agent_name, body)
            self._begin_anew(self.candidate.setup.mirror)

    def set_agent(self, name: str) -> None:
        """Another agent in the same body, which keeps its posture."""
        with self.lock:
            self.candidate, self.agent_name = self.agents.get(name, self.body), name
            self._enter(BeforeMirror(self.candidate.setup, self.world.mirror, self.seed, self.world))

    def set_mirror(self, mirror: MirrorConfig) -> None:
        """Another mirror before the same posture; one that cannot be there is refused and nothing changes."""
        with self.lock:
            if self.world.has_place_of(mirror):
                self.world.show_through(mirror)
            else:
                self._enter(BeforeMirror(self.candidate.setup, mirror, self.seed, self.world))

    def set_mover(self, mover: str) -> None:
        """Who moves the body from now on."""
        if mover not in MOVERS:
            raise ValueError(f"mover {mover!r} is unknown: choose {', '.join(MOVERS)}.")
        with self.lock:
            self.mover = mover
            self._begin_babbling()

    def reset(self, seed: int | None = None) -> None:
        """A new posture: of this seed, or of the next one."""
        with self.lock:
            seed = self.seed + 1 if seed is None else seed
            if seed < 0:
                raise ValueError(f"seed is {seed}: give a whole number of 0 or more.")
            self.seed = seed
            self._begin_anew(self.world.mirror)

    def _begin_anew(self, mirror: MirrorConfig) -> None:
        self._control_steps, self._stuck_at_s = 0, 0.0
        self.curve: deque[tuple[float, float, bool]] = deque(maxlen=CURVE_CONTROL_STEPS)
        self._enter(BeforeMirror(self.candidate.setup, mirror, self.seed))

    def _enter(self, world: BeforeMirror) -> None:
        self.world, self.tokens = world, None
        self._place += 1
        self._actor = Actor(self.candidate.agent, 1)
        self._begin_babbling()

    def _begin_babbling(self) -> None:
        """The policy forgets its past; motor babbling draws new torques, from the seed and the time."""
        seed = (self.seed * 1_000_003 + self._control_steps) % 2**62
        if self.mover == POLICY:
            self._actor.begin(seed)
            return
        kind: Any = self.mover.partition(" ")[0]
        self._babbling = Babbling(replace(self.candidate.setup.babbling, kind=kind), self.world.envs.actions)
        self._babbling.begin([seed])

    # What a person does ------------------------------------------------------------------------------------

    def click(self, origin: ArrayLike, direction: ArrayLike) -> Answer:
        """Stick the mark where a ray (world coordinates) meets the body; on the mark itself: take it off."""
        with self.lock:
            try:
                site = self.world.find(origin, direction)
            except Refused as refused:
                return Answer(False, str(refused))
            return self.remove() if site is None else self.stick(site)

    def stick(self, site: Site) -> Answer:
        """Put the mark at a site, and say whether the eye can see it there."""
        with self.lock:
            world = self.world
            world.put(site)
            self.counts.stuck += 1
            self._stuck_at_s = self.t_s
            on = f"A mark on the {spoken(world.envs.scene.surfaces[site.surface].geom)}"
            if world.mark_px:
                return Answer(True, f"{on}: the eye sees it ({world.mark_px} pixels).")
            if world.mirror.kind == "delayed":
                later_s = world.mirror.delay_control_steps * CONTROL_STEP_S
                return Answer(True, f"{on}: the mirror will show it in {later_s:.1f} s.")
            if not world.mirror.reflects:
                return Answer(True, f"{on}; the mirror is {world.mirror.kind}: the eye cannot see it.")
            return Answer(True, f"{on}, but from here the eye cannot see it.")

    def remove(self) -> Answer:
        """A person takes the mark off."""
        with self.lock:
            if not self.world.mark_on:
                return Answer(False, "There is no mark to take off.")
            self.world.remove()
            self.counts.by_person += 1
            return Answer(True, "You took the mark off.")

    # Time --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One control step of training: perceive, act, move; the mark may come off."""
        with self.lock:
            was_on = self.world.mark_on
            g, action = self._decide()
            self.curve.append((self.t_s, g, was_on))
            broken = self.world.advance(action)
            self._control_steps += 1
            came_off = was_on and not broken and not self.world.mark_on
            if came_off:
                self._count_own_removal()
            # Motor babbling is drawn an episode at a time.
            if broken or (self.mover != POLICY and self._control_steps % EPISODE_CONTROL_STEPS == 0):
                self._begin_babbling()
            if self.recorder.running:
                self.recorder.keep(self.look(), self._row(g, action, came_off), self.world.envs.scene)

    @torch.no_grad()
    def _decide(self) -> tuple[float, NDArray[np.float32]]:
        """G of the present frame, and the action (1, A)."""
        agent, observation = self.candidate.agent, self.world.observation
        if self.mover == POLICY:
            action = self._actor.act(observation)
            self.tokens = self._actor.tokens
            return float(self._actor.expected_free_energy[0]), action
        self.tokens = encode(agent, observation)
        return float(agent.expected_free_energy(self.tokens)[0]), self._babbling.act(observation)

    def _count_own_removal(self) -> None:
        envs = self.world.envs
        self.counts.by_itself += 1
        self.counts.last_s = self.t_s - self._stuck_at_s
        self.counts.last_hand = spoken(envs.scene.body.hands[int(envs.mark_state.hand[0])])

    # What there is to see ----------------------------------------------------------------------------------

    @property
    def t_s(self) -> float:
        """Seconds of training since the last reset."""
        return self._control_steps * CONTROL_STEP_S

    def look(self) -> Look:
        """Everything a page or a film needs of the present."""
        with self.lock:
            world = self.world
            return Look(
                place=self._place,
                sim_state=world.seen,
                picture=world.picture,
                observation=world.observation,
                tokens=self.tokens,
                t_s=self.t_s,
                mark_on=world.mark_on,
                mark_px=world.mark_px,
                distance_m=world.distance_m,
            )

    def _row(self, g: float, action: NDArray[np.float32], came_off: bool) -> Row:
        world = self.world
        return Row(
            t_s=self.t_s,
            body=self.body,
            agent=self.agent_name,
            moved_by=self.mover,
            mirror=world.mirror.kind,
            mark_on=world.mark_on,
            mark_px=world.mark_px,
            removed_by_itself=came_off,
            distance_m=world.distance_m,
            expected_free_energy_nats=g,
            actions=dict(zip((joint.name for joint in world.envs.scene.joints), action[0].tolist())),
        )
