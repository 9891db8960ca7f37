import pytest
import torch
from tiny_agents import ACTIONS, random_tokens, tiny_agent

from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.world_model import WorldModel, WorldModelConfig

SPEC = TokenSpec((5, 5, 3))


def tiny(**fields) -> WorldModel:
    sizes = {"width": 16, "heads": 2, "ffn": 32, "max_length": 12}
    return WorldModel(SPEC, 2, WorldModelConfig(**{**sizes, **fields})).eval()


def history(batch: int = 3, steps: int = 9):
    tokens = torch.stack([torch.randint(0, c, (batch, steps)) for c in SPEC.classes], -1)
    return tokens, torch.rand(batch, steps, 2) * 2 - 1


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kernel", ["sdpa", "plain"])
@pytest.mark.parametrize("known", [0, 1, 5])
@torch.no_grad()
def test_prefill_and_step_equal_the_full_pass(norm, kernel, known, monkeypatch):
    monkeypatch.setattr("mirrormark.agent.world_model.KERNEL", kernel)
    model, (tokens, action) = tiny(norm=norm), history()
    full = model(tokens, action)
    cache, parts = model.init_cache(3, 9), []
    if known:
        hidden, cache = model.prefill(tokens[:, :known], action[:, :known], cache)
        parts.append(hidden)
    for t in range(known, 9):
        hidden, cache = model.step(tokens[:, t], action[:, t], cache, t)
        parts.append(hidden.unsqueeze(1))
    assert torch.allclose(torch.cat(parts, 1), full, atol=1e-5)


@torch.no_grad()
def test_the_future_is_not_seen():
    model, (tokens, action) = tiny(), history()
    before = model(tokens, action)
    tokens[:, 6:] = (tokens[:, 6:] + 1) % 3
    action[:, 6:] *= -1
    after = model(tokens, action)
    assert torch.equal(before[:, :6], after[:, :6]) and not torch.allclose(before[:, 6:], after[:, 6:])


@torch.no_grad()
def test_indices_and_their_one_hot_are_the_same():
    model, (tokens, action) = tiny(), history()
    assert torch.equal(model(tokens, action), model(SPEC.one_hot(tokens), action))


@torch.no_grad()
def test_prediction_is_a_distribution_with_a_unimix_floor():
    model, (tokens, action) = tiny(), history()
    model.first.scores.weight.mul_(1000)
    probs = model.logits(model(tokens, action), tokens).exp()
    assert torch.allclose(probs.sum(-1), torch.ones(3, 9, 3))
    assert (probs[..., :2, :] >= 0.01 / 5 - 1e-7).all() and (probs[..., 2, :3] >= 0.01 / 3 - 1e-7).all()


@torch.no_grad()
def test_dropout_only_where_asked():
    """D9: learning drops, imagination does not unless told so."""
    model, (tokens, action) = tiny(dropout=0.5).train(), history()
    assert not torch.equal(model(tokens, action), model(tokens, action))
    assert torch.equal(model(tokens, action, dropout=False), model(tokens, action, dropout=False))
    groups = [model.prefill(tokens, action, model.init_cache(3, 9))[0] for _ in range(2)]
    assert torch.equal(*groups)
    groups = [model.prefill(tokens, action, model.init_cache(3, 9), dropout=True)[0] for _ in range(2)]
    assert not torch.equal(*groups)


def test_it_learns_a_world():
    """A frame's tokens that copies the sign of the last action is predicted after a short training."""
    model = tiny(dropout=0.0).train()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        action = torch.randint(0, 2, (32, 8, 2)) * 2.0 - 1
        effect = torch.zeros(32, 8, dtype=torch.int64)
        effect[:, 1:] = (action[:, :-1, 0] > 0).long()
        tokens = effect.unsqueeze(-1).expand(-1, -1, 3).contiguous()
        prior = model.logits(model(tokens[:, :-1], action[:, :-1]), tokens[:, :-1])
        loss = -prior.gather(-1, tokens[:, 1:].unsqueeze(-1)).sum((-1, -2)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.3, "an even guess would cost 4.3 nats"


def test_clear_sentences():
    model, (tokens, action) = tiny(), history()
    with pytest.raises(ValueError, match="actions must be"):
        model(tokens, action[:, :-1])
    with pytest.raises(ValueError, match="max_length"):
        model.init_cache(1, 13)
    with pytest.raises(ValueError, match="multiple of heads"):
        tiny(width=15)
    agent = tiny_agent()
    with pytest.raises(ValueError, match="max_length"):
        agent.world_model(random_tokens(agent, 1, 17), torch.zeros(1, 17, ACTIONS))


@torch.no_grad()
def test_a_token_that_is_kept_keeps_its_class_and_the_others_follow_the_prediction():
    model, (tokens, action) = tiny(keeps=True, unimix=0.0), history()
    keep = model.first.keep
    assert keep is not None
    keep.weight.zero_()
    keep.bias.copy_(torch.tensor([50.0, 0.0, 50.0]))
    hidden = model(tokens, action)
    log_probs = model.logits(hidden, tokens)
    assert torch.equal(log_probs[..., [0, 2], :].argmax(-1), tokens[..., [0, 2]])
    assert torch.allclose(
        log_probs[..., 1, :], SPEC.log_probs(model.first.scores(hidden))[..., 1, :], atol=1e-5
    )
    assert torch.allclose(log_probs, model.logits(hidden, SPEC.one_hot(tokens)))
