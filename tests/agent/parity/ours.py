"""Our agent as the public code has it, with weights, inputs and noise of the formula: every quantity that
public.npz holds, under the same name. The only place that knows how our parts are called and used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from mirrormark.agent import losses as L
from mirrormark.agent.acting import Actor
from mirrormark.agent.actor_critic import ENTROPY_SAMPLES
from mirrormark.agent.agent import Agent
from mirrormark.agent.numerics import ReturnRange, ZClip
from mirrormark.agent.senses import Senses, SenseSpec
from mirrormark.agent.tokenizer_paper import PaperTokenizer
from mirrormark.agent.tokens import TokenSpec, sample
from mirrormark.agent.world_model import imagine
from mirrormark.config import OptimizerConfig
from mirrormark.presets import PAPER_CODE
from mirrormark.training.build import build_agent
from mirrormark.training.optim import Optimizer
from tests.agent.parity import formula as F

SENSES: Senses = {"vision": SenseSpec("image", 64), "proprioception": SenseSpec("vector", F.JOINTS)}
LEARNING_RATE = 1e-3  # a hundred times less would drown in fp32's rounding of a weight
RANGE_BEFORE = (10.0, 40.0)
ACTING_STEPS, BODIES = 12, 2
NAMES = {
    "encoders.vision": "image_encoder",
    "encoders.proprioception": "joint_encoder",
    "inverse_mixers.vision": "image_inverse_mixer",
    "inverse_mixers.proprioception": "joint_inverse_mixer",
    "decoders.vision": "image_decoder",
    "decoders.proprioception": "joint_decoder",
}
"""Parts of our tokenizer -> their names in public.npz; all others are called alike."""

Quantities = dict[str, np.ndarray]


def fresh() -> Agent:
    """With weights as it starts with them."""
    return build_agent(PAPER_CODE.agent, SENSES, F.ACTIONS)


def build() -> Agent:
    """With the formula's weights, dropout off."""
    agent = fresh().eval()
    load(agent)
    return agent


@torch.no_grad()
def load(agent: Agent) -> None:
    """Give every parameter the formula's value."""
    for name, parameter in agent.named_parameters():
        parameter.copy_(torch.from_numpy(F.weight(tag(name), tuple(parameter.shape))))


def tag(name: str) -> str:
    """The name of one of our modules or parameters in public.npz."""
    for ours, public in NAMES.items():
        name = name.replace(f"tokenizer.{ours}", f"tokenizer.{public}")
    return name


@contextmanager
def noise(even: Iterable[str] = (), normal: Iterable[str] = ()) -> Iterator[None]:
    """The next random numbers are the formula's, of these tags in this order; none may be left over. What is
    imagined is drawn from the table of the mixture: `TokenSpec.sample` chooses a part of it first."""
    left = {"even": list(even), "normal": list(normal)}

    def next_of(kind: str, make: Callable) -> Callable:
        def draw(like: Tensor | torch.Size, **_: object) -> Tensor:
            shape = like.shape if isinstance(like, Tensor) else like
            return torch.from_numpy(make(left[kind].pop(0), tuple(shape)))

        return draw

    draw_even, draw_normal = next_of("even", F.uniform), next_of("normal", F.spread)
    with (
        mock.patch.multiple(torch, rand=draw_even, rand_like=draw_even),
        mock.patch.multiple(torch, randn=draw_normal, randn_like=draw_normal),
        mock.patch.object(
            TokenSpec, "sample", lambda spec, logits, unimix=0.0: sample(spec.log_probs(logits, unimix))
        ),
    ):
        yield
    assert not any(left.values()), f"noise that was not asked for: {left}"


def frames(name: str, *shape: int) -> dict[str, Tensor]:
    """What is seen and felt, (..., 64, 64, 3) and (..., J)."""
    vision = torch.from_numpy(F.image(f"{name}/vision", int(np.prod(shape))))
    joints = torch.from_numpy(F.even(f"{name}/proprioception", (*shape, F.JOINTS)))
    return {"vision": vision.permute(0, 2, 3, 1).reshape(*shape, 64, 64, 3), "proprioception": joints}


def measure() -> Quantities:
    """All of it."""
    agent, found = build(), {}
    for part in (_world, _self_prior, _behavior, _imagination, _acting, _numbers):
        part(agent, found)
        load(agent)
    return found


def _out(found: Quantities, name: str, x: Tensor) -> None:
    found[f"out/{name}"] = F.sketch(x.detach().numpy())


def _gradients(agent: Agent, found: Quantities, name: str, loss: Tensor) -> None:
    agent.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)
    for ours, parameter in agent.named_parameters():
        if parameter.grad is not None and parameter.grad.any():
            found[f"grad/{name}/{tag(ours)}"] = F.sketch(parameter.grad.numpy())


def _step(agent: Agent, found: Quantities, group: str, loss: Tensor, name: str | None = None) -> None:
    """One step of the group's optimiser: how far each parameter moves."""
    agent.zero_grad(set_to_none=True)
    loss.backward()
    own = {id(parameter) for parameter in agent.groups()[group]}
    named = {tag(n): p for n, p in agent.named_parameters() if id(p) in own}
    before = {n: p.detach().double().clone() for n, p in named.items()}
    eps = getattr(PAPER_CODE.training.optim, group).eps
    optimizer = Optimizer(group, agent.groups()[group], OptimizerConfig(LEARNING_RATE, eps=eps))
    found[f"norm/{name or group}"] = optimizer.step(loss).numpy()
    for n, p in named.items():
        found[f"step/{n}"] = F.sketch((p.detach().double() - before[n]).numpy())


def _follow(agent: Agent, found: Quantities, name: str) -> None:
    """One step of the slow copy."""
    slow = dict(getattr(agent.ema, name).named_parameters())
    before = {n: p.detach().double().clone() for n, p in slow.items()}
    agent.update_ema([name])
    for n, p in slow.items():
        found[f"ema/ema.{name}.{n}"] = F.sketch((p.detach().double() - before[n]).numpy())


def _world(agent: Agent, found: Quantities) -> None:
    """E1, E2, E8, E9."""
    tokenizer, world_model = agent.tokenizer, agent.world_model
    assert isinstance(tokenizer, PaperTokenizer)
    seen = frames("world", F.SEQUENCES, F.FRAMES)
    action = torch.from_numpy(F.even("world/action", (F.SEQUENCES, F.FRAMES, F.ACTIONS)))
    flat = {name: x.flatten(0, 1) for name, x in seen.items()}
    with noise(["world/posterior"]):
        encoding = agent.encode(seen)
    assert encoding.log_probs is not None
    embedding = tokenizer._embed(flat)
    _out(found, "image_embedding", tokenizer.encoders["vision"](flat["vision"]))
    _out(found, "joint_embedding", tokenizer.encoders["proprioception"](flat["proprioception"]))
    _out(found, "embedding", embedding)
    _out(found, "posterior", encoding.log_probs)
    found["out/tokens"] = encoding.tokens.numpy()
    decoded, auxiliary = agent.decode(encoding.tokens), _decoded(tokenizer, embedding)
    for prefix, painted in (("", decoded), ("auxiliary_", auxiliary)):
        _out(found, f"{prefix}vision", painted["vision"].movedim(-1, -3))  # channels first
        _out(found, f"{prefix}joints", painted["proprioception"])
    pairs = torch.cat((agent.spec.one_hot(encoding.inputs), action), -1)
    _out(found, "mixed", world_model.action_mixer(pairs))
    hidden = world_model(encoding.inputs, action)
    _out(found, "hidden", hidden)
    _out(found, "prior", world_model.log_probs(hidden))

    def divergence(dynamics: float, representation: float, free_nats: float = 1.0) -> Tensor:
        weights: dict[str, Any] = {"BETA_DYN": dynamics, "BETA_REP": representation, "FREE_NATS": free_nats}
        with mock.patch.multiple(L, **weights):
            return L.world_model_loss(world_model, encoding, action).value

    targets = tokenizer.targets(flat)
    one_hot = agent.spec.one_hot(encoding.inputs).flatten(0, 1)
    terms = {
        "reconstruction": L.reconstruction_loss(tokenizer._decode(one_hot), targets).value,
        "auxiliary": L.reconstruction_loss(_decoded(tokenizer, embedding.detach()), targets).value,
        "dynamics": divergence(1, 0),
        "representation": divergence(0, 1),
        "dynamics_below_100": divergence(1, 0, 100.0),
    }
    for name, loss in terms.items():
        found[f"loss/{name}"] = loss.detach().numpy()
        _gradients(agent, found, name, loss)
    with noise(["world/posterior"]):
        encoding, reconstruction = agent.encode_with_loss(seen)
    loss = (reconstruction + L.world_model_loss(world_model, encoding, action)).value
    found["loss/world"] = loss.detach().numpy()
    _step(agent, found, "world_model", loss, "world")


def _decoded(tokenizer: PaperTokenizer, embedding: Tensor) -> dict[str, Tensor]:
    """Both decoders of the mixer's embedding, past the inverse mixers (D4)."""
    return tokenizer._decoded(dict.fromkeys(SENSES, embedding))


def _self_prior(agent: Agent, found: Quantities) -> None:
    """E3, E7, E10."""
    with noise(["diet/posterior"]):
        tokens = agent.tokens_of(frames("diet", F.SEQUENCES, F.FRAMES))
    found["out/diet_tokens"] = tokens.numpy()
    _out(found, "self_prior", agent.self_prior.log_probs(tokens))
    _out(found, "free_energy", agent.expected_free_energy(tokens))
    loss = L.self_prior_loss(agent.self_prior, agent.ema.self_prior, tokens).value
    found["loss/self_prior"] = loss.detach().numpy()
    _gradients(agent, found, "self_prior", loss)
    _step(agent, found, "self_prior", loss)
    _follow(agent, found, "self_prior")


def _behavior(agent: Agent, found: Quantities) -> None:
    """E4, E11, on latent states that nothing has imagined."""
    imagination = agent.config.imagination
    paths, steps = F.PATHS, F.HORIZON
    words = F.bits("behaviour/tokens", paths * (steps + 1) * 32) % np.uint64(32)
    tokens = torch.from_numpy(words.astype(np.int64).reshape(paths, steps + 1, 32))
    hidden = torch.from_numpy(F.spread("behaviour/hidden", (paths, steps + 1, 512)))
    raw = torch.from_numpy(np.float32(0.8) * F.spread("behaviour/raw", (paths, steps, F.ACTIONS)))
    cost = torch.from_numpy(60 + 20 * F.even("behaviour/cost", (paths, steps)))
    weight = L.discounts(steps, imagination.discount, cost).expand_as(cost)
    rollout = L.Rollout(tokens, hidden, raw, cost, torch.full_like(cost, L.LAMBDA), weight)
    whole, acted = agent.policy(tokens, hidden), agent.policy(tokens[:, :-1], hidden[:, :-1])
    _out(found, "policy_mean", whole.mean)
    _out(found, "policy_std", whole.std)
    _out(found, "log_prob", acted.log_prob(raw))
    with noise(normal=["behaviour/entropy"]):
        _out(found, "entropy", acted.entropy(ENTROPY_SAMPLES))
    _out(found, "value_logits", agent.value.logits(tokens, hidden))
    _out(found, "slow_value", agent.ema.value(tokens, hidden))
    inputs = agent.spec.one_hot(tokens)
    _, value, returns = L.critic_loss(
        agent.value, agent.ema.value, rollout, inputs, imagination.discount, pull=1.0
    )
    _out(found, "value", value)
    _out(found, "lambda_return", returns)
    spread = ReturnRange(from_zero=True)
    spread.ends.copy_(torch.tensor(RANGE_BEFORE))
    with noise(normal=["behaviour/entropy"]):
        losses = L.imagined_losses(
            agent.policy,
            agent.value,
            agent.ema.value,
            spread,
            rollout,
            imagination.discount,
            imagination.entropy,
            pull=1.0,
            samples=ENTROPY_SAMPLES,
        )
    found["range"] = losses[0].metrics["return_range"].numpy()
    for name, loss in zip(("policy", "value"), losses):
        found[f"loss/{name}"] = loss.value.detach().numpy()
        _gradients(agent, found, name, loss.value)
        _step(agent, found, name, loss.value)
    _follow(agent, found, "value")


@torch.no_grad()
def _imagination(agent: Agent, found: Quantities) -> None:
    """From 8 real pairs, with a cache; and the same path in one pass."""
    with noise(["dream/posterior"]):
        tokens = agent.tokens_of(frames("dream", F.PATHS, F.CONTEXT))
    found["out/context_tokens"] = tokens.numpy()
    action = torch.from_numpy(F.even("dream/action", (F.PATHS, F.CONTEXT, F.ACTIONS)))
    even = [f"dream/{t}" for t in range(F.HORIZON + 1)]
    with noise(even, [f"dream/noise/{t}" for t in range(F.HORIZON)]):
        path = imagine(agent.world_model, agent.policy, tokens, action, F.HORIZON, agent.start)
    found["out/dream_tokens"] = path.tokens.numpy()
    _out(found, "dream_hidden", path.hidden)
    _out(found, "dream_action", path.action.tanh())
    _out(found, "dream_free_energy", agent.cost(path.tokens[:, 1:], path.hidden[:, 1:]))
    whole = torch.cat((tokens, path.tokens[:, :-1]), 1), torch.cat((action, path.action.tanh()), 1)
    hidden = agent.world_model(*whole)[:, F.CONTEXT - 1 :]
    found["cached_against_full"] = np.array(F.relative_error(path.hidden.numpy(), hidden.numpy()))


@torch.no_grad()
def _acting(agent: Agent, found: Quantities) -> None:
    """On a prior sample after at most 8 past pairs, at random before the first (D10, De)."""
    actor = Actor(agent, BODIES)
    actions, energy = [], torch.zeros(BODIES)
    for t in range(ACTING_STEPS):
        even = [f"act/posterior/{t}", f"act/prior/{t}" if t else "act/random/0"]
        with noise(even, [f"act/noise/{t}"]):
            actions.append(actor.act(frames_of_acting(t)))
        energy += torch.from_numpy(actor.expected_free_energy)
    found["out/acting"] = np.stack(actions)
    found["out/acting_free_energy"] = energy.numpy()


def frames_of_acting(t: int) -> dict[str, Tensor]:
    """What the bodies sense at control step t."""
    vision = torch.from_numpy(F.image(f"act/vision/{t}", BODIES)).permute(0, 2, 3, 1)
    joints = torch.from_numpy(F.even(f"act/proprioception/{t}", (BODIES, F.JOINTS)))
    return {"vision": vision, "proprioception": joints}


def _numbers(agent: Agent, found: Quantities) -> None:
    """ZClip over a sequence of norms, and the percentiles' averages."""
    zclip, rows = ZClip().double(), []
    for norm in torch.from_numpy(norms()):
        factor = zclip.factor(norm, trusted=torch.tensor(True))
        seen = zclip.count >= zclip.warmup_steps  # the public code has no averages before
        rows.append([float(factor), float(zclip.mean * seen), float(zclip.variance * seen)])
    found["zclip/seen"] = np.array(rows)
    spread, rows = ReturnRange(from_zero=True), []
    for i in range(12):
        spread.update(torch.from_numpy(200 * F.even(f"percentile/{i}", (F.PATHS, F.HORIZON)) + 10 * i))
        rows.append(spread.ends.tolist())
    found["percentile/ends"] = np.array(rows)


def norms() -> np.ndarray:
    """80 norms of gradients: above the cap, below it, and spikes."""
    all_of_them = 3 * F.uniform("zclip", (80,)).astype(np.float64) + 0.2
    all_of_them[40:60] *= 0.1
    all_of_them[[30, 45, 52, 53, 70]] *= 12
    return all_of_them
