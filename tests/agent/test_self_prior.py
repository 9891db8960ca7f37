import itertools

import pytest
import torch

from mirrormark.agent.self_prior import PaperSelfPrior
from mirrormark.agent.tokens import TokenSpec
from mirrormark.config import SelfPriorConfig

SPEC = TokenSpec((3, 3, 3))
EVERY = torch.tensor(list(itertools.product(range(3), repeat=3)))
CONFIG = SelfPriorConfig(width=16, layers=2, heads=2, ffn=32)


@torch.no_grad()
def tiny(bos: float = -50.0) -> PaperSelfPrior:
    """Far from even, so that a wrong sum shows. bos: how likely the word is that is never drawn."""
    prior = PaperSelfPrior(SPEC, CONFIG).eval()
    for parameter in prior.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.3)
    prior.head.bias[prior.bos] = bos
    return prior


def frequencies(drawn: torch.Tensor, of: torch.Tensor = EVERY) -> torch.Tensor:
    return (drawn.unsqueeze(1) == of).all(-1).float().mean(0)


def test_it_is_a_distribution_over_frames():
    """E3: the probabilities of all frames sum to one, where BOS takes none."""
    prior = tiny()
    log_prob = prior.log_prob(EVERY)
    assert log_prob.exp().std() > 1e-3
    assert torch.isclose(log_prob.exp().sum(), torch.tensor(1.0), atol=1e-5)
    torch.testing.assert_close(prior.per_token_log_prob(EVERY).sum(-1), log_prob)


def test_bos_is_a_word_of_every_tokens_softmax_and_never_drawn():
    """S4."""
    prior = tiny(bos=3.0)
    table = prior.log_probs(EVERY)
    assert table.shape == (27, 3, 4)
    torch.testing.assert_close(table.exp().sum(-1), torch.ones(27, 3))
    assert table[..., prior.bos].exp().mean() > 0.2
    assert prior.log_prob(EVERY).exp().sum() < 0.9
    assert prior.sample(500).max() < 3


def test_tokens_see_only_those_before():
    tables = tiny().log_probs(torch.tensor([[0, 1, 2], [0, 1, 0], [1, 1, 0]]))
    assert torch.equal(tables[0], tables[1]) and torch.equal(tables[0, 0], tables[2, 0])
    assert not torch.allclose(tables[1, 1:], tables[2, 1:])


def test_samples_follow_the_density():
    prior = tiny()
    assert torch.allclose(frequencies(prior.sample(20_000)), prior.log_prob(EVERY).exp(), atol=0.015)


def test_ancestral_completion_keeps_what_is_known_and_conditions_on_what_lies_before():
    prior = tiny()
    known, start = torch.tensor([True, False, False]), torch.tensor([2, 0, 0]).expand(20_000, -1)
    filled = prior.complete(start, known)
    assert (filled[:, 0] == 2).all()
    of = EVERY[EVERY[:, 0] == 2]
    assert torch.allclose(frequencies(filled, of), prior.log_prob(of).softmax(0), atol=0.015)


def test_gibbs_completion_conditions_on_what_lies_after_too():
    """The last token is known: ancestral sampling ignores it, Gibbs sampling follows p(s1, s2 | s3)."""
    torch.manual_seed(1)  # of which the last token says much about the first two
    prior = tiny()
    known, start = torch.tensor([False, False, True]), torch.tensor([0, 0, 2]).expand(6_000, -1)
    of = EVERY[EVERY[:, 2] == 2]
    expected = prior.log_prob(of).softmax(0)

    def gap(filled: torch.Tensor) -> float:
        assert (filled[:, 2] == 2).all()
        return (frequencies(filled, of) - expected).abs().max().item()

    assert gap(prior.complete(start, known, "gibbs", sweeps=8)) < 0.025
    assert gap(prior.complete(start, known, "ancestral")) > 0.1


def test_teacher_forced_resampling_sees_the_original_tokens():
    """D18: token k is drawn given the original tokens before it, not given the drawn ones."""
    prior, start = tiny(), torch.tensor([2, 1, 0])
    filled = prior.complete(start.expand(20_000, -1), torch.zeros(3, dtype=torch.bool), "teacher_forced")
    seen = torch.bincount(filled[:, 2], minlength=3) / 20_000
    assert torch.allclose(seen, prior.log_probs(start)[2, :3].exp(), atol=0.015)


def test_dropout_while_it_learns_alone():
    """S1, S5."""
    prior = tiny()
    assert torch.equal(prior.log_prob(EVERY), prior.log_prob(EVERY))
    prior.train()
    assert not torch.equal(prior.log_prob(EVERY), prior.log_prob(EVERY))


def test_it_learns_a_density():
    """Tokens that always agree: the entropy of the data, log 3, is reached."""
    prior = PaperSelfPrior(SPEC, CONFIG).eval()
    optimizer = torch.optim.Adam(prior.parameters(), 1e-2)
    loss = torch.zeros(())
    for _ in range(80):
        tokens = torch.randint(0, 3, (64, 1)).expand(-1, 3).contiguous()
        loss = -prior.log_prob(tokens).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 1.25 and prior.log_prob(torch.tensor([0, 1, 0])) < -4


def test_unknown_method_says_so():
    with pytest.raises(ValueError, match="unknown method"):
        tiny().complete(EVERY, torch.zeros(3, dtype=torch.bool), "wish")  # type: ignore[arg-type]
