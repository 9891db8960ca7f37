"""The lives that are to tell swift's departures apart: minutes of a GPU depend on their words."""

from dataclasses import replace
from pathlib import Path

import pytest

from mirrormark import training
from mirrormark.life import live
from mirrormark.life.setup import build_mind
from mirrormark.presets import PRESETS, Preset

LIVES = (Path(__file__).parents[2] / "experiments" / "ablations.txt").read_text().splitlines()


def test_lives_have_names_of_their_own():
    assert len({line.split()[0] for line in LIVES}) == len(LIVES) > 10


@pytest.mark.parametrize("line", LIVES, ids=lambda line: line.split()[0])
def test_every_life_can_be_lived_and_all_but_one_differ_from_swift(
    line: str, monkeypatch: pytest.MonkeyPatch
):
    asked = []
    monkeypatch.setattr(training.commands, "train", lambda *given: asked.append(given))
    name, *words = line.split()
    training.train(words)
    ((_, world, mind, config, *_),) = asked
    live.check(mind, config)
    build_mind(mind, world.worlds(1))
    assert config.codec_from == "shipped"
    same = Preset(world, mind, replace(config, codec_from=None)) == PRESETS["swift"]
    assert same == (name == "as-it-is")
