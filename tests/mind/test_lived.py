"""Value and policy learn from real life beside dreams: the same states, other consequences."""

import pytest
import torch
from tiny_minds import ACTIONS, CELLS, random_latent, tiny_mind

from mirrormark.mind import losses as L
from mirrormark.mind.dream import recall
from mirrormark.mind.losses import LossConfig
from mirrormark.mind.mind import ImaginationConfig
from mirrormark.mind.objective import Lived, behaviour_objective, lived_of
from mirrormark.mind.policy import PolicyConfig


def real_window(mind, n=3):
    i = mind.config.imagination
    torch.manual_seed(1)
    return random_latent(mind, n, i.context + i.horizon), torch.rand(
        n, i.context + i.horizon, ACTIONS
    ) * 2 - 1


def lived_by(mind, latent, action, start=(0, 0, 0), acted=None) -> Lived:
    with torch.no_grad():
        begin = torch.tensor(start[: len(latent)])
        then = acted or mind.policy, mind.value
        return lived_of(mind, *then, latent, action, begin, torch.full_like(begin, 999))


@torch.no_grad()
def test_a_real_window_is_seen_as_a_dream_from_the_same_past_would_be():
    mind = tiny_mind("senses", codec=CELLS)
    latent, action = real_window(mind)
    lived, context = lived_by(mind, latent, action), mind.config.imagination.context
    hidden, _ = recall(mind.dynamics, latent[:, :context], action[:, : context - 1], 1)
    assert torch.allclose(lived.hidden[:, context - 1], hidden, atol=1e-5)
    assert not lived.hidden[:, 0].any()  # as the Actor's, before its first frame
    assert torch.allclose(lived.cost, mind.expected_free_energy(latent[:, 1:]), atol=1e-4)
    assert lived.hidden.shape[:2] == lived.latent.shape[:2] == (3, lived.cost.shape[1] + 1)


def test_frames_without_their_whole_past_count_only_where_the_body_had_no_more():
    mind = tiny_mind()
    lived, now = lived_by(mind, *real_window(mind), start=(0, 7, 0)), mind.config.imagination.context - 1
    assert (lived.weight[::2] > 0).all()
    assert not lived.weight[1, :now].any() and (lived.weight[1, now:] > 0).all()
    assert lived.weight.mean().item() == pytest.approx(1.0)


@torch.no_grad()
def test_what_was_done_is_as_likely_as_it_was_to_the_policy_that_did_it():
    mind, other = tiny_mind(losses=LossConfig(policy_lived=0.5)), tiny_mind().policy
    other.head.bias.add_(0.3)
    latent, action = real_window(mind)
    action[0, 0] = 1.0  # at full strength: not infinitely unlikely
    lived = lived_by(mind, latent, action, acted=other)
    then = other(latent[:, 1], lived.hidden[:, 1])
    assert torch.allclose(lived.log_prob[:, 1], then.log_prob(action[:, 1].atanh()), atol=1e-3)
    assert lived.log_prob.isfinite().all()


def value_gradient(share: float, dreamed_cost: float, lived_cost: float) -> torch.Tensor:
    mind = tiny_mind(losses=LossConfig(value_lived=share))
    latent, action = real_window(mind)
    with torch.no_grad():
        dreamed = mind.dream(latent[:, :4], action[:, :3])
    lived = lived_by(mind, latent, action)
    cost = torch.full(dreamed.action.shape[:2], dreamed_cost)
    _, value = behaviour_objective(mind, dreamed, cost, lived._replace(cost=lived.cost * 0 + lived_cost))
    value.loss.backward()
    assert mind.value.head.bias.grad is not None
    return mind.value.head.bias.grad


@pytest.mark.parametrize(
    ("share", "by_dreams", "by_life"), [(0.0, True, False), (0.5, True, True), (1.0, False, True)]
)
def test_the_value_learns_from_dreams_and_life_in_the_asked_shares(share, by_dreams, by_life):
    plain = value_gradient(share, 1.0, 1.0)
    assert (not torch.allclose(plain, value_gradient(share, 2.0, 1.0))) is by_dreams
    assert (not torch.allclose(plain, value_gradient(share, 1.0, 2.0))) is by_life


def test_a_value_that_learns_from_life_alone_foretells_its_returns():
    """Two pasts that dreams hold for alike, and life does not."""
    mind = tiny_mind(losses=LossConfig(value_lived=1.0))
    latent, action = real_window(mind, 2)
    with torch.no_grad():
        dreamed = mind.dream(latent[:, :4], action[:, :3])
    lived = lived_by(mind, latent, action)
    lived = lived._replace(cost=torch.tensor([[0.0], [2.0]]).expand_as(lived.cost))
    adam = torch.optim.Adam(mind.value.parameters(), 1e-2)
    for _ in range(150):
        _, value = behaviour_objective(mind, dreamed, torch.zeros(2, 5), lived)
        adam.zero_grad()
        value.loss.backward()
        adam.step()
        mind.update_ema(self_prior=False, value=True)
    with torch.no_grad():
        calm, worse = mind.value(lived.latent[:, 0], lived.hidden[:, 0]).tolist()
    assert abs(calm) < 2.0 and worse > calm + 4.0  # few and coarse bins


def policy_gradient(share: float, dreamed_cost: float, lived_cost: float) -> torch.Tensor:
    """Of a mind to which, in its second half, life or the dream costs that much."""
    mind = tiny_mind(losses=LossConfig(policy_lived=share))
    latent, action = real_window(mind)
    with torch.no_grad():
        dreamed = mind.dream(latent[:, :4], action[:, :3])
    lived, half = lived_by(mind, latent, action), torch.arange(3)[:, None] > 0
    dreamt = half.float().expand(dreamed.action.shape[:2]) * dreamed_cost
    torch.manual_seed(2)
    policy, _ = behaviour_objective(
        mind, dreamed, dreamt, lived._replace(cost=half.float().expand_as(lived.cost) * lived_cost)
    )
    policy.loss.backward()
    assert mind.policy.head.weight.grad is not None
    return mind.policy.head.weight.grad


@pytest.mark.parametrize(
    ("share", "by_dreams", "by_life"), [(0.0, True, False), (0.5, True, True), (1.0, False, True)]
)
def test_the_policy_learns_from_dreams_and_life_in_the_asked_shares(share, by_dreams, by_life):
    plain = policy_gradient(share, 1.0, 1.0)
    assert (not torch.allclose(plain, policy_gradient(share, -1.0, 1.0), atol=1e-6)) is by_dreams
    assert (not torch.allclose(plain, policy_gradient(share, 1.0, -1.0), atol=1e-6)) is by_life


def test_what_the_value_learns_of_an_episode_later_does_not_change_what_was_a_surprise():
    mind = tiny_mind(losses=LossConfig(policy_lived=1.0, value_lived=1.0))
    latent, action = real_window(mind)
    with torch.no_grad():
        dreamed = mind.dream(latent[:, :4], action[:, :3])
    lived, cost = lived_by(mind, latent, action), torch.rand(dreamed.action.shape[:2])
    lived = lived._replace(cost=torch.rand_like(lived.cost) * 50)
    told = []
    for learned in (0.0, 1.0):
        with torch.no_grad():
            mind.value.head.weight.add_(learned * torch.randn_like(mind.value.head.weight))
        torch.manual_seed(2)
        told.append(behaviour_objective(mind, dreamed, cost, lived))
    assert told[0][0].loss == told[1][0].loss and told[0][1].loss != told[1][1].loss
    expected = lived._replace(value=lived.value + torch.rand_like(lived.value) * 50)
    torch.manual_seed(2)
    assert behaviour_objective(mind, dreamed, cost, expected)[0].loss != told[0][0].loss


def test_until_it_has_lived_the_value_learns_from_dreams_and_the_policy_waits():
    mind = tiny_mind(losses=LossConfig(policy_lived=0.9, value_lived=1.0))
    latent, action = real_window(mind)
    with torch.no_grad():
        dreamed = mind.dream(latent[:, :4], action[:, :3])
    lived, cost = lived_by(mind, latent, action), torch.rand(dreamed.action.shape[:2])
    nothing = lived._replace(weight=torch.zeros_like(lived.weight))
    alone = behaviour_objective(mind, dreamed, cost, None)
    waits, values = behaviour_objective(mind, dreamed, cost, nothing)
    assert values.loss == alone[1].loss != behaviour_objective(mind, dreamed, cost, lived)[1].loss
    waits.loss.backward()
    assert all((p.grad == 0).all() for p in mind.policy.parameters() if p.grad is not None)
    policy, _ = behaviour_objective(mind, dreamed, cost, lived)
    policy.loss.backward()
    assert mind.policy.head.weight.grad is not None and mind.policy.head.weight.grad.abs().sum() > 0


def test_what_cost_more_than_expected_becomes_rarer_until_it_is_rare_enough():
    before, cost = torch.zeros(4), torch.tensor([1.0, -1.0, 1.0, -1.0])
    log_prob = torch.tensor([0.0, 0.0, -0.5, 0.5], requires_grad=True)  # the last two have learned it
    L.lived_policy_loss(log_prob, before, cost, 0.2).sum().backward()
    assert torch.allclose(log_prob.grad, torch.tensor([1.0, -1.0, 0.0, 0.0]))


def test_a_policy_that_learns_from_life_alone_does_what_paid():
    mind = tiny_mind(losses=LossConfig(policy_lived=1.0))
    latent, action = real_window(mind, 2)
    with torch.no_grad():
        dreamed = mind.dream(latent[:, :4], action[:, :3])
    lived = lived_by(mind, latent, action)
    lived = lived._replace(cost=torch.tensor([[0.0], [50.0]]).expand_as(lived.cost))
    adam = torch.optim.Adam(mind.policy.parameters(), 1e-2)
    for _ in range(40):
        policy, _ = behaviour_objective(mind, dreamed, torch.zeros(2, 5), lived)
        adam.zero_grad()
        policy.loss.backward()
        adam.step()
    with torch.no_grad():
        moved = mind.policy(latent[:, :-1], lived.hidden[:, :-1]).log_prob_of(lived.action) - lived.log_prob
    assert moved[0].mean() > 0.05 and moved[1].mean() < -0.05


def test_what_cannot_be_lived_says_so():
    for name in ("value_lived", "policy_lived"):
        with pytest.raises(ValueError, match=name):
            LossConfig(**{name: 1.5})
        with pytest.raises(ValueError, match=r"context of at least 2"):
            tiny_mind(losses=LossConfig(**{name: 0.5}), imagination=ImaginationConfig(horizon=5, context=1))
    with pytest.raises(ValueError, match="posterior"):
        tiny_mind(losses=LossConfig(policy_lived=0.5), policy=PolicyConfig(acts_on="prior"))
