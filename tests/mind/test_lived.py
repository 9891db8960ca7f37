"""The value learns from real life beside dreams: the same states, other consequences."""

import pytest
import torch
from tiny_minds import ACTIONS, CELLS, random_latent, tiny_mind

from mirrormark.mind.dream import recall
from mirrormark.mind.losses import LossConfig
from mirrormark.mind.mind import ImaginationConfig
from mirrormark.mind.objective import Lived, behaviour_objective, lived_of


def real_window(mind, n=3):
    i = mind.config.imagination
    torch.manual_seed(1)
    return random_latent(mind, n, i.context + i.horizon), torch.rand(
        n, i.context + i.horizon, ACTIONS
    ) * 2 - 1


@torch.no_grad()
def test_a_real_window_begins_where_a_dream_from_the_same_past_begins():
    mind = tiny_mind("senses", codec=CELLS)
    latent, action = real_window(mind)
    lived, context = lived_of(mind, latent, action), mind.config.imagination.context
    hidden, _ = recall(mind.dynamics, latent[:, :context], action[:, : context - 1], 1)
    assert torch.allclose(lived.hidden[:, 0], hidden, atol=1e-5)
    assert torch.equal(lived.latent, latent[:, context - 1 :])
    assert torch.allclose(lived.cost, mind.expected_free_energy(latent[:, context:]), atol=1e-4)
    assert lived.hidden.shape[:2] == lived.latent.shape[:2] == (3, lived.cost.shape[1] + 1)


def value_gradient(share: float, dreamed_cost: float, lived_cost: float) -> torch.Tensor:
    mind = tiny_mind(losses=LossConfig(value_lived=share))
    latent, action = real_window(mind)
    with torch.no_grad():
        dreamed = mind.dream(latent[:, :4], action[:, :3])
        lived = lived_of(mind, latent, action)
    cost = torch.full(dreamed.action.shape[:2], dreamed_cost)
    _, value = behaviour_objective(mind, dreamed, cost, lived._replace(cost=lived.cost * 0 + lived_cost))
    value.loss.backward()
    assert mind.value.head.bias.grad is not None
    return mind.value.head.bias.grad


@pytest.mark.parametrize(
    ("share", "by_dreams", "by_life"), [(0.0, True, False), (0.5, True, True), (1.0, False, True)]
)
def test_the_value_learns_from_dreams_and_life_in_the_asked_shares(share, by_dreams, by_life):
    plain = value_gradient(share, 1.0, 1.0)
    assert (not torch.allclose(plain, value_gradient(share, 2.0, 1.0))) is by_dreams
    assert (not torch.allclose(plain, value_gradient(share, 1.0, 2.0))) is by_life


def test_a_value_that_learns_from_life_alone_foretells_its_returns():
    """Two pasts that dreams hold for alike, and life does not."""
    mind = tiny_mind(losses=LossConfig(value_lived=1.0))
    latent, action = real_window(mind, 2)
    with torch.no_grad():
        lived = lived_of(mind, latent, action)
        dreamed = mind.dream(latent[:, :4], action[:, :3])
    cost = torch.tensor([[0.0], [2.0]]).expand(2, lived.cost.shape[1])
    adam = torch.optim.Adam(mind.value.parameters(), 1e-2)
    for _ in range(150):
        _, value = behaviour_objective(
            mind, dreamed, torch.zeros(2, 5), Lived(lived.latent, lived.hidden, cost)
        )
        adam.zero_grad()
        value.loss.backward()
        adam.step()
        mind.update_ema(self_prior=False, value=True)
    with torch.no_grad():
        calm, worse = mind.value(lived.latent[:, 0], lived.hidden[:, 0]).tolist()
    assert abs(calm) < 2.0 and worse > calm + 4.0  # few and coarse bins


def test_what_cannot_be_lived_says_so():
    with pytest.raises(ValueError, match="value_lived"):
        LossConfig(value_lived=1.5)
    with pytest.raises(ValueError, match=r"context of at least 2"):
        tiny_mind(losses=LossConfig(value_lived=0.5), imagination=ImaginationConfig(horizon=5, context=1))
