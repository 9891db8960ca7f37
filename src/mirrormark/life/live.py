"""A learning life: gather, learn, look back; lap after lap."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from mirrormark.life.checks import check
from mirrormark.life.held_out import IndicatorConfig, eye_device
from mirrormark.life.learner import Learner, LearnerConfig
from mirrormark.life.memory import GROUPS, Episodes, Memory, MemoryConfig
from mirrormark.life.nan import NotFinite, dump
from mirrormark.life.rollout import FRAMES_PER_EPISODE, Actor, Sight, encode, gather, recipe
from mirrormark.life.schedule import Lap, Schedule, ScheduleConfig
from mirrormark.life.setup import WorldSetup, build_mind, movement_of
from mirrormark.mind.codec import Codec
from mirrormark.mind.mind import MindConfig
from mirrormark.mind.senses import SenseSpec
from mirrormark.world.worlds import Worlds


@dataclass(frozen=True)
class LifeConfig:
    """Schedule, memory, learner and indicators of one life."""

    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """When it gathers, learns and is examined."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    """What it remembers."""
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """How it learns."""
    indicators: IndicatorConfig = field(default_factory=IndicatorConfig)
    """What is looked at on the way."""
    tokens: bool = False
    """The codec is frozen while the rest learns, and memory holds latents (ours; the paper learns
    jointly)."""
    pool_episodes: int = 1024
    """Everyday episodes in the pool from which a codec phase draws single frames (ours)."""
    codec_from: str | None = None
    """A run, checkpoint or snapshot whose codec is taken over, frozen; its own phase is then left out.
    shipped: the one that comes with the package for this body, where there is one (ours; tokens only)."""
    marked_share: float = 0.5
    """Share of marked episodes in life (paper Table III)."""
    policy_share: float = 0.5
    """Share of episodes that the policy moves, once it does (paper: half)."""
    let_go_share: float = 0.0
    """Share of these in which everyday movement takes over at some control step, so that an outlook learns
    what follows on what the policy does (ours; 0 = off)."""

    def __post_init__(self) -> None:
        for name in ("marked_share", "policy_share", "let_go_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"life.{name} is a share: give a number from 0 to 1.")
        if self.pool_episodes < 2:
            raise ValueError(
                f"life.pool_episodes is {self.pool_episodes}: give at least 2, for its two groups."
            )


class UnstableWorlds(RuntimeError):
    """More than half of a lap's worlds broke: the body or its actions are not sound."""


class Life:
    """Everything one run holds: worlds, mind, learner, memory, and where it stands."""

    def __init__(
        self, world: WorldSetup, mind: MindConfig, config: LifeConfig, seed: int, device: torch.device | str
    ) -> None:
        check(mind, config)
        self.world, self.config, self.seed = world, config, seed
        self.device = torch.device(device)
        self.schedule = Schedule(config.schedule)
        self._worlds: dict[tuple[int, bool], Worlds] = {}
        torch.manual_seed(seed)
        some = self.worlds(config.schedule.episodes_per_lap)
        self.mind = build_mind(mind, some).to(self.device)
        self.learner = Learner(self.mind, config.learner, config.tokens)
        self._sight, self._actors = Sight(self.mind, self.learner.replays), dict[int, Actor]()
        frame = {name: _stored(sense) for name, sense in self.mind.codec.senses.items()}
        small = torch.uint8 if self.mind.spec.widest <= 256 else torch.int16
        kept = {"latent": ((self.mind.spec.K,), small)} if config.tokens else frame
        # Beside a frame's few token bytes, actions would be most of memory and checkpoint; half precision is
        # off by 2⁻¹² at most, and the least noise of an action is 0.1.
        kind = torch.float16 if config.tokens else torch.float32
        self.memory = Memory(kept, some.actions, FRAMES_PER_EPISODE, config.memory, self.device, kind)
        self.pool: Memory | None = None
        if config.schedule.codec_laps:
            room = MemoryConfig(capacity_episodes=2 * config.pool_episodes)  # two of four groups stay empty
            self.pool = Memory(frame, some.actions, FRAMES_PER_EPISODE, room, self.device)
        self._pooled: list[list[int]] = []  # stored in the pool by group, after each of the codec's laps
        self.next_lap = 0

    def worlds(self, n: int, examined: bool = False) -> Worlds:
        """n worlds to live in, or n to be examined in (all before a mirror); made once for each n."""
        key = (n, examined)
        if key not in self._worlds:
            mirrors = None if examined else self.world.mirrors(n)
            self._worlds[key] = self.world.worlds(n, eye_device(self.world, self.device), mirrors)
        return self._worlds[key]

    @property
    def episodes_lived(self) -> int:
        """Episodes gathered so far, without the codec's."""
        return self.schedule.lap(self.next_lap - 1).episodes_after if self.next_lap else 0

    def memory_of(self, lap: Lap) -> Memory:
        """What the lap fills and learns from: the codec's pool in its phase, then memory."""
        return self.pool if lap.phase == "codec" and self.pool is not None else self.memory

    def gather(self, lap: Lap) -> Episodes:
        """The lap's new episodes, the same ones for the same seed, lap and mind."""
        worlds = self.worlds(lap.episodes)
        share = self.config.policy_share if lap.policy_moves else 0.0
        plan = recipe(
            lap.episodes, lap.index, self.seed, share, self.config.marked_share, self.config.let_go_share
        )
        self.mind.eval()
        actor = self._actor(lap.episodes - plan.random, int(plan.seeds[0] % 2**31), lap.progress)
        sight = self._sight if self.config.tokens and lap.phase == "life" else None
        episodes = gather(worlds, movement_of(self.world, worlds), plan, actor, sight)
        broken = self._broken(lap, episodes)
        if 2 * broken >= lap.episodes:
            raise UnstableWorlds(
                f"Lap {lap.index}: the physics broke in {broken} of {lap.episodes} worlds; "
                "check the body's masses, ranges and tone."
            )
        return episodes

    def _broken(self, lap: Lap, episodes: Episodes) -> int:
        """How many of the lap's worlds are not among its episodes."""
        return lap.episodes - len(episodes.marked)

    def _actor(self, n: int, seed: int, progress: float) -> Actor | None:
        """One that has just begun; made once for each n."""
        if not n:
            return None
        if n not in self._actors:
            self._actors[n] = Actor(self.mind, n, replays=self.learner.replays)
        self._actors[n].persistence = self.mind.policy.config.persistence_at(progress)
        self._actors[n].begin(seed)
        return self._actors[n]

    def live(self, lap: Lap) -> dict[str, float]:
        """One lap: gather, remember, learn. Ends with the codec frozen if this was its last lap."""
        memory, began = self.memory_of(lap), time.perf_counter()
        episodes = self.gather(lap)
        memory.extend(episodes)
        if memory is self.pool:
            self._pooled.append(memory.written)
        gathered = time.perf_counter()
        metrics = self.learner.learn(memory, lap)
        metrics |= {"gather_seconds": gathered - began, "learn_seconds": time.perf_counter() - gathered}
        metrics["unstable_worlds"] = float(self._broken(lap, episodes))
        self.next_lap = lap.index + 1
        if self.next_lap == self.config.schedule.codec_laps:
            self.freeze_codec()
        return metrics

    def take_codec(self, codec: Codec) -> None:
        """See as another mind has learned to; before the first lap."""
        if codec.senses != self.mind.codec.senses:
            raise ValueError("life.codec_from: that codec is for other senses; take one of the same body.")
        self.mind.codec.load_state_dict(codec.state_dict())
        self.mind.codec.requires_grad_(False)

    @torch.no_grad()
    def freeze_codec(self) -> None:
        """The codec's phase ends: what its pool holds is remembered as latents, and the pool is let go."""
        assert self.pool is not None
        self.mind.codec.requires_grad_(False)
        pool, marked_group = self.pool, 1
        for group, count in enumerate(list(pool.counts.values())[:2]):
            for rows in torch.arange(group * pool.per_group, group * pool.per_group + count).split(32):
                rows = rows.to(pool.device)
                frames = {name: kept[rows].flatten(0, 1) for name, kept in pool.observation.items()}
                latent = encode(self.mind, frames).unflatten(0, (len(rows), FRAMES_PER_EPISODE))
                marked = torch.full((len(rows),), group == marked_group)
                kept = {"latent": latent}
                policy, let_go = torch.zeros_like(marked), pool.let_go[rows]
                self.memory.extend(Episodes(kept, pool.action[rows], pool.mark[rows], policy, marked, let_go))
        self.pool, self._pooled = None, []

    # Checkpoints

    def state(self) -> dict:
        """All that the rest of the run depends on. A codec's pool is made again from its seeds instead."""
        mind, memory = self.learner.state(), self.memory.state()
        return {"learner": mind, "memory": memory, "next_lap": self.next_lap, "pooled": list(self._pooled)}

    def load_state(self, state: dict) -> None:
        """Go on from what `state` returned."""
        self.learner.load_state(state["learner"])
        self.memory.load_state(state["memory"])
        self.next_lap = int(state["next_lap"])
        if self.next_lap < self.config.schedule.codec_laps:
            self._pooled = list(state["pooled"])
            if self._pooled:
                self._refill_pool()
        elif self.pool is not None:
            self.mind.codec.requires_grad_(False)
            self.pool = None

    def _refill_pool(self) -> None:
        """Everyday movement depends on seeds only: gather again what would still be in the pool."""
        assert self.pool is not None
        before = [[0] * len(GROUPS), *self._pooled]  # stored before each lap, and by now
        first, room = 0, self.pool.per_group
        while all(
            later == earlier or now - later >= room
            for earlier, later, now in zip(before[first], before[first + 1], before[-1])
        ):
            first += 1
        self.pool.skip_to(before[first])
        for index in range(first, self.next_lap):
            random = torch.get_rng_state()
            self.pool.extend(self.gather(self.schedule.lap(index)))
            torch.set_rng_state(random)


def _stored(sense: SenseSpec) -> tuple[tuple[int, ...], torch.dtype]:
    return sense.shape, {"image": torch.uint8, "vector": torch.float32, "symbol": torch.int64}[sense.kind]


REFUSED_IN_A_ROW = 20
"""The run stops with a dump after so many steps in a row whose loss is not finite (ours)."""
Hook = Callable[[Lap, Life, dict[str, float]], None]


def live(life: Life, hooks: Iterable[Hook] = (), dump_to: Path | None = None) -> None:
    """The whole life from where it stands. Hooks see every lap: metrics, exams, checkpoints, displays."""
    for lap in life.schedule.laps(life.next_lap):
        metrics = life.live(lap)
        if metrics.get("refused_in_a_row", 0) >= REFUSED_IN_A_ROW:
            place = dump(life.learner, life.memory_of(lap), lap, dump_to, life.world) if dump_to else None
            raise NotFinite(lap.index, int(metrics["refused_in_a_row"]), place)
        for hook in hooks:
            hook(lap, life, metrics)
