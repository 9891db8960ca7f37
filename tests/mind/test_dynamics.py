import pytest
import torch
from tiny_minds import ACTIONS, random_latent, tiny_mind

from mirrormark.mind.dynamics import Dynamics, DynamicsConfig
from mirrormark.mind.latent import LatentSpec

SPEC = LatentSpec((5, 5, 3))


def tiny(**fields) -> Dynamics:
    sizes = {"width": 16, "heads": 2, "ffn": 32, "max_length": 12}
    return Dynamics(SPEC, 2, DynamicsConfig(**{**sizes, **fields})).eval()


def history(batch: int = 3, steps: int = 9):
    latent = torch.stack([torch.randint(0, c, (batch, steps)) for c in SPEC.classes], -1)
    return latent, torch.rand(batch, steps, 2) * 2 - 1


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("kernel", ["sdpa", "plain"])
@pytest.mark.parametrize("known", [0, 1, 5])
@torch.no_grad()
def test_prefill_and_step_equal_the_full_pass(norm, kernel, known, monkeypatch):
    monkeypatch.setattr("mirrormark.mind.dynamics.KERNEL", kernel)
    model, (latent, action) = tiny(norm=norm), history()
    full = model(latent, action)
    cache, parts = model.init_cache(3, 9), []
    if known:
        hidden, cache = model.prefill(latent[:, :known], action[:, :known], cache)
        parts.append(hidden)
    for t in range(known, 9):
        hidden, cache = model.step(latent[:, t], action[:, t], cache, t)
        parts.append(hidden.unsqueeze(1))
    assert torch.allclose(torch.cat(parts, 1), full, atol=1e-5)


@torch.no_grad()
def test_the_future_is_not_seen():
    model, (latent, action) = tiny(), history()
    before = model(latent, action)
    latent[:, 6:] = (latent[:, 6:] + 1) % 3
    action[:, 6:] *= -1
    after = model(latent, action)
    assert torch.equal(before[:, :6], after[:, :6]) and not torch.allclose(before[:, 6:], after[:, 6:])


@torch.no_grad()
def test_indices_and_their_one_hot_are_the_same():
    model, (latent, action) = tiny(), history()
    assert torch.equal(model(latent, action), model(SPEC.one_hot(latent), action))


@torch.no_grad()
def test_prediction_is_a_distribution_with_a_unimix_floor():
    model, (latent, action) = tiny(), history()
    model.first.scores.weight.mul_(1000)
    probs = model.logits(model(latent, action), latent).exp()
    assert torch.allclose(probs.sum(-1), torch.ones(3, 9, 3))
    assert (probs[..., :2, :] >= 0.01 / 5 - 1e-7).all() and (probs[..., 2, :3] >= 0.01 / 3 - 1e-7).all()


@torch.no_grad()
def test_dropout_only_where_asked():
    """D9: learning drops, imagination does not unless told so."""
    model, (latent, action) = tiny(dropout=0.5).train(), history()
    assert not torch.equal(model(latent, action), model(latent, action))
    assert torch.equal(model(latent, action, dropout=False), model(latent, action, dropout=False))
    runs = [model.prefill(latent, action, model.init_cache(3, 9))[0] for _ in range(2)]
    assert torch.equal(*runs)
    runs = [model.prefill(latent, action, model.init_cache(3, 9), dropout=True)[0] for _ in range(2)]
    assert not torch.equal(*runs)


def test_it_learns_a_world():
    """A latent that copies the sign of the last action is predicted after a short training."""
    model = tiny(dropout=0.0).train()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        action = torch.randint(0, 2, (32, 8, 2)) * 2.0 - 1
        effect = torch.zeros(32, 8, dtype=torch.int64)
        effect[:, 1:] = (action[:, :-1, 0] > 0).long()
        latent = effect.unsqueeze(-1).expand(-1, -1, 3).contiguous()
        prior = model.logits(model(latent[:, :-1], action[:, :-1]), latent[:, :-1])
        loss = -prior.gather(-1, latent[:, 1:].unsqueeze(-1)).sum((-1, -2)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.3, "an even guess would cost 4.3 nats"


def test_clear_sentences():
    model, (latent, action) = tiny(), history()
    with pytest.raises(ValueError, match="actions must be"):
        model(latent, action[:, :-1])
    with pytest.raises(ValueError, match="max_length"):
        model.init_cache(1, 13)
    with pytest.raises(ValueError, match="multiple of heads"):
        tiny(width=15)
    mind = tiny_mind()
    with pytest.raises(ValueError, match="max_length"):
        mind.dynamics(random_latent(mind, 1, 17), torch.zeros(1, 17, ACTIONS))


@torch.no_grad()
def test_a_token_that_is_kept_keeps_its_class_and_the_others_follow_the_prediction():
    model, (latent, action) = tiny(keeps=True, unimix=0.0), history()
    keep = model.first.keep
    assert keep is not None
    keep.weight.zero_()
    keep.bias.copy_(torch.tensor([50.0, 0.0, 50.0]))
    hidden = model(latent, action)
    table = model.logits(hidden, latent)
    assert torch.equal(table[..., [0, 2], :].argmax(-1), latent[..., [0, 2]])
    assert torch.allclose(table[..., 1, :], SPEC.log_probs(model.first.scores(hidden))[..., 1, :], atol=1e-5)
    assert torch.allclose(table, model.logits(hidden, SPEC.one_hot(latent)))
