import pytest
import torch
from tiny_agents import PAPER_PIXELS, PIXELS, observe, tiny_mind

from mirrormark.agent.completion import complete_senses


def test_tokens_of_known_senses_stay_and_the_others_do_not_depend_on_what_was_seen():
    mind = tiny_mind("senses")
    observation = observe(PIXELS, 4)
    latent = mind.encode(observation).latent
    torch.manual_seed(1)
    first = complete_senses(mind, observation, {"proprioception"})
    assert torch.equal(first[:, :3], latent[:, :3]) and not torch.equal(first[:, 3:], latent[:, 3:])
    other = {**observation, "vision": observe(PIXELS, 4)["vision"]}
    torch.manual_seed(1)
    assert torch.equal(first, complete_senses(mind, other, {"proprioception"}))


@pytest.mark.parametrize("method", ["ancestral", "gibbs"])
def test_joints_can_be_completed_from_vision(method):
    mind = tiny_mind("senses")
    observation = observe(PIXELS, 2)
    filled = complete_senses(mind, observation, ["vision"], method, sweeps=1)
    assert torch.equal(filled[:, 3:], mind.encode(observation).latent[:, 3:])


def test_mixed_codes_are_blanked_before_encoding():
    """The unknown sense cannot leak: two images give the same completion."""
    mind = tiny_mind("categorical")
    runs = []
    joints = observe(PAPER_PIXELS, 3)["proprioception"]
    for _ in range(2):
        observation = {"vision": observe(PAPER_PIXELS, 3)["vision"], "proprioception": joints}
        torch.manual_seed(1)
        runs.append(complete_senses(mind, observation, ["proprioception"]))
    assert torch.equal(*runs)


def test_unknown_sense_says_so():
    with pytest.raises(ValueError, match="no such senses"):
        complete_senses(tiny_mind("senses"), observe(PIXELS, 1), ["smell"])
