import pytest
import torch
from tiny_minds import ACTIONS, random_latent, tiny_mind

from mirrormark.mind.dream import dream, replay_dream
from mirrormark.mind.objective import behaviour_objective


@pytest.mark.parametrize("context", [1, 2, 4])
def test_shapes_and_the_present_comes_first(context):
    mind = tiny_mind("senses")
    latent, action = random_latent(mind, 3, context), torch.rand(3, context - 1, ACTIONS)
    dreamed = mind.dream(latent, action)
    assert dreamed.latent.shape == (3, 6, mind.spec.K)
    assert dreamed.hidden.shape == (3, 6, 16) and dreamed.action.shape == (3, 5, ACTIONS)
    assert torch.equal(dreamed.latent[:, 0], latent[:, -1])
    assert (dreamed.hidden[:, 0] == 0).all() == (context == 1)
    assert not any(part.requires_grad for part in dreamed)


def test_a_dreams_hidden_states_are_those_of_the_full_pass():
    """Teacher-forcing the dreamed latents and actions gives the same hidden states."""
    mind = tiny_mind().eval()
    latent, action = random_latent(mind, 3, 4), torch.rand(3, 3, ACTIONS) * 2 - 1
    dreamed = mind.dream(latent, action)
    latents = torch.cat((latent[:, :-1], dreamed.latent), 1)
    actions = torch.cat((action, dreamed.action.tanh()), 1)
    full = mind.dynamics(latents[:, :-1], actions)
    assert torch.allclose(full[:, 2:], dreamed.hidden, atol=1e-5)


def test_dream_samples_follow_the_prediction():
    mind = tiny_mind().eval()
    latent = random_latent(mind, 1, 2).expand(4000, -1, -1)
    action = torch.zeros(1, 1, ACTIONS).expand(4000, -1, -1)
    future = torch.zeros(4000, 1, ACTIONS)
    after = replay_dream(mind.dynamics, latent, action, future)[:, 1]
    hidden = mind.dynamics(latent[:1], torch.zeros(1, 2, ACTIONS))[:, -1]
    expected = mind.spec.flat(mind.dynamics.logits(hidden, latent[:1, -1])[0].exp())
    assert torch.allclose(mind.spec.one_hot(after).mean(0), expected, atol=0.04)


def test_temperature_zero_dreams_the_likeliest():
    mind = tiny_mind().eval()
    latent, action = random_latent(mind, 3, 4), torch.rand(3, 3, ACTIONS)
    runs = [replay_dream(mind.dynamics, latent, action, torch.rand(3, 2, ACTIONS) * 0, 0.0) for _ in range(2)]
    assert torch.equal(*runs)


def test_wrong_context_says_so():
    mind = tiny_mind()
    with pytest.raises(ValueError, match="needs 3 actions"):
        dream(mind.dynamics, mind.policy, random_latent(mind, 2, 4), torch.zeros(2, 4, ACTIONS), 2)


def test_weights_cast_once_dream_the_same_and_still_learn():
    """The learner keeps autocast's casts while dreaming; none may stand in for a weight that learns."""
    mind = tiny_mind()
    past, acted = random_latent(mind, 3, 4), torch.rand(3, 3, mind.actions)
    dreams = []
    for kept in (False, True):
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=kept):
            dreams.append(mind.dream(past, acted))
    assert all(torch.equal(one, other) for one, other in zip(*dreams))
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        policy, value = behaviour_objective(mind, dreams[1])
    (policy.loss + value.loss).backward()
    learns = [*mind.policy.parameters(), *mind.value.parameters()]
    assert all(parameter.grad is not None for parameter in learns)
