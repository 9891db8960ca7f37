"""What each loss reaches, what is dreamed gets better, and nothing waits for the GPU."""

import contextlib
from dataclasses import replace

import pytest
import torch
from tiny_agents import ACTIONS, TOKENIZERS, observe, random_tokens, tiny_agent
from torch.utils._python_dispatch import TorchDispatchMode

from mirrormark.agent import objective as O
from mirrormark.agent.agent import Agent, ImaginationConfig
from mirrormark.agent.dream import Dream
from mirrormark.agent.losses import LossConfig
from mirrormark.agent.numerics import ZClip
from mirrormark.agent.tokenizer import TokenizerConfig

CATEGORICAL = ("encoders", "mixer", "posterior", "inverse_mixers", "decoders")
PARTS = (*(f"tokenizer.{part}" for part in CATEGORICAL), "world_model", "self_prior", "policy", "value", "ema")


def reached(agent: Agent, loss: torch.Tensor) -> set[str]:
    """The parts whose parameters get a gradient that is not zero."""
    agent.zero_grad(set_to_none=True)
    loss.backward()
    got = {n for n, p in agent.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    return {part for part in PARTS if any(name.startswith(part + ".") for name in got)}


def batch(agent: Agent):
    return observe(agent.tokenizer.senses, 2, 5), torch.rand(2, 5, ACTIONS) * 2 - 1


def decode_stopped(tokenizer, one_hot: torch.Tensor) -> dict[str, torch.Tensor]:
    """The paper's auxiliary path as a pass of its own."""
    mixed = {name: tokenizer.inverse_mixers[name](one_hot).detach() for name in tokenizer.senses}
    return {n: tokenizer.decoders[n](x.flatten(0, 1)).unflatten(0, x.shape[:2]) for n, x in mixed.items()}


def losses_of(agent: Agent) -> dict[str, torch.Tensor]:
    observation, action = batch(agent)
    encoding = agent.encode(observation)
    targets = agent.tokenizer.targets(observation)
    posterior, through = encoding.logits, encoding.straight_through
    prior = agent.world_model.logits(agent.world_model(through[:, :-1], action[:, :-1]), through[:, :-1])
    still = through[:, :-1].detach()
    stopped = agent.world_model.logits(agent.world_model(still, action[:, :-1]), still)
    policy, value = O.actor_critic_objective(agent, agent.dream(encoding.tokens[:, :4], action[:, :3]))

    def error(prediction):
        return sum(O._errors(agent, prediction, targets).values())

    return {
        "reconstruction": error(agent.tokenizer.decode(through)),
        "auxiliary tokens": error(decode_stopped(agent.tokenizer, through)),
        "auxiliary embedding": error(agent.tokenizer.decode_embedding(encoding.embedding)),
        "dynamics": O.L.dynamics_loss(posterior[:, 1:], prior, 0.0),
        "dynamics, tokens stopped": O.L.dynamics_loss(posterior[:, 1:], stopped, 0.0),
        "representation": O.L.representation_loss(posterior[:, 1:], stopped, 0.0),
        "self_prior": O.self_prior_objective(agent, encoding.tokens).loss,
        "policy": policy.loss,
        "value": value.loss,
    }


ENCODER = {"tokenizer.encoders", "tokenizer.mixer", "tokenizer.posterior"}
TABLE = {
    "reconstruction": ENCODER | {"tokenizer.inverse_mixers", "tokenizer.decoders"},
    "auxiliary tokens": {"tokenizer.decoders"},
    "auxiliary embedding": {"tokenizer.decoders"},
    "dynamics": ENCODER | {"world_model"},
    "dynamics, tokens stopped": {"world_model"},
    "representation": ENCODER,
    "self_prior": {"self_prior"},
    "policy": {"policy"},
    "value": {"value"},
}


@pytest.mark.parametrize("name", TABLE)
def test_which_parameters_get_gradient_from_which_loss(name):
    agent = tiny_agent("categorical")
    with torch.no_grad():  # a value that starts at zero would block its own gradient
        for module in (agent.value, agent.ema.value):
            module.head.weight.normal_()
    assert reached(agent, losses_of(agent)[name]) == TABLE[name]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_one_whole_step_for_every_tokenizer(kind):
    agent = tiny_agent(kind)
    observation, action = batch(agent)
    world, encoding = O.world_model_objective(agent, observation, action)
    prior = O.self_prior_objective(agent, encoding.tokens)
    policy, value = O.actor_critic_objective(agent, agent.dream(encoding.tokens[:, :4], action[:, :3]))
    for part in (world, prior, policy, value):
        part.loss.backward()
        assert part.loss.isfinite() and all(metric.isfinite() for metric in part.metrics.values())
    assert ("representation" in world.metrics) == (kind == "categorical")
    inactive = [n for n, p in agent.named_parameters() if p.requires_grad and p.grad is None]
    assert not inactive, f"no gradient reached {inactive}"


def test_world_loss_is_the_weighted_sum():
    """E8 with the paper's weights, term by term."""
    agent = tiny_agent("categorical")
    observation, action = batch(agent)
    world, _ = O.world_model_objective(agent, observation, action)
    weight = {"dynamics": 0.5, "representation": 0.1}
    errors = {"vision", "proprioception", "auxiliary_vision", "auxiliary_proprioception"}
    assert set(world.metrics) == errors | {"dynamics", "representation"}
    expected = sum(weight.get(name, 1.0) * value for name, value in world.metrics.items())
    assert torch.isclose(world.loss, expected)
    rate = tiny_agent("categorical", losses=LossConfig(decoder="off"))
    assert not any(
        name.startswith("auxiliary") for name in O.world_model_objective(rate, observation, action)[0].metrics
    )


def test_one_decoder_pass_gives_the_gradients_of_two():
    """D4: the reconstruction and the auxiliary pass predict the same; only their gradients part."""
    agent = tiny_agent("categorical")
    observation, _ = batch(agent)
    targets = agent.tokenizer.targets(observation)
    torch.manual_seed(1)
    once, _ = O.tokenizer_objective(agent, observation)
    torch.manual_seed(1)
    encoding = agent.encode(observation)
    passes = (
        agent.tokenizer.decode(encoding.straight_through),
        decode_stopped(agent.tokenizer, encoding.straight_through),
    )
    twice = sum(sum(O._errors(agent, prediction, targets).values()) for prediction in passes)
    assert torch.isclose(once.loss, twice)
    learns = list(agent.tokenizer.parameters())
    for one, other in zip(torch.autograd.grad(once.loss, learns), torch.autograd.grad(twice, learns)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_world_is_learned_on_the_present_and_judged_on_the_future():
    """Frame t+1 is predicted from 0..t: the last action plays no part, the last tokens does."""
    agent = tiny_agent()
    tokens, action = random_tokens(agent, 2, 5), torch.rand(2, 5, ACTIONS)
    before = O.dynamics_objective(agent, tokens, action).loss
    action[:, -1] = -1
    assert torch.equal(before, O.dynamics_objective(agent, tokens, action).loss)
    tokens[:, -1] = (tokens[:, -1] + 1) % torch.tensor(agent.spec.classes)
    assert not torch.equal(before, O.dynamics_objective(agent, tokens, action).loss)


def test_an_action_is_charged_with_the_tokens_that_it_leads_to():
    """D2: with one imagined step and a value of zero, the return is G(s_1), not G(s_0)."""
    agent = tiny_agent(imagination=ImaginationConfig(horizon=1, context=1))
    dreamed = agent.dream(random_tokens(agent, 1, 1), torch.zeros(1, 0, ACTIONS))
    O.actor_critic_objective(agent, dreamed)
    cost = agent.expected_free_energy(dreamed.tokens[0])
    assert not torch.isclose(*cost)
    assert torch.allclose(agent.return_range.ends, cost[1].expand(2), atol=1e-3)


def test_large_returns_are_scaled_down_and_small_ones_are_not_scaled_up():
    """E11: advantage is divided by max(1, S)."""
    losses = {}
    for ends in ((0.0, 100.0), (0.0, 1.0), (0.0, 0.1)):
        agent = tiny_agent(imagination=ImaginationConfig(horizon=2, context=1, entropy=0.0))
        agent.return_range.decay = 1.0
        agent.return_range.ends.copy_(torch.tensor(ends))
        agent.return_range.started.fill_(1.0)
        torch.manual_seed(0)
        dreamed = agent.dream(random_tokens(agent, 4, 1), torch.zeros(4, 0, ACTIONS))
        losses[ends[1]] = O.actor_critic_objective(agent, dreamed)[0].loss.item()
    assert losses[1.0] == pytest.approx(losses[0.1]) == pytest.approx(100 * losses[100.0], rel=1e-4)


@pytest.mark.parametrize(("range_of", "spread"), [("returns", 1000.0), ("advantage", 0.0)])
def test_states_that_differ_for_good_do_not_shrink_what_an_action_adds(range_of, spread, monkeypatch):
    """Half of the dreams are worth 1,000 nats more than the others, as the value knows."""
    agent = tiny_agent(imagination=ImaginationConfig(horizon=5, context=4, range_of=range_of))
    dreamed = agent.dream(random_tokens(agent, 64, 4), torch.zeros(64, 3, ACTIONS))
    worth = (torch.arange(64) % 2 * 1000.0)[:, None].expand(-1, 6)
    monkeypatch.setattr(O, "lambda_return", lambda *_: worth[:, 1:])
    monkeypatch.setattr(agent.value.two_hot, "decode", lambda logits: worth)
    monkeypatch.setattr(agent.ema.value.two_hot, "decode", lambda logits: worth[:, 1:])
    policy, _ = O.actor_critic_objective(agent, dreamed)
    assert float(policy.metrics["return_range"]) == pytest.approx(spread, abs=1)


def test_centred_cost_keeps_values_near_zero():
    """D11: uncentred, the return is G/(1−γ)-like; centred, its mean is near zero."""
    returns = {}
    for mean_cost in (False, True):
        agent = tiny_agent(imagination=ImaginationConfig(horizon=5, context=4, subtract_mean_cost=mean_cost))
        O.actor_critic_objective(agent, agent.dream(random_tokens(agent, 64, 4), torch.rand(64, 3, ACTIONS)))
        returns[mean_cost] = agent.return_range.ends.mean().abs()
    assert returns[True] < 0.2 * returns[False]


def test_a_policy_trained_on_a_toy_dream_lowers_G():
    """D1, end to end: tokens follow the action's sign, the self-prior knows one, the policy goes there."""
    agent = tiny_agent(imagination=ImaginationConfig(horizon=3, context=1, discount=0.9))
    spec, familiar = agent.spec, torch.zeros(agent.spec.K, dtype=torch.int64)
    strange = torch.ones_like(familiar)
    optimiser = torch.optim.Adam(agent.self_prior.parameters(), 1e-2)
    for _ in range(30):
        loss = -agent.self_prior.log_prob(familiar.unsqueeze(0)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert agent.expected_free_energy(strange) > agent.expected_free_energy(familiar) + 5
    policy_optimizer = torch.optim.Adam(agent.policy.parameters(), 1e-2)
    value_optimizer = torch.optim.Adam(agent.value.parameters(), 1e-2)

    def toy_dream(n: int = 64) -> Dream:
        tokens, actions = [strange.expand(n, -1)], []
        hidden = torch.zeros(n, 4, 16)
        for _ in range(3):
            with torch.no_grad():
                actions.append(agent.policy(tokens[-1], hidden[:, 0]).sample())
            good = (actions[-1][:, :1] > 0).expand(-1, spec.K)
            tokens.append(torch.where(good, familiar, strange))
        return Dream(torch.stack(tokens, 1), hidden, torch.stack(actions, 1))

    def mean_cost() -> float:
        return agent.expected_free_energy(toy_dream(256).tokens[:, 1:]).mean().item()

    before = mean_cost()
    for _ in range(60):
        policy, value = O.actor_critic_objective(agent, toy_dream())
        for part, optimizer in ((policy, policy_optimizer), (value, value_optimizer)):
            optimizer.zero_grad()
            part.loss.backward()
            optimizer.step()
        agent.update_ema()
    assert mean_cost() < before - 2


class NoHostSync(TorchDispatchMode):
    """Fails on operations that would make the CPU wait for the GPU or break a graph capture."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "aten.item", "equal.default")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not any(name in str(func) for name in self.FORBIDDEN), f"{func} waits for the GPU"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_train_step_never_waits_for_the_device(kind):
    agent, clip = tiny_agent(kind), ZClip()
    observation, action = batch(agent)
    with NoHostSync():
        world, encoding = O.world_model_objective(agent, observation, action)
        prior = O.self_prior_objective(agent, encoding.tokens)
        policy, value = O.actor_critic_objective(agent, agent.dream(encoding.tokens[:, :4], action[:, :3]))
        for part in (world, prior, policy, value):
            part.loss.backward()
        clip.clip(agent.parameters())
        agent.update_ema()


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_train_step_mixes_in_nothing_from_the_host(kind, monkeypatch):
    """On the meta device a tensor made on the CPU inside the step would be an error, as on a GPU a copy."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # meta knows none
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    agent, clip = tiny_agent(kind).to("meta"), ZClip().to("meta")
    observation, action = batch(agent)
    observation, action = {name: value.to("meta") for name, value in observation.items()}, action.to("meta")
    world, encoding = O.world_model_objective(agent, observation, action)
    prior = O.self_prior_objective(agent, encoding.tokens)
    policy, value = O.actor_critic_objective(agent, agent.dream(encoding.tokens[:, :4], action[:, :3]))
    for part in (world, prior, policy, value):
        part.loss.backward()
        assert all(metric.is_meta for metric in part.metrics.values())
    assert clip.clip(p for p in agent.parameters() if p.requires_grad).is_meta
    agent.update_ema()


def test_the_guard_itself_can_fail():
    with pytest.raises(AssertionError, match="waits"), NoHostSync():
        torch.ones(2).sum().item()


@pytest.mark.parametrize(
    ("config", "wrong", "sentence"),
    [
        (ImaginationConfig, {"horizon": 0}, "at least 1"),
        (ImaginationConfig, {"discount": 0.0}, "discount"),
        (TokenizerConfig, {"bins": 1}, "tokenizer.bins"),
        (TokenizerConfig, {"vision_token_dropout": 2.0}, "tokenizer.vision_token_dropout"),
    ],
)
def test_impossible_numbers_say_so(config, wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        config(**wrong)


def test_dreams_that_do_not_fit_say_so():
    with pytest.raises(ValueError, match="does not fit"):
        tiny_agent(imagination=replace(ImaginationConfig(), horizon=16, context=8))
