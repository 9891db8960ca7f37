import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from mirrormark.mind import losses as L
from mirrormark.mind.free_energy import (
    expected_free_energy,
    expected_free_energy_in_full,
    variational_free_energy,
)
from mirrormark.mind.latent import LatentSpec, draw, kl
from mirrormark.mind.numerics import TwoHot

SPEC = LatentSpec((4, 4, 2))


def tables(*lead: int, scale: float = 3.0):
    return tuple(SPEC.log_probs((torch.randn(*lead, SPEC.total) * scale).requires_grad_()) for _ in range(2))


def test_variational_free_energy_is_minus_elbo():
    """E5, against torch: KL − log N(o; ô, 1), less the Gaussian's constant."""
    seen, predicted, complexity = torch.randn(6, 5), torch.randn(6, 5), torch.rand(6)
    log_p = torch.distributions.Normal(predicted, 1.0).log_prob(seen).sum(-1)
    constant = 2.5 * torch.log(torch.tensor(2 * torch.pi))
    squared = (seen - predicted).square().sum(-1)
    assert torch.allclose(
        variational_free_energy(complexity, squared) + constant, complexity - log_p, atol=1e-5
    )


def test_expected_free_energy_used_is_the_full_one_where_the_rest_is_constant():
    """E6 -> E7: with the dropped terms constant, both order latents alike and differ by that constant."""
    log_prior = -torch.rand(9) * 50
    full = expected_free_energy_in_full(torch.tensor(-1.0), torch.tensor(-2.0), -3.0, -4.0, log_prior)
    assert torch.allclose(full - expected_free_energy(log_prior), torch.tensor(4.0), atol=1e-5)
    assert expected_free_energy(log_prior).argmax() == log_prior.argmin()


def test_free_bits_clip_each_time_step_by_itself():
    """E9: max(1, KL) before the mean, not after; below 1 nat there is no gradient."""
    posterior, prior = tables(1, 2)
    with torch.no_grad():
        close = posterior.clone()
        close[:, 1] = prior[:, 1]  # step 1: KL 0
    divergence = kl(close, prior)
    assert divergence[0, 0] > 1 and divergence[0, 1] < 1e-6
    expected = (divergence[0, 0] + 1) / 2
    assert torch.isclose(L.dynamics_loss(close, prior, 1.0), expected)
    near = SPEC.log_probs(torch.zeros(1, 1, SPEC.total, requires_grad=True) + 0)
    logits = torch.full((1, 1, SPEC.total), 0.01, requires_grad=True)
    (gradient,) = torch.autograd.grad(L.dynamics_loss(near, SPEC.log_probs(logits), 1.0), logits)
    assert (gradient == 0).all()


def test_dynamics_and_representation_stop_opposite_sides():
    posterior, prior = tables(3, 2)
    for table in (posterior, prior):
        table.retain_grad()
    L.dynamics_loss(posterior, prior, 0.0).backward(retain_graph=True)
    assert posterior.grad is None and prior.grad is not None
    prior.grad = None
    L.representation_loss(posterior, prior, 0.0).backward()
    assert posterior.grad is not None and prior.grad is None


def test_point_mass_dynamics_loss_is_the_kl_of_a_point_mass():
    _, prior = tables(5, 2)
    latent = draw(prior.detach())
    rows = torch.nn.functional.one_hot(latent, 4).float()
    expected = sum(
        kl_divergence(Categorical(probs=rows[..., k, :c]), Categorical(logits=prior[..., k, :c]))
        for k, c in enumerate(SPEC.classes)
    )
    assert torch.isclose(L.point_dynamics_loss(latent, prior, 0.0), expected.mean(), atol=1e-3)
    assert L.point_dynamics_loss(latent, prior, 100.0) == 100  # all of it is free
    assert L.point_dynamics_loss(latent, prior * torch.nan, 100.0).isnan()


def test_quiet_loss_is_least_at_the_centre_and_linear_far_from_it():
    quiet = [L.quiet_loss(torch.full((1, 4), a)).item() for a in (0.0, 0.5, -0.5, 1.0)]
    assert quiet[0] == 0 and quiet[1] == quiet[2] and quiet[3] == pytest.approx(2 * quiet[1], rel=0.06)


def test_reconstruction_sums_over_the_sense_and_means_over_the_rest():
    assert L.reconstruction_loss(torch.ones(2, 3, 4, 4, 3), torch.zeros(2, 3, 4, 4, 3), 3) == 48


def test_weighted_sum_wants_the_same_names():
    assert L.weighted_sum({"a": torch.tensor(2.0), "b": torch.tensor(3.0)}, {"a": 1.0, "b": 0.5}) == 3.5
    with pytest.raises(ValueError, match="same names"):
        L.weighted_sum({"a": torch.tensor(2.0)}, {"a": 1.0, "b": 1.0})


def test_self_prior_loss_is_cross_entropy_plus_kl_to_the_slow_copy():
    """E10, both as means over tokens."""
    online, slow = tables(6)
    latent = draw(online.detach())
    surprise = sum(
        -Categorical(logits=online[:, k, :c]).log_prob(latent[:, k]) for k, c in enumerate(SPEC.classes)
    )
    pull = sum(
        kl_divergence(Categorical(logits=slow[:, k, :c]), Categorical(logits=online[:, k, :c]))
        for k, c in enumerate(SPEC.classes)
    )
    assert torch.isclose(
        L.self_prior_loss(online, slow, latent, 1.0), ((surprise + pull) / 3).mean(), atol=1e-4
    )
    assert torch.isclose(L.self_prior_loss(online, slow, latent, 0.0), (surprise / 3).mean(), atol=1e-4)


def test_policy_loss_makes_costly_actions_rarer():
    """D1, the sign: where the cost is above the baseline, descending the loss lowers log π."""
    log_prob = torch.zeros(2, requires_grad=True)
    L.policy_loss(log_prob, torch.zeros(2), torch.tensor([1.0, -1.0]), 0.0).backward()
    assert log_prob.grad is not None and log_prob.grad[0] > 0 > log_prob.grad[1]


def test_policy_loss_rewards_entropy_and_stops_at_the_cost():
    entropy, cost = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    L.policy_loss(torch.zeros(2, requires_grad=True), entropy, cost, 3e-4).backward()
    assert torch.allclose(entropy.grad, torch.full((2,), -1.5e-4)) and cost.grad is None


def test_value_loss_moves_the_value_to_its_targets_and_weighs_later_steps_less():
    two_hot, logits = TwoHot(41, -5, 5), torch.zeros(1, 2, 41, requires_grad=True)
    target, slow = torch.tensor([[3.0, 3.0]]), torch.tensor([[3.0, 3.0]])
    L.value_loss(logits, target, slow, two_hot, L.discounts(2, 0.5, logits), 1.0).backward()
    assert torch.allclose(logits.grad[0, 1], 0.5 * logits.grad[0, 0])
    with torch.no_grad():
        moved = two_hot.decode(logits - logits.grad)
    assert (moved > 0).all()
