"""The codec that comes with the package, and who takes it."""

from dataclasses import replace

import pytest

from mirrormark.envs import bodies
from mirrormark.presets import PRESETS
from mirrormark.training import weights
from mirrormark.training.commands import shared_codec
from mirrormark.training.env_config import WorldSetup, build_mind
from mirrormark.training.evaluation import mark_recovery
from mirrormark.training.held_out import IndicatorConfig, hold_out
from mirrormark.training.trainer import Life
from mirrormark.training.weights import load_codec, shipped


@pytest.mark.parametrize("body", bodies.names())
def test_the_shipped_codec_sees_marks_and_an_untrained_one_does_not(body):
    place = shipped(f"{body}-codec")
    assert place is not None
    codec, world = load_codec(place), replace(PRESETS["swift"].world, body=body)
    pairs = hold_out(world, IndicatorConfig(everyday_episodes=12, pairs=60), "cpu").pairs
    assert len(pairs.mask) >= 40
    mind = build_mind(replace(PRESETS["smoke"].mind, codec=codec.config), world.worlds(1)).eval()
    # Plain grey is nearer to green than a face is: an untrained codec recovers more than nothing.
    assert mark_recovery(mind, pairs) < 0.5
    mind.codec.load_state_dict(codec.state_dict())
    assert mark_recovery(mind, pairs) > 0.65
    assert sum(file.stat().st_size for file in place.iterdir()) <= 12e6


def test_a_body_without_a_shipped_codec_learns_its_own(capsys, monkeypatch, tmp_path):
    assert shared_codec(None, "infant") is None
    codec = shared_codec("shipped", "infant")
    assert codec is not None and codec.config.kind == PRESETS["swift"].mind.codec.kind
    monkeypatch.setattr(weights, "SHIPPED", tmp_path)
    assert shared_codec("shipped", "arm") is None
    assert "No trained codec is shipped for the arm" in capsys.readouterr().out


def test_a_codec_of_other_senses_is_refused():
    small = PRESETS["smoke"]
    life = Life(WorldSetup(body="arm"), small.mind, small.life, 0, "cpu")
    codec = shared_codec("shipped", "infant")
    assert codec is not None
    with pytest.raises(ValueError, match="of the same body"):
        life.take_codec(codec)
