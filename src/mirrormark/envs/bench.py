"""How fast the environment runs on this machine."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from mirrormark.envs import bodies
from mirrormark.envs.mirror_mark import MirrorMarkEnvs
from mirrormark.envs.senses import Device

REFERENCE_STEPS_PER_S = 11.0
"""The paper's public environment, one process: two cameras, software OpenGL (speed.md)."""


def bench_world(
    body: str = "infant",
    n: tuple[int, ...] = (1, 16, 64, 256),
    seconds: float = 3.0,
    device: Device = "cpu",
    out: Path | None = None,
) -> None:
    """Control steps per second, with vision, with the symbolic eye and with neither.

    Args:
        body: Which body.
        n: Numbers of environments to try.
        seconds: How long to run each.
        device: Where the eye runs, cpu or cuda.
        out: Also write the table as JSON here.
    """
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds}; give a number above 0.")
    rows = []
    for envs in n:
        for senses in (("vision", "proprioception"), ("cell", "proprioception"), ("proprioception",)):
            rows.append(_measure(body, envs, senses, seconds, device))
            print(
                f"{body:>8}  environments {envs:>5}  {'+'.join(senses):<24} {device:<5}"
                f" {rows[-1]['control_steps_per_s']:>10,.0f} control steps/s",
                flush=True,
            )
    first = _first_frame_s(body)
    print(f"gymnasium.make to first frame, new process, warm numba cache: {first:.2f} s")
    print(
        f"(the paper's public environment: {REFERENCE_STEPS_PER_S:.0f} control steps/s a process,"
        " two cameras, software GL)"
    )
    result = {
        "cores": os.cpu_count(),
        "first_frame_s": first,
        "reference": REFERENCE_STEPS_PER_S,
        "rows": rows,
    }
    print(json.dumps(result))
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")


def _measure(body: str, n: int, senses: tuple[str, ...], seconds: float, device: Device) -> dict[str, Any]:
    envs = MirrorMarkEnvs(body, n, senses=senses, device=device)
    rng = np.random.default_rng(0)
    envs.reset(seed=0)
    actions = rng.uniform(-1, 1, (8, n, envs.actions)).astype(np.float32)
    for k in range(3):
        observation = envs.step(actions[k])[0]
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        observation = envs.step(actions[steps % 8])[0]
        steps += 1
        if steps % 100 == 97:  # an episode's own cost: its reset
            envs.reset()
    if device == "cuda" and "vision" in observation:
        observation["vision"].copy_to_host()  # waits for the GPU
    rate = steps * n / (time.perf_counter() - start)
    return {"body": body, "num_envs": n, "senses": senses, "device": device, "control_steps_per_s": rate}


def _first_frame_s(body: str) -> float:
    code = (
        "import time; start = time.perf_counter()\n"
        "import gymnasium, mirrormark\n"
        f"env = gymnasium.make('mirrormark/{bodies.get(body).title}-v0'); env.reset(seed=0)\n"
        "print(time.perf_counter() - start)"
    )
    for _ in range(2):  # the first run warms numba's cache
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])
