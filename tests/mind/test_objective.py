"""What each loss reaches, what is dreamed gets better, and nothing waits for the GPU."""

import contextlib
from dataclasses import replace

import pytest
import torch
from tiny_minds import ACTIONS, CODECS, observe, random_latent, tiny_mind
from torch.utils._python_dispatch import TorchDispatchMode

from mirrormark.mind import objective as O
from mirrormark.mind.codec import CodecConfig
from mirrormark.mind.dream import Dream
from mirrormark.mind.losses import LossConfig
from mirrormark.mind.mind import ImaginationConfig, Mind
from mirrormark.mind.numerics import ZClip

CATEGORICAL = ("encoders", "mixer", "posterior", "inverse_mixers", "decoders")
PARTS = (*(f"codec.{part}" for part in CATEGORICAL), "dynamics", "self_prior", "policy", "value", "ema")


def reached(mind: Mind, loss: torch.Tensor) -> set[str]:
    """The parts whose parameters get a gradient that is not zero."""
    mind.zero_grad(set_to_none=True)
    loss.backward()
    got = {n for n, p in mind.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    return {part for part in PARTS if any(name.startswith(part + ".") for name in got)}


def batch(mind: Mind):
    return observe(mind.codec.senses, 2, 5), torch.rand(2, 5, ACTIONS) * 2 - 1


def decode_stopped(codec, one_hot: torch.Tensor) -> dict[str, torch.Tensor]:
    """The paper's auxiliary path as a pass of its own."""
    mixed = {name: codec.inverse_mixers[name](one_hot).detach() for name in codec.senses}
    return {n: codec.decoders[n](x.flatten(0, 1)).unflatten(0, x.shape[:2]) for n, x in mixed.items()}


def losses_of(mind: Mind) -> dict[str, torch.Tensor]:
    observation, action = batch(mind)
    code = mind.encode(observation)
    targets = mind.codec.targets(observation)
    posterior, through = code.logits, code.straight_through
    prior = mind.dynamics.logits(mind.dynamics(through[:, :-1], action[:, :-1]), through[:, :-1])
    still = through[:, :-1].detach()
    stopped = mind.dynamics.logits(mind.dynamics(still, action[:, :-1]), still)
    policy, value = O.behaviour_objective(mind, mind.dream(code.latent[:, :4], action[:, :3]))

    def error(prediction):
        return sum(O._errors(mind, prediction, targets).values())

    return {
        "reconstruction": error(mind.codec.decode(through)),
        "auxiliary latent": error(decode_stopped(mind.codec, through)),
        "auxiliary embedding": error(mind.codec.decode_embedding(code.embedding)),
        "dynamics": O.L.dynamics_loss(posterior[:, 1:], prior, 0.0),
        "dynamics, latents stopped": O.L.dynamics_loss(posterior[:, 1:], stopped, 0.0),
        "representation": O.L.representation_loss(posterior[:, 1:], stopped, 0.0),
        "self_prior": O.self_prior_objective(mind, code.latent).loss,
        "policy": policy.loss,
        "value": value.loss,
    }


ENCODER = {"codec.encoders", "codec.mixer", "codec.posterior"}
TABLE = {
    "reconstruction": ENCODER | {"codec.inverse_mixers", "codec.decoders"},
    "auxiliary latent": {"codec.decoders"},
    "auxiliary embedding": {"codec.decoders"},
    "dynamics": ENCODER | {"dynamics"},
    "dynamics, latents stopped": {"dynamics"},
    "representation": ENCODER,
    "self_prior": {"self_prior"},
    "policy": {"policy"},
    "value": {"value"},
}


@pytest.mark.parametrize("name", TABLE)
def test_which_parameters_get_gradient_from_which_loss(name):
    mind = tiny_mind("categorical")
    with torch.no_grad():  # a value that starts at zero would block its own gradient
        for module in (mind.value, mind.ema.value):
            module.head.weight.normal_()
    assert reached(mind, losses_of(mind)[name]) == TABLE[name]


@pytest.mark.parametrize("kind", CODECS)
def test_one_whole_step_for_every_codec(kind):
    mind = tiny_mind(kind)
    observation, action = batch(mind)
    world, code = O.world_objective(mind, observation, action)
    prior = O.self_prior_objective(mind, code.latent)
    policy, value = O.behaviour_objective(mind, mind.dream(code.latent[:, :4], action[:, :3]))
    for part in (world, prior, policy, value):
        part.loss.backward()
        assert part.loss.isfinite() and all(metric.isfinite() for metric in part.metrics.values())
    assert ("representation" in world.metrics) == (kind == "categorical")
    silent = [n for n, p in mind.named_parameters() if p.requires_grad and p.grad is None]
    assert not silent, f"no gradient reached {silent}"


def test_world_loss_is_the_weighted_sum():
    """E8 with the paper's weights, term by term."""
    mind = tiny_mind("categorical")
    observation, action = batch(mind)
    world, _ = O.world_objective(mind, observation, action)
    weight = {"dynamics": 0.5, "representation": 0.1}
    errors = {"vision", "proprioception", "auxiliary_vision", "auxiliary_proprioception"}
    assert set(world.metrics) == errors | {"dynamics", "representation"}
    expected = sum(weight.get(name, 1.0) * value for name, value in world.metrics.items())
    assert torch.isclose(world.loss, expected)
    quiet = tiny_mind("categorical", losses=LossConfig(decoder="off"))
    assert not any(
        name.startswith("auxiliary") for name in O.world_objective(quiet, observation, action)[0].metrics
    )


def test_one_decoder_pass_gives_the_gradients_of_two():
    """D4: the reconstruction and the auxiliary pass predict the same; only their gradients part."""
    mind = tiny_mind("categorical")
    observation, _ = batch(mind)
    targets = mind.codec.targets(observation)
    torch.manual_seed(1)
    once, _ = O.codec_objective(mind, observation)
    torch.manual_seed(1)
    code = mind.encode(observation)
    passes = mind.codec.decode(code.straight_through), decode_stopped(mind.codec, code.straight_through)
    twice = sum(sum(O._errors(mind, prediction, targets).values()) for prediction in passes)
    assert torch.isclose(once.loss, twice)
    learns = list(mind.codec.parameters())
    for one, other in zip(torch.autograd.grad(once.loss, learns), torch.autograd.grad(twice, learns)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_world_is_learned_on_the_present_and_judged_on_the_future():
    """Frame t+1 is predicted from 0..t: the last action plays no part, the last latent does."""
    mind = tiny_mind()
    latent, action = random_latent(mind, 2, 5), torch.rand(2, 5, ACTIONS)
    before = O.dynamics_objective(mind, latent, action).loss
    action[:, -1] = -1
    assert torch.equal(before, O.dynamics_objective(mind, latent, action).loss)
    latent[:, -1] = (latent[:, -1] + 1) % torch.tensor(mind.spec.classes)
    assert not torch.equal(before, O.dynamics_objective(mind, latent, action).loss)


def test_an_action_is_charged_with_the_latent_that_it_leads_to():
    """D2: with one imagined step and a value of zero, the return is G(s_1), not G(s_0)."""
    mind = tiny_mind(imagination=ImaginationConfig(horizon=1, context=1))
    dreamed = mind.dream(random_latent(mind, 1, 1), torch.zeros(1, 0, ACTIONS))
    O.behaviour_objective(mind, dreamed)
    cost = mind.expected_free_energy(dreamed.latent[0])
    assert not torch.isclose(*cost)
    assert torch.allclose(mind.return_range.ends, cost[1].expand(2), atol=1e-3)


def test_large_returns_are_scaled_down_and_small_ones_are_not_scaled_up():
    """E11: excess cost is divided by max(1, S)."""
    losses = {}
    for ends in ((0.0, 100.0), (0.0, 1.0), (0.0, 0.1)):
        mind = tiny_mind(imagination=ImaginationConfig(horizon=2, context=1, entropy=0.0))
        mind.return_range.decay = 1.0
        mind.return_range.ends.copy_(torch.tensor(ends))
        mind.return_range.started.fill_(1.0)
        torch.manual_seed(0)
        dreamed = mind.dream(random_latent(mind, 4, 1), torch.zeros(4, 0, ACTIONS))
        losses[ends[1]] = O.behaviour_objective(mind, dreamed)[0].loss.item()
    assert losses[1.0] == pytest.approx(losses[0.1]) == pytest.approx(100 * losses[100.0], rel=1e-4)


@pytest.mark.parametrize(("range_of", "spread"), [("returns", 1000.0), ("excess", 0.0)])
def test_states_that_differ_for_good_do_not_shrink_what_an_action_adds(range_of, spread, monkeypatch):
    """Half of the dreams are worth 1,000 nats more than the others, as the value knows."""
    mind = tiny_mind(imagination=ImaginationConfig(horizon=5, context=4, range_of=range_of))
    dreamed = mind.dream(random_latent(mind, 64, 4), torch.zeros(64, 3, ACTIONS))
    worth = (torch.arange(64) % 2 * 1000.0)[:, None].expand(-1, 6)
    monkeypatch.setattr(O, "lambda_return", lambda *_: worth[:, 1:])
    monkeypatch.setattr(mind.value.two_hot, "decode", lambda logits: worth)
    monkeypatch.setattr(mind.ema.value.two_hot, "decode", lambda logits: worth[:, 1:])
    policy, _ = O.behaviour_objective(mind, dreamed)
    assert float(policy.metrics["return_range"]) == pytest.approx(spread, abs=1)


def test_centred_cost_keeps_values_near_zero():
    """D11: uncentred, the return is G/(1−γ)-like; centred, its mean is near zero."""
    returns = {}
    for centre in (False, True):
        mind = tiny_mind(imagination=ImaginationConfig(horizon=5, context=4, centre_cost=centre))
        O.behaviour_objective(mind, mind.dream(random_latent(mind, 64, 4), torch.rand(64, 3, ACTIONS)))
        returns[centre] = mind.return_range.ends.mean().abs()
    assert returns[True] < 0.2 * returns[False]


def test_a_policy_trained_on_a_toy_dream_lowers_G():
    """D1, end to end: latents follow the action's sign, the self-prior knows one, the policy goes there."""
    mind = tiny_mind(imagination=ImaginationConfig(horizon=3, context=1, discount=0.9))
    spec, familiar = mind.spec, torch.zeros(mind.spec.K, dtype=torch.int64)
    strange = torch.ones_like(familiar)
    optimiser = torch.optim.Adam(mind.self_prior.parameters(), 1e-2)
    for _ in range(30):
        loss = -mind.self_prior.log_prob(familiar.unsqueeze(0)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert mind.expected_free_energy(strange) > mind.expected_free_energy(familiar) + 5
    policy_descent = torch.optim.Adam(mind.policy.parameters(), 1e-2)
    value_descent = torch.optim.Adam(mind.value.parameters(), 1e-2)

    def toy_dream(n: int = 64) -> Dream:
        latents, actions = [strange.expand(n, -1)], []
        hidden = torch.zeros(n, 4, 16)
        for _ in range(3):
            with torch.no_grad():
                actions.append(mind.policy(latents[-1], hidden[:, 0]).sample())
            good = (actions[-1][:, :1] > 0).expand(-1, spec.K)
            latents.append(torch.where(good, familiar, strange))
        return Dream(torch.stack(latents, 1), hidden, torch.stack(actions, 1))

    def mean_cost() -> float:
        return mind.expected_free_energy(toy_dream(256).latent[:, 1:]).mean().item()

    before = mean_cost()
    for _ in range(60):
        policy, value = O.behaviour_objective(mind, toy_dream())
        for part, descent in ((policy, policy_descent), (value, value_descent)):
            descent.zero_grad()
            part.loss.backward()
            descent.step()
        mind.update_ema()
    assert mean_cost() < before - 2


class NoHostSync(TorchDispatchMode):
    """Fails on operations that would make the CPU wait for the GPU or break a graph capture."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "aten.item", "equal.default")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not any(name in str(func) for name in self.FORBIDDEN), f"{func} waits for the GPU"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", CODECS)
def test_a_train_step_never_waits_for_the_device(kind):
    mind, clip = tiny_mind(kind), ZClip()
    observation, action = batch(mind)
    with NoHostSync():
        world, code = O.world_objective(mind, observation, action)
        prior = O.self_prior_objective(mind, code.latent)
        policy, value = O.behaviour_objective(mind, mind.dream(code.latent[:, :4], action[:, :3]))
        for part in (world, prior, policy, value):
            part.loss.backward()
        clip.clip(mind.parameters())
        mind.update_ema()


@pytest.mark.parametrize("kind", CODECS)
def test_a_train_step_mixes_in_nothing_from_the_host(kind, monkeypatch):
    """On the meta device a tensor made on the CPU inside the step would be an error, as on a GPU a copy."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # meta knows none
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    mind, clip = tiny_mind(kind).to("meta"), ZClip().to("meta")
    observation, action = batch(mind)
    observation, action = {name: value.to("meta") for name, value in observation.items()}, action.to("meta")
    world, code = O.world_objective(mind, observation, action)
    prior = O.self_prior_objective(mind, code.latent)
    policy, value = O.behaviour_objective(mind, mind.dream(code.latent[:, :4], action[:, :3]))
    for part in (world, prior, policy, value):
        part.loss.backward()
        assert all(metric.is_meta for metric in part.metrics.values())
    assert clip.clip(p for p in mind.parameters() if p.requires_grad).is_meta
    mind.update_ema()


def test_the_guard_itself_can_fail():
    with pytest.raises(AssertionError, match="waits"), NoHostSync():
        torch.ones(2).sum().item()


@pytest.mark.parametrize(
    ("config", "wrong", "sentence"),
    [
        (ImaginationConfig, {"horizon": 0}, "at least 1"),
        (ImaginationConfig, {"discount": 0.0}, "discount"),
        (CodecConfig, {"bins": 1}, "codec.bins"),
        (CodecConfig, {"silence": 2.0}, "codec.silence"),
    ],
)
def test_impossible_numbers_say_so(config, wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        config(**wrong)


def test_dreams_that_do_not_fit_say_so():
    with pytest.raises(ValueError, match="does not fit"):
        tiny_mind(imagination=replace(ImaginationConfig(), horizon=16, context=8))
