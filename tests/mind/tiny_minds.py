"""Minds small enough to test in milliseconds, one for each codec."""

from dataclasses import replace

import torch
from torch import Tensor

from mirrormark.mind.codec import CodecConfig
from mirrormark.mind.dynamics import DynamicsConfig
from mirrormark.mind.mind import ImaginationConfig, Mind, MindConfig
from mirrormark.mind.policy import PolicyConfig, ValueConfig
from mirrormark.mind.self_prior import SelfPriorConfig
from mirrormark.mind.senses import Senses, SenseSpec

ACTIONS = 3
PIXELS: Senses = {"vision": SenseSpec("image", 16), "proprioception": SenseSpec("vector", 3)}
PAPER_PIXELS: Senses = {"vision": SenseSpec("image", 64), "proprioception": SenseSpec("vector", 3)}
SYMBOLS: Senses = {"proprioception": SenseSpec("vector", 3), "cell": SenseSpec("symbol", 7)}
FAST = {"channels": 4, "posture_width": 16, "levels": (3, 3)}
CODECS: dict[str, tuple[CodecConfig, Senses]] = {
    "categorical": (CodecConfig(variables=4, classes=5, channels=2, embedding=64), PAPER_PIXELS),
    "senses": (CodecConfig(kind="senses", bins=6, **FAST), PIXELS),
    "senses, scene": (
        CodecConfig(kind="senses", bins=6, scene_tokens=1, encoder_sees="surprise", **FAST),
        PIXELS,
    ),
    "symbolic": (CodecConfig(kind="symbolic", bins=6), SYMBOLS),
}
CELLS = replace(CODECS["senses"][0], tokens_per_cell=1, scene_tokens=1, levels=(5, 3))
"""One token a cell, and a body that can be painted: what chained, recalling predictions need."""


def tiny_mind(kind: str = "symbolic", senses: Senses | None = None, **parts) -> Mind:
    """A mind with the named codec; parts replace fields of MindConfig."""
    config, its_senses = CODECS[kind]
    torch.manual_seed(0)
    fields = {
        "codec": config,
        "dynamics": DynamicsConfig(width=16, layers=2, heads=2, ffn=32, max_length=16, dropout=0.0),
        "self_prior": SelfPriorConfig(width=16, heads=2, ffn=32),
        "policy": PolicyConfig(hidden=16),
        "value": ValueConfig(hidden=16, bins=21, reach=10),
        "imagination": ImaginationConfig(horizon=5, context=4),
    }
    return Mind(MindConfig(**(fields | parts)), senses or its_senses, ACTIONS)


def observe(senses: Senses, *lead: int) -> dict[str, Tensor]:
    """A random observation of any senses."""
    made = {}
    for name, sense in senses.items():
        if sense.kind == "image":
            made[name] = torch.randint(0, 256, (*lead, *sense.shape), dtype=torch.uint8)
        elif sense.kind == "vector":
            made[name] = torch.rand(*lead, sense.size) * 2 - 1
        else:
            made[name] = torch.randint(0, sense.size, (*lead, 1))
    return made


def random_latent(mind: Mind, *lead: int) -> Tensor:
    """Class indices drawn evenly."""
    return torch.stack([torch.randint(0, c, lead) for c in mind.spec.classes], -1)
