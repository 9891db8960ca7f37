"""Expected G: what usually follows, learned from motor babbling alone."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor

from mirrormark.agent.agent import Agent
from mirrormark.agent.losses import Loss
from mirrormark.config import ExpectedGConfig
from mirrormark.swift import expected_g
from mirrormark.swift.expected_g import ExpectedG
from tests.agent.tiny import random_actions, random_tokens
from tests.swift.tiny import swift_agent

STEPS = 3  # of tiny agents


def windows(agent: Agent, n: int = 2, frames: int = 10) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return random_tokens(agent, n, frames), random_actions(n, frames)


def loss(agent: Agent, tokens: Tensor, action: Tensor, start: list[int], handover: list[int]) -> Loss:
    found = agent.drive.loss(agent, tokens, action, torch.tensor(start), torch.tensor(handover))
    assert found is not None
    return found


def asked(agent: Agent, *window) -> tuple[Tensor, Tensor]:
    """Target and weight that the head is taught by."""
    seen = {}
    assert isinstance(agent.drive, ExpectedG)
    cross_entropy, normalised = agent.drive.head.two_hot.cross_entropy, expected_g.normalised

    def taught(logits, target):
        seen["target"] = target
        return cross_entropy(logits, target)

    def weighed(counts):
        seen["weight"] = normalised(counts)
        return seen["weight"]

    with (
        mock.patch.object(agent.drive.head.two_hot, "cross_entropy", taught),
        mock.patch.object(expected_g, "normalised", weighed),
    ):
        loss(agent, *window)
    return seen["target"], seen["weight"]


def test_it_is_taught_the_mean_of_what_followed():
    agent = swift_agent()
    tokens, action = windows(agent)
    target, _ = asked(agent, tokens, action, [0, 0], [0, 0])
    g = agent.expected_free_energy(tokens).detach()
    assert target.shape == (2, 10 - STEPS)
    for now in range(10 - STEPS):
        torch.testing.assert_close(target[:, now], g[:, now + 1 : now + 1 + STEPS].mean(1))


def test_only_what_came_of_babbling_counts():
    agent = swift_agent()  # a context of 4 frames
    _, weight = asked(agent, *windows(agent, 4), [0, 7, 0, 7], [0, 0, 5, 99])
    assert (weight[0] > 0).all()  # babbling from the episode's first frame on
    assert not weight[1, :3].any() and (weight[1, 3:] > 0).all()  # less of the past than an acting agent has
    assert not weight[2, :5].any() and (weight[2, 5:] > 0).all()  # the handover is at frame 5
    assert not weight[3].any()  # there is none
    assert weight.mean().item() == pytest.approx(1.0)
    assert loss(agent, *windows(agent), [0, 0], [99, 99]).value == 0  # and no division by nothing


def test_it_is_the_cost():
    agent, plain = swift_agent(), swift_agent(expected_g=ExpectedGConfig(control_steps=0))
    tokens, action = windows(agent)
    hidden = agent.hidden_of(tokens, action)
    assert isinstance(agent.drive, ExpectedG)
    torch.testing.assert_close(agent.cost(tokens, hidden), agent.drive.head(tokens, hidden))
    torch.testing.assert_close(plain.cost(tokens, hidden), plain.expected_free_energy(tokens))
    assert "drive" in agent.groups() and "drive" not in plain.groups()


def test_it_learns_what_follows_and_touches_nothing_else():
    """Two pasts, of which one is followed by more."""
    agent = swift_agent()
    tokens, action = windows(agent, 2, 12)
    g = torch.tensor([[5.0], [20.0]]).expand(2, 12)
    adam = torch.optim.Adam(agent.drive.parameters(), 1e-2)
    found = Loss(torch.zeros(()), {})
    with mock.patch.object(agent, "expected_free_energy", return_value=g):
        for _ in range(120):
            found = loss(agent, tokens, action, [0, 0], [0, 0])
            adam.zero_grad()
            found.value.backward()
            adam.step()
    told = agent.cost(tokens, agent.hidden_of(tokens, action))[:, : 12 - STEPS]
    assert (told[0] - 5).abs().max() < 2 and (told[1] - 20).abs().max() < 2
    assert found.metrics["expected_g_explained_variance"] > 0.9
    others = [p for name, p in agent.named_parameters() if not name.startswith("drive.")]
    assert all(p.grad is None for p in others)


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="control_steps"):
        ExpectedGConfig(control_steps=-1)
    with pytest.raises(ValueError, match=r"expected_g\.bins"):
        ExpectedGConfig(bins=1)
