import itertools

import pytest
import torch

from mirrormark.mind.latent import FLOOR, LatentSpec, kl
from mirrormark.mind.self_prior import SelfPrior, SelfPriorConfig

SPEC = LatentSpec((3, 2, 4))
EVERY = torch.tensor(list(itertools.product(*(range(c) for c in SPEC.classes))))
CHOICES = [
    {},
    {"vocabulary": "per_token"},
    {"norm": "pre", "activation": "gelu"},
]


def tiny(spec: LatentSpec = SPEC, **fields) -> SelfPrior:
    prior = SelfPrior(spec, SelfPriorConfig(**{"width": 16, "heads": 2, "ffn": 32, **fields}))
    with torch.no_grad():  # far from even, so that a wrong sum shows
        for parameter in prior.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return prior


@pytest.mark.parametrize("fields", CHOICES)
def test_self_prior_is_a_distribution(fields):
    """E3: the probabilities of all latents sum to one."""
    prior = tiny(**fields)
    log_prob = prior.log_prob(EVERY)
    assert log_prob.exp().std() > 1e-3
    assert torch.isclose(log_prob.exp().sum(), torch.tensor(1.0), atol=1e-5)
    assert torch.allclose(prior.per_token_log_prob(EVERY).sum(-1), log_prob)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("fields", CHOICES)
def test_scoring_without_gradient_gives_the_learning_pass_to_the_bit(fields, half):
    """A lookup where nothing is learned, a one-hot product where words get gradient."""
    prior = tiny(**fields)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        learning = prior.logits(EVERY)
        with torch.no_grad():
            assert torch.equal(prior.logits(EVERY), learning)
    assert learning.requires_grad and learning.dtype == torch.float32


def test_classes_that_a_token_has_not_are_at_the_floor_and_get_no_gradient():
    prior = tiny(vocabulary="per_token")
    table = prior.logits(EVERY)
    for k, classes in enumerate(SPEC.classes):
        assert (table[:, k, classes:] == FLOOR).all() and (table[:, k, :classes] > -100).all()
    kl(table.detach().roll(1, 0), table).mean().backward()
    assert prior.bias.grad is not None and prior.head.grad is not None
    for k, classes in enumerate(SPEC.classes):
        assert (prior.bias.grad[k, classes:] == 0).all() and (prior.head.grad[k, :, classes:] == 0).all()
        assert (prior.bias.grad[k, :classes] != 0).any()


@pytest.mark.parametrize("fields", CHOICES)
def test_tokens_see_only_those_before(fields):
    prior = tiny(**fields)
    latent = torch.tensor([[0, 1, 2], [0, 1, 3], [1, 1, 3]])
    tables = prior.logits(latent)
    assert torch.equal(tables[0], tables[1])
    assert torch.equal(tables[0, 0], tables[2, 0]) and not torch.allclose(
        tables[1, 1:, :2], tables[2, 1:, :2]
    )


def test_samples_follow_the_density():
    prior = tiny()
    sample = prior.sample(20_000)
    seen = (sample.unsqueeze(1) == EVERY).all(-1).float().mean(0)
    assert torch.allclose(seen, prior.log_prob(EVERY).exp(), atol=0.015)


def test_ancestral_completion_keeps_what_is_known_and_conditions_on_what_lies_before():
    prior = tiny()
    known = torch.tensor([True, False, False])
    filled = prior.complete(torch.tensor([2, 0, 0]).expand(20_000, -1), known)
    assert (filled[:, 0] == 2).all()
    match = EVERY[:, 0] == 2
    expected = prior.log_prob(EVERY[match]).softmax(0)
    seen = (filled.unsqueeze(1) == EVERY[match]).all(-1).float().mean(0)
    assert torch.allclose(seen, expected, atol=0.015)


def test_gibbs_completion_conditions_on_what_lies_after_too():
    """The last token is known: ancestral sampling ignores it, Gibbs sampling follows p(s1, s2 | s3)."""
    prior = tiny()
    known, start = torch.tensor([False, False, True]), torch.tensor([0, 0, 1]).expand(6_000, -1)
    match = EVERY[:, 2] == 1
    expected = prior.log_prob(EVERY[match]).softmax(0)

    def gap(filled: torch.Tensor) -> float:
        assert (filled[:, 2] == 1).all()
        seen = (filled.unsqueeze(1) == EVERY[match]).all(-1).float().mean(0)
        return (seen - expected).abs().max().item()

    assert gap(prior.complete(start, known, "gibbs", sweeps=8)) < 0.025
    assert gap(prior.complete(start, known, "ancestral")) > 0.05


def test_teacher_forced_resampling_sees_the_original_tokens():
    """D18: token k is drawn given the original tokens before it, not given the drawn ones."""
    prior = tiny()
    start = torch.tensor([2, 1, 3])
    filled = prior.complete(start.expand(20_000, -1), torch.zeros(3, dtype=torch.bool), "teacher_forced")
    expected = prior.logits(start)[2, :4].exp()
    seen = torch.bincount(filled[:, 2], minlength=4) / 20_000
    assert torch.allclose(seen, expected, atol=0.015)


def test_it_learns_a_density():
    """Two tokens that always agree: the entropy of the data, log 3, is reached."""
    prior = SelfPrior(LatentSpec((3, 3)), SelfPriorConfig(width=16, heads=2, ffn=32))
    optimiser = torch.optim.Adam(prior.parameters(), 1e-2)
    for _ in range(80):
        latent = torch.randint(0, 3, (64, 1)).expand(-1, 2).contiguous()
        loss = -prior.log_prob(latent).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 1.25 and prior.log_prob(torch.tensor([0, 1])) < -4


def test_unknown_method_says_so():
    with pytest.raises(ValueError, match="unknown method"):
        tiny().complete(EVERY, torch.zeros(3, dtype=torch.bool), "wish")  # type: ignore[arg-type]
