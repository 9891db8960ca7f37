"""Dreams that start where free energy is high."""

from dataclasses import replace

import pytest
import torch
from tiny_trainers import born, symbolic

from mirrormark.training.learner import LearnerConfig


def started(share: float) -> torch.Tensor:
    """G of the presents from which a training run's dreams start."""
    preset = symbolic()
    learner = replace(preset.training.learner, dreams=400, high_cost_starts_share=share)
    trainer = born(replace(preset, training=replace(preset.training, learner=learner)))
    trainer.run_iteration(trainer.schedule.iteration(0))
    torch.manual_seed(1)
    past, acted = trainer.learner._contexts(trainer.buffer, None, None)
    assert past.shape[:2] == acted.shape[:2] == (400, trainer.agent.config.imagination.context)
    return trainer.agent.expected_free_energy(past[:, -1])


def test_high_cost_starts_start_where_free_energy_is_high():
    even, half, all_of_them = started(0.0), started(0.5), started(1.0)
    assert even.mean() < half.mean() < all_of_them.mean()
    assert all_of_them.min() > even.median() - 0.2 * even.std()


def test_a_share_is_a_share():
    with pytest.raises(ValueError, match=r"learner\.high_cost_starts_share is a share"):
        LearnerConfig(high_cost_starts_share=1.5)
