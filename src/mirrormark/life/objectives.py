"""Two objectives of our own beside the mind's: stored latents, and a policy without a drive. What frames
become before others learn from them. And all that a train step computes, in one place."""

from functools import partial

import torch
from torch import Tensor

from mirrormark.mind import losses, objective
from mirrormark.mind.codec import Code
from mirrormark.mind.dream import Dream
from mirrormark.mind.mind import Mind
from mirrormark.mind.objective import Objective
from mirrormark.mind.senses import Observation


def code_of(mind: Mind, observation: Observation) -> Code:
    """What the encoder makes of them, with its gradient."""
    return mind.encode(observation)


def latent_of(mind: Mind, observation: Observation) -> Tensor:
    """The latents alone, (..., K)."""
    return mind.encode(observation).latent


def cost_of(mind: Mind, latent: Tensor) -> Tensor:
    """G of each latent, (..., K) -> (...)."""
    return mind.expected_free_energy(latent)


def costs_of(mind: Mind, dreamed: Dream) -> Tensor:
    """The cost of what each dreamed action leads to, (B, H)."""
    return mind.cost(dreamed.latent[:, 1:], dreamed.hidden[:, 1:])


def token_objective(mind: Mind, latent: Tensor, action: Tensor) -> Objective:
    """E9 on stored latents (point masses)."""
    hidden = mind.dynamics(latent[:, :-1], action[:, :-1])
    table = mind.dynamics.logits(hidden, latent[:, :-1], latent[:, 1:])
    loss = losses.point_dynamics_loss(latent[:, 1:], table, losses.FREE_NATS)
    return Objective(losses.BETA_DYN * loss, {"dynamics": loss.detach()})


def indifferent_objective(mind: Mind, dreamed: Dream) -> tuple[Objective, Objective]:
    """The ablation without the self-prior's cost: a policy that only keeps its entropy, a value of
    nothing."""
    acted = mind.policy(dreamed.latent[:, :-1], dreamed.hidden[:, :-1])
    nothing = torch.zeros_like(dreamed.action[..., 0])
    entropy = acted.entropy()
    loss = losses.policy_loss(
        acted.log_prob(dreamed.action), entropy, nothing, mind.config.imagination.entropy
    )
    logits = mind.value.logits(dreamed.latent[:, :-1], dreamed.hidden[:, :-1])
    critic = mind.value.two_hot.cross_entropy(logits, nothing).mean()
    policy = Objective(loss, {"policy": loss.detach(), "entropy": entropy.detach().mean()})
    return policy, Objective(critic, {"value_loss": critic.detach()})


class Computations:
    """All functions of a train step, each compiled by itself or none."""

    def __init__(self, compiles: bool) -> None:
        wrap = partial(torch.compile, dynamic=False) if compiles else (lambda function: function)
        self.codec = wrap(objective.codec_objective)
        self.joint = wrap(objective.world_objective)
        self.tokens = wrap(token_objective)
        self.self_prior = wrap(objective.self_prior_objective)
        self.behaviour = wrap(objective.behaviour_objective)
        self.indifferent = wrap(indifferent_objective)
        self.outlook = wrap(objective.outlook_objective)
        self.code, self.encode = wrap(code_of), wrap(latent_of)
        self.cost, self.costs = wrap(cost_of), wrap(costs_of)
        self.lived, self.foretold = wrap(objective.lived_of), wrap(objective.foretold_of)
