"""What each part of the mind descends: E8 (world), E10 (self-prior), E11 (policy, value), put together from
losses.py.

Each function gives an Objective: `loss` to call backward on and `metrics`, detached tensors to log (read them
outside the captured step). Gradient reaches only the parts named in each docstring.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mirrormark.mind import losses as L
from mirrormark.mind.codec import Code, Prediction
from mirrormark.mind.codec_categorical import CategoricalCodec
from mirrormark.mind.dream import Dream
from mirrormark.mind.mind import Mind
from mirrormark.mind.numerics import lambda_return
from mirrormark.mind.policy import Policy, Value
from mirrormark.mind.senses import Observation

LAMBDA = 0.95
"""λ of the return (paper, Table III)."""


class Objective(NamedTuple):
    """A loss and what to log about it."""

    loss: Tensor
    metrics: dict[str, Tensor]


class Lived(NamedTuple):
    """What really happened, in T frames of which the policy moved the body in some."""

    latent: Tensor  # (B, T, K)
    hidden: Tensor  # (B, T, D)
    cost: Tensor  # (B, T-1): of what each action led to
    action: Tensor  # (B, T-1, A)
    log_prob: Tensor  # (B, T-1): of that action, when it was done
    value: Tensor  # (B, T): what was expected then
    weight: Tensor  # (B, T-1), 1 on average; 0 where the policy did not act, or knew more of the past
    goes_on: Tensor  # (B, T-1): 1 where the policy acts in the next frame, too, 0 where not


def lived_of(
    mind: Mind, acted: Policy, judged: Value, latent: Tensor, action: Tensor, start: Tensor, let_go: Tensor
) -> Lived:
    """Windows of real life, latent (B, T, K) and action (B, T, A), from frame `start` (B,) of their episodes
    on, under policy and value as they were then, until the policy let go at frame `let_go` (B,); call it
    without gradient."""
    hidden = _hidden(mind, latent, action)
    action, cost = action[:, :-1], mind.cost(latent[:, 1:], hidden[:, 1:])
    log_prob = torch.zeros_like(cost)
    if mind.config.losses.policy_lived:
        log_prob = acted(latent[:, :-1], hidden[:, :-1]).log_prob_of(action)
    frame = start[:, None] + torch.arange(action.shape[1], device=latent.device)
    counts = (_whole_past(mind, frame, start) & (frame < let_go[:, None])).float()
    goes_on = (frame + 1 < let_go[:, None]).float()
    value, weight = judged(latent, hidden), counts / counts.mean().clamp_min(1e-6)
    return Lived(latent, hidden, cost, action, log_prob, value, weight, goes_on)


def _hidden(mind: Mind, latent: Tensor, action: Tensor) -> Tensor:
    """What the sequence model holds at each frame of a window, (B, T, D); nothing before the first."""
    hidden = mind.dynamics(latent[:, :-1], action[:, :-1], dropout=False).float()
    return torch.cat((torch.zeros_like(hidden[:, :1]), hidden), 1)


def _whole_past(mind: Mind, frame: Tensor, start: Tensor) -> Tensor:
    """Where a window holds as much of the past as an acting body knows: a context of it, or all there is."""
    start = start[:, None]
    return (frame - start >= mind.config.imagination.context - 1) | (start == 0)


class Foretold(NamedTuple):
    """What the outlook learns from, in T frames of which everyday movement follows some."""

    latent: Tensor  # (B, T, K)
    hidden: Tensor  # (B, T, D)
    target: Tensor  # (B, T): mean G of the next control steps
    weight: Tensor  # (B, T), 1 on average; 0 where that did not come of everyday movement


def foretold_of(mind: Mind, latent: Tensor, action: Tensor, start: Tensor, let_go: Tensor) -> Foretold:
    """Windows of real life, as for `lived_of`, of which the last frames only serve as what follows; call it
    without gradient."""
    steps = mind.config.outlook.control_steps
    cost, hidden = mind.expected_free_energy(latent), _hidden(mind, latent, action)
    ahead = cost[:, 1:].unfold(1, steps, 1).mean(-1)
    now = ahead.shape[1]
    frame = start[:, None] + torch.arange(now, device=latent.device)
    counts = (_whole_past(mind, frame, start) & (frame >= let_go[:, None])).float()
    return Foretold(latent[:, :now], hidden[:, :now], ahead, counts / counts.mean().clamp_min(1e-6))


def outlook_objective(mind: Mind, foretold: Foretold) -> Objective:
    """Gradient: outlook. Logs how much of what differs between states it foretells, too."""
    assert mind.outlook is not None
    target, weight = foretold.target, foretold.weight
    logits = mind.outlook.logits(foretold.latent, foretold.hidden)
    loss = (weight * mind.outlook.two_hot.cross_entropy(logits, target)).mean()
    with torch.no_grad():
        error = (weight * (mind.outlook.two_hot.decode(logits) - target).square()).mean()
        spread = (weight * (target - (weight * target).mean()).square()).mean()
    return Objective(loss, {"outlook": loss.detach(), "foretold": 1 - error / spread.clamp_min(1e-6)})


def codec_objective(mind: Mind, observation: Observation, code: Code | None = None) -> tuple[Objective, Code]:
    """E8 without dynamics: reconstruction, auxiliary decoder and quiet terms; frames need no order. Gradient:
    codec. code: of the observation, if it is known already."""
    codec, weights = mind.codec, mind.config.losses
    code = codec.encode(observation) if code is None else code
    terms = _reconstruction(mind, code, observation) if codec.learned else {}
    scales: dict[str, float | Tensor] = dict.fromkeys(terms, 1.0)
    if code.activation is not None:
        terms["quiet"], scales["quiet"] = L.quiet_loss(code.activation), weights.quiet * mind.quiet_share
    if not terms:
        return Objective(code.straight_through.new_zeros(()), {}), code
    return Objective(L.weighted_sum(terms, scales), {n: t.detach() for n, t in terms.items()}), code


def _reconstruction(mind: Mind, code: Code, observation: Observation) -> dict[str, Tensor]:
    """Each sense's error, and again as auxiliary_ for decoders that learn by themselves (D4)."""
    codec, targets, way = mind.codec, mind.codec.targets(observation), mind.config.losses.decoder
    if not isinstance(codec, CategoricalCodec) or way == "off":
        return _errors(mind, codec.decode(code.straight_through, observation), targets)
    if way == "latent":
        errors = auxiliary = _errors(mind, codec.decode_for_two(code.straight_through), targets)
    else:
        assert code.embedding is not None
        errors = _errors(mind, codec.decode(code.straight_through, observation), targets)
        auxiliary = _errors(mind, codec.decode_embedding(code.embedding), targets)
    return errors | {f"auxiliary_{name}": error for name, error in auxiliary.items()}


def _errors(mind: Mind, prediction: Prediction, targets: Prediction) -> dict[str, Tensor]:
    senses = mind.codec.senses
    return {
        name: L.reconstruction_loss(prediction[name], targets[name], len(senses[name].shape))
        for name in mind.codec.learned
    }


def dynamics_objective(
    mind: Mind,
    latent: Tensor,
    action: Tensor,
    posterior: Tensor | None = None,
    straight_through: Tensor | None = None,
) -> Objective:
    """E9 over sequences: latent (B, T, K), action (B, T, A), both of the same steps; frame t+1 is predicted
    from 0..t.

    posterior (B, T, K, widest) and straight_through (B, T, total): from a categorical encoder that learns
    along. Without them the latents are point masses (senses, symbolic, or a frozen codec). Gradient:
    dynamics (and encoder through the representation loss and the straight-through latents, where given)."""
    inputs = latent if straight_through is None else straight_through
    hidden = mind.dynamics(inputs[:, :-1], action[:, :-1])
    prior = mind.dynamics.logits(hidden, inputs[:, :-1], latent[:, 1:])
    if posterior is None:
        terms = {"dynamics": L.point_dynamics_loss(latent[:, 1:], prior, L.FREE_NATS)}
        scales = {"dynamics": L.BETA_DYN}
    else:
        terms = {
            "dynamics": L.dynamics_loss(posterior[:, 1:], prior, L.FREE_NATS),
            "representation": L.representation_loss(posterior[:, 1:], prior, L.FREE_NATS),
        }
        scales = {"dynamics": L.BETA_DYN, "representation": L.BETA_REP}
    return Objective(L.weighted_sum(terms, scales), {n: t.detach() for n, t in terms.items()})


def world_objective(
    mind: Mind, observation: Observation, action: Tensor, code: Code | None = None
) -> tuple[Objective, Code]:
    """E8 whole, on sequences (B, T, ...). Gradient: codec and dynamics. The code is given back for the other
    parts; or given, if it is known already."""
    codec, code = codec_objective(mind, observation, code)
    learns_along = code.logits is not None
    dynamics = dynamics_objective(
        mind, code.latent, action, code.logits, code.straight_through if learns_along else None
    )
    return Objective(codec.loss + dynamics.loss, codec.metrics | dynamics.metrics), code


def self_prior_objective(mind: Mind, latent: Tensor) -> Objective:
    """E10 on everyday latents (..., K). Gradient: self_prior."""
    online = mind.self_prior.logits(latent)
    with torch.no_grad():
        slow = mind.ema.self_prior.logits(latent)
    loss = L.self_prior_loss(online, slow, latent, L.SELF_PRIOR_EMA)
    surprise = -L.pick(online.detach(), latent).sum(-1)
    return Objective(loss, {"self_prior": loss.detach(), "G_everyday": surprise.mean()})


def behaviour_objective(
    mind: Mind, dreamed: Dream, cost: Tensor | None = None, lived: Lived | None = None
) -> tuple[Objective, Objective]:
    """E11 on a dream: (policy objective, value objective). G of s_{t+1} is the cost of a_t (D2): (B, H), if
    it is known already. lived: what both also learn from, in the shares that the losses' configuration gives.
    Updates S."""
    c, w = mind.config.imagination, mind.config.losses
    with torch.no_grad():
        if cost is None:
            cost = mind.cost(dreamed.latent[:, 1:], dreamed.hidden[:, 1:])
        centre = cost.mean() if c.centre_cost else 0.0  # D11
    read = mind.dynamics.reading(dreamed.latent)
    late = L.discounts(cost.shape[1], c.discount, cost)
    trust = torch.full_like(late, LAMBDA)
    critic, value, returns = _critic(mind, read, dreamed.hidden, cost - centre, trust, late)
    value_metrics = {"value_loss": critic.detach(), "value": value.mean()}
    with torch.no_grad():
        excess = returns - value[:, :-1]
        spread = mind.return_range.update(returns if c.range_of == "returns" else excess)
        excess = excess / spread.clamp_min(1.0)
    acted = mind.policy(read[:, :-1], dreamed.hidden[:, :-1])
    log_prob, entropy = acted.log_prob(dreamed.action), acted.entropy()
    policy = L.policy_loss(log_prob, entropy, excess, c.entropy)
    policy_metrics = {
        "policy": policy.detach(),
        "entropy": entropy.detach().mean(),
        "cost_dreamed": cost.mean(),
        "cost_dreamed_fall": (cost[:, 0] - cost[:, -1]).mean(),
        "return_range": spread,
    }
    if lived is not None:
        policy_real, real = _lived_objectives(mind, lived, centre)
        has_lived = (lived.weight > 0).any().float()
        if w.policy_lived:
            # A lap of dreams alone would cost it most of the noise by which it is to find out what life is.
            policy = has_lived * torch.lerp(policy, policy_real.loss, w.policy_lived)
        critic = torch.lerp(critic, real.loss, w.value_lived * has_lived)
        policy_metrics |= policy_real.metrics
        value_metrics |= real.metrics
    return Objective(policy, policy_metrics), Objective(critic, value_metrics)


def _lived_objectives(mind: Mind, lived: Lived, centre: Tensor | float) -> tuple[Objective, Objective]:
    """E11 on what really happened: (policy objective, value objective)."""
    c, w, read = mind.config.imagination, mind.config.losses, mind.dynamics.reading(lived.latent)
    trust = LAMBDA * lived.goes_on  # what everyday movement leads to is not the policy's doing
    critic, _, _ = _critic(mind, read, lived.hidden, lived.cost - centre, trust, lived.weight)
    with torch.no_grad():
        # By the value as it was: what it has learned since of these very episodes is no longer a surprise.
        returns = lambda_return(lived.cost - centre, lived.value, c.discount, trust)
        excess = returns - lived.value[:, :-1]
        excess = excess - (lived.weight * excess).mean()
        spread = _spread(excess, lived.weight)
        explains = 1 - (spread / _spread(returns, lived.weight).clamp_min(1e-6)).square()
        excess = excess / spread.clamp_min(1.0)
    value_metrics = {"value_loss_lived": critic.detach(), "value_explains": explains}
    value_objective = Objective(critic, value_metrics)
    if not w.policy_lived:
        return Objective(critic.new_zeros(()), {}), value_objective
    acted = mind.policy(read[:, :-1], lived.hidden[:, :-1])
    log_prob = acted.log_prob_of(lived.action)
    loss = L.lived_policy_loss(log_prob, lived.log_prob, excess, L.POLICY_CLIP) - c.entropy * acted.entropy()
    policy = (lived.weight * loss).mean()
    learned = (1 - (log_prob.detach() - lived.log_prob).exp()) * excess.sign()
    metrics = {
        "policy_lived": policy.detach(),
        "cost_lived": (lived.weight * lived.cost).mean(),
        "clipped": (lived.weight * (learned > L.POLICY_CLIP)).mean(),
    }
    return Objective(policy, metrics), value_objective


def _spread(x: Tensor, weight: Tensor) -> Tensor:
    """Standard deviation; weight: 1 on average."""
    return (weight * (x - (weight * x).mean()).square()).mean().sqrt()


def _critic(
    mind: Mind, read: Tensor, hidden: Tensor, cost: Tensor, trust: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The value's loss on paths of H steps, its own estimate (B, H+1) and the λ-returns (B, H) that it
    learns; trust: λ of each step."""
    c = mind.config.imagination
    logits = mind.value.logits(read, hidden)  # (B, H+1, bins)
    with torch.no_grad():
        value = mind.value.two_hot.decode(logits)
        slow = mind.ema.value(read[:, :-1], hidden[:, :-1])
        returns = lambda_return(cost, value, c.discount, trust)
    pull = mind.config.losses.value_ema
    loss = L.value_loss(logits[:, :-1], returns, slow, mind.value.two_hot, weight, pull)
    return loss, value, returns
