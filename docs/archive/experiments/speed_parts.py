"""What each trick for speed brings to one whole train step on a GPU (row D of the redesign).

    python experiments/slim/speed_parts.py OUT.json           # all variants, each in a process of its own
    python experiments/slim/speed_parts.py OUT.json VARIANT   # one of them

All variants compile side by side; then each is timed alone, one after another. Batches and networks are the
presets' own (`swift` without the mechanisms of runs.txt), data are noise: speed does not depend on it.
"""

import fcntl
import json
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from mirrormark.life.bench import _made_up
from mirrormark.life.schedule import Lap
from mirrormark.mind import codec_categorical, self_prior, transformer
from mirrormark.mind.configs import MINDS
from mirrormark.mind.senses import centred_image
from mirrormark.presets import PRESETS

VARIANTS = {  # preset, overlap, Triton kernels, compile, CUDA graph, TF32, plain convolutions
    "swift": ("swift", True, True, True, True, True, False),
    "swift no-overlap": ("swift", False, True, True, True, True, False),
    "swift no-triton": ("swift", True, False, True, True, True, False),
    "swift no-overlap no-triton": ("swift", False, False, True, True, True, False),
    "swift graph only": ("swift", False, False, False, True, True, False),
    "swift eager": ("swift", False, False, False, False, True, False),
    "paper fp32": ("paper", True, False, True, True, False, False),
    "paper": ("paper", True, False, True, True, True, False),
    "paper no-overlap": ("paper", False, False, True, True, True, False),
    "paper no-overlap plain convolutions": ("paper", False, False, True, True, True, True),
    "paper graph only plain convolutions": ("paper", False, False, False, True, True, True),
}
STAGES = ("world", "self_prior", "policy")
READY_S = 225


class PlainEncoder(nn.Module):
    def __init__(self, channels: int, embedding: int):
        super().__init__()
        c = channels
        sizes = (3, c, 2 * c, 4 * c, 8 * c)
        self.body = nn.ModuleList(nn.Conv2d(a, b, 4, 2) for a, b in pairwise(sizes))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = centred_image(image).permute(0, 3, 1, 2)
        for conv in self.body:
            x = torch.relu(conv(x))
        return x.flatten(1)


class PlainDecoder(nn.Module):
    def __init__(self, channels: int, embedding: int):
        super().__init__()
        c = channels
        self.linear = nn.Linear(embedding, embedding)
        sizes, kernels = (embedding, 4 * c, 2 * c, c, 3), (5, 5, 6, 6)
        self.body = nn.ModuleList(
            nn.ConvTranspose2d(a, b, k, 2) for a, b, k in zip(sizes, sizes[1:], kernels)
        )

    def forward(self, embedding: torch.Tensor) -> torch.Tensor:
        x = self.linear(embedding)[:, :, None, None]
        for i, conv in enumerate(self.body):
            x = conv(x) if i == 3 else torch.relu(conv(x))
        return x.permute(0, 2, 3, 1)


def one(out: Path, name: str) -> None:
    preset, overlap, triton, compiled, graph, tf32, plain = VARIANTS[name]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    if not triton:
        transformer.TRITON = self_prior.TRITON = False
    if plain:
        codec_categorical.ImageEncoder, codec_categorical.ImageDecoder = PlainEncoder, PlainDecoder  # type: ignore
    if preset == "swift":
        m = MINDS["swift"]
        MINDS["swift"] = replace(
            m,
            dynamics=replace(
                m.dynamics, keeps=False, drifts=False, chained=False, recalls=0.0, reads="classes"
            ),
            policy=replace(m.policy, recalls=False),
            imagination=replace(m.imagination, range_of="returns", centre_cost=False),
            value=replace(m.value, reach=5000.0),
            codec=replace(m.codec, hush=0.0),
        )
    config = replace(
        PRESETS[preset].life.learner, overlap=overlap, compile=compiled, capture=graph, restless_share=0.0
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began = time.perf_counter()
    learner, memory = _made_up(preset, config, device)
    learner.learn(memory, lap(8))
    first_s = time.perf_counter() - began
    (out.parent / f"ready-{name.replace(' ', '-')}").touch()
    while len(list(out.parent.glob("ready-*"))) < len(VARIANTS) and not (out.parent / "go").exists():
        time.sleep(0.5)
    with open(out.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        times = []
        for _ in range(3):
            began = time.perf_counter()
            learner.learn(memory, lap(30))  # ends with a synchronisation
            times.append((time.perf_counter() - began) / 30 * 1e3)
        peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
        row = {
            "variant": name,
            "ms": [round(t, 3) for t in times],
            "first_s": round(first_s, 1),
            "peak_GiB": peak,
        }
        print(json.dumps(row), flush=True)
        with open(out, "a") as file:
            file.write(json.dumps(row) + "\n")


def lap(steps: int) -> Lap:
    return Lap(0, "life", 0, 0, steps, STAGES, True, False, False, 0.0)


def everything(out: Path) -> None:
    began = time.time()
    jobs = [subprocess.Popen([sys.executable, __file__, str(out), name]) for name in VARIANTS]
    while any(job.poll() is None for job in jobs):
        if time.time() - began > READY_S:
            (out.parent / "go").touch()
        time.sleep(1)


if __name__ == "__main__":
    one(Path(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 2 else everything(Path(sys.argv[1]))
