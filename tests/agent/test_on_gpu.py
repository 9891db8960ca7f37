"""On a GPU: bf16 gives the losses of fp32, and a whole train step can be captured in one CUDA graph."""

import pytest
import torch
from tiny_agents import ACTIONS, TOKENIZERS, observe, tiny_agent

from mirrormark.agent import objective as O
from mirrormark.agent.dream import Dream
from mirrormark.agent.numerics import ZClip
from mirrormark.agent.tokenizer_paper import PaperTokenizer

pytestmark = pytest.mark.gpu


def batch(agent, frames: int = 6):
    observation = {k: v.cuda() for k, v in observe(agent.tokenizer.senses, 8, frames).items()}
    return observation, (torch.rand(8, frames, ACTIONS) * 2 - 1).cuda()


LOSSES = {
    "categorical": {
        "vision",
        "proprioception",
        "auxiliary_vision",
        "auxiliary_proprioception",
        "representation",
    },
    "grid": {"vision", "rate"},
    "grid, scene": {"vision", "rate"},
    "symbolic": set(),
}
"""Beside those of every agent: dynamics, self_prior, policy, value_loss."""


def every_loss(agent, observation, action, tokens, dreamed: Dream) -> dict[str, float]:
    """Each term by itself, from given tokens: rounding before a bf16 encoder may choose another class."""
    torch.manual_seed(0)
    encoding = agent.encode(observation, sample=False)
    through, targets = agent.spec.one_hot(tokens), agent.tokenizer.targets(observation)
    got = O._errors(agent, agent.tokenizer.decode(through, observation), targets)
    if isinstance(agent.tokenizer, PaperTokenizer):
        auxiliary = O._errors(agent, agent.tokenizer.decode_for_two(through), targets)
        got |= {f"auxiliary_{name}": error for name, error in auxiliary.items()}
        got["embedding"] = sum(
            O._errors(agent, agent.tokenizer.decode_embedding(encoding.embedding), targets).values()
        )
    if encoding.activation is not None:
        got["rate"] = O.L.rate_loss(encoding.activation)
    got |= O.dynamics_objective(agent, tokens, action, encoding.logits).metrics
    got |= O.self_prior_objective(agent, tokens).metrics
    agent.return_range.started.zero_()
    policy, value = O.actor_critic_objective(agent, dreamed)
    names = ("policy", "entropy", "cost_dreamed")
    got |= {name: policy.metrics[name] for name in names} | {"value_loss": value.metrics["value_loss"]}
    return {name: loss.item() for name, loss in got.items()}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_bf16_gives_the_losses_of_fp32(kind, monkeypatch):
    monkeypatch.setattr("mirrormark.agent.losses.FREE_NATS", 0.0)  # free nats would hide small KLs
    agent = tiny_agent(kind).cuda()
    observation, action = batch(agent)
    tokens = agent.encode(observation, sample=False).tokens
    dreamed = agent.dream(tokens[:, :4], action[:, :3])
    exact = every_loss(agent, observation, action, tokens, dreamed)
    with torch.autocast("cuda", torch.bfloat16):
        rough = every_loss(agent, observation, action, tokens, dreamed)
    assert LOSSES[kind] | {"dynamics", "self_prior", "policy", "value_loss"} <= set(exact)
    for name, value in exact.items():
        assert rough[name] == pytest.approx(value, rel=0.02, abs=0.02), name


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_whole_train_step_is_one_graph(kind):
    agent = tiny_agent(kind).cuda()
    observation, action = batch(agent)
    trained = [p for p in agent.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, 1e-3, capturable=True, fused=True)
    clip = ZClip().cuda()

    def step() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            world, encoding = O.world_model_objective(agent, observation, action)
            prior = O.self_prior_objective(agent, encoding.tokens)
            policy, value = O.actor_critic_objective(
                agent, agent.dream(encoding.tokens[:, :4], action[:, :3])
            )
        total = world.loss + prior.loss + policy.loss + value.loss
        total.backward()
        clip.clip(trained)
        optimiser.step()
        agent.update_ema()
        return total

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        first = step().item()
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = step()
    for _ in range(50):
        graph.replay()
    assert total.isfinite() and total.item() < first, "the replayed step learns"
