"""On a GPU: the Triton kernels do what torch does, and the agent that uses them says the same."""

import pytest
import torch
from tiny_agents import random_tokens, tiny_agent

from mirrormark.agent import transformer
from mirrormark.agent.self_prior import SelfPrior, SelfPriorConfig
from mirrormark.agent.tokens import TokenSpec
from mirrormark.agent.world_model import WorldModelConfig

pytestmark = pytest.mark.gpu


def split(qkv: torch.Tensor, heads: int) -> torch.Tensor:
    return qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)


@pytest.mark.parametrize(("steps", "heads", "size"), [(32, 8, 16), (28, 6, 32), (7, 2, 16), (63, 2, 64)])
def test_short_attention_and_its_gradient(steps, heads, size):
    qkv = torch.randn(5, steps, 3 * heads * size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    pull = torch.randn(5, steps, heads * size, device="cuda", dtype=torch.bfloat16)
    got = transformer.kernels.short_attention(qkv, heads)
    exact = qkv.detach().float().requires_grad_()
    want = transformer.attend(*split(exact, heads), 0.0, "plain").transpose(1, 2).flatten(-2)
    torch.testing.assert_close(got.float(), want, rtol=2e-2, atol=2e-2)
    (grad,) = torch.autograd.grad(got, qkv, pull)
    (wanted,) = torch.autograd.grad(want, exact, pull.float())
    torch.testing.assert_close(grad.float(), wanted, rtol=3e-2, atol=6e-2)


@pytest.mark.parametrize("at", [0, 5, 22])
def test_step_attention_remembers_and_looks_back(at):
    heads, size = 4, 32
    qkv = torch.randn(3, 1, 3 * heads * size, device="cuda", dtype=torch.bfloat16)
    kv = [torch.randn(3, heads, 23, size, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    position = torch.tensor([at], device="cuda")
    q, k, v = split(qkv, heads)
    wanted = [kept.clone().index_copy_(2, position, new) for kept, new in zip(kv, (k, v))]
    want = transformer.look_back(q, *wanted, position, 0.0).transpose(1, 2).flatten(-2)
    got = transformer.kernels.step_attention(qkv, *kv, position, heads)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert all(torch.equal(kept, new) for kept, new in zip(kv, wanted))


def test_a_agent_says_the_same_with_and_without_them(monkeypatch):
    sizes = {"width": 32, "heads": 2, "ffn": 64}
    parts = {"self_prior": SelfPriorConfig(**sizes), "dynamics": WorldModelConfig(**sizes, dropout=0.0)}
    agent = tiny_agent(**parts).cuda().eval()
    tokens, action = random_tokens(agent, 6, 4).cuda(), torch.rand(6, 3, agent.actions, device="cuda")
    said = []
    for triton in (True, False):
        monkeypatch.setattr(transformer, "TRITON", triton)
        torch.manual_seed(0)
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            said.append((agent.self_prior.log_prob(tokens), agent.dream(tokens, action).hidden[:, 1]))
    for with_them, without in zip(*said):
        torch.testing.assert_close(with_them, without, rtol=3e-2, atol=5e-2)


@pytest.mark.parametrize("kind", ["post", "pre"])
def test_all_layers_in_one_kernel(kind):
    spec = TokenSpec((32,) * 32 if kind == "post" else (64,) * 12 + (125,) * 17)
    wide = {"width": 128, "layers": 3, "heads": 4, "ffn": 512, "norm": "pre", "activation": "gelu"}
    config = SelfPriorConfig() if kind == "post" else SelfPriorConfig(**wide, vocabulary="per_token")
    prior = SelfPrior(spec, config).cuda()
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    many = [torch.randint(c, (1030,), device="cuda") for c in spec.classes]
    tokens = torch.stack(many, -1)
    with torch.no_grad():
        exact = prior.log_prob(tokens)
        with torch.autocast("cuda", torch.bfloat16):
            assert prior._rates_only(tokens[:, :-1])
            rough, quick = prior._states(tokens[:, :-1]).float(), prior._states_at_once(tokens[:, :-1])
            rated = prior.log_prob(tokens)
    assert ((quick - rough).norm() / rough.norm()) < 1e-2
    torch.testing.assert_close(rated, exact, rtol=2e-2, atol=0.5)  # nats of 28 or 32 tokens, some 120
