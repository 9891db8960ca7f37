"""Dumps of non-finite steps, and weights by themselves."""

import pytest
import torch
from tiny_trainers import born, joint, symbolic

from mirrormark.training import checkpoint
from mirrormark.training.checkpoint import CheckpointError
from mirrormark.training.nan import NotFinite, dump
from mirrormark.training.trainer import run_iterations
from mirrormark.training.weights import describe, load_weights, save_snapshot


def test_the_run_stops_with_a_dump_of_batch_weights_and_step(tmp_path, monkeypatch):
    monkeypatch.setattr("mirrormark.training.trainer.REFUSED_IN_A_ROW", 2)
    trainer = born(symbolic())
    with torch.no_grad():
        trainer.agent.self_prior.bias[0, 0] = float("nan")
    with pytest.raises(NotFinite, match=r"2 train steps in a row.*batch and weights are in") as stopped:
        run_iterations(trainer, (), tmp_path)
    place = stopped.value.place
    assert place is not None and place.parent == tmp_path
    tree = checkpoint.load(place)
    assert tree["learner"]["agent"]["self_prior.bias"].isnan().any()
    assert tree["learner"]["agent"]["policy.head.bias"].isfinite().all()
    assert tree["metadata"]["step"] == trainer.learner.steps > 0
    learner = trainer.config.learner
    assert tree["batch"]["action"].shape[:2] == (learner.sequences, learner.sequence_frames)
    assert torch.equal(load_weights(place).agent.policy.head.bias, trainer.agent.policy.head.bias)


def test_a_dump_of_a_joint_life_holds_the_bad_batch(tmp_path):
    trainer = born(joint())
    iteration = trainer.schedule.iteration(0)
    trainer.buffer.extend(trainer.collect(iteration))
    trainer.buffer.observation["proprioception"][:] = float("nan")
    tree = checkpoint.load(dump(trainer.learner, trainer.buffer, iteration, tmp_path, trainer.env))
    assert tree["batch"]["observation"]["proprioception"].isnan().all()


@pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["symbolic", "joint"])
def test_a_snapshot_holds_the_agent_and_its_world(tmp_path, preset):
    trainer = born(preset)
    metadata = describe(trainer.agent, trainer.env, preset="tiny", seed=4)
    path = save_snapshot(tmp_path, "episodes-1", trainer.agent, metadata)
    loaded = load_weights(path)
    assert loaded.env == trainer.env and loaded.metadata["seed"] == 4
    assert loaded.metadata["ablation"] == trainer.env.ablation
    tokens = torch.zeros(3, trainer.agent.spec.K, dtype=torch.int64)
    near = trainer.agent.expected_free_energy(tokens), loaded.agent.expected_free_energy(tokens)
    torch.testing.assert_close(near[0].detach(), near[1], rtol=0.02, atol=0.05)
    manifest = checkpoint.read_manifest(path)
    assert not any("value." in name or "ema." in name for p in manifest["parts"] for name in p["tensors"])
    assert not any(p.requires_grad for p in loaded.agent.parameters())


def test_weights_come_from_a_run_a_checkpoint_or_a_snapshot(tmp_path):
    trainer = born(symbolic())
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
    trainer = born(symbolic())
    metadata = describe(trainer.agent, trainer.env)
    weights = dict(trainer.agent.state_dict())
    weights.pop("world_model.position")
    checkpoint.save(tmp_path, "odd", {"metadata": metadata, "weights": weights})
    with pytest.raises(CheckpointError, match="does not fit"):
        load_weights(tmp_path / "odd")
