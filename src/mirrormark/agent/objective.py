"""What each part of the agent descends: E8 (world), E10 (self-prior), E11 (policy, value), put together from
losses.py.

Each function gives an Objective: `loss` to call backward on and `metrics`, detached tensors to log (read them
outside the captured step). Gradient reaches only the parts named in each docstring.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mirrormark.agent import losses as L
from mirrormark.agent.actor_critic import Policy, Value
from mirrormark.agent.agent import Agent
from mirrormark.agent.dream import Dream
from mirrormark.agent.numerics import lambda_return
from mirrormark.agent.senses import Observation
from mirrormark.agent.tokenizer import Encoding, Prediction
from mirrormark.agent.tokenizer_paper import PaperTokenizer

LAMBDA = 0.95
"""λ of the return (paper, Table III)."""


class Objective(NamedTuple):
    """A loss and what to log about it."""

    loss: Tensor
    metrics: dict[str, Tensor]


class OnPolicyBatch(NamedTuple):
    """What really happened, in T frames of which the policy moved the body in some."""

    tokens: Tensor  # (B, T, K)
    hidden: Tensor  # (B, T, D)
    cost: Tensor  # (B, T-1): of what each action led to
    action: Tensor  # (B, T-1, A)
    log_prob: Tensor  # (B, T-1): of that action, when it was done
    value: Tensor  # (B, T): what was expected then
    weight: Tensor  # (B, T-1), 1 on average; 0 where the policy did not act, or knew more of the past
    goes_on: Tensor  # (B, T-1): 1 where the policy acts in the next frame, too, 0 where not


def on_policy_batch(
    agent: Agent,
    behavior_policy: Policy,
    old_value: Value,
    tokens: Tensor,
    action: Tensor,
    start: Tensor,
    handover: Tensor,
) -> OnPolicyBatch:
    """Windows of on-policy data, tokens (B, T, K) and action (B, T, A), from frame `start` (B,) of their
    episodes on, under policy and value as they were then, until the policy let go at frame `handover` (B,);
    call it without gradient."""
    hidden = _hidden(agent, tokens, action)
    action, cost = action[:, :-1], agent.cost(tokens[:, 1:], hidden[:, 1:])
    log_prob = torch.zeros_like(cost)
    if agent.config.losses.policy_on_policy_share:
        log_prob = behavior_policy(tokens[:, :-1], hidden[:, :-1]).log_prob_of(action)
    frame = start[:, None] + torch.arange(action.shape[1], device=tokens.device)
    counts = (_whole_past(agent, frame, start) & (frame < handover[:, None])).float()
    goes_on = (frame + 1 < handover[:, None]).float()
    value, weight = old_value(tokens, hidden), counts / counts.mean().clamp_min(1e-6)
    return OnPolicyBatch(tokens, hidden, cost, action, log_prob, value, weight, goes_on)


def _hidden(agent: Agent, tokens: Tensor, action: Tensor) -> Tensor:
    """What the sequence model holds at each frame of a window, (B, T, D); nothing before the first."""
    hidden = agent.world_model(tokens[:, :-1], action[:, :-1], dropout=False).float()
    return torch.cat((torch.zeros_like(hidden[:, :1]), hidden), 1)


def _whole_past(agent: Agent, frame: Tensor, start: Tensor) -> Tensor:
    """Where a window holds as much of the past as an acting body knows: a context of it, or all there is."""
    start = start[:, None]
    return (frame - start >= agent.config.imagination.context - 1) | (start == 0)


class ExpectedGBatch(NamedTuple):
    """What expected G learns from, in T frames of which motor babbling follows some."""

    tokens: Tensor  # (B, T, K)
    hidden: Tensor  # (B, T, D)
    target: Tensor  # (B, T): mean G of the next control steps
    weight: Tensor  # (B, T), 1 on average; 0 where that did not come of motor babbling


def expected_g_batch(
    agent: Agent, tokens: Tensor, action: Tensor, start: Tensor, handover: Tensor
) -> ExpectedGBatch:
    """Windows of on-policy data, as for `on_policy_batch`, of which the last frames only serve as what
    follows; call it without gradient."""
    steps = agent.config.expected_g.control_steps
    cost, hidden = agent.expected_free_energy(tokens), _hidden(agent, tokens, action)
    ahead = cost[:, 1:].unfold(1, steps, 1).mean(-1)
    now = ahead.shape[1]
    frame = start[:, None] + torch.arange(now, device=tokens.device)
    counts = (_whole_past(agent, frame, start) & (frame >= handover[:, None])).float()
    return ExpectedGBatch(tokens[:, :now], hidden[:, :now], ahead, counts / counts.mean().clamp_min(1e-6))


def expected_g_objective(agent: Agent, batch: ExpectedGBatch) -> Objective:
    """Gradient: expected G. Logs how much of what differs between states it foretells, too."""
    assert agent.expected_g is not None
    target, weight = batch.target, batch.weight
    logits = agent.expected_g.logits(batch.tokens, batch.hidden)
    loss = (weight * agent.expected_g.two_hot.cross_entropy(logits, target)).mean()
    with torch.no_grad():
        error = (weight * (agent.expected_g.two_hot.decode(logits) - target).square()).mean()
        spread = (weight * (target - (weight * target).mean()).square()).mean()
    return Objective(
        loss,
        {"expected_g": loss.detach(), "expected_g_explained_variance": 1 - error / spread.clamp_min(1e-6)},
    )


def tokenizer_objective(
    agent: Agent, observation: Observation, encoding: Encoding | None = None
) -> tuple[Objective, Encoding]:
    """E8 without dynamics: reconstruction, auxiliary decoder and quiet terms; frames need no order. Gradient:
    tokenizer. code: of the observation, if it is known already."""
    tokenizer, weights = agent.tokenizer, agent.config.losses
    encoding = tokenizer.encode(observation) if encoding is None else encoding
    terms = _reconstruction(agent, encoding, observation) if tokenizer.learned else {}
    scales: dict[str, float | Tensor] = dict.fromkeys(terms, 1.0)
    if encoding.activation is not None:
        terms["rate"], scales["rate"] = L.rate_loss(encoding.activation), weights.rate * agent.rate_share
    if not terms:
        return Objective(encoding.straight_through.new_zeros(()), {}), encoding
    return Objective(L.weighted_sum(terms, scales), {n: t.detach() for n, t in terms.items()}), encoding


def _reconstruction(agent: Agent, encoding: Encoding, observation: Observation) -> dict[str, Tensor]:
    """Each sense's error, and again as auxiliary_ for decoders that learn by themselves (D4)."""
    tokenizer, targets, way = (
        agent.tokenizer,
        agent.tokenizer.targets(observation),
        agent.config.losses.decoder,
    )
    if not isinstance(tokenizer, PaperTokenizer) or way == "off":
        return _errors(agent, tokenizer.decode(encoding.straight_through, observation), targets)
    if way == "tokens":
        errors = auxiliary = _errors(agent, tokenizer.decode_for_two(encoding.straight_through), targets)
    else:
        assert encoding.embedding is not None
        errors = _errors(agent, tokenizer.decode(encoding.straight_through, observation), targets)
        auxiliary = _errors(agent, tokenizer.decode_embedding(encoding.embedding), targets)
    return errors | {f"auxiliary_{name}": error for name, error in auxiliary.items()}


def _errors(agent: Agent, prediction: Prediction, targets: Prediction) -> dict[str, Tensor]:
    senses = agent.tokenizer.senses
    return {
        name: L.reconstruction_loss(prediction[name], targets[name], len(senses[name].shape))
        for name in agent.tokenizer.learned
    }


def dynamics_objective(
    agent: Agent,
    tokens: Tensor,
    action: Tensor,
    posterior: Tensor | None = None,
    straight_through: Tensor | None = None,
) -> Objective:
    """E9 over sequences: tokens (B, T, K), action (B, T, A), both of the same steps; frame t+1 is predicted
    from 0..t.

    posterior (B, T, K, widest) and straight_through (B, T, total): from a categorical encoder that learns
    along. Without them the tokens are point masses (senses, symbolic, or a frozen tokenizer). Gradient:
    dynamics (and encoder through the representation loss and the straight-through one-hots, where given)."""
    inputs = tokens if straight_through is None else straight_through
    hidden = agent.world_model(inputs[:, :-1], action[:, :-1])
    prior = agent.world_model.logits(hidden, inputs[:, :-1], tokens[:, 1:])
    if posterior is None:
        terms = {"dynamics": L.point_dynamics_loss(tokens[:, 1:], prior, L.FREE_NATS)}
        scales = {"dynamics": L.BETA_DYN}
    else:
        terms = {
            "dynamics": L.dynamics_loss(posterior[:, 1:], prior, L.FREE_NATS),
            "representation": L.representation_loss(posterior[:, 1:], prior, L.FREE_NATS),
        }
        scales = {"dynamics": L.BETA_DYN, "representation": L.BETA_REP}
    return Objective(L.weighted_sum(terms, scales), {n: t.detach() for n, t in terms.items()})


def world_model_objective(
    agent: Agent, observation: Observation, action: Tensor, encoding: Encoding | None = None
) -> tuple[Objective, Encoding]:
    """E8 whole, on sequences (B, T, ...). Gradient: tokenizer and dynamics. The code is given back for the
    other parts; or given, if it is known already."""
    tokenizer, encoding = tokenizer_objective(agent, observation, encoding)
    learns_along = encoding.logits is not None
    dynamics = dynamics_objective(
        agent, encoding.tokens, action, encoding.logits, encoding.straight_through if learns_along else None
    )
    return Objective(tokenizer.loss + dynamics.loss, tokenizer.metrics | dynamics.metrics), encoding


def self_prior_objective(agent: Agent, tokens: Tensor) -> Objective:
    """E10 on babbling tokens (..., K). Gradient: self_prior."""
    online = agent.self_prior.logits(tokens)
    with torch.no_grad():
        ema = agent.ema.self_prior.logits(tokens)
    loss = L.self_prior_loss(online, ema, tokens, L.SELF_PRIOR_EMA)
    surprise = -L.gather_log_prob(online.detach(), tokens).sum(-1)
    return Objective(loss, {"self_prior": loss.detach(), "G_babbling": surprise.mean()})


def actor_critic_objective(
    agent: Agent, dreamed: Dream, cost: Tensor | None = None, on_policy: OnPolicyBatch | None = None
) -> tuple[Objective, Objective]:
    """E11 on a dream: (policy objective, value objective). G of s_{t+1} is the cost of a_t (D2): (B, H), if
    it is known already. lived: what both also learn from, in the shares that the losses' configuration gives.
    Updates S."""
    c, w = agent.config.imagination, agent.config.losses
    with torch.no_grad():
        if cost is None:
            cost = agent.cost(dreamed.tokens[:, 1:], dreamed.hidden[:, 1:])
        mean_cost = cost.mean() if c.subtract_mean_cost else 0.0  # D11
    features = agent.world_model.features(dreamed.tokens)
    late = L.discounts(cost.shape[1], c.discount, cost)
    lambda_ = torch.full_like(late, LAMBDA)
    critic, value, returns = _critic(agent, features, dreamed.hidden, cost - mean_cost, lambda_, late)
    value_metrics = {"value_loss": critic.detach(), "value": value.mean()}
    with torch.no_grad():
        advantage = returns - value[:, :-1]
        spread = agent.return_range.update(returns if c.range_of == "returns" else advantage)
        advantage = advantage / spread.clamp_min(1.0)
    distribution = agent.policy(features[:, :-1], dreamed.hidden[:, :-1])
    log_prob, entropy = distribution.log_prob(dreamed.action), distribution.entropy()
    policy = L.policy_loss(log_prob, entropy, advantage, c.entropy)
    policy_metrics = {
        "policy": policy.detach(),
        "entropy": entropy.detach().mean(),
        "cost_dreamed": cost.mean(),
        "cost_dreamed_fall": (cost[:, 0] - cost[:, -1]).mean(),
        "return_range": spread,
    }
    if on_policy is not None:
        policy_real, real = _on_policy_objectives(agent, on_policy, mean_cost)
        has_on_policy = (on_policy.weight > 0).any().float()
        if w.policy_on_policy_share:
            # An iteration of dreams alone would cost it most of the noise by which it is to find out what
            # life is.
            policy = has_on_policy * torch.lerp(policy, policy_real.loss, w.policy_on_policy_share)
        critic = torch.lerp(critic, real.loss, w.value_on_policy_share * has_on_policy)
        policy_metrics |= policy_real.metrics
        value_metrics |= real.metrics
    return Objective(policy, policy_metrics), Objective(critic, value_metrics)


def _on_policy_objectives(
    agent: Agent, on_policy: OnPolicyBatch, mean_cost: Tensor | float
) -> tuple[Objective, Objective]:
    """E11 on what really happened: (policy objective, value objective)."""
    c, w, features = (
        agent.config.imagination,
        agent.config.losses,
        agent.world_model.features(on_policy.tokens),
    )
    lambda_ = LAMBDA * on_policy.goes_on  # what motor babbling leads to is not the policy's doing
    critic, _, _ = _critic(
        agent, features, on_policy.hidden, on_policy.cost - mean_cost, lambda_, on_policy.weight
    )
    with torch.no_grad():
        # By the value as it was: what it has learned since of these very episodes is no longer a surprise.
        returns = lambda_return(on_policy.cost - mean_cost, on_policy.value, c.discount, lambda_)
        advantage = returns - on_policy.value[:, :-1]
        advantage = advantage - (on_policy.weight * advantage).mean()
        spread = _spread(advantage, on_policy.weight)
        explains = 1 - (spread / _spread(returns, on_policy.weight).clamp_min(1e-6)).square()
        advantage = advantage / spread.clamp_min(1.0)
    value_metrics = {"value_loss_on_policy": critic.detach(), "value_explained_variance": explains}
    value_objective = Objective(critic, value_metrics)
    if not w.policy_on_policy_share:
        return Objective(critic.new_zeros(()), {}), value_objective
    distribution = agent.policy(features[:, :-1], on_policy.hidden[:, :-1])
    log_prob = distribution.log_prob_of(on_policy.action)
    loss = (
        L.ppo_loss(log_prob, on_policy.log_prob, advantage, L.POLICY_CLIP)
        - c.entropy * distribution.entropy()
    )
    policy = (on_policy.weight * loss).mean()
    learned = (1 - (log_prob.detach() - on_policy.log_prob).exp()) * advantage.sign()
    metrics = {
        "policy_on_policy": policy.detach(),
        "cost_on_policy": (on_policy.weight * on_policy.cost).mean(),
        "clipped": (on_policy.weight * (learned > L.POLICY_CLIP)).mean(),
    }
    return Objective(policy, metrics), value_objective


def _spread(x: Tensor, weight: Tensor) -> Tensor:
    """Standard deviation; weight: 1 on average."""
    return (weight * (x - (weight * x).mean()).square()).mean().sqrt()


def _critic(
    agent: Agent, features: Tensor, hidden: Tensor, cost: Tensor, lambda_: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The value's loss on paths of H steps, its own estimate (B, H+1) and the λ-returns (B, H) that it
    learns; trust: λ of each step."""
    c = agent.config.imagination
    logits = agent.value.logits(features, hidden)  # (B, H+1, bins)
    with torch.no_grad():
        value = agent.value.two_hot.decode(logits)
        ema = agent.ema.value(features[:, :-1], hidden[:, :-1])
        returns = lambda_return(cost, value, c.discount, lambda_)
    pull = agent.config.losses.value_ema
    loss = L.value_loss(logits[:, :-1], returns, ema, agent.value.two_hot, weight, pull)
    return loss, value, returns
