"""Policy and value learn from real episodes of the policy: PPO's objective with the cost of what came."""

from __future__ import annotations

from typing import NamedTuple, cast

import pytest
import torch
from torch import Tensor

from mirrormark.agent.agent import Agent
from mirrormark.agent.world_model import imagine
from mirrormark.swift.on_policy import OnPolicy, RealRollout, normalised, ppo_loss
from mirrormark.training.replay_buffer import Batch, ReplayBuffer
from tests.agent.tiny import disturb, last_layer, random_actions, random_tokens
from tests.swift.tiny import swift_agent

FRAMES = 9  # of a window: a past of 8, and the frame that it leads to


class Stored(NamedTuple):
    """Stands for a buffer: gives the same windows whenever it is asked."""

    tokens: Tensor
    action: Tensor
    start: Tensor
    handover: Tensor

    def newest(self, batch: int, length: int, early: int = 0) -> Batch:
        assert (batch, length, early) == (3, FRAMES, FRAMES - 4)
        return Batch({"tokens": self.tokens.to(torch.uint8)}, self.action, self.start, self.handover)


def stored(agent: Agent, start=(0, 0, 0), handover=(99, 99, 99)) -> Stored:
    torch.manual_seed(1)
    tokens, action = random_tokens(agent, 3, FRAMES), 0.9 * random_actions(3, FRAMES)
    return Stored(tokens, action, torch.tensor(start), torch.tensor(handover))


def source(agent: Agent) -> OnPolicy:
    return OnPolicy(agent, 3, 0.97, 0.9, 0.99, 1e-3)


def rollout(agent: Agent, on_policy: OnPolicy | None = None, **episodes) -> RealRollout:
    buffer = cast(ReplayBuffer, stored(agent, **episodes))
    return (on_policy or source(agent)).rollout(agent, buffer)


def test_a_real_window_is_seen_as_imagination_from_the_same_past_would_see_it():
    agent = swift_agent("grid")
    seen, real = stored(agent), rollout(agent).rollout
    path = imagine(agent.world_model, agent.policy, seen.tokens[:, :4], seen.action[:, :3], 1)
    torch.testing.assert_close(real.hidden[:, 3], path.hidden[:, 0], rtol=1e-4, atol=1e-5)
    assert not real.hidden[:, 0].any()  # as the Actor's, before its first frame
    assert torch.equal(real.action, seen.action[:, :-1])


def test_an_action_is_charged_with_what_it_led_to():
    """D2."""
    agent = swift_agent()
    real = rollout(agent).rollout
    torch.testing.assert_close(real.cost, agent.cost(real.tokens[:, 1:], real.hidden[:, 1:]))
    assert real.cost.shape == real.action.shape[:2] == (3, FRAMES - 1)


def test_frames_without_their_whole_past_count_only_where_the_agent_had_no_more():
    weight = rollout(swift_agent(), start=(0, 7, 0)).rollout.weight
    assert (weight[::2] > 0).all() and not weight[1, :3].any() and (weight[1, 3:] > 0).all()
    assert weight.mean().item() == pytest.approx(1.0)


def test_the_policy_learns_only_from_what_it_did_itself():
    agent = swift_agent()
    weight = rollout(agent, handover=(4, 0, 99)).rollout.weight
    assert (weight[0, :4] > 0).all() and not weight[0, 4:].any()
    assert not weight[1].any() and (weight[2] > 0).all()
    on_policy = source(agent)
    nothing = rollout(agent, on_policy, handover=(0, 0, 0))
    policy, value = on_policy.losses(agent, nothing)
    assert not nothing.rollout.weight.any() and value.value == 0  # and no division by nothing
    policy.value.backward()
    assert not any(p.grad.any() for p in agent.policy.parameters() if p.grad is not None)


def test_what_babbling_leads_to_is_not_the_policys_doing():
    """Costs after the handover change nothing that policy and value learn; those before do."""
    agent, found = disturb(swift_agent()), []
    on_policy = source(agent)
    real = rollout(agent, on_policy, handover=(4, 4, 4))
    for when, more in ((4, 0.0), (4, 100.0), (3, 100.0)):
        cost = real.rollout.cost.clone()
        cost[0, when:] += more  # of frame 5 on, or already of frame 4, which the policy's last action led to
        found.append(gradients(agent, on_policy, real._replace(rollout=real.rollout._replace(cost=cost))))
    for plain, after, before in zip(*found):
        torch.testing.assert_close(plain, after, rtol=1e-4, atol=1e-6)
        assert not torch.allclose(plain, before, atol=1e-3)


def gradients(agent: Agent, on_policy: OnPolicy, real: RealRollout) -> tuple[Tensor, Tensor]:
    agent.zero_grad(set_to_none=True)
    torch.manual_seed(2)
    policy, value = on_policy.losses(agent, real)
    (policy.value + value.value).backward()
    policy_gradient, value_gradient = (last_layer(part).weight.grad for part in (agent.policy, agent.value))
    assert policy_gradient is not None and value_gradient is not None
    return policy_gradient, value_gradient


def test_each_loss_reaches_its_own_network():
    agent = disturb(swift_agent())
    on_policy = source(agent)
    for loss, own in zip(on_policy.losses(agent, rollout(agent, on_policy)), ("policy.", "value.")):
        agent.zero_grad(set_to_none=True)
        loss.value.backward()
        reached = {name for name, p in agent.named_parameters() if p.grad is not None and p.grad.any()}
        assert reached and all(name.startswith(own) for name in reached)


def test_ratios_start_at_one_and_actions_are_as_likely_as_to_the_policy_that_acted():
    agent = disturb(swift_agent())
    on_policy = source(agent)
    real = rollout(agent, on_policy)
    choice = agent.policy(real.rollout.tokens[:, :-1], real.rollout.hidden[:, :-1])
    assert torch.equal(choice.log_prob_of(real.rollout.action), real.old_log_prob)
    with torch.no_grad():
        last_layer(agent.policy).bias.add_(0.3)
    assert torch.equal(rollout(agent, on_policy).old_log_prob, real.old_log_prob)
    on_policy.begin_iteration(agent)
    assert not torch.allclose(rollout(agent, on_policy).old_log_prob, real.old_log_prob)


def test_an_action_at_full_strength_is_not_infinitely_unlikely():
    agent = swift_agent()
    seen = stored(agent)
    seen.action[0, 0] = 1.0
    assert source(agent).rollout(agent, cast(ReplayBuffer, seen)).old_log_prob.isfinite().all()


def test_what_the_value_learns_of_an_episode_later_does_not_change_what_was_a_surprise():
    agent = disturb(swift_agent())
    on_policy = source(agent)
    real, told = rollout(agent, on_policy), []
    for learned in (0.0, 1.0):
        with torch.no_grad():
            weight = last_layer(agent.value).weight
            weight.add_(learned * torch.randn_like(weight))
        told.append(gradients(agent, on_policy, rollout(agent, on_policy)))
    assert torch.equal(told[0][0], told[1][0]) and not torch.equal(told[0][1], told[1][1])
    expected = real._replace(old_value=real.old_value + torch.rand_like(real.old_value) * 50)
    assert not torch.equal(gradients(agent, on_policy, expected)[0], told[0][0])


def test_a_value_that_learns_from_real_episodes_predicts_their_returns():
    agent = swift_agent()
    on_policy = OnPolicy(agent, 3, 0.97, 0.9, discount=0.5, eta=1e-3)
    real = rollout(agent, on_policy)
    cost = torch.tensor([[0.0], [10.0], [0.0]]).expand_as(real.rollout.cost)
    real = real._replace(rollout=real.rollout._replace(cost=cost))
    adam = torch.optim.Adam(agent.value.parameters(), 1e-2)
    for _ in range(150):
        loss = on_policy.losses(agent, real)[1].value
        adam.zero_grad()
        loss.backward()
        adam.step()
    calm, worse, _ = agent.value(real.rollout.tokens[:, 0], real.rollout.hidden[:, 0]).tolist()
    assert calm == pytest.approx(0, abs=3) and worse == pytest.approx(10 / (1 - 0.5), abs=3)


def test_ppo_takes_no_more_from_an_action_than_its_clip():
    """Of a cost: a costly action stops at a ratio of .8, a cheap one at 1.2; far off, at 3, nothing moves."""
    ratio = torch.tensor([0.7, 0.9, 1.1, 1.3, 5.0])
    for advantage, moves in (
        (1.0, [False, True, True, True, False]),
        (-1.0, [True, True, True, False, False]),
    ):
        log_prob = ratio.log().requires_grad_()
        loss = ppo_loss(log_prob, torch.zeros(5), torch.full((5,), advantage))
        (slope,) = torch.autograd.grad(loss.sum(), log_prob)
        assert (slope != 0).tolist() == moves
        assert all((slope[torch.tensor(moves)] > 0) == (advantage > 0))


def test_weights_are_one_on_average():
    assert normalised(torch.tensor([True, False, True, False])).tolist() == [2, 0, 2, 0]
    assert normalised(torch.tensor([False])).tolist() == [0]
