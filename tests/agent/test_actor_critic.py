import pytest
import torch
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from mirrormark.agent.actor_critic import TanhNormal, paper_policy
from mirrormark.agent.tokens import TokenSpec
from tests.agent.tiny import last_layer, paper_agent, random_tokens


def test_log_prob_against_torch():
    normal = TanhNormal(torch.randn(5, 3).double(), torch.rand(5, 3).double() + 0.1)
    raw = normal.sample()
    theirs = TransformedDistribution(Normal(*normal), TanhTransform()).log_prob(raw.tanh()).sum(-1)
    torch.testing.assert_close(normal.log_prob(raw), theirs, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(normal.log_prob_of(raw.tanh()).double(), theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("samples", [1, 100])
def test_entropy_is_the_mean_surprise_and_moves_with_the_spread(samples):
    """P7: of many samples, or exact but for tanh's part."""
    rows = 50_000 // samples
    normal = TanhNormal(torch.zeros(rows, 1), torch.full((rows, 1), 0.7, requires_grad=True))
    many = TanhNormal(torch.zeros(100_000, 1), torch.full((100_000, 1), 0.7))
    entropy, surprise = normal.entropy(samples), -many.log_prob(many.sample()).mean()
    assert entropy.shape == (rows,) and torch.isclose(entropy.mean(), surprise, atol=0.02)
    entropy.sum().backward()
    assert normal.std.grad is not None and normal.std.grad.mean() > 0


def test_extreme_actions_stay_finite():
    normal = TanhNormal(torch.tensor([[50.0, -50.0]]), torch.tensor([[0.1, 1.0]]))
    assert normal.log_prob(torch.tensor([[50.0, -50.0]])).isfinite().all()


def test_an_action_at_its_end_is_as_likely_as_all_that_lies_beyond():
    """Half precision, in which the replay buffer keeps actions, cannot tell a raw sample of 5
    from one of 9."""
    mean = torch.tensor([3.9, 9.0, -9.0, 0.2], requires_grad=True)
    choice = TanhNormal(mean[:, None], torch.full((4, 1), 0.5))
    likely = choice.log_prob_of(torch.tensor([[1.0], [1.0], [-1.0], [0.5]]))
    samples = (3.9 + 0.5 * torch.randn(200_000, generator=torch.Generator().manual_seed(0))).tanh().half()
    assert likely[0].exp().item() == pytest.approx((samples >= 1 - 2**-11).float().mean().item(), abs=0.01)
    assert torch.allclose(likely[1:3], torch.zeros(2), atol=1e-5)  # certain, however far beyond
    assert torch.allclose(likely[3], choice.log_prob(torch.tensor(0.5).atanh())[3])
    likely.sum().backward()
    assert mean.grad is not None and mean.grad.isfinite().all()


def test_the_papers_policy_starts_at_half_strength_in_the_middle():
    """P1, P2: standard deviation .5, means near 0; 12 actions then have an entropy of 6 nats."""
    policy = paper_policy(TokenSpec((32,) * 32), 512, 12, 128)
    choice = policy(torch.randint(32, (64, 32)), torch.randn(64, 512))
    assert choice.mean.abs().max() < 0.05
    torch.testing.assert_close(choice.std, torch.full_like(choice.std, 0.5001), rtol=0.02, atol=0)
    assert choice.entropy(100).mean().item() == pytest.approx(6.0, abs=0.1)


@torch.no_grad()
def test_the_papers_mode_stays_within_three_quarters_and_its_spread_has_no_ceiling():
    """D20, P1."""
    agent = paper_agent()
    last_layer(agent.policy).bias.fill_(50.0)
    choice = agent.policy(random_tokens(agent, 4), torch.zeros(4, 16))
    assert (choice.mean.tanh().abs() < 0.77).all() and (choice.std > 40).all()


def test_the_value_starts_at_zero():
    agent = paper_agent()
    tokens, hidden = random_tokens(agent, 4, 2), torch.randn(4, 2, 16)
    assert torch.allclose(agent.value(tokens, hidden), torch.zeros(4, 2), atol=1e-4)
    assert agent.value.logits(tokens, hidden).shape == (4, 2, 41)
