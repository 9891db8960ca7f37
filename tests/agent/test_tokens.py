import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from mirrormark.agent.tokens import FLOOR, TokenSpec, gather_log_prob, kl, sample

MIXED = TokenSpec((3, 3, 5, 2))
EVEN = TokenSpec((4, 4))
SPECS = pytest.mark.parametrize("spec", [MIXED, EVEN], ids=["mixed", "even"])


def test_sizes():
    assert (MIXED.K, MIXED.total, MIXED.widest) == (4, 13, 5)
    assert [g.start for g in MIXED.groups] == [0, 6, 11] and len(EVEN.groups) == 1


@SPECS
def test_one_hot_has_one_one_for_each_token(spec):
    tokens = torch.stack([torch.randint(0, c, (7, 2)) for c in spec.classes], -1)
    hot = spec.one_hot(tokens)
    assert hot.shape == (7, 2, spec.total)
    for k, part in enumerate(hot.split(spec.classes, -1)):
        assert torch.equal(part.sum(-1), torch.ones(7, 2)) and torch.equal(part.argmax(-1), tokens[..., k])
    assert torch.equal(spec.rows(hot, fill=0.0).argmax(-1), tokens)
    assert spec.one_hot(hot) is hot


@SPECS
def test_straight_through_is_the_one_hot_vector_with_the_gradient_of_the_probabilities(spec):
    logits, pull = torch.randn(5, spec.total, requires_grad=True), torch.randn(5, spec.total)
    log_probs = spec.log_probs(logits, 0.01)
    tokens = sample(log_probs.detach())
    through = spec.straight_through(tokens, log_probs)
    torch.testing.assert_close(through.detach(), spec.one_hot(tokens))
    soft = torch.cat([log_probs[:, k, :c].exp() for k, c in enumerate(spec.classes)], -1)
    (wanted,) = torch.autograd.grad((soft * pull).sum(), logits, retain_graph=True)
    (got,) = torch.autograd.grad((through * pull).sum(), logits)
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("unimix", [0.0, 0.01])
def test_every_token_is_a_distribution_over_its_own_classes(unimix):
    log_probs = MIXED.log_probs(torch.randn(6, MIXED.total) * 5, unimix)
    assert torch.allclose(log_probs.exp().sum(-1), torch.ones(6, 4))
    for k, classes in enumerate(MIXED.classes):
        assert (log_probs[:, k, classes:] == FLOOR).all() and (log_probs[:, k, :classes] > FLOOR).all()


def test_with_unimix_no_class_is_ever_impossible():
    """1%: none falls below .01/C, however sure the logits are."""
    logits = torch.full((1, MIXED.total), -100.0)
    logits[:, [0, 3, 6, 11]] = 100.0
    probs = MIXED.log_probs(logits, 0.01).exp()
    for k, classes in enumerate(MIXED.classes):
        assert torch.isclose(probs[0, k, 1:classes].min(), torch.tensor(0.01 / classes))
        assert torch.isclose(probs[0, k, 0], torch.tensor(0.99 + 0.01 / classes))
    assert MIXED.log_probs(logits).exp()[0, 0, 1] < 1e-6


def test_kl_and_log_probability_against_torch():
    p, q = (MIXED.log_probs(torch.randn(6, MIXED.total)) for _ in range(2))
    rows = [
        (Categorical(logits=p[:, k, :c]), Categorical(logits=q[:, k, :c]))
        for k, c in enumerate(MIXED.classes)
    ]
    assert torch.allclose(kl(p, q), torch.stack([kl_divergence(*row) for row in rows]).sum(0), atol=1e-5)
    tokens = sample(p)
    wanted = torch.stack([row[0].log_prob(tokens[:, k]) for k, row in enumerate(rows)], -1)
    assert torch.allclose(gather_log_prob(p, tokens), wanted, atol=1e-5)


@pytest.mark.parametrize("unimix", [0.0, 0.3])
def test_both_ways_of_drawing_follow_the_table(unimix):
    """From the table, or part by part, as imagination does."""
    logits = torch.randn(MIXED.total) * 2
    table = MIXED.log_probs(logits, unimix)
    expected = torch.cat([table[k, :c].exp() for k, c in enumerate(MIXED.classes)])
    many = sample(table.expand(20_000, -1, -1)), MIXED.sample(logits.expand(20_000, -1), unimix)
    for tokens in many:
        assert torch.allclose(MIXED.one_hot(tokens).mean(0), expected, atol=0.015)


def test_clear_sentences():
    with pytest.raises(ValueError, match="class indices"):
        EVEN.one_hot(torch.zeros(3, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match="8 entries"):
        EVEN.one_hot(torch.zeros(3, 7))
    with pytest.raises(ValueError, match="classes"):
        TokenSpec(())
