"""The outlook: what usually follows, learned from everyday movement alone."""

import pytest
import torch
from tiny_agents import ACTIONS, random_latent, tiny_mind

from mirrormark.agent.expected_g import OutlookConfig
from mirrormark.agent.losses import LossConfig
from mirrormark.agent.objective import behaviour_objective, foretold_of, lived_of, outlook_objective

STEPS = 3


def foreseeing(**parts):
    ahead = OutlookConfig(control_steps=STEPS, hidden=16, bins=41, reach=40.0)
    return tiny_mind(outlook=ahead, **parts)


def windows(mind, n=2, frames=10):
    torch.manual_seed(1)
    return random_latent(mind, n, frames), torch.rand(n, frames, ACTIONS) * 2 - 1


@torch.no_grad()
def test_what_is_foretold_is_the_mean_of_what_followed():
    mind = foreseeing()
    latent, action = windows(mind)
    foretold = foretold_of(mind, latent, action, torch.tensor([0, 0]), torch.tensor([0, 0]))
    cost = mind.expected_free_energy(latent)
    assert foretold.target.shape == (2, 10 - STEPS)
    for now in range(10 - STEPS):
        assert torch.allclose(foretold.target[:, now], cost[:, now + 1 : now + 1 + STEPS].mean(1), atol=1e-4)
    assert foretold.latent.shape[:2] == foretold.hidden.shape[:2] == foretold.target.shape


@torch.no_grad()
def test_only_what_came_of_everyday_movement_counts():
    mind = foreseeing()
    context = mind.config.imagination.context  # of 4 frames
    latent, action = windows(mind, 4)
    start, let_go = torch.tensor([0, 7, 0, 7]), torch.tensor([0, 0, 5, 99])
    weight = foretold_of(mind, latent, action, start, let_go).weight
    assert (weight[0] > 0).all()  # everyday from the episode's first frame on
    assert not weight[1, : context - 1].any() and (weight[1, context - 1 :] > 0).all()
    assert not weight[2, :5].any() and (weight[2, 5:] > 0).all()  # the policy let go at frame 5
    assert not weight[3].any()  # it never did
    assert weight.mean().item() == pytest.approx(1.0)


@torch.no_grad()
def test_the_policy_learns_only_from_what_it_did_itself():
    mind = foreseeing()
    latent, action = windows(mind, 3)
    start, let_go = torch.zeros(3, dtype=torch.int64), torch.tensor([4, 0, 99])
    lived = lived_of(mind, mind.policy, mind.value, latent, action, start, let_go)
    assert (lived.weight[0, :4] > 0).all() and not lived.weight[0, 4:].any()
    assert not lived.weight[1].any() and (lived.weight[2] > 0).all()
    nothing = lived_of(mind, mind.policy, mind.value, latent, action, start, torch.zeros_like(start))
    assert not nothing.weight.any()  # and no division by it


def test_what_everyday_movement_leads_to_is_not_the_policys_doing():
    """Costs after it has let go change nothing that policy and value learn; those before do."""
    gradients = []
    for when, more in ((4, 0.0), (4, 100.0), (3, 100.0)):
        mind = tiny_mind(losses=LossConfig(policy_lived=1.0, value_lived=1.0))
        latent, action = windows(mind, 3)
        with torch.no_grad():
            dreamed = mind.dream(latent[:, :4], action[:, :3])
            lived = lived_of(
                mind, mind.policy, mind.value, latent, action, torch.zeros(3).long(), torch.full((3,), 4)
            )
        cost = lived.cost.clone()
        cost[0, when:] += more  # of frame 5 on, or already of frame 4, which the policy's last action led to
        torch.manual_seed(2)
        parts = behaviour_objective(mind, dreamed, torch.zeros(3, 5), lived._replace(cost=cost))
        sum(part.loss for part in parts).backward()
        gradients.append((mind.policy.head.weight.grad, mind.value.head.weight.grad))
    for plain, after, before in zip(*gradients):
        assert torch.allclose(plain, after, atol=1e-6) and not torch.allclose(plain, before, atol=1e-3)


@torch.no_grad()
def test_the_outlook_is_the_cost_where_there_is_one():
    mind, plain = foreseeing(), tiny_mind()
    latent, action = windows(mind)
    start, let_go = torch.zeros(2, dtype=torch.int64), torch.full((2,), 99)
    lived = lived_of(mind, mind.policy, mind.value, latent, action, start, let_go)
    assert mind.outlook is not None and plain.outlook is None
    assert torch.allclose(lived.cost, mind.outlook(latent[:, 1:], lived.hidden[:, 1:]))
    dreamed = mind.dream(latent[:, :4], action[:, :3])
    given = behaviour_objective(mind, dreamed, mind.outlook(dreamed.latent[:, 1:], dreamed.hidden[:, 1:]))
    torch.manual_seed(0)
    found = behaviour_objective(mind, dreamed)
    assert torch.allclose(given[0].metrics["cost_dreamed"], found[0].metrics["cost_dreamed"])
    assert torch.allclose(plain.cost(latent, lived.hidden), plain.expected_free_energy(latent))  # the paper's


def test_it_learns_what_lasts_and_touches_nothing_else():
    """Two pasts alike in G now, of which one is followed by more."""
    mind = foreseeing()
    latent, action = windows(mind)
    with torch.no_grad():
        foretold = foretold_of(mind, latent, action, torch.zeros(2).long(), torch.zeros(2).long())
    target = torch.tensor([[5.0], [20.0]]).expand_as(foretold.target)
    foretold = foretold._replace(target=target)
    assert mind.outlook is not None
    adam = torch.optim.Adam(mind.outlook.parameters(), 1e-2)
    for _ in range(120):
        objective = outlook_objective(mind, foretold)
        adam.zero_grad()
        objective.loss.backward()
        adam.step()
    told = mind.outlook(foretold.latent, foretold.hidden)
    assert (told[0] - 5).abs().max() < 2 and (told[1] - 20).abs().max() < 2
    assert objective.metrics["foretold"] > 0.9
    others = [p for name, p in mind.named_parameters() if not name.startswith("outlook.")]
    assert all(p.grad is None for p in others)


def test_a_negative_outlook_is_refused():
    with pytest.raises(ValueError, match="control_steps"):
        OutlookConfig(control_steps=-1)
    with pytest.raises(ValueError, match=r"outlook\.bins"):
        OutlookConfig(bins=1)
