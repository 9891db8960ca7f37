"""How often a mark comes off when nobody means it, and when somebody is told where it is."""

import json
from pathlib import Path

import numpy as np
from rich.progress import track

from mirrormark.envs.babbling import KINDS, Babbling, BabblingConfig
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS, MirrorMarkEnvs
from mirrormark.exam.oracle import Oracle
from mirrormark.exam.statistics import wilson


def bench_chance(
    body: str = "infant",
    tone: str | None = None,
    tone_scale: float = 1.0,
    episodes: int = 1000,
    oracle_episodes: int = 100,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Removal by every motor babbling and by the scripted oracle, with 95% intervals.

    Args:
        body: Which body.
        tone: The body's tone; none takes its default.
        tone_scale: Scale of the arms' springs.
        episodes: Marked episodes per movement.
        oracle_episodes: Marked episodes of the oracle.
        seed: First world's seed.
        out: Also write the table as JSON here.
    """
    if episodes < 1 or oracle_episodes < 1:
        raise ValueError("episodes and oracle_episodes must be at least 1.")
    rows = []
    for agent in (*KINDS, "oracle"):
        n = oracle_episodes if agent == "oracle" else episodes
        envs = MirrorMarkEnvs(body, n, senses=("proprioception",), tone=tone, tone_scale=tone_scale)
        removed, yoked, distance = _play(envs, agent, seed)
        low, high = wilson(int(removed.sum()), n)
        rows.append(
            {
                "body": body, "tone": envs.scene.tone, "tone_scale": tone_scale, "player": agent,
                "episodes": n, "removed": float(removed.mean()), "low": low, "high": high,
                "yoked_touched": float(yoked.mean()), "mean_distance_m": distance,
            }
        )  # fmt: skip
        print(
            f"{body} ({envs.scene.tone} x{tone_scale}) {agent:>6}: removed {removed.mean():.1%}"
            f" [{low:.1%}, {high:.1%}], yoked site touched {yoked.mean():.1%},"
            f" distance {100 * distance:.1f} cm, n = {n}",
            flush=True,
        )
    if out is not None:
        out.write_text(json.dumps(rows, indent=1) + "\n")


def _play(envs: MirrorMarkEnvs, agent: str, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    observation, info = envs.reset(seed=seed)
    babbling, oracle = None, None
    if agent == "oracle":
        oracle = Oracle(envs)
        oracle.begin()
    else:
        babbling = Babbling(BabblingConfig(agent), envs.actions)  # pyright: ignore[reportArgumentType]
        babbling.begin(range(seed, seed + envs.n))
    distance = 0.0
    for _ in track(range(EPISODE_CONTROL_STEPS), description=agent, transient=True):
        action = babbling.act(observation) if babbling else oracle.act()  # pyright: ignore[reportOptionalMemberAccess]
        observation, *_, info = envs.step(action)
        distance += float(np.mean(info["hand_mark_distance_m"])) / EPISODE_CONTROL_STEPS
    return info["mark_removed"], info["yoked_touched"], distance
