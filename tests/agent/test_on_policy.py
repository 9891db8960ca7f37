"""Value and policy learn from on-policy data beside dreams: the same states, other consequences."""

import pytest
import torch
from tiny_agents import ACTIONS, CELLS, random_tokens, tiny_agent

from mirrormark.agent import losses as L
from mirrormark.agent.actor_critic import PolicyConfig
from mirrormark.agent.agent import ImaginationConfig
from mirrormark.agent.dream import prefill
from mirrormark.agent.losses import LossConfig
from mirrormark.agent.objective import OnPolicyBatch, actor_critic_objective, on_policy_batch


def real_window(agent, n=3):
    i = agent.config.imagination
    torch.manual_seed(1)
    return random_tokens(agent, n, i.context + i.horizon), torch.rand(
        n, i.context + i.horizon, ACTIONS
    ) * 2 - 1


def lived_by(agent, tokens, action, start=(0, 0, 0), acted=None) -> OnPolicyBatch:
    with torch.no_grad():
        begin = torch.tensor(start[: len(tokens)])
        then = acted or agent.policy, agent.value
        return on_policy_batch(agent, *then, tokens, action, begin, torch.full_like(begin, 999))


@torch.no_grad()
def test_a_real_window_is_seen_as_a_dream_from_the_same_past_would_be():
    agent = tiny_agent("grid", tokenizer=CELLS)
    tokens, action = real_window(agent)
    on_policy, context = lived_by(agent, tokens, action), agent.config.imagination.context
    hidden, _ = prefill(agent.world_model, tokens[:, :context], action[:, : context - 1], 1)
    assert torch.allclose(on_policy.hidden[:, context - 1], hidden, atol=1e-5)
    assert not on_policy.hidden[:, 0].any()  # as the Actor's, before its first frame
    assert torch.allclose(on_policy.cost, agent.expected_free_energy(tokens[:, 1:]), atol=1e-4)
    assert on_policy.hidden.shape[:2] == on_policy.tokens.shape[:2] == (3, on_policy.cost.shape[1] + 1)


def test_frames_without_their_whole_past_count_only_where_the_body_had_no_more():
    agent = tiny_agent()
    on_policy, now = (
        lived_by(agent, *real_window(agent), start=(0, 7, 0)),
        agent.config.imagination.context - 1,
    )
    assert (on_policy.weight[::2] > 0).all()
    assert not on_policy.weight[1, :now].any() and (on_policy.weight[1, now:] > 0).all()
    assert on_policy.weight.mean().item() == pytest.approx(1.0)


@torch.no_grad()
def test_what_was_done_is_as_likely_as_it_was_to_the_policy_that_did_it():
    agent, other = tiny_agent(losses=LossConfig(policy_on_policy_share=0.5)), tiny_agent().policy
    other.head.bias.add_(0.3)
    tokens, action = real_window(agent)
    action[0, 0] = 1.0  # at full strength: not infinitely unlikely
    on_policy = lived_by(agent, tokens, action, acted=other)
    then = other(tokens[:, 1], on_policy.hidden[:, 1])
    assert torch.allclose(on_policy.log_prob[:, 1], then.log_prob(action[:, 1].atanh()), atol=1e-3)
    assert on_policy.log_prob.isfinite().all()


def value_gradient(share: float, dreamed_cost: float, lived_cost: float) -> torch.Tensor:
    agent = tiny_agent(losses=LossConfig(value_on_policy_share=share))
    tokens, action = real_window(agent)
    with torch.no_grad():
        dreamed = agent.dream(tokens[:, :4], action[:, :3])
    on_policy = lived_by(agent, tokens, action)
    cost = torch.full(dreamed.action.shape[:2], dreamed_cost)
    _, value = actor_critic_objective(
        agent, dreamed, cost, on_policy._replace(cost=on_policy.cost * 0 + lived_cost)
    )
    value.loss.backward()
    assert agent.value.head.bias.grad is not None
    return agent.value.head.bias.grad


@pytest.mark.parametrize(
    ("share", "by_dreams", "by_life"), [(0.0, True, False), (0.5, True, True), (1.0, False, True)]
)
def test_the_value_learns_from_dreams_and_life_in_the_asked_shares(share, by_dreams, by_life):
    plain = value_gradient(share, 1.0, 1.0)
    assert (not torch.allclose(plain, value_gradient(share, 2.0, 1.0))) is by_dreams
    assert (not torch.allclose(plain, value_gradient(share, 1.0, 2.0))) is by_life


def test_a_value_that_learns_from_life_alone_predicts_its_returns():
    """Two pasts that dreams hold for alike, and life does not."""
    agent = tiny_agent(losses=LossConfig(value_on_policy_share=1.0))
    tokens, action = real_window(agent, 2)
    with torch.no_grad():
        dreamed = agent.dream(tokens[:, :4], action[:, :3])
    on_policy = lived_by(agent, tokens, action)
    on_policy = on_policy._replace(cost=torch.tensor([[0.0], [2.0]]).expand_as(on_policy.cost))
    adam = torch.optim.Adam(agent.value.parameters(), 1e-2)
    for _ in range(150):
        _, value = actor_critic_objective(agent, dreamed, torch.zeros(2, 5), on_policy)
        adam.zero_grad()
        value.loss.backward()
        adam.step()
        agent.update_ema(self_prior=False, value=True)
    with torch.no_grad():
        calm, worse = agent.value(on_policy.tokens[:, 0], on_policy.hidden[:, 0]).tolist()
    assert abs(calm) < 2.0 and worse > calm + 4.0  # few and coarse bins


def policy_gradient(share: float, dreamed_cost: float, lived_cost: float) -> torch.Tensor:
    """Of an agent to which, in its second half, life or the dream costs that much."""
    agent = tiny_agent(losses=LossConfig(policy_on_policy_share=share))
    tokens, action = real_window(agent)
    with torch.no_grad():
        dreamed = agent.dream(tokens[:, :4], action[:, :3])
    on_policy, half = lived_by(agent, tokens, action), torch.arange(3)[:, None] > 0
    dreamt = half.float().expand(dreamed.action.shape[:2]) * dreamed_cost
    torch.manual_seed(2)
    policy, _ = actor_critic_objective(
        agent, dreamed, dreamt, on_policy._replace(cost=half.float().expand_as(on_policy.cost) * lived_cost)
    )
    policy.loss.backward()
    assert agent.policy.head.weight.grad is not None
    return agent.policy.head.weight.grad


@pytest.mark.parametrize(
    ("share", "by_dreams", "by_life"), [(0.0, True, False), (0.5, True, True), (1.0, False, True)]
)
def test_the_policy_learns_from_dreams_and_life_in_the_asked_shares(share, by_dreams, by_life):
    plain = policy_gradient(share, 1.0, 1.0)
    assert (not torch.allclose(plain, policy_gradient(share, -1.0, 1.0), atol=1e-6)) is by_dreams
    assert (not torch.allclose(plain, policy_gradient(share, 1.0, -1.0), atol=1e-6)) is by_life


def test_what_the_value_learns_of_an_episode_later_does_not_change_what_was_a_surprise():
    agent = tiny_agent(losses=LossConfig(policy_on_policy_share=1.0, value_on_policy_share=1.0))
    tokens, action = real_window(agent)
    with torch.no_grad():
        dreamed = agent.dream(tokens[:, :4], action[:, :3])
    on_policy, cost = lived_by(agent, tokens, action), torch.rand(dreamed.action.shape[:2])
    on_policy = on_policy._replace(cost=torch.rand_like(on_policy.cost) * 50)
    told = []
    for learned in (0.0, 1.0):
        with torch.no_grad():
            agent.value.head.weight.add_(learned * torch.randn_like(agent.value.head.weight))
        torch.manual_seed(2)
        told.append(actor_critic_objective(agent, dreamed, cost, on_policy))
    assert told[0][0].loss == told[1][0].loss and told[0][1].loss != told[1][1].loss
    expected = on_policy._replace(value=on_policy.value + torch.rand_like(on_policy.value) * 50)
    torch.manual_seed(2)
    assert actor_critic_objective(agent, dreamed, cost, expected)[0].loss != told[0][0].loss


def test_until_it_has_lived_the_value_learns_from_dreams_and_the_policy_waits():
    agent = tiny_agent(losses=LossConfig(policy_on_policy_share=0.9, value_on_policy_share=1.0))
    tokens, action = real_window(agent)
    with torch.no_grad():
        dreamed = agent.dream(tokens[:, :4], action[:, :3])
    on_policy, cost = lived_by(agent, tokens, action), torch.rand(dreamed.action.shape[:2])
    nothing = on_policy._replace(weight=torch.zeros_like(on_policy.weight))
    alone = actor_critic_objective(agent, dreamed, cost, None)
    waits, values = actor_critic_objective(agent, dreamed, cost, nothing)
    assert values.loss == alone[1].loss != actor_critic_objective(agent, dreamed, cost, on_policy)[1].loss
    waits.loss.backward()
    assert all((p.grad == 0).all() for p in agent.policy.parameters() if p.grad is not None)
    policy, _ = actor_critic_objective(agent, dreamed, cost, on_policy)
    policy.loss.backward()
    assert agent.policy.head.weight.grad is not None and agent.policy.head.weight.grad.abs().sum() > 0


def test_what_cost_more_than_expected_becomes_rarer_until_it_is_rare_enough():
    before, cost = torch.zeros(4), torch.tensor([1.0, -1.0, 1.0, -1.0])
    log_prob = torch.tensor([0.0, 0.0, -0.5, 0.5], requires_grad=True)  # the last two have learned it
    L.ppo_loss(log_prob, before, cost, 0.2).sum().backward()
    assert torch.allclose(log_prob.grad, torch.tensor([1.0, -1.0, 0.0, 0.0]))


def test_a_policy_that_learns_from_life_alone_does_what_paid():
    agent = tiny_agent(losses=LossConfig(policy_on_policy_share=1.0))
    tokens, action = real_window(agent, 2)
    with torch.no_grad():
        dreamed = agent.dream(tokens[:, :4], action[:, :3])
    on_policy = lived_by(agent, tokens, action)
    on_policy = on_policy._replace(cost=torch.tensor([[0.0], [50.0]]).expand_as(on_policy.cost))
    adam = torch.optim.Adam(agent.policy.parameters(), 1e-2)
    for _ in range(40):
        policy, _ = actor_critic_objective(agent, dreamed, torch.zeros(2, 5), on_policy)
        adam.zero_grad()
        policy.loss.backward()
        adam.step()
    with torch.no_grad():
        moved = (
            agent.policy(tokens[:, :-1], on_policy.hidden[:, :-1]).log_prob_of(on_policy.action)
            - on_policy.log_prob
        )
    assert moved[0].mean() > 0.05 and moved[1].mean() < -0.05


def test_what_cannot_be_lived_says_so():
    for name in ("value_on_policy_share", "policy_on_policy_share"):
        with pytest.raises(ValueError, match=name):
            LossConfig(**{name: 1.5})
        with pytest.raises(ValueError, match=r"context of at least 2"):
            tiny_agent(losses=LossConfig(**{name: 0.5}), imagination=ImaginationConfig(horizon=5, context=1))
    with pytest.raises(ValueError, match="posterior"):
        tiny_agent(losses=LossConfig(policy_on_policy_share=0.5), policy=PolicyConfig(acts_on="prior"))
