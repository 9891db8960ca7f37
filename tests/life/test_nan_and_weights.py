"""Dumps of non-finite steps, and weights by themselves."""

import pytest
import torch
from tiny_lives import born, joint, symbolic

from mirrormark.life import checkpoint
from mirrormark.life.checkpoint import CheckpointError
from mirrormark.life.live import live
from mirrormark.life.nan import NotFinite, dump
from mirrormark.life.weights import describe, load_weights, save_snapshot


def test_the_run_stops_with_a_dump_of_batch_weights_and_step(tmp_path, monkeypatch):
    monkeypatch.setattr("mirrormark.life.live.REFUSED_IN_A_ROW", 2)
    life = born(symbolic())
    with torch.no_grad():
        life.mind.self_prior.bias[0, 0] = float("nan")
    with pytest.raises(NotFinite, match=r"2 train steps in a row.*batch and weights are in") as stopped:
        live(life, (), tmp_path)
    place = stopped.value.place
    assert place is not None and place.parent == tmp_path
    tree = checkpoint.load(place)
    assert tree["learner"]["mind"]["self_prior.bias"].isnan().any()
    assert tree["learner"]["mind"]["policy.head.bias"].isfinite().all()
    assert tree["about"]["step"] == life.learner.steps > 0
    learner = life.config.learner
    assert tree["batch"]["action"].shape[:2] == (learner.world_sequences, learner.world_frames)
    assert torch.equal(load_weights(place).mind.policy.head.bias, life.mind.policy.head.bias)


def test_a_dump_of_a_joint_life_holds_the_bad_batch(tmp_path):
    life = born(joint())
    lap = life.schedule.lap(0)
    life.memory.extend(life.gather(lap))
    life.memory.observation["proprioception"][:] = float("nan")
    tree = checkpoint.load(dump(life.learner, life.memory, lap, tmp_path, life.world))
    assert tree["batch"]["observation"]["proprioception"].isnan().all()


@pytest.mark.parametrize("preset", [symbolic(), joint()], ids=["symbolic", "joint"])
def test_a_snapshot_holds_the_mind_and_its_world(tmp_path, preset):
    life = born(preset)
    about = describe(life.mind, life.world, preset="tiny", seed=4)
    path = save_snapshot(tmp_path, "episodes-1", life.mind, about)
    loaded = load_weights(path)
    assert loaded.world == life.world and loaded.about["seed"] == 4
    assert loaded.about["ablation"] == life.world.ablation
    latent = torch.zeros(3, life.mind.spec.K, dtype=torch.int64)
    near = life.mind.expected_free_energy(latent), loaded.mind.expected_free_energy(latent)
    torch.testing.assert_close(near[0].detach(), near[1], rtol=0.02, atol=0.05)
    manifest = checkpoint.read_manifest(path)
    assert not any("value." in name or "ema." in name for p in manifest["parts"] for name in p["tensors"])
    assert not any(p.requires_grad for p in loaded.mind.parameters())


def test_weights_come_from_a_run_a_checkpoint_or_a_snapshot(tmp_path):
    life = born(symbolic())
    about = describe(life.mind, life.world, preset="tiny", seed=0)
    tree = life.state() | {"about": about}
    for name in ("lap-00000001", "lap-00000002"):
        checkpoint.save(tmp_path / "checkpoints", name, tree)
    for path in (tmp_path, tmp_path / "checkpoints", tmp_path / "checkpoints" / "lap-00000001"):
        mind = load_weights(path).mind
        assert all(torch.equal(a, b) for a, b in zip(mind.parameters(), life.mind.parameters()))


def test_what_holds_no_weights_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        load_weights(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no checkpoint and no snapshot"):
        load_weights(tmp_path)
    life = born(symbolic())
    about = describe(life.mind, life.world)
    weights = dict(life.mind.state_dict())
    weights.pop("dynamics.position")
    checkpoint.save(tmp_path, "odd", {"about": about, "weights": weights})
    with pytest.raises(CheckpointError, match="does not fit"):
        load_weights(tmp_path / "odd")
