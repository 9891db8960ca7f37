import pytest
import torch
from tiny_agents import random_tokens, tiny_agent
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from mirrormark.agent.actor_critic import PolicyConfig, TanhNormal
from mirrormark.agent.agent import ImaginationConfig


def test_log_prob_against_torch_distributions():
    normal = TanhNormal(torch.randn(5, 3).double(), torch.rand(5, 3).double() + 0.1)
    raw = normal.sample()
    theirs = TransformedDistribution(Normal(*normal), TanhTransform()).log_prob(raw.tanh()).sum(-1)
    assert torch.allclose(normal.log_prob(raw), theirs, atol=1e-6)


def test_entropy_is_the_mean_surprise_and_moves_with_the_spread():
    normal = TanhNormal(torch.zeros(50_000, 1), torch.full((50_000, 1), 0.7, requires_grad=True))
    surprise = -normal.log_prob(normal.sample()).mean()
    assert torch.isclose(normal.entropy().mean(), surprise, atol=0.02)
    normal.entropy().sum().backward()
    assert normal.std.grad is not None and normal.std.grad.mean() > 0


def test_extreme_actions_stay_finite():
    normal = TanhNormal(torch.tensor([[50.0, -50.0]]), torch.tensor([[0.1, 1.0]]))
    assert normal.log_prob(torch.tensor([[50.0, -50.0]])).isfinite().all()


@pytest.mark.parametrize("bounded", [True, False])
def test_bounded_mean(bounded):
    """D20: with tanh before the tanh normal the mode stays within ±.76."""
    agent = tiny_agent(policy=PolicyConfig(hidden=16, bounded_mean=bounded))
    with torch.no_grad():
        agent.policy.head.bias.fill_(50.0)
    mode = agent.policy(random_tokens(agent, 4), torch.zeros(4, 16)).mean.tanh()
    assert (mode.abs() < 0.77).all() == bounded


def test_value_starts_at_zero_and_has_the_papers_shape():
    agent = tiny_agent()
    tokens, hidden = random_tokens(agent, 4, 2), torch.randn(4, 2, 16)
    assert torch.allclose(agent.value(tokens, hidden), torch.zeros(4, 2), atol=1e-4)
    assert agent.value.logits(tokens, hidden).shape == (4, 2, 21)


def test_a_blind_policy_needs_a_past():
    """D10: it acts on a prediction."""
    with pytest.raises(ValueError, match=r"imagination\.context of at least 2"):
        tiny_agent(
            policy=PolicyConfig(hidden=16, acts_on="prior"),
            imagination=ImaginationConfig(horizon=5, context=1),
        )


def test_an_action_at_its_end_is_as_likely_as_all_that_lies_beyond():
    """Half precision, in which memory keeps actions, cannot tell a raw sample of 5 from one of 9."""
    mean = torch.tensor([3.9, 9.0, -9.0, 0.2], requires_grad=True)
    choice = TanhNormal(mean[:, None], torch.full((4, 1), 0.5))
    likely = choice.log_prob_of(torch.tensor([[1.0], [1.0], [-1.0], [0.5]]))
    samples = (3.9 + 0.5 * torch.randn(200_000, generator=torch.Generator().manual_seed(0))).tanh().half()
    assert likely[0].exp().item() == pytest.approx((samples >= 1 - 2**-11).float().mean().item(), abs=0.01)
    assert torch.allclose(likely[1:3], torch.zeros(2), atol=1e-5)  # certain, however far beyond
    assert torch.allclose(likely[3], choice.log_prob(torch.tensor(0.5).atanh())[3])
    likely.sum().backward()
    assert mean.grad is not None and mean.grad.isfinite().all()
