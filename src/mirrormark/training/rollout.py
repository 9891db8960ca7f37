"""Worlds and agent make episodes. The same `Actor` moves the body in training, in exams and on the live
page."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent.agent import Agent
from mirrormark.envs.babbling import Babbling
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS, MirrorMarkEnvs
from mirrormark.training.cuda_graph import CudaGraph
from mirrormark.training.replay_buffer import Episodes

FRAMES_PER_EPISODE = EPISODE_CONTROL_STEPS + 1
"""The reset's frame and one after each control step."""
_HANDOVER_CONTROL_STEPS = (16, 76)
"""When a policy that lets go does so: late enough to have done something, early enough for what follows."""


class Actor:
    """Moves n bodies by the policy, acting on the posterior of the present frame (D10).

    Its past is what dreams have: `imagination.context` frames, growing by up to `horizon` steps (or to
    `acting_context`) before it is cut back to the context and taken in anew (most frames then cost one step
    of the sequence model, not a refill). A policy that acts on the prior, as the public code's, keeps its
    window of exactly the context, and its first action is even over [-1, 1] in either mode: nothing has been
    predicted yet.
    """

    def __init__(
        self,
        agent: Agent,
        n: int,
        mode: Literal["sample", "mean"] = "sample",
        cuda_graph_rollout: bool = False,
    ) -> None:
        """replays: on a GPU, from a graph; the agent's weights may learn on but must stay where they are."""
        if mode not in ("sample", "mean"):
            raise ValueError(f"mode is {mode!r}: choose sample or mean.")
        self.agent, self.n, self.mode = agent, n, mode
        self.noise_rho = agent.policy.config.noise_rho_at(1.0)
        self.device = next(agent.world_model.parameters()).device
        self._blind = agent.policy.config.acts_on == "prior"
        self._past = agent.config.imagination.context - 1
        self._longest = self._past if self._blind else agent.longest_past
        self._cache = agent.world_model.init_cache(n, max(self._longest, 1))
        self._position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.hidden = torch.zeros(n, agent.world_model.width, device=self.device)
        self._go: Callable[[Tensor, Tensor], Tensor] = self._move
        if cuda_graph_rollout and self._past and not self._blind:
            tokens = torch.zeros(n, agent.spec.K, dtype=torch.long, device=self.device)
            self._go = CudaGraph(self._move, tokens, torch.zeros(n, agent.actions, device=self.device))
        self.begin()

    def begin(self, seed: int = 0) -> None:
        """A new episode: an empty past. Equal seeds draw equal action noise."""
        self._random = torch.Generator(self.device).manual_seed(seed)
        for part in (*self._cache.keys, *self._cache.values, self._cache.trace, self._position, self.hidden):
            part.zero_()
        self._steps = 0  # in the cache: what the position says, without asking the GPU
        self._history: list[tuple[Tensor, Tensor]] = []
        self._noise: Tensor | None = None
        self.tokens: Tensor | None = None

    @torch.no_grad()
    def act(self, observation: dict[str, Any]) -> np.ndarray:
        """Actions (n, A) in [-1, 1] for what is seen now."""
        return self.act_on(encode(self.agent, observation, sample=self.mode == "sample"))

    @torch.no_grad()
    def act_on(self, tokens: Tensor) -> np.ndarray:
        """The same for frames that are already encoded, (n, K)."""
        self.tokens = tokens
        noise, full = self._next_noise(), self._steps == self._longest
        if self._blind:
            action = self._chosen(self._predicted(), noise) if self._history else self._random_action()
        else:
            action = self._chosen(tokens, noise) if full or not self._past else self._go(tokens, noise)
        if self._past:
            self._history = [*self._history, (tokens, action)][-self._past :]
            self._keep_up(tokens, action, full)
        return action.float().cpu().numpy()

    def _random_action(self) -> Tensor:
        shape = (self.n, self.agent.actions)
        return torch.rand(shape, generator=self._random, device=self.device) * 2 - 1

    def _next_noise(self) -> Tensor:
        """Standard normal at every step, `noise_rho` of it from the step before; none for the mean."""
        if self.mode == "mean":
            return torch.zeros(self.n, self.agent.actions, device=self.device)
        noise = torch.randn((self.n, self.agent.actions), generator=self._random, device=self.device)
        if self._noise is not None:
            noise = self.noise_rho * self._noise + (1 - self.noise_rho**2) ** 0.5 * noise
        self._noise = noise
        return noise

    def _chosen(self, tokens: Tensor, noise: Tensor) -> Tensor:
        """What the policy does."""
        choice = self.agent.policy(tokens, self.hidden)
        return (choice.mean + choice.std * noise).tanh()

    def _move(self, tokens: Tensor, noise: Tensor) -> Tensor:
        """Choose, and take in what was seen and done."""
        action = self._chosen(tokens, noise)
        self._take_in(tokens, action)
        return action

    def _take_in(self, tokens: Tensor, action: Tensor) -> None:
        """Move `hidden` on to the next frame."""
        hidden, _ = self.agent.world_model.step(tokens, action, self._cache, self._position)
        self.hidden.copy_(hidden)
        self._position.add_(1)

    def _keep_up(self, tokens: Tensor, action: Tensor, full: bool) -> None:
        """What `_move` has not done, and the count of steps in the cache."""
        if full:
            past_tokens, past_actions = (torch.stack(parts, 1) for parts in zip(*self._history))
            hiddens, _ = self.agent.world_model.prefill(past_tokens, past_actions, self._cache)
            self.hidden.copy_(hiddens[:, -1])
            self._position.fill_(self._past)
            self._steps = self._past
            return
        if self._blind:
            self._take_in(tokens, action)
        self._steps += 1

    @property
    @torch.no_grad()
    def expected_free_energy(self) -> np.ndarray:
        """G of the frame last acted on, (n,) nats."""
        if self.tokens is None:
            raise ValueError("expected_free_energy is known after the first act() of an episode.")
        return self.agent.expected_free_energy(self.tokens).cpu().numpy()

    def _predicted(self) -> Tensor:
        """Parity with the public code (D10): a sample of the prediction, blind to the present frame."""
        log_probs = self.agent.world_model.logits(self.hidden, self._history[-1][0])
        noise = torch.empty_like(log_probs).exponential_(generator=self._random).clamp_min_(1e-30).log()
        return (log_probs - noise).argmax(-1)


@torch.no_grad()
def encode(agent: Agent, observation: dict[str, Any], sample: bool = True) -> Tensor:
    """Tokens (n, K) of an environment's observation, on the agent's device."""
    device = next(agent.world_model.parameters()).device
    return agent.encode(to_tensors(observation, device), sample).tokens


class CachedEncoder:
    """`encode` for iteration after iteration; replays: on a GPU, from a graph for each n, as for an
    `Actor`."""

    def __init__(self, agent: Agent, cuda_graph_rollout: bool) -> None:
        self._agent, self._cuda_graph_rollout = agent, cuda_graph_rollout
        self._graphs: dict[int, CudaGraph] = {}

    def __call__(self, observation: dict[str, Any]) -> Tensor:
        if not self._cuda_graph_rollout:
            return encode(self._agent, observation)
        seen = to_tensors(observation, self._agent.device)
        names, values = tuple(seen), tuple(seen.values())
        n = len(values[0])
        if n not in self._graphs:
            self._graphs[n] = CudaGraph(lambda *given: encode(self._agent, dict(zip(names, given))), *values)
        return self._graphs[n](*values)


def to_tensors(observation: dict[str, Any], device: torch.device | str) -> dict[str, Tensor]:
    """An environment's observation on the agent's device; frames that a GPU eye made stay on the GPU."""
    return {name: torch.as_tensor(value, device=device) for name, value in observation.items()}


class EpisodePlan(NamedTuple):
    """How one iteration's episodes are made: the first `random` worlds by motor babbling, the rest by the
    policy."""

    seeds: np.ndarray  # (n,) int64
    marked: np.ndarray  # (n,) bool
    random: int
    handover: np.ndarray  # (n,) int64: control step from which on motor babbling moves the body


def plan_episodes(
    n: int,
    iteration: int,
    seed: int,
    policy_share: float,
    marked_share: float = 0.5,
    handover_share: float = 0.0,
) -> EpisodePlan:
    """`policy_share` by the policy, of which `handover_share` only until some control step, the rest random;
    `marked_share` of each marked; fresh seeds for every iteration, from one tree (D21)."""
    rng = np.random.default_rng((seed, iteration, 0x6C6170))
    seeds = rng.integers(0, 2**62, n)
    random = n - int(n * policy_share)
    hands_over = rng.random(n) < handover_share
    handover = np.where(hands_over, rng.integers(*_HANDOVER_CONTROL_STEPS, n), FRAMES_PER_EPISODE)
    handover[:random] = 0
    # The same share in both parts, spread evenly; odd numbers are evened out over neighbouring iterations.
    turn = np.concatenate([np.arange(random), np.arange(n - random)]) + iteration
    marked = np.floor((turn + 1) * marked_share) > np.floor(turn * marked_share)
    return EpisodePlan(seeds, marked, random, handover)


def collect(
    envs: MirrorMarkEnvs,
    babbling: Babbling,
    plan: EpisodePlan,
    actor: Actor | None,
    encoder: CachedEncoder | None = None,
) -> Episodes:
    """Whole episodes from reset to the last frame; worlds whose physics broke are left out.

    actor: begun for the n - plan.random last worlds (None when there are none). sight: store what
    it makes of observations instead of them (for a tokenizer that is frozen).
    """
    n, threads = envs.n, torch.get_num_threads()
    observation, info = envs.reset(seed=plan.seeds.tolist(), marked=plan.marked)
    babbling.begin(plan.seeds.tolist())
    frames: list[dict[str, Tensor]] = []
    actions = np.zeros((n, FRAMES_PER_EPISODE, envs.actions), np.float32)
    mark = np.zeros((n, FRAMES_PER_EPISODE), np.bool_)
    whole = np.ones(n, np.bool_)
    for t in range(FRAMES_PER_EPISODE):
        tokens = encoder(observation) if encoder else None
        frames.append(_copies(observation) if tokens is None else {"tokens": tokens})
        mark[:, t] = info["mark_present"]
        if t == EPISODE_CONTROL_STEPS:
            break
        actions[:, t] = babbling.act(observation)
        if actor:
            rows = slice(plan.random, None)
            seen = encode(actor.agent, _part(observation, rows)) if tokens is None else tokens[rows]
            acts = t < plan.handover[rows]
            actions[rows, t][acts] = actor.act_on(seen)[acts]
        observation, _, _, _, info = envs.step(actions[:, t])
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
        handover=torch.from_numpy(plan.handover)[kept],
    )


def _copies(observation: dict[str, Any]) -> dict[str, Tensor]:
    """Copies: the eye may paint a later frame into the same memory."""
    return {name: torch.as_tensor(value).clone() for name, value in observation.items()}


def _part(observation: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {name: value[rows] for name, value in observation.items()}
