"""On a GPU: bf16 gives the losses of fp32, and a whole train step can be captured in one CUDA graph."""

import pytest
import torch
from tiny_minds import ACTIONS, CODECS, observe, tiny_mind

from mirrormark.mind import objective as O
from mirrormark.mind.codec_categorical import CategoricalCodec
from mirrormark.mind.dream import Dream
from mirrormark.mind.numerics import ZClip

pytestmark = pytest.mark.gpu


def batch(mind, frames: int = 6):
    observation = {k: v.cuda() for k, v in observe(mind.codec.senses, 8, frames).items()}
    return observation, (torch.rand(8, frames, ACTIONS) * 2 - 1).cuda()


LOSSES = {
    "categorical": {
        "vision",
        "proprioception",
        "auxiliary_vision",
        "auxiliary_proprioception",
        "representation",
    },
    "senses": {"vision", "quiet"},
    "senses, scene": {"vision", "quiet"},
    "symbolic": set(),
}
"""Beside those of every mind: dynamics, self_prior, policy, value_loss."""


def every_loss(mind, observation, action, latent, dreamed: Dream) -> dict[str, float]:
    """Each term by itself, from given latents: rounding before a bf16 encoder may choose another class."""
    torch.manual_seed(0)
    code = mind.encode(observation, sample=False)
    through, targets = mind.spec.one_hot(latent), mind.codec.targets(observation)
    got = O._errors(mind, mind.codec.decode(through, observation), targets)
    if isinstance(mind.codec, CategoricalCodec):
        auxiliary = O._errors(mind, mind.codec.decode_for_two(through), targets)
        got |= {f"auxiliary_{name}": error for name, error in auxiliary.items()}
        got["embedding"] = sum(O._errors(mind, mind.codec.decode_embedding(code.embedding), targets).values())
    if code.activation is not None:
        got["quiet"] = O.L.quiet_loss(code.activation)
    got |= O.dynamics_objective(mind, latent, action, code.logits).metrics
    got |= O.self_prior_objective(mind, latent).metrics
    mind.return_range.started.zero_()
    policy, value = O.behaviour_objective(mind, dreamed)
    names = ("policy", "entropy", "cost_dreamed")
    got |= {name: policy.metrics[name] for name in names} | {"value_loss": value.metrics["value_loss"]}
    return {name: loss.item() for name, loss in got.items()}


@pytest.mark.parametrize("kind", CODECS)
def test_bf16_gives_the_losses_of_fp32(kind, monkeypatch):
    monkeypatch.setattr("mirrormark.mind.losses.FREE_NATS", 0.0)  # free nats would hide small KLs
    mind = tiny_mind(kind).cuda()
    observation, action = batch(mind)
    latent = mind.encode(observation, sample=False).latent
    dreamed = mind.dream(latent[:, :4], action[:, :3])
    exact = every_loss(mind, observation, action, latent, dreamed)
    with torch.autocast("cuda", torch.bfloat16):
        rough = every_loss(mind, observation, action, latent, dreamed)
    assert LOSSES[kind] | {"dynamics", "self_prior", "policy", "value_loss"} <= set(exact)
    for name, value in exact.items():
        assert rough[name] == pytest.approx(value, rel=0.02, abs=0.02), name


@pytest.mark.parametrize("kind", CODECS)
def test_a_whole_train_step_is_one_graph(kind):
    mind = tiny_mind(kind).cuda()
    observation, action = batch(mind)
    trained = [p for p in mind.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, 1e-3, capturable=True, fused=True)
    clip = ZClip().cuda()

    def step() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            world, code = O.world_objective(mind, observation, action)
            prior = O.self_prior_objective(mind, code.latent)
            policy, value = O.behaviour_objective(mind, mind.dream(code.latent[:, :4], action[:, :3]))
        total = world.loss + prior.loss + policy.loss + value.loss
        total.backward()
        clip.clip(trained)
        optimiser.step()
        mind.update_ema()
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
