import itertools

import pytest
import torch

from mirrormark.agent.tokens import FLOOR, TokenSpec, kl
from mirrormark.config import SelfPriorConfig
from mirrormark.swift.self_prior import PerTokenSelfPrior

SPEC = TokenSpec((3, 2, 4))
EVERY = torch.tensor(list(itertools.product(*(range(c) for c in SPEC.classes))))


@torch.no_grad()
def tiny() -> PerTokenSelfPrior:
    """Far from even, so that a wrong sum shows."""
    prior = PerTokenSelfPrior(SPEC, SelfPriorConfig(width=16, layers=2, heads=2, ffn=32))
    for parameter in prior.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.3)
    return prior


def test_it_is_a_distribution_over_frames():
    log_prob = tiny().log_prob(EVERY)
    assert log_prob.exp().std() > 1e-3
    assert torch.isclose(log_prob.exp().sum(), torch.tensor(1.0), atol=1e-5)


def test_samples_follow_the_density():
    prior = tiny()
    seen = (prior.sample(20_000).unsqueeze(1) == EVERY).all(-1).float().mean(0)
    assert torch.allclose(seen, prior.log_prob(EVERY).exp(), atol=0.015)


def test_classes_that_a_token_has_not_are_impossible_and_get_no_gradient():
    prior = tiny()
    table = prior.log_probs(EVERY)
    for k, classes in enumerate(SPEC.classes):
        assert (table[:, k, classes:] < FLOOR / 2).all() and (table[:, k, :classes] > -100).all()
    kl(table.detach().roll(1, 0), table).mean().backward()
    assert prior.bias.grad is not None and prior.head.grad is not None
    for k, classes in enumerate(SPEC.classes):
        assert not prior.bias.grad[k, classes:].any() and not prior.head.grad[k, :, classes:].any()
        assert prior.bias.grad[k, :classes].any()


def test_the_same_class_means_something_else_in_each_token():
    prior = tiny()
    with torch.no_grad():
        before = prior.log_prob(EVERY)
        prior.words[1, 1] += torch.randn(16)  # token 1's class 1
    changed = (prior.log_prob(EVERY) != before).reshape(SPEC.classes)
    assert changed[:, 1].any() and not changed[:, 0].any()


@pytest.mark.parametrize("half", [False, True])
def test_scoring_without_gradient_gives_the_learning_pass_to_the_bit(half):
    prior = tiny()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        learning = prior.log_probs(EVERY)
        with torch.no_grad():
            assert torch.equal(prior.log_probs(EVERY), learning)
    assert learning.requires_grad and learning.dtype == torch.float32
