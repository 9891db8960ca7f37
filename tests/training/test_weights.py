"""The tokenizer that comes with the package, and who takes it."""

from dataclasses import replace

import pytest

from mirrormark.envs import bodies
from mirrormark.presets import PRESETS
from mirrormark.training import weights
from mirrormark.training.commands import shared_tokenizer
from mirrormark.training.env_config import EnvConfig, build_agent
from mirrormark.training.evaluation import mark_recovery
from mirrormark.training.held_out import EvaluationConfig, hold_out
from mirrormark.training.trainer import Trainer
from mirrormark.training.weights import load_tokenizer, shipped


@pytest.mark.parametrize("body", bodies.names())
def test_the_shipped_tokenizer_sees_marks_and_an_untrained_one_does_not(body):
    place = shipped(f"{body}-tokenizer")
    assert place is not None
    tokenizer, env = load_tokenizer(place), replace(PRESETS["swift"].env, body=body)
    pairs = hold_out(env, EvaluationConfig(babbling_episodes=12, pairs=60), "cpu").pairs
    assert len(pairs.mask) >= 40
    agent = build_agent(replace(PRESETS["smoke"].agent, tokenizer=tokenizer.config), env.make_envs(1)).eval()
    # Plain grey is nearer to green than a face is: an untrained tokenizer recovers more than nothing.
    assert mark_recovery(agent, pairs) < 0.5
    agent.tokenizer.load_state_dict(tokenizer.state_dict())
    assert mark_recovery(agent, pairs) > 0.65
    assert sum(file.stat().st_size for file in place.iterdir()) <= 12e6


def test_a_body_without_a_shipped_tokenizer_learns_its_own(capsys, monkeypatch, tmp_path):
    assert shared_tokenizer(None, "infant") is None
    tokenizer = shared_tokenizer("shipped", "infant")
    assert tokenizer is not None and tokenizer.config.kind == PRESETS["swift"].agent.tokenizer.kind
    monkeypatch.setattr(weights, "SHIPPED", tmp_path)
    assert shared_tokenizer("shipped", "arm") is None
    assert "No trained tokenizer is shipped for the arm" in capsys.readouterr().out


def test_a_tokenizer_of_other_senses_is_refused():
    small = PRESETS["smoke"]
    trainer = Trainer(EnvConfig(body="arm"), small.agent, small.training, 0, "cpu")
    tokenizer = shared_tokenizer("shipped", "infant")
    assert tokenizer is not None
    with pytest.raises(ValueError, match="of the same body"):
        trainer.take_tokenizer(tokenizer)
