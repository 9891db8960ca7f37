"""Worked examples of E5 to E11, and which loss reaches which parameters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal, kl_divergence

from mirrormark.agent import losses as L
from mirrormark.agent.actor_critic import TanhNormal, TwoHotHead
from mirrormark.agent.agent import Agent
from mirrormark.agent.numerics import ReturnRange, TwoHot
from mirrormark.agent.tokenizer import Encoding
from mirrormark.agent.tokens import TokenSpec, kl, sample
from mirrormark.agent.world_model import imagine
from tests.agent.tiny import SENSES, disturb, observe, paper_agent, random_actions, random_tokens

SPEC = TokenSpec((4, 4, 2))


def tables(*lead: int, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    one, other = (SPEC.log_probs((torch.randn(*lead, SPEC.total) * scale).requires_grad_()) for _ in range(2))
    return one, other


def rows(table: Tensor) -> list[Categorical]:
    return [Categorical(logits=table[..., k, :classes]) for k, classes in enumerate(SPEC.classes)]


class Says(nn.Module):
    """Stands for any network that gives a table of log-probabilities."""

    def __init__(self, table: Tensor):
        super().__init__()
        self.table = table

    def forward(self, inputs: Tensor, action: Tensor) -> Tensor:
        return inputs

    def log_probs(self, _: Tensor) -> Tensor:
        return self.table * 1.0


# E5 to E7


def test_variational_free_energy_is_minus_elbo():
    """E5, against torch: KL − log N(o; ô, 1), less the Gaussian's constant."""
    seen, predicted, complexity = torch.randn(6, 5), torch.randn(6, 5), torch.rand(6)
    log_p = Normal(predicted, 1.0).log_prob(seen).sum(-1)
    constant = 2.5 * torch.log(torch.tensor(2 * torch.pi))
    found = L.variational_free_energy(complexity, (seen - predicted).square().sum(-1))
    torch.testing.assert_close(found + constant, complexity - log_p)


def test_expected_free_energy_used_is_the_full_one_where_the_rest_is_constant():
    """E6 -> E7: with the dropped terms constant, both order tokens alike and differ by that constant."""
    log_prior = -torch.rand(9) * 50
    full = L.expected_free_energy_in_full(torch.tensor(-1.0), torch.tensor(-2.0), -3.0, -4.0, log_prior)
    torch.testing.assert_close(full - L.expected_free_energy(log_prior), torch.full((9,), 4.0))
    assert L.expected_free_energy(log_prior).argmax() == log_prior.argmin()


# E8, E9


def test_reconstruction_sums_over_the_sense_and_means_over_frames():
    error = L.reconstruction_loss({"a": torch.ones(6, 4, 4, 3)}, {"a": torch.zeros(6, 4, 4, 3)})
    assert error.value == 48 == error.metrics["a"]
    two = {"a": torch.ones(6, 2), "b": torch.full((6, 3), 2.0)}
    assert L.reconstruction_loss(two, {name: 0 * x for name, x in two.items()}).value == 2 + 12


def divergence(posterior: Tensor, prior: Tensor, tokens: Tensor | None = None) -> L.Loss:
    """E9 of tables (B, T-1, K, C); the first frame has nothing to be predicted from."""
    if tokens is not None:
        first = torch.zeros_like(tokens[:, :1])
        return L.world_model_loss(Says(prior), Encoding(torch.cat((first, tokens), 1)), torch.zeros(1, 9, 1))  # type: ignore[arg-type]
    whole = torch.cat((posterior[:, :1], posterior), 1)
    tokens = torch.zeros(whole.shape[:-1], dtype=torch.int64)
    return L.world_model_loss(Says(prior), Encoding(tokens, None, whole), torch.zeros(1, 9, 1))  # type: ignore[arg-type]


def test_free_nats_clip_each_time_step_by_itself():
    """max(1, KL) before the mean, not after; below 1 nat there is no gradient."""
    posterior, prior = (table.detach() for table in tables(1, 2))
    posterior[:, 1] = prior[:, 1]  # KL 0
    apart = kl(posterior, prior)
    assert apart[0, 0] > 1 and apart[0, 1] < 1e-6
    torch.testing.assert_close(divergence(posterior, prior).metrics["dynamics"], (apart[0, 0] + 1) / 2)
    logits = torch.full((1, 1, SPEC.total), 0.01, requires_grad=True)
    near = divergence(SPEC.log_probs(torch.zeros(1, 1, SPEC.total)), SPEC.log_probs(logits)).value
    assert (torch.autograd.grad(near, logits)[0] == 0).all()


def test_dynamics_moves_the_prediction_half_as_much_as_its_kl_and_representation_the_posterior_a_tenth():
    posterior, prior = tables(3, 4)
    apart = kl(posterior, prior)
    assert (apart > 1).all()
    wanted = torch.autograd.grad(apart.mean(), (posterior, prior), retain_graph=True)
    loss = divergence(posterior, prior)
    torch.testing.assert_close(loss.value, 0.6 * apart.mean())
    got = torch.autograd.grad(loss.value, (posterior, prior))
    for weight, one, other in zip((0.1, 0.5), got, wanted):
        torch.testing.assert_close(one, weight * other)


def test_of_point_masses_the_kl_is_a_cross_entropy():
    _, prior = tables(2, 5)
    tokens = sample(prior.detach())
    surprise = -torch.stack([row.log_prob(tokens[..., k]) for k, row in enumerate(rows(prior))]).sum(0)
    loss = divergence(prior, prior, tokens)
    torch.testing.assert_close(loss.value, 0.5 * surprise.clamp_min(1).mean())
    assert "representation" not in loss.metrics


def test_the_next_frame_is_predicted_from_the_frames_before_it():
    """The last action plays no part, the last frame does."""
    agent = paper_agent()
    tokens, action = random_tokens(agent, 2, 5), random_actions(2, 5)

    def loss() -> Tensor:
        return L.world_model_loss(agent.world_model, Encoding(tokens), action).value

    before = loss()
    action[:, -1] = -1
    assert torch.equal(before, loss())
    action[:, -2] *= -1
    assert not torch.equal(before, loss())
    before = loss()
    tokens[:, -1] = (tokens[:, -1] + 1) % 5
    assert not torch.equal(before, loss())


# E10


def test_self_prior_loss_is_cross_entropy_plus_kl_to_the_slow_copy():
    """Both means over tokens; the slow copy stands still."""
    online, slow = tables(6)
    tokens = sample(online.detach())
    surprise = -torch.stack([row.log_prob(tokens[..., k]) for k, row in enumerate(rows(online))]).sum(0)
    pull = torch.stack([kl_divergence(*pair) for pair in zip(rows(slow), rows(online))]).sum(0)
    loss = L.self_prior_loss(Says(online), Says(slow), tokens)  # type: ignore[arg-type]
    torch.testing.assert_close(loss.value, ((surprise + pull) / 3).mean(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(loss.metrics["G_babbling"], surprise.detach().mean())
    slow.retain_grad()
    loss.value.backward()
    assert slow.grad is None


# E11


@pytest.mark.parametrize("lambda_", [0.0, 0.95, 1.0])
def test_lambda_return_against_the_sum_over_n_step_returns(lambda_):
    """R_t = (1−λ) Σ_n λ^(n−1) R_t^(n) + λ^(N−1) R_t^(N): the definition, not the recursion."""
    horizon, discount = 5, 0.9
    cost, value = torch.randn(3, horizon).double(), torch.randn(3, horizon + 1).double()
    got = L.lambda_return(cost, value, discount, torch.full_like(cost, lambda_))
    for t in range(horizon):
        expected, longest = torch.zeros(3).double(), horizon - t
        for n in range(1, longest + 1):
            n_step = sum(discount**i * cost[:, t + i] for i in range(n)) + discount**n * value[:, t + n]
            weight = lambda_ ** (n - 1) * (1.0 if n == longest else 1 - lambda_)
            expected = expected + weight * n_step
        torch.testing.assert_close(got[:, t], expected)


def test_lambda_of_one_step_cuts_the_return_there():
    cost, value, lambda_ = torch.ones(1, 3), torch.full((1, 4), 100.0), torch.ones(1, 3)
    lambda_[0, 1] = 0
    assert L.lambda_return(cost, value, 1.0, lambda_).tolist() == [[102, 101, 101]]


def test_discounts():
    torch.testing.assert_close(L.discounts(3, 0.5, torch.zeros(1)), torch.tensor([1.0, 0.5, 0.25]))


def actor(advantage: Tensor, weight: Tensor, eta: float) -> tuple[L.Loss, TanhNormal]:
    choice = TanhNormal(*(torch.full((2, 1, 1), x, requires_grad=True) for x in (0.0, 0.5)))
    return L.actor_loss(choice, torch.full((2, 1, 1), 0.3), advantage, weight, eta, samples=100), choice


def test_the_policy_does_less_of_what_costs_more():
    """D1, the sign: where the cost is above the value, descending the loss lowers log π of what was done."""
    loss, choice = actor(torch.tensor([[1.0], [-1.0]]), torch.ones(2, 1), 0.0)
    (slope,) = torch.autograd.grad(loss.value, choice.mean)  # the action lies above both means
    assert slope[0] > 0 > slope[1] and torch.allclose(slope[0], -slope[1])


def test_the_policy_is_paid_for_entropy_and_steps_count_by_their_weight():
    advantage = torch.ones(2, 1, requires_grad=True)
    loss, choice = actor(advantage, torch.tensor([[1.0], [0.5]]), 3e-4)
    slope, cost = torch.autograd.grad(loss.value, (choice.mean, advantage), allow_unused=True)
    assert cost is None and slope[0] == pytest.approx(2 * slope[1].item(), rel=0.01)
    loss, choice = actor(torch.zeros(2, 1), torch.ones(2, 1), 3e-4)
    assert loss.value.item() == pytest.approx(-3e-4 * loss.metrics["entropy"].item())
    assert (torch.autograd.grad(loss.value, choice.std)[0] < 0).all()


class Fixed(TwoHotHead):
    """A head whose logits are given."""

    def __init__(self, logits: Tensor):
        nn.Module.__init__(self)
        self.fixed, self.two_hot = logits, TwoHot(41, -5, 5)

    def logits(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        return self.fixed[:, : tokens.shape[1]]


def worth(value: float, steps: int) -> Tensor:
    """Logits that say so."""
    two_hot = TwoHot(41, -5, 5)
    return (two_hot.encode(torch.full((1, steps), value)) + 1e-9).log()


def rollout(steps: int, cost: float, weight: Tensor) -> L.Rollout:
    empty = torch.zeros(1, steps + 1, 1)
    full = torch.full((1, steps), cost)
    return L.Rollout(empty, empty, torch.zeros(1, steps, 1), full, torch.full_like(full, 0.95), weight)


def test_the_value_moves_to_the_return_and_to_its_slow_copy():
    """D3: cross-entropy with both, weighed alike."""
    logits = torch.zeros(1, 2, 41, requires_grad=True)
    slow = Fixed(worth(-3.0, 2))
    one = rollout(1, 3.0, torch.ones(1, 1))
    two_hot = TwoHot(41, -5, 5)
    for pull in (0.0, 1.0):
        loss, value, returns = L.critic_loss(Fixed(logits), slow, one, one.tokens, 1.0, pull)
        torch.testing.assert_close(value, torch.zeros(1, 2), atol=1e-5, rtol=0)
        torch.testing.assert_close(returns, torch.full((1, 1), 3.0), atol=1e-4, rtol=0)
        wanted = two_hot.cross_entropy(logits[:, :1], returns)
        wanted = wanted + pull * two_hot.cross_entropy(logits[:, :1], torch.full((1, 1), -3.0))
        torch.testing.assert_close(loss.value, wanted.mean(), rtol=1e-3, atol=1e-3)


def test_the_last_value_is_a_target_and_no_pupil_and_later_steps_count_by_their_weight():
    logits = torch.zeros(1, 3, 41, requires_grad=True)
    two = rollout(2, 1.0, torch.tensor([[1.0, 0.5]]))._replace(lambda_=torch.zeros(1, 2))
    L.critic_loss(Fixed(logits), Fixed(logits), two, two.tokens, 1.0, 0.0)[0].value.backward()
    assert logits.grad is not None and not logits.grad[0, 2].any()
    torch.testing.assert_close(logits.grad[0, 1], 0.5 * logits.grad[0, 0])


def imagined(agent: Agent, path: L.Rollout, spread: ReturnRange, eta: float = 0.0) -> tuple[L.Loss, L.Loss]:
    parts = agent.policy, agent.value, agent.ema.value
    return L.imagined_losses(*parts, spread, path, 0.9, eta, pull=1.0, samples=1)


def a_path(agent: Agent, n: int = 4) -> L.Rollout:
    path = imagine(agent.world_model, agent.policy, random_tokens(agent, n, 4), random_actions(n, 3), 5)
    cost = agent.cost(path.tokens[:, 1:], path.hidden[:, 1:]).detach()
    return L.Rollout(*path, cost, torch.full_like(cost, 0.95), torch.ones_like(cost))


def test_large_returns_are_scaled_down_and_small_ones_are_not_scaled_up():
    """Advantages are divided by max(1, S)."""
    agent, found = disturb(paper_agent()), {}
    path = a_path(agent)
    for size in (100.0, 1.0, 0.1):
        spread = ReturnRange(from_zero=True, decay=1.0)
        spread.ends.copy_(torch.tensor([0.0, size]))
        found[size] = imagined(agent, path, spread)[0].value.item()
    assert found[1.0] == pytest.approx(found[0.1]) == pytest.approx(100 * found[100.0], rel=1e-4)


def test_a_policy_trained_on_toy_paths_lowers_g():
    """D1, end to end: tokens follow the action's sign, the self-prior knows one of them, the policy goes
    there."""
    agent = paper_agent()
    familiar = torch.zeros(agent.spec.K, dtype=torch.int64)
    strange = torch.ones_like(familiar)
    optimizer = torch.optim.Adam(agent.self_prior.parameters(), 1e-2)
    for _ in range(30):
        loss = -agent.self_prior.log_prob(familiar.unsqueeze(0)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert agent.expected_free_energy(strange) > agent.expected_free_energy(familiar) + 5
    optimizer = torch.optim.Adam([*agent.policy.parameters(), *agent.value.parameters()], 1e-2)

    @torch.no_grad()
    def toy(n: int = 64) -> L.Rollout:
        tokens, actions, hidden = [strange.expand(n, -1)], [], torch.zeros(n, 4, 16)
        for _ in range(3):
            actions.append(agent.policy(tokens[-1], hidden[:, 0]).sample())
            good = (actions[-1][:, :1] > 0).expand(-1, agent.spec.K)
            tokens.append(torch.where(good, familiar, strange))
        cost = agent.expected_free_energy(torch.stack(tokens[1:], 1))
        path = torch.stack(tokens, 1), hidden, torch.stack(actions, 1)
        return L.Rollout(*path, cost, torch.full_like(cost, 0.95), torch.ones_like(cost))

    before, spread = toy(256).cost.mean(), ReturnRange(from_zero=False)
    for _ in range(60):
        policy, value = imagined(agent, toy(), spread, 3e-4)
        optimizer.zero_grad()
        (policy.value + value.value).backward()
        optimizer.step()
        agent.update_ema(["value"])
    assert toy(256).cost.mean() < before - 2


# Which loss reaches which parameters

TOKENIZER = ("encoders", "mixer", "posterior", "inverse_mixers", "decoders")
PARTS = (*(f"tokenizer.{part}" for part in TOKENIZER), "world_model", "self_prior", "policy", "value", "ema")
ENCODER = {"tokenizer.encoders", "tokenizer.mixer", "tokenizer.posterior"}
TABLE = {
    "reconstruction": ENCODER | {"tokenizer.inverse_mixers", "tokenizer.decoders"},
    "dynamics": ENCODER | {"world_model"},
    "dynamics, tokens given": {"world_model"},
    "representation": ENCODER,
    "self_prior": {"self_prior"},
    "policy": {"policy"},
    "value": {"value"},
}


def reached(agent: Agent, loss: Tensor) -> set[str]:
    """The parts whose parameters get a gradient that is not zero."""
    agent.zero_grad(set_to_none=True)
    loss.backward()
    got = {n for n, p in agent.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    return {part for part in PARTS if any(name.startswith(part + ".") for name in got)}


@pytest.mark.parametrize("name", TABLE)
def test_which_parameters_get_gradient_from_which_loss(name, monkeypatch):
    agent = disturb(paper_agent())
    action = random_actions(2, 5)
    encoding, reconstruction = agent.encode_with_loss(observe(SENSES, 2, 5))
    if name == "reconstruction":
        loss = reconstruction
    elif name.startswith(("dynamics", "representation")):
        given = name.endswith("given")
        monkeypatch.setattr(L, "FREE_NATS", 0.0)  # free nats would hide small KLs
        monkeypatch.setattr(L, "BETA_REP" if name.startswith("dynamics") else "BETA_DYN", 0.0)
        if given:
            encoding = encoding._replace(one_hot=None)
        loss = L.world_model_loss(agent.world_model, encoding, action)
    elif name == "self_prior":
        loss = L.self_prior_loss(agent.self_prior, agent.ema.self_prior, encoding.tokens.flatten(0, 1))
    else:
        losses = imagined(agent, a_path(agent), ReturnRange(from_zero=True), 3e-4)
        loss = losses[name == "value"]
    assert reached(agent, loss.value) == TABLE[name]
