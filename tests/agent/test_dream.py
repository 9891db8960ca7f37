import pytest
import torch
from tiny_agents import ACTIONS, CELLS, random_tokens, tiny_agent

from mirrormark.agent import dream as dream_module
from mirrormark.agent import numerics, self_prior, tokens
from mirrormark.agent.actor_critic import PolicyConfig
from mirrormark.agent.dream import Dreamer, dream, dream_under_actions
from mirrormark.agent.objective import actor_critic_objective
from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.world_model import WorldModelConfig


@pytest.mark.parametrize("context", [1, 2, 4])
def test_shapes_and_the_present_comes_first(context):
    agent = tiny_agent("grid")
    tokens, action = random_tokens(agent, 3, context), torch.rand(3, context - 1, ACTIONS)
    dreamed = agent.dream(tokens, action)
    assert dreamed.tokens.shape == (3, 6, agent.spec.K)
    assert dreamed.hidden.shape == (3, 6, 16) and dreamed.action.shape == (3, 5, ACTIONS)
    assert torch.equal(dreamed.tokens[:, 0], tokens[:, -1])
    assert (dreamed.hidden[:, 0] == 0).all() == (context == 1)
    assert not any(part.requires_grad for part in dreamed)


def test_a_dreams_hidden_states_are_those_of_the_full_pass():
    """Teacher-forcing the dreamed tokens and actions gives the same hidden states."""
    agent = tiny_agent().eval()
    tokens, action = random_tokens(agent, 3, 4), torch.rand(3, 3, ACTIONS) * 2 - 1
    dreamed = agent.dream(tokens, action)
    all_tokens = torch.cat((tokens[:, :-1], dreamed.tokens), 1)
    actions = torch.cat((action, dreamed.action.tanh()), 1)
    full = agent.world_model(all_tokens[:, :-1], actions)
    assert torch.allclose(full[:, 2:], dreamed.hidden, atol=1e-5)


def test_dream_samples_follow_the_prediction():
    agent = tiny_agent().eval()
    tokens = random_tokens(agent, 1, 2).expand(4000, -1, -1)
    action = torch.zeros(1, 1, ACTIONS).expand(4000, -1, -1)
    future = torch.zeros(4000, 1, ACTIONS)
    after = dream_under_actions(agent.world_model, tokens, action, future)[:, 1]
    hidden = agent.world_model(tokens[:1], torch.zeros(1, 2, ACTIONS))[:, -1]
    expected = agent.spec.flat(agent.world_model.logits(hidden, tokens[:1, -1])[0].exp())
    assert torch.allclose(agent.spec.one_hot(after).mean(0), expected, atol=0.04)


def test_wrong_context_says_so():
    agent = tiny_agent()
    with pytest.raises(ValueError, match="needs 3 actions"):
        dream(agent.world_model, agent.policy, random_tokens(agent, 2, 4), torch.zeros(2, 4, ACTIONS), 2)


def test_weights_cast_once_dream_the_same_and_still_learn():
    """The learner keeps autocast's casts while dreaming; none may stand in for a weight that learns."""
    agent = tiny_agent()
    past, acted = random_tokens(agent, 3, 4), torch.rand(3, 3, agent.actions)
    dreams = []
    for kept in (False, True):
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=kept):
            dreams.append(agent.dream(past, acted))
    assert all(torch.equal(one, other) for one, other in zip(*dreams))
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        policy, value = actor_critic_objective(agent, dreams[1])
    (policy.loss + value.loss).backward()
    learns = [*agent.policy.parameters(), *agent.value.parameters()]
    assert all(parameter.grad is not None for parameter in learns)


@pytest.fixture
def _padded(monkeypatch):
    """Rows padded as on a GPU."""
    for module in (numerics, tokens, self_prior, dream_module):
        monkeypatch.setattr(module, "spare", lambda features, like: -features % 8)


def outputs(agent):
    """What every padded layer has its part in, and the gradient of it all."""
    torch.manual_seed(0)
    seen, action = random_tokens(agent, 3, 5), torch.rand(3, 5, ACTIONS)
    hidden = agent.world_model(seen, action)
    value, acted = agent.value.logits(seen, hidden), agent.policy(seen, hidden)
    parts = [
        agent.world_model.logits(hidden, seen, seen.roll(1, 1)),
        value,
        *acted,
        agent.self_prior.logits(seen),
    ]
    total = sum(part.clamp_min(-50).square().sum() for part in parts)
    learns = [p for p in agent.parameters() if p.requires_grad]
    return parts, torch.autograd.grad(total, learns, allow_unused=True)


RECALLING = PolicyConfig(hidden=16, reads_memory_trace=True)
OURS = [
    {},
    {"keeps": True},
    {"keeps": True, "drifts": True, "chained": True, "token_features": "levels", "memory_trace": 0.8},
]


@pytest.mark.parametrize("ours", OURS)
def test_padded_rows_change_nothing(request, ours):
    config = WorldModelConfig(width=16, heads=2, ffn=32, dropout=0.0, **ours)
    agent = tiny_agent("grid", tokenizer=CELLS, world_model=config, policy=RECALLING)
    assert agent.spec.widest % 8 and agent.spec.total % 8 and agent.value.head.out_features % 8
    with torch.no_grad():
        agent.value.head.weight.normal_()
    plain = outputs(agent)
    request.getfixturevalue("_padded")
    for before, after in zip(plain, outputs(agent)):
        for one, other in zip(before, after):
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("ours", OURS)
@pytest.mark.usefixtures("_padded")
def test_a_dreamer_dreams_with_the_weights_of_now(monkeypatch, ours):
    """Its padded copies follow the agent's own weights, of which it shares none."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    config = WorldModelConfig(width=16, heads=2, ffn=32, max_length=16, **ours)
    agent = tiny_agent("grid", tokenizer=CELLS, world_model=config, policy=RECALLING)
    dreamer = Dreamer(agent.world_model, agent.policy, torch.float32)
    twins, own = (dreamer._world_model.part, dreamer._policy.part), set(agent.parameters())
    assert twins[0].first.scores.weight.shape != agent.world_model.first.scores.weight.shape
    assert not any(parameter in own for twin in twins for parameter in twin.parameters())
    past, acted = random_tokens(agent, 3, 4), torch.rand(3, 3, agent.actions)
    for _ in range(2):
        with torch.no_grad():
            for parameter in agent.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        dreamer.follow()
        dreams = []
        for way in (lambda *a: dreamer(*a, 5, False), agent.dream):
            torch.manual_seed(0)
            dreams.append(way(past, acted))
        assert torch.equal(dreams[0].tokens, dreams[1].tokens)
        assert torch.allclose(dreams[0].hidden, dreams[1].hidden, atol=1e-5)


def test_samples_follow_the_mixture():
    """Drawn part by part, a mixture with an even distribution has the frequencies of its table."""
    spec, logits = TokenSpec((3, 5, 5)), torch.randn(13) * 2
    drawn = spec.one_hot(spec.sample(logits.expand(20000, -1), 0.3)).mean(0)
    assert torch.allclose(drawn, spec.flat(spec.log_probs(logits, 0.3).exp()), atol=0.02)
