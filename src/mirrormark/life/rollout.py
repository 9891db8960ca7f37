"""Worlds and mind make episodes. The same `Actor` moves the body in training, in exams and on the live
page."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.life.memory import Episodes
from mirrormark.life.replay import Replayed
from mirrormark.mind.mind import Mind
from mirrormark.world.movement import Movement
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS, Worlds

FRAMES_PER_EPISODE = EPISODE_CONTROL_STEPS + 1
"""The reset's frame and one after each control step."""
_LET_GO_CONTROL_STEPS = (16, 76)
"""When a policy that lets go does so: late enough to have done something, early enough for what follows."""


class Actor:
    """Moves n bodies by the policy, acting on the posterior of the present frame (D10).

    Its past is what dreams have: `imagination.context` frames, growing by up to `horizon` steps (or to
    `remembers`) before it is cut back to the context and taken in anew (most frames then cost one step of the
    sequence model, not a refill). A policy that acts on the prior, as the public code's, keeps its window of
    exactly the context, and its first action is even over [-1, 1] in either mode: nothing has been predicted
    yet.
    """

    def __init__(
        self, mind: Mind, n: int, mode: Literal["sample", "mean"] = "sample", replays: bool = False
    ) -> None:
        """replays: on a GPU, from a graph; the mind's weights may learn on but must stay where they are."""
        if mode not in ("sample", "mean"):
            raise ValueError(f"mode is {mode!r}: choose sample or mean.")
        self.mind, self.n, self.mode = mind, n, mode
        self.persistence = mind.policy.config.persistence_at(1.0)
        self.device = next(mind.dynamics.parameters()).device
        self._blind = mind.policy.config.acts_on == "prior"
        self._past = mind.config.imagination.context - 1
        self._longest = self._past if self._blind else mind.longest_past
        self._cache = mind.dynamics.init_cache(n, max(self._longest, 1))
        self._position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.hidden = torch.zeros(n, mind.dynamics.width, device=self.device)
        self._go: Callable[[Tensor, Tensor], Tensor] = self._move
        if replays and self._past and not self._blind:
            latent = torch.zeros(n, mind.spec.K, dtype=torch.long, device=self.device)
            self._go = Replayed(self._move, latent, torch.zeros(n, mind.actions, device=self.device))
        self.begin()

    def begin(self, seed: int = 0) -> None:
        """A new episode: an empty past. Equal seeds draw equal action noise."""
        self._random = torch.Generator(self.device).manual_seed(seed)
        for part in (*self._cache.keys, *self._cache.values, self._cache.trace, self._position, self.hidden):
            part.zero_()
        self._steps = 0  # in the cache: what the position says, without asking the GPU
        self._history: list[tuple[Tensor, Tensor]] = []
        self._noise: Tensor | None = None
        self.latent: Tensor | None = None

    @torch.no_grad()
    def act(self, observation: dict[str, Any]) -> np.ndarray:
        """Actions (n, A) in [-1, 1] for what is seen now."""
        return self.act_on(encode(self.mind, observation, sample=self.mode == "sample"))

    @torch.no_grad()
    def act_on(self, latent: Tensor) -> np.ndarray:
        """The same for frames that are already encoded, (n, K)."""
        self.latent = latent
        noise, full = self._next_noise(), self._steps == self._longest
        if self._blind:
            action = self._chosen(self._predicted(), noise) if self._history else self._random_action()
        else:
            action = self._chosen(latent, noise) if full or not self._past else self._go(latent, noise)
        if self._past:
            self._history = [*self._history, (latent, action)][-self._past :]
            self._keep_up(latent, action, full)
        return action.float().cpu().numpy()

    def _random_action(self) -> Tensor:
        shape = (self.n, self.mind.actions)
        return torch.rand(shape, generator=self._random, device=self.device) * 2 - 1

    def _next_noise(self) -> Tensor:
        """Standard normal at every step, `persistence` of it from the step before; none for the mean."""
        if self.mode == "mean":
            return torch.zeros(self.n, self.mind.actions, device=self.device)
        noise = torch.randn((self.n, self.mind.actions), generator=self._random, device=self.device)
        if self._noise is not None:
            noise = self.persistence * self._noise + (1 - self.persistence**2) ** 0.5 * noise
        self._noise = noise
        return noise

    def _chosen(self, latent: Tensor, noise: Tensor) -> Tensor:
        """What the policy does."""
        choice = self.mind.policy(latent, self.hidden)
        return (choice.mean + choice.std * noise).tanh()

    def _move(self, latent: Tensor, noise: Tensor) -> Tensor:
        """Choose, and take in what was seen and done."""
        action = self._chosen(latent, noise)
        self._take_in(latent, action)
        return action

    def _take_in(self, latent: Tensor, action: Tensor) -> None:
        """Move `hidden` on to the next frame."""
        hidden, _ = self.mind.dynamics.step(latent, action, self._cache, self._position)
        self.hidden.copy_(hidden)
        self._position.add_(1)

    def _keep_up(self, latent: Tensor, action: Tensor, full: bool) -> None:
        """What `_move` has not done, and the count of steps in the cache."""
        if full:
            latents, actions = (torch.stack(parts, 1) for parts in zip(*self._history))
            hiddens, _ = self.mind.dynamics.prefill(latents, actions, self._cache)
            self.hidden.copy_(hiddens[:, -1])
            self._position.fill_(self._past)
            self._steps = self._past
            return
        if self._blind:
            self._take_in(latent, action)
        self._steps += 1

    @property
    @torch.no_grad()
    def expected_free_energy(self) -> np.ndarray:
        """G of the frame last acted on, (n,) nats."""
        if self.latent is None:
            raise ValueError("expected_free_energy is known after the first act() of an episode.")
        return self.mind.expected_free_energy(self.latent).cpu().numpy()

    def _predicted(self) -> Tensor:
        """Parity with the public code (D10): a sample of the prediction, blind to the present frame."""
        table = self.mind.dynamics.logits(self.hidden, self._history[-1][0])
        noise = torch.empty_like(table).exponential_(generator=self._random).clamp_min_(1e-30).log()
        return (table - noise).argmax(-1)


@torch.no_grad()
def encode(mind: Mind, observation: dict[str, Any], sample: bool = True) -> Tensor:
    """Latents (n, K) of a world's observation, on the mind's device."""
    device = next(mind.dynamics.parameters()).device
    return mind.encode(to_tensors(observation, device), sample).latent


class Sight:
    """`encode` for lap after lap; replays: on a GPU, from a graph for each n, as for an `Actor`."""

    def __init__(self, mind: Mind, replays: bool) -> None:
        self._mind, self._replays = mind, replays
        self._graphs: dict[int, Replayed] = {}

    def __call__(self, observation: dict[str, Any]) -> Tensor:
        if not self._replays:
            return encode(self._mind, observation)
        seen = to_tensors(observation, self._mind.device)
        names, values = tuple(seen), tuple(seen.values())
        n = len(values[0])
        if n not in self._graphs:
            self._graphs[n] = Replayed(lambda *given: encode(self._mind, dict(zip(names, given))), *values)
        return self._graphs[n](*values)


def to_tensors(observation: dict[str, Any], device: torch.device | str) -> dict[str, Tensor]:
    """A world's observation on the mind's device; frames that a GPU eye made stay on the GPU."""
    return {name: torch.as_tensor(value, device=device) for name, value in observation.items()}


class Recipe(NamedTuple):
    """How one lap's episodes are made: the first `random` worlds by everyday movement, the rest by the
    policy."""

    seeds: np.ndarray  # (n,) int64
    marked: np.ndarray  # (n,) bool
    random: int
    let_go: np.ndarray  # (n,) int64: control step from which on everyday movement moves the body


def recipe(
    n: int, lap: int, seed: int, policy_share: float, marked_share: float = 0.5, let_go_share: float = 0.0
) -> Recipe:
    """`policy_share` by the policy, of which `let_go_share` only until some control step, the rest random;
    `marked_share` of each marked; fresh seeds for every lap, from one tree (D21)."""
    rng = np.random.default_rng((seed, lap, 0x6C6170))
    seeds = rng.integers(0, 2**62, n)
    random = n - int(n * policy_share)
    lets_go = rng.random(n) < let_go_share
    let_go = np.where(lets_go, rng.integers(*_LET_GO_CONTROL_STEPS, n), FRAMES_PER_EPISODE)
    let_go[:random] = 0
    # The same share in both parts, spread evenly; odd numbers are evened out over neighbouring laps.
    turn = np.concatenate([np.arange(random), np.arange(n - random)]) + lap
    marked = np.floor((turn + 1) * marked_share) > np.floor(turn * marked_share)
    return Recipe(seeds, marked, random, let_go)


def gather(
    worlds: Worlds,
    movement: Movement,
    plan: Recipe,
    actor: Actor | None,
    sight: Sight | None = None,
) -> Episodes:
    """Whole episodes from reset to the last frame; worlds whose physics broke are left out.

    actor: begun for the n - plan.random last worlds (None when there are none). sight: store what
    it makes of observations instead of them (for a codec that is frozen).
    """
    n, threads = worlds.n, torch.get_num_threads()
    observation, info = worlds.reset(seed=plan.seeds.tolist(), marked=plan.marked)
    movement.begin(plan.seeds.tolist())
    frames: list[dict[str, Tensor]] = []
    actions = np.zeros((n, FRAMES_PER_EPISODE, worlds.actions), np.float32)
    mark = np.zeros((n, FRAMES_PER_EPISODE), np.bool_)
    whole = np.ones(n, np.bool_)
    for t in range(FRAMES_PER_EPISODE):
        latent = sight(observation) if sight else None
        frames.append(_copies(observation) if latent is None else {"latent": latent})
        mark[:, t] = info["mark_present"]
        if t == EPISODE_CONTROL_STEPS:
            break
        actions[:, t] = movement.act(observation)
        if actor:
            rows = slice(plan.random, None)
            seen = encode(actor.mind, _part(observation, rows)) if latent is None else latent[rows]
            acts = t < plan.let_go[rows]
            actions[rows, t][acts] = actor.act_on(seen)[acts]
        observation, _, _, _, info = worlds.step(actions[:, t])
        whole &= ~info["unstable"]
    torch.set_num_threads(threads)  # numba's OpenMP layer has set its own number for torch as well
    kept = torch.from_numpy(np.flatnonzero(whole))
    stacked = {name: torch.stack([frame[name] for frame in frames], 1) for name in frames[0]}
    return Episodes(
        observation={name: value[kept.to(value.device)] for name, value in stacked.items()},
        action=torch.from_numpy(actions)[kept],
        mark=torch.from_numpy(mark)[kept],
        policy=(torch.arange(len(whole)) >= plan.random)[kept],
        marked=torch.from_numpy(plan.marked)[kept],
        let_go=torch.from_numpy(plan.let_go)[kept],
    )


def _copies(observation: dict[str, Any]) -> dict[str, Tensor]:
    """Copies: the eye may paint a later frame into the same memory."""
    return {name: torch.as_tensor(value).clone() for name, value in observation.items()}


def _part(observation: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {name: value[rows] for name, value in observation.items()}
