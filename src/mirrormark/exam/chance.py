"""How often a mark comes off when nobody means it, and when somebody is told where it is."""

import json
from pathlib import Path

import numpy as np
from rich.progress import track

from mirrormark.envs.babbling import KINDS, Movement, MovementConfig
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS, Worlds
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
    """Removal by every everyday movement and by the scripted oracle, with 95% intervals.

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
    for player in (*KINDS, "oracle"):
        n = oracle_episodes if player == "oracle" else episodes
        worlds = Worlds(body, n, senses=("proprioception",), tone=tone, tone_scale=tone_scale)
        removed, yoked, distance = _play(worlds, player, seed)
        low, high = wilson(int(removed.sum()), n)
        rows.append(
            {
                "body": body, "tone": worlds.scene.tone, "tone_scale": tone_scale, "player": player,
                "episodes": n, "removed": float(removed.mean()), "low": low, "high": high,
                "yoked_touched": float(yoked.mean()), "mean_distance_m": distance,
            }
        )  # fmt: skip
        print(
            f"{body} ({worlds.scene.tone} x{tone_scale}) {player:>6}: removed {removed.mean():.1%}"
            f" [{low:.1%}, {high:.1%}], yoked site touched {yoked.mean():.1%},"
            f" distance {100 * distance:.1f} cm, n = {n}",
            flush=True,
        )
    if out is not None:
        out.write_text(json.dumps(rows, indent=1) + "\n")


def _play(worlds: Worlds, player: str, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    observation, info = worlds.reset(seed=seed)
    movement, oracle = None, None
    if player == "oracle":
        oracle = Oracle(worlds)
        oracle.begin()
    else:
        movement = Movement(MovementConfig(player), worlds.actions)  # pyright: ignore[reportArgumentType]
        movement.begin(range(seed, seed + worlds.n))
    distance = 0.0
    for _ in track(range(EPISODE_CONTROL_STEPS), description=player, transient=True):
        action = movement.act(observation) if movement else oracle.act()  # pyright: ignore[reportOptionalMemberAccess]
        observation, *_, info = worlds.step(action)
        distance += float(np.mean(info["hand_mark_distance_m"])) / EPISODE_CONTROL_STEPS
    return info["mark_removed"], info["yoked_touched"], distance
