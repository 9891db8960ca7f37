import pytest
import torch
from tiny_agents import PAPER_PIXELS, PIXELS, observe, tiny_agent

from mirrormark.agent.completion import complete_senses


def test_tokens_of_known_senses_stay_and_the_others_do_not_depend_on_what_was_seen():
    agent = tiny_agent("grid")
    observation = observe(PIXELS, 4)
    tokens = agent.encode(observation).tokens
    torch.manual_seed(1)
    first = complete_senses(agent, observation, {"proprioception"})
    assert torch.equal(first[:, :3], tokens[:, :3]) and not torch.equal(first[:, 3:], tokens[:, 3:])
    other = {**observation, "vision": observe(PIXELS, 4)["vision"]}
    torch.manual_seed(1)
    assert torch.equal(first, complete_senses(agent, other, {"proprioception"}))


@pytest.mark.parametrize("method", ["ancestral", "gibbs"])
def test_joints_can_be_completed_from_vision(method):
    agent = tiny_agent("grid")
    observation = observe(PIXELS, 2)
    filled = complete_senses(agent, observation, ["vision"], method, sweeps=1)
    assert torch.equal(filled[:, 3:], agent.encode(observation).tokens[:, 3:])


def test_mixed_codes_are_blanked_before_encoding():
    """The unknown sense cannot leak: two images give the same completion."""
    agent = tiny_agent("categorical")
    groups = []
    joints = observe(PAPER_PIXELS, 3)["proprioception"]
    for _ in range(2):
        observation = {"vision": observe(PAPER_PIXELS, 3)["vision"], "proprioception": joints}
        torch.manual_seed(1)
        groups.append(complete_senses(agent, observation, ["proprioception"]))
    assert torch.equal(*groups)


def test_unknown_sense_says_so():
    with pytest.raises(ValueError, match="no such senses"):
        complete_senses(tiny_agent("grid"), observe(PIXELS, 1), ["smell"])
