"""The lab without a page: a world, agents that act in it, and all that a person can do, as methods."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from mirrormark.agent.acting import Actor, encode
from mirrormark.agent.agent import Agent
from mirrormark.envs import bodies
from mirrormark.envs.babbling import Babbling, BabblingKind
from mirrormark.envs.mark import Site
from mirrormark.envs.mirror import MirrorConfig
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS
from mirrormark.envs.senses import SimState
from mirrormark.exam import candidates
from mirrormark.exam.candidates import Candidate
from mirrormark.lab.recording import Recorder, Row
from mirrormark.lab.world import MirrorWorld, Refused, spoken
from mirrormark.training import weights

SHIPPED, UNTRAINED = "shipped", "untrained"
CONTROL_STEP_S = 0.05
POLICY = "its policy"
MOVERS: tuple[str, ...] = (POLICY, *(f"{kind} motor babbling" for kind in get_args(BabblingKind)))
"""Who moves the body."""
CURVE_CONTROL_STEPS = 600
"""How much of G is kept: half a minute."""
MEAN_CONTROL_STEPS, USUAL_CONTROL_STEPS = 10, 40
"""Length of the mean of G; fewest of them without a mark that say what is usual."""
MAX_SEED = 2**31 - 1
TRY = "The buttons “Mark its …” put one where it can."


class Agents:
    """Which agents may be shown: those named at the start, those shipped, and untrained ones. The page gets
    names only: nothing that it sends is ever used as a path."""

    def __init__(
        self,
        paths: Sequence[Path] = (),
        preset: str = "swift",
        shipped: Callable[[str], Path | None] = weights.shipped,
    ) -> None:
        self._preset, self._shipped = preset, shipped
        self._named: dict[str, Candidate] = {}
        self._others: dict[tuple[str, str], Candidate] = {}  # by name and body, loaded when first asked for
        for path in paths:
            self._add(candidates.load(path))

    def _add(self, candidate: Candidate) -> None:
        same = sum(known.partition(" (")[0] == candidate.name for known in self._named)
        self._named[f"{candidate.name} ({same + 1})" if same else candidate.name] = candidate

    def names(self, body: str) -> tuple[str, ...]:
        """Agents that fit a body, the one to begin with first."""
        fitting = (name for name, candidate in self._named.items() if candidate.setup.body == body)
        return (*fitting, *((SHIPPED,) if self._shipped(body) else ()), UNTRAINED)

    @property
    def first_body(self) -> str:
        """The body of the first agent named, else of the first shipped one, else the infant."""
        named = [candidate.setup.body for candidate in self._named.values()]
        shipped = [body for body in ("infant", *bodies.names()) if self._shipped(body)]
        return (*named, *shipped, "infant")[0]

    def get(self, name: str, body: str) -> Candidate:
        """The agent of that name for that body."""
        bodies.get(body)
        if name not in self.names(body):
            raise ValueError(f"agent {name!r} does not fit the {body}: choose {', '.join(self.names(body))}.")
        if name in self._named:
            return self._named[name]
        if (name, body) not in self._others:
            place = self._shipped(body) if name == SHIPPED else None
            found = candidates.load(place) if place else candidates.untrained(self._preset, body)
            self._others[name, body] = found
        return self._others[name, body]


class Answer(NamedTuple):
    """The lab's reply to what a person did."""

    done: bool
    text: str


class Snapshot(NamedTuple):
    """All that a page shows of one instant; it stays as it is while the simulation goes on."""

    build: int  # changes whenever body or mirror are built anew
    agent: Agent
    sim_state: SimState
    picture: NDArray[np.uint8]  # (64, 64, 3) what the eye sees
    observation: dict[str, Any]
    t_s: float
    mark_on: bool
    mark_px: int
    distance_m: float  # nearer hand to the mark; NaN without one


@dataclass
class Counts:
    """What has happened since this body was chosen."""

    stuck: int = 0
    by_itself: int = 0
    by_person: int = 0
    last_s: float = float("nan")
    """How long the last mark stayed on that the body took off itself."""
    last_hand: str = ""


class GCurve(NamedTuple):
    """G over the last seconds, and what is usual without a mark."""

    t_s: NDArray[np.float64]
    nats: NDArray[np.float64]
    mean: NDArray[np.float64]
    """Over the half second before."""
    marked: NDArray[np.bool_]
    usual: tuple[float, float] | None
    """5% to 95% of these means while no mark was on; None until there are two seconds of them."""

    @staticmethod
    def of(curve: list[tuple[float, float, bool]]) -> "GCurve":
        t_s, nats, marked = (np.array(part) for part in zip(*curve)) if curve else (np.zeros(0),) * 3
        nats, marked = nats.astype(float), marked.astype(bool)
        sums = np.concatenate([[0.0], np.cumsum(nats)])
        end = np.arange(1, len(nats) + 1)
        start = np.maximum(end - MEAN_CONTROL_STEPS, 0)
        mean = (sums[end] - sums[start]) / np.maximum(end - start, 1)
        # A mean counts as unmarked once no marked step is in it.
        marks = np.concatenate([[0], np.cumsum(marked)])
        unmarked = mean[(marks[end] - marks[start] == 0) & (end - start == MEAN_CONTROL_STEPS)]
        low, high = np.quantile(unmarked, [0.05, 0.95]) if len(unmarked) >= USUAL_CONTROL_STEPS else (0, 0)
        usual = (float(low), float(high)) if len(unmarked) >= USUAL_CONTROL_STEPS else None
        return GCurve(t_s.astype(float), nats, mean, marked, usual)


class Session:
    """One body before one mirror with one agent. Every method may be called from any thread."""

    def __init__(self, agents: Agents, body: str | None = None, seed: int = 0) -> None:
        self.lock = threading.RLock()
        self.agents, self.seed = agents, _checked(seed)
        self.recorder = Recorder()
        self.mover, self._build = POLICY, 0
        self.set_body(body or agents.first_body)

    # Switches ----------------------------------------------------------------------------------------------

    def set_body(self, body: str) -> None:
        """Another body, with the first agent that fits it and the mirror that this agent was trained with."""
        with self.lock:
            bodies.get(body)
            self.agent_name = self.agents.names(body)[0]
            self.body, self.candidate = body, self.agents.get(self.agent_name, body)
            self.counts = Counts()
            self._begin_anew(self.candidate.setup.mirror)

    def set_agent(self, name: str) -> None:
        """Another agent in the same body, which keeps its posture."""
        with self.lock:
            self.candidate, self.agent_name = self.agents.get(name, self.body), name
            self._enter(MirrorWorld(self.candidate.setup, self.world.mirror, self.seed, self.world))

    def set_mirror(self, mirror: MirrorConfig) -> None:
        """Another mirror before the same posture; one that cannot be there is refused and nothing changes."""
        with self.lock:
            if self.world.has_place_of(mirror):
                self.world.show_through(mirror)
            else:
                self._enter(MirrorWorld(self.candidate.setup, mirror, self.seed, self.world))

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
            self.seed = (self.seed + 1) % (MAX_SEED + 1) if seed is None else _checked(seed)
            self._begin_anew(self.world.mirror)

    def _begin_anew(self, mirror: MirrorConfig) -> None:
        self._control_steps, self._stuck_at_s = 0, 0.0
        self.recorder.running = False  # a recording is of one body, from one start
        self.curve: deque[tuple[float, float, bool]] = deque(maxlen=CURVE_CONTROL_STEPS)
        self._enter(MirrorWorld(self.candidate.setup, mirror, self.seed))

    def _enter(self, world: MirrorWorld) -> None:
        self.world = world
        self._build += 1
        self._actor = Actor(self.candidate.agent, 1)
        self._begin_babbling()

    def _begin_babbling(self) -> None:
        """The policy's context is emptied; motor babbling draws new torques, from the seed and the time."""
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
            if site is None:
                return self.remove()
            answer = self.stick(site)
            unseen = not self.world.mark_px and self.world.mirror.kind == "present"
            return answer._replace(text=f"{answer.text} {TRY}") if unseen else answer

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

    def stick_in_sight(self, surface: int) -> Answer:
        """Put the mark on a surface (0: head) where the eye sees it, if it does anywhere."""
        with self.lock:
            return self.stick(self.world.site_in_sight(surface))

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
        """One control step: observe, act, simulate; the mark may come off."""
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
                self.recorder.keep(self.snapshot(), self._row(g, action, came_off), self.world.envs.scene)

    @torch.no_grad()
    def _decide(self) -> tuple[float, NDArray[np.float32]]:
        """G of the present frame, and the action (1, A)."""
        agent, observation = self.candidate.agent, self.world.observation
        if self.mover == POLICY:
            action = self._actor.act(observation)
            return float(self._actor.expected_free_energy[0]), action
        tokens = encode(agent, observation)
        return float(agent.expected_free_energy(tokens)[0]), self._babbling.act(observation)

    def _count_own_removal(self) -> None:
        envs = self.world.envs
        self.counts.by_itself += 1
        self.counts.last_s = self.t_s - self._stuck_at_s
        self.counts.last_hand = spoken(envs.scene.body.hands[int(envs.mark_state.hand[0])])

    # What is shown -----------------------------------------------------------------------------------------

    @property
    def t_s(self) -> float:
        """Simulated seconds since the last reset."""
        return self._control_steps * CONTROL_STEP_S

    def snapshot(self) -> Snapshot:
        """Everything a page or a film needs of the present."""
        with self.lock:
            world = self.world
            return Snapshot(
                build=self._build,
                agent=self.candidate.agent,
                sim_state=world.seen,
                picture=world.picture,
                observation=world.observation,
                t_s=self.t_s,
                mark_on=world.mark_on,
                mark_px=world.mark_px,
                distance_m=world.distance_m,
            )

    def g_curve(self) -> "GCurve":
        """G of the last seconds, ready to be drawn."""
        with self.lock:
            return GCurve.of(list(self.curve))

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


def _checked(seed: int) -> int:
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed is {seed:g}: give a whole number from 0 to {MAX_SEED}.")
    return int(seed)
