import pytest
import torch

from mirrormark.agent.completion import complete_senses
from tests.agent.tiny import SENSES, observe, paper_agent
from tests.swift.tiny import PIXELS, swift_agent


def test_tokens_of_known_senses_stay_and_the_others_do_not_depend_on_what_was_seen():
    agent, observation = swift_agent("grid"), observe(PIXELS, 4)
    tokens = agent.encode(observation).tokens
    torch.manual_seed(1)
    first = complete_senses(agent, observation, {"proprioception"})
    assert torch.equal(first[:, :3], tokens[:, :3]) and not torch.equal(first[:, 3:], tokens[:, 3:])
    other = {**observation, "vision": observe(PIXELS, 4)["vision"]}
    torch.manual_seed(1)
    assert torch.equal(first, complete_senses(agent, other, {"proprioception"}))


@pytest.mark.parametrize("method", ["ancestral", "gibbs"])
def test_joints_can_be_completed_from_vision(method):
    agent, observation = swift_agent("grid"), observe(PIXELS, 2)
    filled = complete_senses(agent, observation, ["vision"], method, sweeps=1)
    assert torch.equal(filled[:, 3:], agent.encode(observation).tokens[:, 3:])


def test_mixed_codes_are_blanked_before_encoding():
    """The unknown sense cannot leak: two images give the same completion, two postures do not."""
    agent, found = paper_agent(), []
    joints = observe(SENSES, 64)["proprioception"]
    for felt in (joints, joints, -joints):
        observation = {"vision": observe(SENSES, 64)["vision"], "proprioception": felt}
        torch.manual_seed(1)
        found.append(complete_senses(agent, observation, ["proprioception"]))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_unknown_sense_says_so():
    with pytest.raises(ValueError, match="no such senses"):
        complete_senses(swift_agent("grid"), observe(PIXELS, 1), ["smell"])
