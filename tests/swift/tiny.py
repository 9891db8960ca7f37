"""Our agent, small enough to test in milliseconds, with either tokenizer."""

from __future__ import annotations

from typing import Any

import torch

from mirrormark.agent.agent import Agent
from mirrormark.agent.senses import Senses, SenseSpec
from mirrormark.config import (
    ExpectedGConfig,
    GridTokenizerConfig,
    SwiftAgentConfig,
    SymbolicTokenizerConfig,
)
from mirrormark.swift.build import build
from tests.agent.tiny import ACTIONS, SIZES

PIXELS: Senses = {"vision": SenseSpec("image", 16), "proprioception": SenseSpec("vector", 3)}
SYMBOLS: Senses = {"proprioception": SenseSpec("vector", 3), "cell": SenseSpec("symbol", 7)}
SMALL: dict[str, Any] = {"channels": 4, "posture_width": 16, "bins": 6}
TOKENIZERS: dict[str, tuple[SymbolicTokenizerConfig, Senses]] = {
    "grid": (GridTokenizerConfig(**SMALL, levels=(5, 3)), PIXELS),
    "grid, image alone": (
        GridTokenizerConfig(**SMALL, levels=(3, 3), tokens_per_cell=2, scene_tokens=0, encoder_sees="image"),
        PIXELS,
    ),
    "symbolic": (SymbolicTokenizerConfig(bins=6), SYMBOLS),
}
EXPECTED_G = ExpectedGConfig(control_steps=3, hidden=16, bins=41, reach=40.0)


def swift_agent(kind: str = "symbolic", senses: Senses | None = None, **fields) -> Agent:
    """Without dropout until told to train; fields replace those of the configuration."""
    tokenizer, its_senses = TOKENIZERS[kind]
    torch.manual_seed(0)
    ours: dict[str, Any] = {
        "tokenizer": tokenizer,
        "acting_context": 0,
        "value_reach": 100.0,
        "expected_g": EXPECTED_G,
    }
    config = SwiftAgentConfig(**(SIZES | ours | fields))
    return build(config, senses or its_senses, ACTIONS).eval()
