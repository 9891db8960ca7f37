"""A run whose losses are no longer finite stops, and leaves a dump."""

from dataclasses import replace

import pytest
import torch
from tiny_trainers import joint, newborn, symbolic

from mirrormark.training import checkpoint
from mirrormark.training.nan import NotFinite, dump
from mirrormark.training.trainer import run_iterations
from mirrormark.training.weights import load_weights


def test_the_run_stops_with_a_dump_of_batch_weights_and_step(tmp_path, monkeypatch):
    monkeypatch.setattr("mirrormark.training.trainer.SKIPPED_IN_A_ROW", 2)
    trainer = newborn(symbolic())
    with torch.no_grad():
        trainer.agent.self_prior.bias[0, 0] = float("nan")
    with pytest.raises(NotFinite, match=r"2 train steps in a row.*batch and weights are in") as stopped:
        run_iterations(trainer, (), tmp_path)
    place = stopped.value.place
    assert place is not None and place.parent == tmp_path
    tree = checkpoint.load(place)
    assert tree["learner"]["agent"]["self_prior.bias"].isnan().any()
    assert tree["learner"]["agent"]["policy.network.6.bias"].isfinite().all()
    assert tree["metadata"]["step"] == trainer.learner.steps > 0
    b = trainer.config.batch
    assert tree["batch"]["action"].shape[:2] == (b.sequences, b.sequence_frames)
    assert torch.equal(
        load_weights(place).agent.policy.network[-1].bias, trainer.agent.policy.network[-1].bias
    )


def test_a_dump_of_the_papers_agent_holds_the_bad_batch(tmp_path):
    trainer = newborn(joint())
    iteration = trainer.schedule.iteration(0)
    trainer.buffer.extend(trainer.collect(iteration))
    trainer.buffer.observation["proprioception"][:] = float("nan")
    tree = checkpoint.load(dump(trainer.learner, trainer.buffer, iteration, tmp_path, trainer.env))
    assert tree["batch"]["observation"]["proprioception"].isnan().all()


def test_a_row_of_skipped_steps_stops_the_run_though_the_iterations_last_step_is_good(monkeypatch):
    preset = symbolic()
    monkeypatch.setattr("mirrormark.training.trainer.SKIPPED_IN_A_ROW", 3)
    schedule = replace(preset.training.schedule, steps_per_iteration=5)
    trainer = newborn(replace(preset, training=replace(preset.training, schedule=schedule)))
    with torch.no_grad():
        trainer.agent.world_model.position[0, 0] = float("nan")
    real, steps = trainer.learner.step.losses, []

    def heals(buffer, stages):
        steps.append(stages)
        if len(steps) == 4:
            with torch.no_grad():
                trainer.agent.world_model.position[0, 0] = 0.0
        return real(buffer, stages)

    monkeypatch.setattr(trainer.learner.step, "losses", heals)
    with pytest.raises(NotFinite, match="3 train steps in a row"):
        run_iterations(trainer)
    assert len(steps) == 5 and trainer.learner.step.metrics.in_a_row == 0
