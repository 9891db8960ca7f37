"""How fast could a policy learn to take the mark off, if seeing were no problem and the cost were right?

    python experiments/bound.py [--cost mark | seen | outlook] [--laps 60] [--episodes 256] ...

An upper bound, and a quick place to try a cost or a learning rule: PPO (Schulman et al. 2017) on the symbolic
eye, without codec, sequence model or self-prior; a lap takes some ten seconds of one core. It is told where
the mark is seen and, with --cost mark, whether it is on: no mind ever learns from it, none of it is shipped.

--cost mark     1 while the mark is on: what the exam asks for
--cost seen     1 while the mark is seen: what G asks for
--cost outlook  for how much of the next 24 steps it would be seen if the body moved on as every day

One line a lap: marks removed and yoked sites touched in marked episodes that a policy moved to their end, by
surface; marks that are on, but not seen; cost, also of marks seen, hidden and off; yoked sites touched in
unmarked episodes; mean square torque; what the outlook explains; share of clipped actions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
import tyro
from torch import Tensor, nn

from mirrormark.life.setup import WorldSetup, movement_of
from mirrormark.mind.policy import TanhNormal
from mirrormark.world.senses import SYMBOLIC_SENSES
from mirrormark.world.twin import Twin
from mirrormark.world.worlds import EPISODE_CONTROL_STEPS as STEPS
from mirrormark.world.worlds import Worlds

AHEAD = 24  # control steps of everyday movement that an outlook foretells
GRID = 15  # cells of the symbolic eye in a row; one symbol more says that no mark is seen
VALUE_UNIT = 20.0  # so that the value network's numbers are of order 1


@dataclass(frozen=True)
class Settings:
    """What is tried."""

    cost: Literal["mark", "seen", "outlook"] = "mark"
    laps: int = 60
    episodes: int = 256
    """In a lap."""
    marked_share: float = 1.0
    everyday_share: float = 0.2
    """With --cost outlook: moved so from the beginning; half of the others let go later."""
    epochs: int = 8
    batches: int = 8
    """In an epoch."""
    whole_episodes: int = 0
    """A batch is so many whole episodes, as in a life; 0: single control steps."""
    learning_rate: float = 3e-4
    """Of policy and value."""
    final_learning_rate: float | None = None
    """Where a cosine ends that the policy's rate follows, as in a life; None: it stays."""
    clip: float = 0.2
    discount: float = 0.99
    lambda_: float = 0.95
    entropy: float = 1e-3
    hidden: int = 256
    start_spread: float = 2.0
    """The policy's standard deviation at first, before its sigmoid."""
    persistence: float = 0.0
    """Of its noise, from one control step to the next, as mind.policy.persistence."""
    last_persistence: float | None = None
    """What it comes to in the last lap; None: it stays."""
    persistence_power: float = 1.0
    """1: in equal steps; above: slowly at first."""
    effort: float = 0.0
    """Weight of the torques' expected squares, summed over joints: a prior over actions around rest."""
    calm: float = 0.0
    """Weight in the cost of how far joints are from where a limp body rests (mean, in half their ranges)."""
    own_scale: bool = False
    """Measure what an episode exceeded by its own spread, or a tenth of all episodes' if that is more."""
    reflects: bool = False
    """Learn from every episode twice, as life.reflects."""
    body: str = "infant"
    seed: int = 0


class Lap(NamedTuple):
    """A lap's episodes: (steps or frames, episodes, ...)."""

    features: Tensor  # (STEPS + 1, n, features)
    raw: Tensor  # (STEPS, n, actions): before tanh
    log_prob: Tensor
    on: Tensor  # (STEPS, n) after each action
    seen: Tensor
    let_go: Tensor  # (n,) from which step on everyday movement moves the body
    info: dict[str, np.ndarray]  # of worlds; all else is of their twins, too, where it --reflects


class Past:
    """What a policy without a sequence model needs to be told of its past."""

    def __init__(self, n: int, actions: int) -> None:
        self.cell, self.age, self.ever = np.full((n, 2), -1.0), np.zeros(n), np.zeros(n)
        self.lately, self.posture, self.angle = np.zeros((n, 2)), None, None
        self.action = np.zeros((n, actions))

    def features(self, observation: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(n, features), and whether the mark is seen."""
        cell, angle = observation["cell"][:, 0].astype(int), observation["proprioception"].astype(float)
        seen = cell < GRID**2
        place = np.stack((cell % GRID, cell // GRID), 1) / (GRID // 2) - 1.0
        self.cell = np.where(seen[:, None], place, self.cell)
        self.age, self.ever = np.where(seen, 0, self.age + 1), np.maximum(self.ever, seen)
        self.lately += np.array([0.1, 0.03]) * (seen[:, None] - self.lately)
        self.posture = angle if self.posture is None else self.posture + 0.1 * (angle - self.posture)
        speed = np.zeros_like(angle) if self.angle is None else 5.0 * (angle - self.angle)
        self.angle = angle
        memory = np.stack((seen, np.exp(-self.age / 8), self.ever), 1)
        parts = (angle, speed, self.action, self.cell, memory, self.posture, self.lately)
        return np.concatenate(parts, 1).astype(np.float32), seen


def network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Starts near zero."""
    last = nn.Linear(hidden, outputs)
    nn.init.normal_(last.weight, std=1e-3)
    first = (nn.Linear(inputs, hidden), nn.LayerNorm(hidden), nn.ReLU())
    return nn.Sequential(*first, nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.ReLU(), last)


class Agent:
    """Policy, value and outlook."""

    def __init__(self, settings: Settings, features: int, rest: Tensor) -> None:
        self.settings, self.rest, actions = settings, rest, len(rest)
        self.policy = network(features, settings.hidden, 2 * actions)
        self.value, self.outlook = (network(features, settings.hidden, 1) for _ in range(2))
        both = [{"params": list(part.parameters())} for part in (self.policy, self.value)]
        self.descent = torch.optim.Adam(both, settings.learning_rate)
        self.outlook_descent = torch.optim.Adam(self.outlook.parameters(), 6e-4)
        self.foretold: list[tuple[Tensor, Tensor]] = []

    def choice(self, features: Tensor) -> TanhNormal:
        """As the package's policy."""
        mean, spread = self.policy(features).chunk(2, -1)
        return TanhNormal(mean, 0.1 + 0.9 * torch.sigmoid(spread + self.settings.start_spread))

    def slow_down(self, progress: float) -> None:
        """Of the laps, `progress` are over."""
        first, last = self.settings.learning_rate, self.settings.final_learning_rate
        if last is not None:
            rate = last + (first - last) * 0.5 * (1 + np.cos(np.pi * progress))
            self.descent.param_groups[0]["lr"] = float(rate)

    def foretell(self, lap: Lap) -> str:
        """Learn what follows on everyday movement; tells how well it was known before."""
        target = lap.seen.unfold(0, AHEAD, 1).mean(-1)
        followed = torch.arange(len(target))[:, None] >= lap.let_go
        features, target = lap.features[: len(target)][followed], target[followed]
        error = (self.outlook(features)[:, 0] - target).square().mean().item()
        self.foretold = [*self.foretold[-39:], (features, target)]
        features, known = (torch.cat(part) for part in zip(*self.foretold))
        for _ in range(60):
            some = torch.randint(len(known), (2048,))
            loss = (self.outlook(features[some])[:, 0] - known[some]).square().mean()
            self.outlook_descent.zero_grad()
            loss.backward()
            self.outlook_descent.step()
        return f"R² {1 - error / target.var():.2f} "

    def _batches(self, episode: Tensor) -> list[Tensor]:
        """An epoch's batches, as indices; episode: of each control step."""
        s = self.settings
        if not s.whole_episodes:
            return list(torch.randperm(len(episode)).chunk(s.batches))
        drawn = (torch.randint(int(episode.max()) + 1, (s.whole_episodes,)) for _ in range(s.batches))
        return [torch.isin(episode, some).nonzero()[:, 0] for some in drawn]

    @torch.no_grad()
    def cost(self, lap: Lap) -> Tensor:
        """Of what each action led to, (STEPS, n)."""
        angle = lap.features[1:, :, : len(self.rest)]
        strain = self.settings.calm * (angle - self.rest).abs().mean(-1)
        if self.settings.cost == "outlook":
            return self.outlook(lap.features[1:])[..., 0].clamp(0, 1) + strain
        return (lap.on if self.settings.cost == "mark" else lap.seen) + strain

    def learn(self, lap: Lap, cost: Tensor) -> float:
        """PPO's epochs; gives the share of clipped actions."""
        s, acted = self.settings, torch.arange(STEPS)[:, None] < lap.let_go
        value = VALUE_UNIT * self.value(lap.features)[..., 0].detach()
        excess, coming = torch.zeros_like(cost), torch.zeros_like(cost[0])
        for t in reversed(range(STEPS)):
            surprise = cost[t] - 0.5 + s.discount * value[t + 1] - value[t]
            coming = surprise + s.discount * s.lambda_ * coming * (t + 1 < lap.let_go)
            excess[t] = coming
        target = (excess + value[:-1])[acted] / VALUE_UNIT
        if s.own_scale:
            excess = excess / excess.std(0).clamp_min(0.1 * excess.std())
        excess = excess[acted]
        excess = (excess - excess.mean()) / (excess.std() + 1e-6)
        features, raw, before = lap.features[:-1][acted], lap.raw[acted], lap.log_prob[acted]
        clipped, episode = [], torch.arange(acted.shape[1]).expand_as(acted)[acted]
        for _ in range(s.epochs):
            for some in self._batches(episode):
                choice = self.choice(features[some])
                ratio = (choice.log_prob(raw[some]) - before[some]).clamp(-10, 1.1).exp()
                bounded = ratio.clamp(1 - s.clip, 1 + s.clip)
                worse = torch.maximum(ratio * excess[some], bounded * excess[some])
                torque = (choice.mean + choice.std * torch.randn_like(choice.mean)).tanh()
                loss = worse.mean() - s.entropy * choice.entropy().mean()
                loss = loss + s.effort * torque.square().sum(-1).mean()
                loss = loss + (self.value(features[some])[:, 0] - target[some]).square().mean()
                self.descent.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
                self.descent.step()
                clipped.append(((ratio - 1).abs() > s.clip).float().mean())
        return float(torch.stack(clipped).mean())


@torch.no_grad()
def gather(worlds: Worlds, setup: WorldSetup, agent: Agent, s: Settings, number: int) -> Lap:
    """A lap's episodes."""
    rng, n = np.random.default_rng((s.seed, number)), worlds.n
    seeds, marked = rng.integers(0, 2**62, n).tolist(), rng.random(n) < s.marked_share
    let_go = np.full(n, STEPS)
    if s.cost == "outlook":
        let_go = np.where(rng.random(n) < 0.5, rng.integers(16, 76, n), STEPS)
        let_go[: int(n * s.everyday_share)] = 0
    observation, info = worlds.reset(seed=seeds, marked=marked)
    twin, everyday = Twin(worlds) if s.reflects else None, movement_of(setup, worlds)
    everyday.begin(seeds)
    past = Past(2 * n if twin else n, worlds.actions)
    row, _ = past.features(_and_twins(observation, twin))
    frames, raws, log_probs, on, seen = [row], [], [], [], []
    noise, lasts = torch.randn(n, worlds.actions), s.persistence
    if s.last_persistence is not None:
        lasts += (s.last_persistence - s.persistence) * (number / max(s.laps - 1, 1)) ** s.persistence_power
    for t in range(STEPS):
        choice = agent.choice(torch.from_numpy(frames[-1]))
        raw = choice.mean[:n] + choice.std[:n] * noise
        noise = lasts * noise + (1 - lasts**2) ** 0.5 * torch.randn_like(noise)
        action = np.where((t < let_go)[:, None], raw.tanh().numpy(), everyday.act(observation))
        observation, _, _, _, info = worlds.step(action.astype(np.float32))
        past.action = np.concatenate((action, twin.act(action))) if twin else action
        row, visible = past.features(_and_twins(observation, twin))
        raw = torch.cat((raw, torch.from_numpy(twin.act(raw.numpy())))) if twin else raw
        frames.append(row)
        raws.append(raw)
        log_probs.append(choice.log_prob(raw))
        on.append(np.resize(info["mark_present"], len(row)))
        seen.append(visible)
    features, acted = torch.from_numpy(np.stack(frames)), (torch.stack(raws), torch.stack(log_probs))
    was_on, was_seen = (torch.from_numpy(np.stack(rows)).float() for rows in (on, seen))
    info["counts"], info["bare"] = marked & (let_go == STEPS), ~marked & (let_go == STEPS)
    info["surfaces"] = np.array([surface.geom.removesuffix("_geom") for surface in worlds.scene.surfaces])
    return Lap(features, *acted, was_on, was_seen, torch.from_numpy(np.resize(let_go, len(row))), info)


def _and_twins(observation: dict[str, np.ndarray], twin: Twin | None) -> dict[str, np.ndarray]:
    """What the worlds' bodies sense, then what their twins do."""
    if not twin:
        return observation
    return {name: np.concatenate((observation[name], value)) for name, value in twin.observe().items()}


def rest_of(worlds: Worlds) -> Tensor:
    """Where the joints of a body come to rest that does nothing, (actions,)."""
    observation, _ = worlds.reset(seed=0)
    for _ in range(STEPS):
        observation, *_ = worlds.step(np.zeros((worlds.n, worlds.actions), np.float32))
    return torch.from_numpy(observation["proprioception"]).float().mean(0)


def told(lap: Lap, cost: Tensor) -> str:
    """A line about the lap."""
    counts, removed, surface = (lap.info[k] for k in ("counts", "mark_removed", "mark_surface"))
    by = [f"{g} {removed[counts & (surface == k)].mean():.2f}" for k, g in enumerate(lap.info["surfaces"])]
    on, seen = lap.on.bool(), lap.seen.bool()
    states = {"seen": on & seen, "hidden": on & ~seen, "off": ~on}
    says = ", ".join(f"{name} {cost[where].mean():.2f}" for name, where in states.items())
    bare, torque = lap.info["yoked_touched"][lap.info["bare"]], lap.raw.tanh().square().mean()
    return (
        f"removed {removed[counts].mean():.3f} yoked {lap.info['yoked_touched'][counts].mean():.3f} "
        f"({', '.join(by)}) hidden {(on & ~seen).sum() / on.sum():.2f} cost {cost.mean():.3f} ({says}) "
        f"unmarked: {bare.mean() if len(bare) else float('nan'):.3f} torque² {torque:.2f}"
    )


def main(s: Settings) -> None:
    """Laps."""
    torch.manual_seed(s.seed)
    setup = WorldSetup(body=s.body, senses=SYMBOLIC_SENSES, threads=1)
    worlds, began = setup.worlds(s.episodes), time.time()
    print(setup.ablation, flush=True)
    features, _ = Past(worlds.n, worlds.actions).features(worlds.reset(seed=0)[0])
    agent = Agent(s, features.shape[1], rest_of(worlds))
    for number in range(s.laps):
        lap = gather(worlds, setup, agent, s, number)
        knows = agent.foretell(lap) if s.cost == "outlook" else ""
        cost = agent.cost(lap)
        agent.slow_down(number / max(s.laps - 1, 1))
        clipped, episodes = agent.learn(lap, cost), (number + 1) * s.episodes
        print(f"{episodes} episodes, {time.time() - began:.0f} s:", told(lap, cost), end=" ", flush=True)
        print(f"{knows}clipped {clipped:.2f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(tyro.cli(Settings, description=__doc__))
