import pytest
import torch
from tiny_minds import ACTIONS, CELLS, random_latent, tiny_mind

from mirrormark.mind import dream as dream_module
from mirrormark.mind import latent, numerics, self_prior
from mirrormark.mind.dream import Dreamer, dream, replay_dream
from mirrormark.mind.dynamics import DynamicsConfig
from mirrormark.mind.latent import LatentSpec
from mirrormark.mind.objective import behaviour_objective
from mirrormark.mind.policy import PolicyConfig


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


@pytest.fixture
def _padded(monkeypatch):
    """Rows padded as on a GPU."""
    for module in (numerics, latent, self_prior, dream_module):
        monkeypatch.setattr(module, "spare", lambda features, like: -features % 8)


def outputs(mind):
    """What every padded layer has its part in, and the gradient of it all."""
    torch.manual_seed(0)
    seen, action = random_latent(mind, 3, 5), torch.rand(3, 5, ACTIONS)
    hidden = mind.dynamics(seen, action)
    value, acted = mind.value.logits(seen, hidden), mind.policy(seen, hidden)
    parts = [mind.dynamics.logits(hidden, seen, seen.roll(1, 1)), value, *acted, mind.self_prior.logits(seen)]
    total = sum(part.clamp_min(-50).square().sum() for part in parts)
    learns = [p for p in mind.parameters() if p.requires_grad]
    return parts, torch.autograd.grad(total, learns, allow_unused=True)


RECALLING = PolicyConfig(hidden=16, recalls=True)
OURS = [
    {},
    {"keeps": True},
    {"keeps": True, "drifts": True, "chained": True, "reads": "levels", "recalls": 0.8},
]


@pytest.mark.parametrize("ours", OURS)
def test_padded_rows_change_nothing(request, ours):
    config = DynamicsConfig(width=16, heads=2, ffn=32, dropout=0.0, **ours)
    mind = tiny_mind("senses", codec=CELLS, dynamics=config, policy=RECALLING)
    assert mind.spec.widest % 8 and mind.spec.total % 8 and mind.value.head.out_features % 8
    with torch.no_grad():
        mind.value.head.weight.normal_()
    plain = outputs(mind)
    request.getfixturevalue("_padded")
    for before, after in zip(plain, outputs(mind)):
        for one, other in zip(before, after):
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("ours", OURS)
@pytest.mark.usefixtures("_padded")
def test_a_dreamer_dreams_with_the_weights_of_now(monkeypatch, ours):
    """Its padded copies follow the mind's own weights, of which it shares none."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    config = DynamicsConfig(width=16, heads=2, ffn=32, max_length=16, **ours)
    mind = tiny_mind("senses", codec=CELLS, dynamics=config, policy=RECALLING)
    dreamer = Dreamer(mind.dynamics, mind.policy, torch.float32)
    twins, own = (dreamer._dynamics.part, dreamer._policy.part), set(mind.parameters())
    assert twins[0].first.scores.weight.shape != mind.dynamics.first.scores.weight.shape
    assert not any(parameter in own for twin in twins for parameter in twin.parameters())
    past, acted = random_latent(mind, 3, 4), torch.rand(3, 3, mind.actions)
    for _ in range(2):
        with torch.no_grad():
            for parameter in mind.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        dreamer.follow()
        dreams = []
        for way in (lambda *a: dreamer(*a, 5, False), mind.dream):
            torch.manual_seed(0)
            dreams.append(way(past, acted))
        assert torch.equal(dreams[0].latent, dreams[1].latent)
        assert torch.allclose(dreams[0].hidden, dreams[1].hidden, atol=1e-5)


def test_samples_follow_the_mixture():
    """Drawn part by part, a mixture with an even distribution has the frequencies of its table."""
    spec, logits = LatentSpec((3, 5, 5)), torch.randn(13) * 2
    drawn = spec.one_hot(spec.sample(logits.expand(20000, -1), 0.3)).mean(0)
    assert torch.allclose(drawn, spec.flat(spec.log_probs(logits, 0.3).exp()), atol=0.02)
