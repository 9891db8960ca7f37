import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from mirrormark.agent.tokens import FLOOR, TokenSpec, gather_log_prob, kl, sample_tokens

MIXED = TokenSpec((3, 3, 5, 2))
EVEN = TokenSpec((4, 4))


def test_sizes():
    assert (MIXED.K, MIXED.total, MIXED.widest, MIXED.offsets) == (4, 13, 5, (0, 3, 6, 11))
    assert len(MIXED.groups) == 3 and len(EVEN.groups) == 1


@pytest.mark.parametrize("half", [False, True])
def test_rows_for_linear_layers_have_the_precision_in_which_they_are_read(half):
    tokens = torch.stack([torch.randint(0, c, (7,)) for c in MIXED.classes], -1)
    other, layer = torch.rand(7, 6), torch.nn.Linear(MIXED.total + 6, 4)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        row = MIXED.concat(tokens, other)
        assert row.dtype == MIXED.hot(tokens).dtype == (torch.bfloat16 if half else torch.float32)
        plain = torch.cat((MIXED.one_hot(tokens), other), -1)
        assert torch.equal(layer(row), layer(plain))
        assert torch.equal(MIXED.concat(MIXED.one_hot(tokens), other), row)


@pytest.mark.parametrize("spec", [MIXED, EVEN])
def test_one_hot_has_one_one_for_each_token(spec):
    tokens = torch.stack([torch.randint(0, c, (7, 2)) for c in spec.classes], -1)
    hot = spec.one_hot(tokens)
    assert hot.shape == (7, 2, spec.total)
    for k, (start, classes) in enumerate(zip(spec.offsets, spec.classes)):
        part = hot[..., start : start + classes]
        assert torch.equal(part.sum(-1), torch.ones(7, 2)) and torch.equal(part.argmax(-1), tokens[..., k])
    assert torch.equal(spec.rows(hot, fill=0.0).argmax(-1), tokens)


def test_flat_undoes_rows():
    flat = torch.randn(5, MIXED.total)
    assert torch.equal(MIXED.flat(MIXED.rows(flat)), flat)


@pytest.mark.parametrize("unimix", [0.0, 0.01])
def test_every_token_is_a_distribution_over_its_own_classes(unimix):
    log_probs = MIXED.log_probs(torch.randn(6, MIXED.total) * 5, unimix)
    assert torch.allclose(log_probs.exp().sum(-1), torch.ones(6, 4))
    for k, classes in enumerate(MIXED.classes):
        assert (log_probs[:, k, classes:] == FLOOR).all() and (log_probs[:, k, :classes] > FLOOR).all()


def test_unimix_floor():
    """1% unimix: no class falls below .01/C, however sure the logits are."""
    logits = torch.full((1, MIXED.total), -100.0)
    logits[:, list(MIXED.offsets)] = 100.0
    probs = MIXED.log_probs(logits, 0.01).exp()
    for k, classes in enumerate(MIXED.classes):
        assert torch.isclose(probs[0, k, 1:classes].min(), torch.tensor(0.01 / classes))
        assert torch.isclose(probs[0, k, 0], torch.tensor(0.99 + 0.01 / classes))
    assert MIXED.log_probs(logits).exp()[0, 0, 1] < 1e-6


def test_kl_and_pick_against_torch_distributions():
    p, q = (MIXED.log_probs(torch.randn(6, MIXED.total)) for _ in range(2))
    expected = sum(
        kl_divergence(Categorical(logits=p[:, k, :c]), Categorical(logits=q[:, k, :c]))
        for k, c in enumerate(MIXED.classes)
    )
    assert torch.allclose(kl(p, q), expected, atol=1e-5)
    tokens = sample_tokens(p)
    picked = torch.stack(
        [Categorical(logits=p[:, k, :c]).log_prob(tokens[:, k]) for k, c in enumerate(MIXED.classes)], -1
    )
    assert torch.allclose(gather_log_prob(p, tokens), picked, atol=1e-5)


def test_draw_follows_the_distribution():
    torch.manual_seed(0)
    log_probs = MIXED.log_probs(torch.randn(MIXED.total))
    tokens = sample_tokens(log_probs.expand(20_000, -1, -1))
    assert torch.allclose(MIXED.one_hot(tokens).mean(0), MIXED.flat(log_probs.exp()), atol=0.015)
    assert torch.equal(sample_tokens(log_probs, temperature=0), log_probs.argmax(-1))


def test_clear_sentences():
    with pytest.raises(ValueError, match="integer class indices"):
        EVEN.one_hot(torch.zeros(3, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match="integer class indices"):
        EVEN.one_hot(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="8 entries"):
        EVEN.as_one_hot(torch.zeros(3, 7))
    with pytest.raises(ValueError, match="classes"):
        TokenSpec(())
