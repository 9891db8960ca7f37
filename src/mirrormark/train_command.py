"""The words of `mirrormark train`: a preset by name, and any field of it by its dotted name."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from mirrormark.presets import PRESETS, Config, preset
from mirrormark.training import commands
from mirrormark.training.commands import Device


@dataclass(frozen=True)
class Train:
    """Train an agent, or resume a run. Every field of the preset can be overridden; -H says what each is."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    """The preset's environment, agent and training."""
    preset: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(PRESETS) + "}")] = "smoke"
    """What all other options are when they are left out."""
    body: str | None = None
    """Which body; None keeps the preset's."""
    seed: int = 0
    """Seed of everything random in this run."""
    out: Path | None = None
    """Run folder; None: runs/PRESET-BODY-seedN."""
    resume: bool = False
    """Go on with the run in that folder."""
    device: Device = "auto"
    """cpu, cuda, or auto: a GPU where there is one."""
    print: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the resolved configuration as JSON, and train nothing."""


def train(arguments: list[str]) -> None:
    """Run the command with these words."""
    asked = parse(arguments)
    name, config = asked.preset, asked.config
    if asked.print:
        words = commands.resolve(name, config.env, config.agent, config.training, asked.seed)[2]
        print(json.dumps(words, indent=1))
        return
    out = asked.out or Path("runs") / f"{name}-{config.env.body}-seed{asked.seed}"
    commands.train(
        name, config.env, config.agent, config.training, asked.seed, out, asked.resume, asked.device
    )


def parse(arguments: list[str]) -> Train:
    """What these words ask for, its configuration whole."""
    name = _preset_name(arguments)
    asked = tyro.cli(
        Train,
        args=arguments,
        prog="mirrormark train",
        compact_help=True,  # some 130 fields: -H tells what each is
        default=Train(config=preset(name), preset=name),
        config=(tyro.conf.AvoidSubcommands,),  # the preset says which agent and tokenizer
    )
    env = asked.config.env
    if asked.body is None or asked.body == env.body:
        return asked
    # A tone is a body's own: another body takes its default.
    return replace(asked, config=replace(asked.config, env=replace(env, body=asked.body, tone=None)))


def _preset_name(arguments: list[str]) -> str:
    """The preset decides all other defaults, so its name is read first."""
    for i, word in enumerate(arguments):
        if word == "--preset" and i + 1 < len(arguments):
            return arguments[i + 1]
        if word.startswith("--preset="):
            return word.partition("=")[2]
    return next(iter(PRESETS))
