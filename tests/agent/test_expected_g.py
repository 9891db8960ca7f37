"""Expected G: what usually follows, learned from motor babbling alone."""

import pytest
import torch
from tiny_agents import ACTIONS, random_tokens, tiny_agent

from mirrormark.agent.expected_g import ExpectedGConfig
from mirrormark.agent.losses import LossConfig
from mirrormark.agent.objective import (
    actor_critic_objective,
    expected_g_batch,
    expected_g_objective,
    on_policy_batch,
)

STEPS = 3


def foreseeing(**parts):
    ahead = ExpectedGConfig(control_steps=STEPS, hidden=16, bins=41, reach=40.0)
    return tiny_agent(expected_g=ahead, **parts)


def windows(agent, n=2, frames=10):
    torch.manual_seed(1)
    return random_tokens(agent, n, frames), torch.rand(n, frames, ACTIONS) * 2 - 1


@torch.no_grad()
def test_what_is_predicted_is_the_mean_of_what_followed():
    agent = foreseeing()
    tokens, action = windows(agent)
    batch = expected_g_batch(agent, tokens, action, torch.tensor([0, 0]), torch.tensor([0, 0]))
    cost = agent.expected_free_energy(tokens)
    assert batch.target.shape == (2, 10 - STEPS)
    for now in range(10 - STEPS):
        assert torch.allclose(batch.target[:, now], cost[:, now + 1 : now + 1 + STEPS].mean(1), atol=1e-4)
    assert batch.tokens.shape[:2] == batch.hidden.shape[:2] == batch.target.shape


@torch.no_grad()
def test_only_what_came_of_babbling_counts():
    agent = foreseeing()
    context = agent.config.imagination.context  # of 4 frames
    tokens, action = windows(agent, 4)
    start, handover = torch.tensor([0, 7, 0, 7]), torch.tensor([0, 0, 5, 99])
    weight = expected_g_batch(agent, tokens, action, start, handover).weight
    assert (weight[0] > 0).all()  # babbling from the episode's first frame on
    assert not weight[1, : context - 1].any() and (weight[1, context - 1 :] > 0).all()
    assert not weight[2, :5].any() and (weight[2, 5:] > 0).all()  # the policy let go at frame 5
    assert not weight[3].any()  # it never did
    assert weight.mean().item() == pytest.approx(1.0)


@torch.no_grad()
def test_the_policy_learns_only_from_what_it_did_itself():
    agent = foreseeing()
    tokens, action = windows(agent, 3)
    start, handover = torch.zeros(3, dtype=torch.int64), torch.tensor([4, 0, 99])
    on_policy = on_policy_batch(agent, agent.policy, agent.value, tokens, action, start, handover)
    assert (on_policy.weight[0, :4] > 0).all() and not on_policy.weight[0, 4:].any()
    assert not on_policy.weight[1].any() and (on_policy.weight[2] > 0).all()
    nothing = on_policy_batch(
        agent, agent.policy, agent.value, tokens, action, start, torch.zeros_like(start)
    )
    assert not nothing.weight.any()  # and no division by it


def test_what_babbling_leads_to_is_not_the_policys_doing():
    """Costs after it has let go change nothing that policy and value learn; those before do."""
    gradients = []
    for when, more in ((4, 0.0), (4, 100.0), (3, 100.0)):
        agent = tiny_agent(losses=LossConfig(policy_on_policy_share=1.0, value_on_policy_share=1.0))
        tokens, action = windows(agent, 3)
        with torch.no_grad():
            dreamed = agent.dream(tokens[:, :4], action[:, :3])
            on_policy = on_policy_batch(
                agent, agent.policy, agent.value, tokens, action, torch.zeros(3).long(), torch.full((3,), 4)
            )
        cost = on_policy.cost.clone()
        cost[0, when:] += more  # of frame 5 on, or already of frame 4, which the policy's last action led to
        torch.manual_seed(2)
        parts = actor_critic_objective(agent, dreamed, torch.zeros(3, 5), on_policy._replace(cost=cost))
        sum(part.loss for part in parts).backward()
        gradients.append((agent.policy.head.weight.grad, agent.value.head.weight.grad))
    for plain, after, before in zip(*gradients):
        assert torch.allclose(plain, after, atol=1e-6) and not torch.allclose(plain, before, atol=1e-3)


@torch.no_grad()
def test_the_expected_g_is_the_cost_where_there_is_one():
    agent, plain = foreseeing(), tiny_agent()
    tokens, action = windows(agent)
    start, handover = torch.zeros(2, dtype=torch.int64), torch.full((2,), 99)
    on_policy = on_policy_batch(agent, agent.policy, agent.value, tokens, action, start, handover)
    assert agent.expected_g is not None and plain.expected_g is None
    assert torch.allclose(on_policy.cost, agent.expected_g(tokens[:, 1:], on_policy.hidden[:, 1:]))
    dreamed = agent.dream(tokens[:, :4], action[:, :3])
    given = actor_critic_objective(
        agent, dreamed, agent.expected_g(dreamed.tokens[:, 1:], dreamed.hidden[:, 1:])
    )
    torch.manual_seed(0)
    found = actor_critic_objective(agent, dreamed)
    assert torch.allclose(given[0].metrics["cost_dreamed"], found[0].metrics["cost_dreamed"])
    assert torch.allclose(
        plain.cost(tokens, on_policy.hidden), plain.expected_free_energy(tokens)
    )  # the paper's


def test_it_learns_what_lasts_and_touches_nothing_else():
    """Two pasts alike in G now, of which one is followed by more."""
    agent = foreseeing()
    tokens, action = windows(agent)
    with torch.no_grad():
        batch = expected_g_batch(agent, tokens, action, torch.zeros(2).long(), torch.zeros(2).long())
    target = torch.tensor([[5.0], [20.0]]).expand_as(batch.target)
    batch = batch._replace(target=target)
    assert agent.expected_g is not None
    adam = torch.optim.Adam(agent.expected_g.parameters(), 1e-2)
    for _ in range(120):
        objective = expected_g_objective(agent, batch)
        adam.zero_grad()
        objective.loss.backward()
        adam.step()
    told = agent.expected_g(batch.tokens, batch.hidden)
    assert (told[0] - 5).abs().max() < 2 and (told[1] - 20).abs().max() < 2
    assert objective.metrics["expected_g_explained_variance"] > 0.9
    others = [p for name, p in agent.named_parameters() if not name.startswith("expected_g.")]
    assert all(p.grad is None for p in others)


def test_a_negative_expected_g_is_refused():
    with pytest.raises(ValueError, match="control_steps"):
        ExpectedGConfig(control_steps=-1)
    with pytest.raises(ValueError, match=r"expected_g\.bins"):
        ExpectedGConfig(bins=1)
