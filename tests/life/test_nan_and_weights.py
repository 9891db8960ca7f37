"""Dumps of non-finite steps, and weights by themselves."""

from dataclasses import replace

import pytest
import torch
from tiny_lives import born, joint, symbolic

from mirrormark.life import checkpoint, nan
from mirrormark.life.checkpoint import CheckpointError
from mirrormark.life.commands import replay_nan
from mirrormark.life.learner import Learner
from mirrormark.life.live import live
from mirrormark.life.nan import NotFinite
from mirrormark.life.weights import describe, load_weights, save_snapshot


def poisoned(preset):
    learner = replace(preset.life.learner, refused_in_a_row=2)
    life = born(replace(preset, life=replace(preset.life, learner=learner)))
    with torch.no_grad():
        life.mind.self_prior.bias[0, 0] = float("nan")
    return life


@pytest.mark.parametrize(
    ("steps", "others"),
    [(4, ["outlook"]), (0, ["policy", "value"])],  # G is not finite, so neither is what is learned from it
    ids=["outlook", "plain"],
)
def test_the_run_stops_with_a_dump_that_repeats_the_step(tmp_path, capsys, steps, others):
    ours = symbolic()
    mind = replace(ours.mind, outlook=replace(ours.mind.outlook, control_steps=steps))
    life = poisoned(replace(ours, mind=mind, life=replace(ours.life, let_go_share=0.1 * steps)))
    with pytest.raises(NotFinite, match=r"2 train steps in a row.*replay-nan") as stopped:
        live(life, (), tmp_path)
    place = stopped.value.place
    assert place is not None and place.parent == tmp_path
    found = nan.replay(place)
    assert sorted(found["refused"]) == sorted(["self_prior", *others])
    assert "self_prior.bias" in found["bad_weights"] and "policy.head.bias" not in found["bad_weights"]
    assert found["bad_in_batch"] == []
    replay_nan(place)
    assert "refused by self_prior" in capsys.readouterr().out


def test_what_the_kept_step_left_is_what_it_leaves_when_repeated(tmp_path, monkeypatch):
    """Dropout and dreams draw random numbers: with others, the parts that were not refused end elsewhere."""
    ours = symbolic()
    life = poisoned(replace(ours, mind=replace(ours.mind, dynamics=replace(ours.mind.dynamics, dropout=0.5))))
    lap = life.schedule.lap(1)
    life.memory.extend(life.gather(lap))
    before = {name: value.clone() for name, value in life.mind.dynamics.state_dict().items()}
    place = nan.dump(life.learner, life.memory, lap, tmp_path, life.world)
    random, repeated = torch.get_rng_state(), []
    monkeypatch.setattr(nan, "Learner", lambda *asked: repeated.append(Learner(*asked)) or repeated[0])
    assert "world" not in nan.replay(place)["refused"]
    for name, value in repeated[0].mind.dynamics.state_dict().items():
        torch.testing.assert_close(value, life.mind.dynamics.state_dict()[name], rtol=0, atol=1e-6)
        assert not torch.equal(value, before[name]) or not value.is_floating_point(), name
    assert torch.equal(torch.get_rng_state(), random)


def test_a_bad_batch_is_named(tmp_path):
    preset = joint()
    learner = replace(preset.life.learner, refused_in_a_row=2)
    life = born(replace(preset, life=replace(preset.life, learner=learner)))
    lap = life.schedule.lap(0)
    life.memory.extend(life.gather(lap))
    life.memory.observation["proprioception"][:, ::2] = float("nan")
    life.learner.learn(life.memory, lap)
    place = nan.dump(life.learner, life.memory, lap, tmp_path, life.world)
    found = nan.replay(place)
    assert "world" in found["refused"] and found["bad_in_batch"] == ["proprioception"]


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
