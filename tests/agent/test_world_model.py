import pytest
import torch
from torch import nn

from mirrormark.agent.actor_critic import paper_policy
from mirrormark.agent.agent import action_mixer
from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.transformer import BlockStyle
from mirrormark.agent.world_model import WorldModel, imagine, predict
from mirrormark.config import WorldModelConfig

SPEC, ACTIONS = TokenSpec((5, 5, 3)), 2
POST, PRE = BlockStyle(attention_bias=False, norm_eps=1e-6), BlockStyle(pre_norm=True, gelu=True)
STARTS = pytest.mark.parametrize("start", ["posterior", "prior"])


def tiny(style: BlockStyle = POST, dropout: float = 0.1, unimix: float = 0.01) -> WorldModel:
    config = WorldModelConfig(16, 2, 2, 32, dropout, max_length=12)
    return WorldModel(SPEC, ACTIONS, config, style, unimix, action_mixer(SPEC.total + ACTIONS, 16)).eval()


def history(batch: int = 3, steps: int = 9):
    tokens = torch.stack([torch.randint(0, c, (batch, steps)) for c in SPEC.classes], -1)
    return tokens, torch.rand(batch, steps, ACTIONS) * 2 - 1


@pytest.mark.parametrize("style", [POST, PRE], ids=["paper", "swift"])
@pytest.mark.parametrize("known", [0, 1, 5])
@torch.no_grad()
def test_prefill_and_step_equal_the_full_pass(style, known):
    model, (tokens, action) = tiny(style), history()
    cache, parts = model.init_cache(3, 9), []
    if known:
        parts.append(model.prefill(tokens[:, :known], action[:, :known], cache))
    for t in range(known, 9):
        parts.append(model.step(tokens[:, t], action[:, t], cache, torch.tensor([t])).unsqueeze(1))
    torch.testing.assert_close(torch.cat(parts, 1), model(tokens, action), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_future_is_not_seen():
    model, (tokens, action) = tiny(), history()
    before = model(tokens, action)
    tokens[:, 6:] = (tokens[:, 6:] + 1) % 3
    action[:, 6:] *= -1
    after = model(tokens, action)
    assert torch.equal(before[:, :6], after[:, :6]) and not torch.allclose(before[:, 6:], after[:, 6:])


@torch.no_grad()
def test_tokens_and_their_one_hot_vectors_are_the_same():
    model, (tokens, action) = tiny(), history()
    assert torch.equal(model(tokens, action), model(SPEC.one_hot(tokens), action))


@torch.no_grad()
def test_prediction_is_a_distribution_with_a_floor():
    model, (tokens, action) = tiny(), history()
    model.predictor.weight.mul_(1000)
    probs = model.log_probs(model(tokens, action)).exp()
    torch.testing.assert_close(probs.sum(-1), torch.ones(3, 9, 3))
    assert (probs[..., :2, :] >= 0.01 / 5 - 1e-7).all() and (probs[..., 2, :3] >= 0.01 / 3 - 1e-7).all()


@torch.no_grad()
def test_dropout_only_where_asked():
    """While learning, and in imagination where the source says so (D9)."""
    model, (tokens, action) = tiny(dropout=0.5).train(), history()
    assert not torch.equal(model(tokens, action), model(tokens, action))
    assert torch.equal(model(tokens, action, dropout=False), model(tokens, action, dropout=False))
    for dropout in (False, True):
        one, other = (model.prefill(tokens, action, model.init_cache(3, 9), dropout) for _ in range(2))
        assert torch.equal(one, other) is not dropout


def test_it_learns_a_world():
    """Tokens that say the sign of the last action are predicted after a short training."""
    model = tiny(dropout=0.0).train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    loss = torch.zeros(())
    for _ in range(60):
        action = torch.randint(0, 2, (32, 8, ACTIONS)) * 2.0 - 1
        effect = torch.zeros(32, 8, dtype=torch.int64)
        effect[:, 1:] = (action[:, :-1, 0] > 0).long()
        tokens = effect.unsqueeze(-1).expand(-1, -1, 3).contiguous()
        prior = model.log_probs(model(tokens[:, :-1], action[:, :-1]))
        loss = -prior.gather(-1, tokens[:, 1:].unsqueeze(-1)).sum((-1, -2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.3, "an even guess would cost 4.3 nats"


@pytest.mark.parametrize("layers", [1, 2])
def test_the_action_mixer_is_one_linear_layer_or_the_public_codes_two(layers):
    """Da."""
    names = [name for name, _ in action_mixer(9, 4, layers).named_parameters()]
    assert names == ["0.weight"] + ["1.weight", "1.bias", "3.weight", "4.weight", "4.bias"] * (layers - 1)


def test_clear_sentences():
    model, (tokens, action) = tiny(), history()
    with pytest.raises(ValueError, match="actions must be"):
        model(tokens, action[:, :-1])
    with pytest.raises(ValueError, match=r"raise world_model\.max_length"):
        model.init_cache(1, 13)
    with pytest.raises(ValueError, match=r"multiple of world_model\.heads"):
        WorldModelConfig(width=15, heads=2)


# Imagination


def policy():
    made = paper_policy(SPEC, 16, ACTIONS, 16)
    nn.init.normal_(made.network[-1].weight)  # type: ignore[arg-type]
    return made


@STARTS
@pytest.mark.parametrize("context", [1, 4])
def test_shapes_and_no_gradient(start, context):
    tokens, action = history(steps=context)
    path = imagine(tiny(), policy(), tokens, action, 5, start)
    assert path.tokens.shape == (3, 6, 3) and path.hidden.shape == (3, 6, 16)
    assert path.action.shape == (3, 5, ACTIONS) and not any(part.requires_grad for part in path)


def test_from_the_posterior_it_begins_with_the_present():
    tokens, action = history(steps=4)
    path = imagine(tiny(), policy(), tokens, action, 5, "posterior")
    assert torch.equal(path.tokens[:, 0], tokens[:, -1])
    alone = imagine(tiny(), policy(), tokens[:, -1:], action[:, :0], 5, "posterior")
    assert not alone.hidden[:, 0].any() and path.hidden[:, 0].any()


@STARTS
@torch.no_grad()
def test_its_hidden_states_are_those_of_one_pass(start):
    """Dd: after 3 pairs and the present frame, or after 4 pairs."""
    model, (tokens, action) = tiny(), history(steps=4)
    path = imagine(model, policy(), tokens, action, 5, start)
    pairs = 4 - (start == "posterior")
    whole = torch.cat((tokens[:, :pairs], path.tokens[:, :-1]), 1)
    acted = torch.cat((action[:, :pairs], path.action.tanh()), 1)
    torch.testing.assert_close(model(whole, acted)[:, pairs - 1 :], path.hidden, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_from_the_prior_it_begins_with_what_the_last_action_leads_to():
    model, (tokens, action) = tiny(), history(1, 4)
    many = tokens.expand(8000, -1, -1), action.expand(8000, -1, -1)
    first = imagine(model, policy(), *many, 1, "prior").tokens[:, 0]
    table = model.log_probs(model(tokens, action)[:, -1])[0].exp()
    expected = torch.cat([table[k, :c] for k, c in enumerate(SPEC.classes)])
    assert torch.allclose(SPEC.one_hot(first).mean(0), expected, atol=0.03)


@torch.no_grad()
def test_what_given_actions_lead_to_follows_the_prediction():
    model, (tokens, action) = tiny(), history(1, 3)
    many = tokens.expand(8000, -1, -1), action[:, :2].expand(8000, -1, -1)
    future = action[:, 2:].expand(8000, 1, -1)
    after = predict(model, *many, future)
    assert torch.equal(after[:, 0], many[0][:, -1])
    table = model.log_probs(model(tokens, action)[:, -1])[0].exp()
    expected = torch.cat([table[k, :c] for k, c in enumerate(SPEC.classes)])
    assert torch.allclose(SPEC.one_hot(after[:, 1]).mean(0), expected, atol=0.03)
