"""On a GPU: the Triton kernels do what torch does, and the agent that uses them says the same."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from mirrormark.agent import transformer
from mirrormark.agent.transformer import Cache, look_back
from mirrormark.agent.world_model import imagine
from mirrormark.config import SelfPriorConfig, WorldModelConfig
from tests.agent.tiny import random_actions, random_tokens
from tests.swift.tiny import swift_agent

pytestmark = pytest.mark.gpu


def split(qkv: torch.Tensor, heads: int) -> torch.Tensor:
    return qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)


@pytest.mark.parametrize(("steps", "heads", "size"), [(32, 8, 16), (28, 6, 32), (7, 2, 16), (63, 2, 64)])
def test_short_attention_and_its_gradient(steps, heads, size):
    qkv = torch.randn(5, steps, 3 * heads * size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    pull = torch.randn(5, steps, heads * size, device="cuda", dtype=torch.bfloat16)
    got = transformer.kernels.short_attention(qkv, heads)
    exact = qkv.detach().float().requires_grad_()
    q, k, v = split(exact, heads)
    want = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(got.float(), want, rtol=2e-2, atol=2e-2)
    (grad,) = torch.autograd.grad(got, qkv, pull)
    (wanted,) = torch.autograd.grad(want, exact, pull.float())
    torch.testing.assert_close(grad.float(), wanted, rtol=3e-2, atol=6e-2)


@pytest.mark.parametrize("at", [0, 5, 22])
def test_step_attention_remembers_and_looks_back(at):
    heads, size = 4, 32
    qkv = torch.randn(3, 1, 3 * heads * size, device="cuda", dtype=torch.bfloat16)
    cache = Cache(*(torch.randn(3, heads, 23, size, device="cuda", dtype=torch.bfloat16) for _ in range(2)))
    position = torch.tensor([at], device="cuda")
    q, k, v = split(qkv, heads)
    wanted = Cache(*(kept.clone().index_copy_(2, position, new) for kept, new in zip(cache, (k, v))))
    want = look_back(q, wanted, position, 0.0).transpose(1, 2).flatten(-2)
    got = transformer.kernels.step_attention(qkv, *cache, position, heads)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert all(torch.equal(kept, new) for kept, new in zip(cache, wanted))


def test_an_agent_says_the_same_with_and_without_them(monkeypatch):
    sizes = {"width": 32, "heads": 2, "ffn": 64, "layers": 2}
    parts = {"self_prior": SelfPriorConfig(**sizes), "world_model": WorldModelConfig(**sizes, max_length=16)}
    agent = swift_agent(**parts).cuda()
    tokens, action = random_tokens(agent, 6, 4).cuda(), random_actions(6, 3).cuda()
    said = []
    for triton in (True, False):
        monkeypatch.setattr(transformer, "TRITON", triton)
        torch.manual_seed(0)
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            path = imagine(agent.world_model, agent.policy, tokens, action, 3)
            said.append((agent.self_prior.log_prob(tokens), path.hidden[:, 1]))
    for with_them, without in zip(*said):
        torch.testing.assert_close(with_them, without, rtol=3e-2, atol=5e-2)
