import contextlib

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mirrormark.agent import losses as L
from mirrormark.agent.actor_critic import ENTROPY_SAMPLES
from mirrormark.agent.agent import Agent
from mirrormark.agent.numerics import ReturnRange
from mirrormark.agent.senses import SenseSpec
from mirrormark.agent.tokenizer import Encoding
from mirrormark.agent.world_model import imagine
from mirrormark.config import ImaginationConfig, PaperAgentConfig
from mirrormark.presets import PRESETS
from mirrormark.training.build import build_agent
from tests.agent.tiny import observe, paper_agent, random_actions, random_tokens
from tests.swift.tiny import PIXELS, swift_agent

AGENTS = {
    "paper": paper_agent,
    "paper-code": lambda: paper_agent("embedding", as_public_code=True),
    "swift": lambda: swift_agent("grid"),
}
EVERY = pytest.mark.parametrize("name", AGENTS)


@EVERY
def test_every_parameter_belongs_to_one_optimiser_and_slow_copies_to_none(name):
    agent = AGENTS[name]()
    grouped = [id(parameter) for group in agent.groups().values() for parameter in group]
    learns = [id(p) for n, p in agent.named_parameters() if not n.startswith("ema.")]
    assert sorted(grouped) == sorted(learns)
    assert not any(p.requires_grad for p in agent.ema.parameters())
    assert ("tokenizer" in agent.groups()) == (name == "swift")


def test_the_papers_tokenizer_learns_with_the_world_model():
    agent = paper_agent()
    together = {id(p) for p in agent.groups()["world_model"]}
    assert together == {id(p) for part in (agent.tokenizer, agent.world_model) for p in part.parameters()}


def test_slow_copies_follow_what_has_learned_by_a_fiftieth():
    agent = paper_agent()
    with torch.no_grad():
        for part in (agent.self_prior, agent.value):
            for parameter in part.parameters():
                parameter.add_(1.0)
    agent.update_ema(["value", "world_model"])
    for slow, fast in zip(agent.ema.value.parameters(), agent.value.parameters()):
        torch.testing.assert_close(fast - slow, torch.full_like(slow, 0.98))
    for slow, fast in zip(agent.ema.self_prior.parameters(), agent.self_prior.parameters()):
        torch.testing.assert_close(fast - slow, torch.ones_like(slow))


def test_slow_copies_have_no_dropout():
    agent = paper_agent().train()
    tokens = random_tokens(agent, 50)
    assert not torch.equal(*(agent.self_prior.log_prob(tokens) for _ in range(2)))
    assert torch.equal(*(agent.ema.self_prior.log_prob(tokens) for _ in range(2)))


def test_stored_tokens_are_point_masses_and_cost_nothing():
    agent = swift_agent("grid")
    seen = observe(PIXELS, 2, 5)
    tokens = agent.encode(seen).tokens
    encoding, loss = agent.encode_with_loss({"tokens": tokens.to(torch.uint8)})
    assert torch.equal(encoding.inputs, tokens) and encoding.log_probs is None and loss.value == 0
    assert torch.equal(agent.tokens_of({"tokens": tokens.to(torch.uint8)}), tokens)
    assert torch.equal(agent.tokens_of(seen), tokens)


def test_g_is_the_sum_of_its_tokens_surprises_weighed_by_their_precision():
    agent = swift_agent("grid", posture_precision=0.05)
    tokens = random_tokens(agent, 6)
    surprise = -agent.self_prior.per_token_log_prob(tokens)
    wanted = 0.05 * surprise[:, :3].sum(-1) + surprise[:, 3:].sum(-1)
    torch.testing.assert_close(agent.expected_free_energy(tokens), wanted)
    assert agent.expected_free_energy(tokens[0]).shape == ()


def test_hidden_states_of_a_window_are_of_the_frames_before():
    agent = paper_agent()
    tokens, action = random_tokens(agent, 2, 6), random_actions(2, 6)
    hidden = agent.hidden_of(tokens, action)
    assert not hidden[:, 0].any()
    path = imagine(agent.world_model, agent.policy, tokens[:, :4], action[:, :3], 1)
    torch.testing.assert_close(hidden[:, 3], path.hidden[:, 0])


@pytest.mark.parametrize("name", PRESETS)
def test_every_presets_agent_can_be_built_and_imagines(name):
    config = PRESETS[name]
    eye = SenseSpec("symbol", 226) if name == "symbolic" else SenseSpec("image", 64)
    senses = {"proprioception": SenseSpec("vector", 12), "cell" if name == "symbolic" else "vision": eye}
    agent, context = build_agent(config.agent, senses, 12), config.agent.imagination.context
    tokens, action = torch.zeros(1, context, agent.spec.K, dtype=torch.int64), torch.zeros(1, context, 12)
    path = imagine(agent.world_model, agent.policy, tokens, action, 3, agent.start)
    assert path.action.shape == (1, 3, 12)
    assert agent.cost(path.tokens, path.hidden).shape == (1, 4)


def test_impossible_numbers_say_so():
    with pytest.raises(ValueError, match="does not fit"):
        paper_agent(imagination=ImaginationConfig(horizon=13, context=4))
    with pytest.raises(ValueError, match="at least 2 with as_public_code"):
        PaperAgentConfig(as_public_code=True, imagination=ImaginationConfig(context=1))
    with pytest.raises(ValueError, match="at least 1"):
        ImaginationConfig(horizon=0)
    with pytest.raises(ValueError, match="discount"):
        ImaginationConfig(discount=0.0)


# What a CUDA graph holds


class NoHostSync(TorchDispatchMode):
    """Fails on operations that would make the CPU wait for the GPU or break a graph capture."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "aten.item", "equal.default")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not any(name in str(func) for name in self.FORBIDDEN), f"{func} waits for the GPU"
        return func(*args, **(kwargs or {}))


def losses(agent: Agent, observation: dict[str, torch.Tensor], action: torch.Tensor) -> list[L.Loss]:
    """Every loss of a train step, on given frames."""
    encoding, tokenizer = agent.encode_with_loss(observation)
    world = L.world_model_loss(agent.world_model, encoding, action)
    tokens = encoding.tokens
    self_prior = L.self_prior_loss(agent.self_prior, agent.ema.self_prior, tokens.flatten(0, 1))
    acted = action if agent.start == "prior" else action[:, :-1]
    path = imagine(agent.world_model, agent.policy, tokens, acted, 3, agent.start, dropout=True)
    cost = agent.cost(path.tokens[:, 1:], path.hidden[:, 1:]).detach()
    rollout = L.Rollout(*path, cost, torch.full_like(cost, L.LAMBDA), torch.ones_like(cost))
    parts, spread = (agent.policy, agent.value, agent.ema.value), ReturnRange(True).to(agent.device)
    behavior = L.imagined_losses(*parts, spread, rollout, 0.99, 3e-4, 1.0, ENTROPY_SAMPLES)
    return [tokenizer + world, self_prior, *behavior]


@EVERY
def test_losses_never_wait_for_the_device(name):
    agent = AGENTS[name]().train()
    observation = observe(agent.tokenizer.senses, 2, 5)
    with NoHostSync():
        for loss in losses(agent, observation, random_actions(2, 5)):
            loss.value.backward()
        agent.update_ema(["self_prior", "value"])
    named = [n for n, p in agent.named_parameters() if p.requires_grad and p.grad is None]
    assert not [name for name in named if not name.startswith("drive.")], "no gradient reached these"


@EVERY
def test_losses_mix_in_nothing_from_the_host(name, monkeypatch):
    """On the meta device a tensor made on the CPU inside the step would be an error, as on a GPU a copy."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # meta knows none
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    agent = AGENTS[name]().to("meta")
    observation = {n: x.to("meta") for n, x in observe(agent.tokenizer.senses, 2, 5).items()}
    for loss in losses(agent, observation, random_actions(2, 5).to("meta")):
        loss.value.backward()
        assert all(metric.is_meta for metric in loss.metrics.values())


def test_the_guard_itself_can_fail():
    with pytest.raises(AssertionError, match="waits"), NoHostSync():
        torch.ones(2).sum().item()


@EVERY
@pytest.mark.gpu
def test_bf16_gives_the_losses_of_fp32(name, monkeypatch):
    monkeypatch.setattr(L, "FREE_NATS", 0.0)  # free nats would hide small KLs
    agent = AGENTS[name]().cuda()
    seen = {n: x.cuda() for n, x in observe(agent.tokenizer.senses, 8, 6).items()}
    tokens, action = agent.encode(seen, sample=False).tokens, random_actions(8, 6).cuda()
    with torch.no_grad():
        hidden = agent.world_model(tokens, action).float()

    def found() -> dict[str, float]:
        """From given tokens: rounding before a bf16 encoder may choose another class."""
        torch.manual_seed(0)
        painted = agent.decode(tokens)
        flat = {n: x.flatten(0, 1) for n, x in painted.items()}
        target = {n: x.flatten(0, 1) for n, x in agent.tokenizer.targets(seen).items()}
        cost = agent.expected_free_energy(tokens)
        path = tokens, hidden, action[:, :-1], cost[:, 1:].detach()
        rollout = L.Rollout(*path, torch.full_like(path[3], 0.95), torch.ones_like(path[3]))
        parts = agent.policy, agent.value, agent.ema.value, ReturnRange(False).cuda()
        got = L.reconstruction_loss(flat, target).metrics
        world = L.world_model_loss(agent.world_model, Encoding(tokens), action)
        got |= world.metrics | L.self_prior_loss(agent.self_prior, agent.ema.self_prior, tokens).metrics
        got |= L.imagined_losses(*parts, rollout, 0.99, 3e-4, 1.0, ENTROPY_SAMPLES)[0].metrics
        return {n: x.item() for n, x in got.items()}

    exact = found()
    with torch.autocast("cuda", torch.bfloat16):
        rough = found()
    for n, value in exact.items():
        assert rough[n] == pytest.approx(value, rel=0.02, abs=0.02), n
