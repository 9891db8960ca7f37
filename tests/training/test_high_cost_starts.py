"""Dreams that start where free energy is high."""

from dataclasses import replace

import pytest
import torch
from tiny_trainers import born, symbolic

from mirrormark.training.learner import LearnerConfig


def started(share: float) -> torch.Tensor:
    """G of the presents from which a life's dreams start."""
    preset = symbolic()
    learner = replace(preset.life.learner, dreams=400, restless_share=share)
    life = born(replace(preset, life=replace(preset.life, learner=learner)))
    life.live(life.schedule.lap(0))
    torch.manual_seed(1)
    past, acted = life.learner._contexts(life.memory, None, None)
    assert past.shape[:2] == acted.shape[:2] == (400, life.mind.config.imagination.context)
    return life.mind.expected_free_energy(past[:, -1])


def test_restless_dreams_start_where_free_energy_is_high():
    even, half, all_of_them = started(0.0), started(0.5), started(1.0)
    assert even.mean() < half.mean() < all_of_them.mean()
    assert all_of_them.min() > even.median() - 0.2 * even.std()


def test_a_share_is_a_share():
    with pytest.raises(ValueError, match=r"learner\.restless_share is a share"):
        LearnerConfig(restless_share=1.5)
