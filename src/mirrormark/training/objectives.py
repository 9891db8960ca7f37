"""Two objectives of our own beside the agent's: stored tokens, and a policy without a drive. What frames
become before others learn from them. And all that a train step computes, in one place."""

from functools import partial

import torch
from torch import Tensor

from mirrormark.agent import losses, objective
from mirrormark.agent.agent import Agent
from mirrormark.agent.dream import Dream
from mirrormark.agent.objective import Objective
from mirrormark.agent.senses import Observation
from mirrormark.agent.tokenizer import Encoding


def encoding_of(agent: Agent, observation: Observation) -> Encoding:
    """What the encoder makes of them, with its gradient."""
    return agent.encode(observation)


def tokens_of(agent: Agent, observation: Observation) -> Tensor:
    """The tokens alone, (..., K)."""
    return agent.encode(observation).tokens


def cost_of(agent: Agent, tokens: Tensor) -> Tensor:
    """G of each frame's tokens, (..., K) -> (...)."""
    return agent.expected_free_energy(tokens)


def costs_of(agent: Agent, dreamed: Dream) -> Tensor:
    """The cost of what each dreamed action leads to, (B, H)."""
    return agent.cost(dreamed.tokens[:, 1:], dreamed.hidden[:, 1:])


def token_objective(agent: Agent, tokens: Tensor, action: Tensor) -> Objective:
    """E9 on stored tokens (point masses)."""
    hidden = agent.world_model(tokens[:, :-1], action[:, :-1])
    log_probs = agent.world_model.logits(hidden, tokens[:, :-1], tokens[:, 1:])
    loss = losses.point_dynamics_loss(tokens[:, 1:], log_probs, losses.FREE_NATS)
    return Objective(losses.BETA_DYN * loss, {"dynamics": loss.detach()})


def indifferent_objective(agent: Agent, dreamed: Dream) -> tuple[Objective, Objective]:
    """The ablation without the self-prior's cost: a policy that only keeps its entropy, a value of
    nothing."""
    acted = agent.policy(dreamed.tokens[:, :-1], dreamed.hidden[:, :-1])
    nothing = torch.zeros_like(dreamed.action[..., 0])
    entropy = acted.entropy()
    loss = losses.policy_loss(
        acted.log_prob(dreamed.action), entropy, nothing, agent.config.imagination.entropy
    )
    logits = agent.value.logits(dreamed.tokens[:, :-1], dreamed.hidden[:, :-1])
    critic = agent.value.two_hot.cross_entropy(logits, nothing).mean()
    policy = Objective(loss, {"policy": loss.detach(), "entropy": entropy.detach().mean()})
    return policy, Objective(critic, {"value_loss": critic.detach()})


class Computations:
    """All functions of a train step, each compiled by itself or none."""

    def __init__(self, compiles: bool) -> None:
        wrap = partial(torch.compile, dynamic=False) if compiles else (lambda function: function)
        self.tokenizer = wrap(objective.tokenizer_objective)
        self.joint = wrap(objective.world_model_objective)
        self.frozen = wrap(token_objective)
        self.self_prior = wrap(objective.self_prior_objective)
        self.behaviour = wrap(objective.actor_critic_objective)
        self.indifferent = wrap(indifferent_objective)
        self.expected_g = wrap(objective.expected_g_objective)
        self.encoding, self.encode = wrap(encoding_of), wrap(tokens_of)
        self.cost, self.costs = wrap(cost_of), wrap(costs_of)
        self.on_policy, self.expected_g_batch = (
            wrap(objective.on_policy_batch),
            wrap(objective.expected_g_batch),
        )
