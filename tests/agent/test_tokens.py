import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from mirrormark.agent.tokens import FLOOR, LatentSpec, draw, kl, pick

MIXED = LatentSpec((3, 3, 5, 2))
EVEN = LatentSpec((4, 4))


def test_sizes():
    assert (MIXED.K, MIXED.total, MIXED.widest, MIXED.offsets) == (4, 13, 5, (0, 3, 6, 11))
    assert len(MIXED.runs) == 3 and len(EVEN.runs) == 1


@pytest.mark.parametrize("half", [False, True])
def test_rows_for_linear_layers_have_the_precision_in_which_they_are_read(half):
    latent = torch.stack([torch.randint(0, c, (7,)) for c in MIXED.classes], -1)
    other, layer = torch.rand(7, 6), torch.nn.Linear(MIXED.total + 6, 4)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        row = MIXED.beside(latent, other)
        assert row.dtype == MIXED.hot(latent).dtype == (torch.bfloat16 if half else torch.float32)
        plain = torch.cat((MIXED.one_hot(latent), other), -1)
        assert torch.equal(layer(row), layer(plain))
        assert torch.equal(MIXED.beside(MIXED.one_hot(latent), other), row)


@pytest.mark.parametrize("spec", [MIXED, EVEN])
def test_one_hot_has_one_one_for_each_token(spec):
    latent = torch.stack([torch.randint(0, c, (7, 2)) for c in spec.classes], -1)
    hot = spec.one_hot(latent)
    assert hot.shape == (7, 2, spec.total)
    for k, (start, classes) in enumerate(zip(spec.offsets, spec.classes)):
        part = hot[..., start : start + classes]
        assert torch.equal(part.sum(-1), torch.ones(7, 2)) and torch.equal(part.argmax(-1), latent[..., k])
    assert torch.equal(spec.rows(hot, fill=0.0).argmax(-1), latent)


def test_flat_undoes_rows():
    flat = torch.randn(5, MIXED.total)
    assert torch.equal(MIXED.flat(MIXED.rows(flat)), flat)


@pytest.mark.parametrize("unimix", [0.0, 0.01])
def test_every_token_is_a_distribution_over_its_own_classes(unimix):
    table = MIXED.log_probs(torch.randn(6, MIXED.total) * 5, unimix)
    assert torch.allclose(table.exp().sum(-1), torch.ones(6, 4))
    for k, classes in enumerate(MIXED.classes):
        assert (table[:, k, classes:] == FLOOR).all() and (table[:, k, :classes] > FLOOR).all()


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
    latent = draw(p)
    picked = torch.stack(
        [Categorical(logits=p[:, k, :c]).log_prob(latent[:, k]) for k, c in enumerate(MIXED.classes)], -1
    )
    assert torch.allclose(pick(p, latent), picked, atol=1e-5)


def test_draw_follows_the_distribution():
    torch.manual_seed(0)
    table = MIXED.log_probs(torch.randn(MIXED.total))
    latent = draw(table.expand(20_000, -1, -1))
    assert torch.allclose(MIXED.one_hot(latent).mean(0), MIXED.flat(table.exp()), atol=0.015)
    assert torch.equal(draw(table, temperature=0), table.argmax(-1))


def test_clear_sentences():
    with pytest.raises(ValueError, match="integer class indices"):
        EVEN.one_hot(torch.zeros(3, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match="integer class indices"):
        EVEN.one_hot(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="8 entries"):
        EVEN.as_one_hot(torch.zeros(3, 7))
    with pytest.raises(ValueError, match="classes"):
        LatentSpec(())
