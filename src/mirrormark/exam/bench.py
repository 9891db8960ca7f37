"""`mirrormark bench exam`: how long the default exam takes here. `bench chance`: how often a mark comes off
by motor babbling and by the scripted oracle."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mirrormark.envs.babbling import KINDS, BabblingConfig
from mirrormark.envs.mirror_mark import EPISODE_CONTROL_STEPS, MirrorMarkEnvs
from mirrormark.exam.agents import BabblingAgent, OracleAgent
from mirrormark.exam.statistics import wilson
from mirrormark.training.commands import Device

GOALS_S = {"cpu": 120.0, "cuda": 30.0}
"""The whole default exam of a smoke-sized agent, on two CPU cores or on the GPU machine."""


def bench_exam(
    preset: str = "smoke",
    checkpoint: Path | None = None,
    runs: int = 80,
    chance_runs: int = 1000,
    device: Device = "cpu",
    out: Path | None = None,
) -> None:
    """Time the command `mirrormark exam`, from its start to the written report.

    The first exam after an installation also compiles the eye (half a minute, once): run this twice.

    Args:
        preset: Whose sizes the untrained agent has.
        checkpoint: Examine this agent instead.
        runs: Runs of each condition.
        chance_runs: Runs of each random movement.
        device: Where agent and eye run.
        out: Also write the figures to this JSON file.
    """
    agent = ["--preset", preset] if checkpoint is None else [str(checkpoint)]
    with tempfile.TemporaryDirectory() as folder:
        exam = Path(folder) / "exam"
        command = [sys.executable, "-m", "mirrormark", "exam", *agent, "--out", str(exam), "--device", device]
        command += ["--runs", str(runs), "--chance-runs", str(chance_runs)]
        began = time.perf_counter()
        subprocess.run(command, check=True)
        total = time.perf_counter() - began
        took: dict[str, float] = json.loads((exam / "provenance.json").read_text())["sessions"][0]["took_s"]
    took["start and report"] = round(total - sum(took.values()), 2)
    found = {
        "agent": preset if checkpoint is None else str(checkpoint),
        "runs": runs,
        "device": device,
        "cores": os.cpu_count(),
        "total_s": round(total, 2),
        "took_s": took,
    }
    _print(found)
    if out is not None:
        out.write_text(json.dumps(found) + "\n")


def _print(found: dict) -> None:
    title = f"{found['agent']}, {found['runs']} runs, {found['device']}, {found['cores']} cores"
    table = Table("part", "seconds", title=title)
    for name, seconds in found["took_s"].items():
        table.add_row(name, f"{seconds:.1f}")
    goal = GOALS_S["cuda" if found["device"] == "cuda" else "cpu"]
    table.add_row("whole exam", f"{found['total_s']:.1f} (goal {goal:.0f})")
    Console().print(table)
    print(json.dumps(found))


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
        removed, yoked, distance = _run(envs, agent, seed)
        low, high = wilson(int(removed.sum()), n)
        rows.append(
            {
                "body": body, "tone": envs.scene.tone, "tone_scale": tone_scale, "agent": agent,
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


def _run(envs: MirrorMarkEnvs, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Removed and yoked site touched, of each world, and the mean distance."""
    observation, info = envs.reset(seed=seed)
    agent = OracleAgent() if kind == "oracle" else BabblingAgent(BabblingConfig(kind))  # pyright: ignore[reportArgumentType]
    agent.begin(envs, range(seed, seed + envs.n))
    distance = 0.0
    for _ in track(range(EPISODE_CONTROL_STEPS), description=kind, transient=True):
        observation, *_, info = envs.step(agent.act(observation))
        distance += float(np.mean(info["hand_mark_distance_m"])) / EPISODE_CONTROL_STEPS
    return info["mark_removed"], info["yoked_touched"], distance
