import torch

from mirrormark.agent.drive import NoDrive, SelfPriorDrive
from tests.agent.tiny import paper_agent, random_tokens


def test_the_papers_drive_is_the_surprise_of_each_frame():
    """E7."""
    agent = paper_agent()
    tokens, hidden = random_tokens(agent, 3, 2), torch.zeros(3, 2, 16)
    assert isinstance(agent.drive, SelfPriorDrive)
    torch.testing.assert_close(agent.cost(tokens, hidden), -agent.self_prior.log_prob(tokens))


def test_no_drive_costs_nothing_and_leaves_g_to_be_measured():
    agent = paper_agent(drive="none")
    tokens, hidden = random_tokens(agent, 3, 2), torch.zeros(3, 2, 16)
    assert isinstance(agent.drive, NoDrive)
    assert torch.equal(agent.cost(tokens, hidden), torch.zeros(3, 2))
    assert (agent.expected_free_energy(tokens) > 0).all()


def test_neither_learns():
    for drive in ("self_prior", "none"):
        agent = paper_agent(drive=drive)
        nothing = torch.zeros(1, dtype=torch.int64)
        tokens, action = random_tokens(agent, 1, 4), torch.zeros(1, 4, 3)
        assert agent.drive.loss(agent, tokens, action, nothing, nothing) is None
        assert "drive" not in agent.groups()
