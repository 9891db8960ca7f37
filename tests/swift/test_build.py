from dataclasses import replace

import pytest
import torch

from mirrormark.agent.drive import NoDrive, SelfPriorDrive
from mirrormark.config import (
    ExpectedGConfig,
    GridTokenizerConfig,
    ImaginationConfig,
    OnPolicyConfig,
    SwiftAgentConfig,
    WorldModelConfig,
)
from mirrormark.swift.build import sources
from mirrormark.swift.expected_g import ExpectedG
from mirrormark.swift.on_policy import OnPolicy
from mirrormark.training.behavior import Imagination
from tests.agent.tiny import last_layer, random_tokens
from tests.swift.tiny import swift_agent


@pytest.mark.parametrize(
    ("fields", "drive"),
    [
        ({}, ExpectedG),
        ({"expected_g": ExpectedGConfig(control_steps=0)}, SelfPriorDrive),
        ({"drive": "none"}, NoDrive),
    ],
)
def test_drives(fields, drive):
    assert isinstance(swift_agent(**fields).drive, drive)


def test_real_episodes_come_beside_imagination_in_their_shares():
    agent = swift_agent(on_policy=OnPolicyConfig(0.97, 0.9, windows=5))
    assert isinstance(agent.config, SwiftAgentConfig)
    real, imagined = sources(agent, agent.config, 7)
    assert isinstance(real, OnPolicy) and isinstance(imagined, Imagination)
    assert (real.windows, imagined.paths, imagined.horizon) == (5, 7, 5)
    assert (real.policy_share, real.value_share) == (0.97, 0.9)
    assert real.policy_share + imagined.policy_share == real.value_share + imagined.value_share == 1
    (alone,) = sources(agent, replace(agent.config, on_policy=None), 7)
    assert isinstance(alone, Imagination) and alone.policy_share == alone.value_share == 1


@torch.no_grad()
def test_the_policy_reaches_full_strength_within_its_bounds():
    """D20: no bound on the mean; a standard deviation from .1 to 1, near the widest at first."""
    agent = swift_agent()
    tokens, hidden = random_tokens(agent, 4), torch.zeros(4, 16)
    assert (agent.policy(tokens, hidden).std > 0.8).all()
    last_layer(agent.policy).bias.fill_(50.0)
    choice = agent.policy(tokens, hidden)
    assert (choice.mean.tanh() > 0.99).all() and (choice.std <= 1).all()
    last_layer(agent.policy).bias.fill_(-50.0)
    assert (agent.policy(tokens, hidden).std >= 0.1).all()


@torch.no_grad()
def test_values_of_both_signs_are_means():
    """Bins even in nats."""
    agent = swift_agent()
    two_hot = agent.value.two_hot
    seen = torch.tensor([-50.0, 10.0])
    assert two_hot.decode(two_hot.encode(seen).mean(0).log()).item() == pytest.approx(-20, abs=0.1)


def test_an_acting_agent_keeps_what_it_is_told_or_what_imagination_has():
    assert swift_agent(acting_context=0).acting_context == 4 - 1 + 5
    assert swift_agent(acting_context=12).acting_context == 12


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"acting_context": 20}, "acting_context is 20"),
        ({"posture_precision": -1.0}, "posture_precision"),
        ({"value_reach": 0.0}, "value_reach"),
        ({"imagination": ImaginationConfig(horizon=5, context=1)}, "at least 2 with on_policy"),
        ({"world_model": WorldModelConfig(16, 2, 2, 32, max_length=8)}, "does not fit"),
    ],
)
def test_impossible_numbers_say_so(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        swift_agent(**fields)


def test_the_tokenizer_learns_apart():
    agent = swift_agent("grid")
    assert isinstance(agent.config.tokenizer, GridTokenizerConfig) and not agent.joint
    own = {id(p) for p in agent.groups()["tokenizer"]}
    assert own == {id(p) for p in agent.tokenizer.parameters()}
    assert not own & {id(p) for p in agent.groups()["world_model"]}
    assert "tokenizer" not in swift_agent("symbolic").groups()
