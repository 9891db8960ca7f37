"""Weights by themselves: snapshots, what ships with the package, and who takes it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_trainers import joint, newborn, pixels, symbolic

from mirrormark.config import EvaluationConfig, GridTokenizerConfig
from mirrormark.envs import bodies
from mirrormark.presets import PRESETS
from mirrormark.training import checkpoint, weights
from mirrormark.training.checkpoint import CheckpointError
from mirrormark.training.commands import shared_tokenizer
from mirrormark.training.env_config import EnvConfig, build_agent
from mirrormark.training.evaluation import mark_recovery
from mirrormark.training.held_out import hold_out
from mirrormark.training.trainer import Trainer
from mirrormark.training.weights import (
    describe,
    find,
    load_tokenizer,
    load_weights,
    save_snapshot,
    shipped,
)


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
    assert tokenizer is not None and isinstance(tokenizer.config, GridTokenizerConfig)
    monkeypatch.setattr(weights, "SHIPPED", tmp_path)
    assert shared_tokenizer("shipped", "arm") is None
    assert "No trained tokenizer is shipped for the arm" in capsys.readouterr().out


def test_a_tokenizer_of_other_senses_is_refused():
    small = PRESETS["smoke"]
    tokenizer = shared_tokenizer("shipped", "infant")
    assert tokenizer is not None
    agent = replace(small.agent, tokenizer=tokenizer.config)
    with pytest.raises(ValueError, match="of this body"):
        Trainer(EnvConfig(body="arm"), agent, small.training, 0, "cpu", tokenizer)


def test_the_shipped_infant_loads_and_tells_where_it_grew_up():
    loaded = load_weights(find(Path("infant")))
    assert loaded.env.body == "infant" and loaded.agent.config.kind == "swift"
    assert loaded.metadata["ablation"] is None and not loaded.agent.training
    tokens = loaded.agent.self_prior.sample(4)
    assert loaded.agent.expected_free_energy(tokens).isfinite().all()


def test_a_body_without_a_shipped_agent_is_one_sentence():
    with pytest.raises(CheckpointError, match="no trained agent is shipped for the arm in this version"):
        load_weights("arm")


@pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["swift", "paper"])
def test_a_snapshot_holds_the_agent_and_its_world(tmp_path, preset):
    trainer = newborn(preset)
    metadata = describe(trainer.agent, trainer.env, preset="tiny", seed=4)
    path = save_snapshot(tmp_path, "episodes-1", trainer.agent, metadata)
    loaded = load_weights(path)
    assert loaded.env == trainer.env and loaded.metadata["seed"] == 4
    assert loaded.metadata["ablation"] == trainer.env.ablation
    tokens = torch.zeros(3, trainer.agent.spec.K, dtype=torch.int64)
    trainer.agent.eval()
    near = trainer.agent.expected_free_energy(tokens), loaded.agent.expected_free_energy(tokens)
    torch.testing.assert_close(near[0].detach(), near[1], rtol=0.02, atol=0.05)
    manifest = checkpoint.read_manifest(path)
    assert not any("value." in name or "ema." in name for p in manifest["parts"] for name in p["tensors"])
    assert not any(p.requires_grad for p in loaded.agent.parameters())


def test_weights_come_from_a_run_a_checkpoint_or_a_snapshot(tmp_path):
    trainer = newborn(symbolic())
    metadata = describe(trainer.agent, trainer.env, preset="tiny", seed=0)
    tree = trainer.state() | {"metadata": metadata}
    for name in ("iteration-00000001", "iteration-00000002"):
        checkpoint.save(tmp_path / "checkpoints", name, tree)
    for path in (tmp_path, tmp_path / "checkpoints", tmp_path / "checkpoints" / "iteration-00000001"):
        agent = load_weights(path).agent
        assert all(torch.equal(a, b) for a, b in zip(agent.parameters(), trainer.agent.parameters()))


def test_what_holds_no_weights_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        load_weights(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no checkpoint and no snapshot"):
        load_weights(tmp_path)
    trainer = newborn(symbolic())
    metadata = describe(trainer.agent, trainer.env)
    some = dict(trainer.agent.state_dict())
    some.pop("world_model.position")
    checkpoint.save(tmp_path, "odd", {"metadata": metadata, "weights": some})
    with pytest.raises(CheckpointError, match="does not fit"):
        load_weights(tmp_path / "odd")


@pytest.mark.parametrize("loads", [load_weights, load_tokenizer])
@pytest.mark.parametrize(
    "change", [{"agent": None}, {"agent": {"codec": {"kind": "cells"}}}, {"agent": {"kind": "dreamer"}}]
)
def test_what_an_earlier_version_wrote_is_one_sentence(tmp_path, loads, change):
    metadata = describe(newborn(pixels()).agent, EnvConfig()) | change
    if change["agent"] is None:
        metadata["mind"] = metadata.pop("agent")
    checkpoint.save(tmp_path, "old", {"metadata": metadata, "weights": {"policy.head.weight": torch.ones(2)}})
    with pytest.raises(
        CheckpointError, match="old was written by an earlier version of mirrormark: use that"
    ):
        loads(tmp_path / "old")


def test_a_snapshot_holds_all_that_acts_judges_and_paints(tmp_path):
    trainer = newborn(pixels())
    path = save_snapshot(tmp_path, "a", trainer.agent, describe(trainer.agent, trainer.env))
    kept = {name.split(".")[0] for name in weights.read(path)[1]}
    assert kept == {"tokenizer", "world_model", "self_prior", "policy"}
