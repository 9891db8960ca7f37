"""On a GPU: bf16 gives the losses of fp32, and a whole train step can be captured in one CUDA graph."""

import pytest
import torch
from tiny_minds import ACTIONS, CODECS, observe, tiny_mind

from mirrormark.mind import objective as O
from mirrormark.mind.dream import Dream
from mirrormark.mind.numerics import ZClip

pytestmark = pytest.mark.gpu


def batch(mind, frames: int = 6):
    observation = {k: v.cuda() for k, v in observe(mind.codec.senses, 8, frames).items()}
    return observation, (torch.rand(8, frames, ACTIONS) * 2 - 1).cuda()


@pytest.mark.parametrize("kind", CODECS)
def test_bf16_gives_the_losses_of_fp32(kind):
    mind = tiny_mind(kind).cuda()
    observation, action = batch(mind)
    latent = mind.encode(observation, sample=False).latent
    dreamed: Dream = mind.dream(latent[:, :4], action[:, :3])

    def losses() -> dict[str, float]:
        torch.manual_seed(0)
        code = mind.encode(observation, sample=False)
        prediction = mind.codec.decode(latent, observation)
        errors = O._reconstruction(mind, prediction, mind.codec.targets(observation), "")
        got = {name: loss.item() for name, loss in errors.items()}
        got["dynamics"] = O.dynamics_objective(mind, latent, action, code.logits).loss.item()
        got["self_prior"] = O.self_prior_objective(mind, latent).loss.item()
        mind.return_range.started.zero_()
        policy, value = O.behaviour_objective(mind, dreamed)
        got["value"], got["entropy"] = value.loss.item(), policy.metrics["entropy"].item()
        got["G"] = mind.expected_free_energy(latent).mean().item()
        return got

    exact = losses()
    with torch.autocast("cuda", torch.bfloat16):
        rough = losses()
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
