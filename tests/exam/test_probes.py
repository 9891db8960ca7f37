"""What the self-prior has learned: probes of small agents, and of made-up ones whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mirrormark.config import CategoricalTokenizerConfig
from mirrormark.exam import candidates, probes
from mirrormark.presets import PAPER, SMOKE
from mirrormark.training.env_config import build_agent


@pytest.fixture(scope="module")
def agent():
    torch.set_num_threads(1)
    return candidates.untrained("smoke")


def test_mark_share_is_one_for_the_mark_and_zero_without():
    mark = torch.zeros(2, 4, 4, 3)
    mark[:, 1, 1] = 0.5
    bare = torch.rand(2, 4, 4, 3)
    assert probes.mark_share(bare + mark, bare, mark) == pytest.approx(1.0)
    assert probes.mark_share(bare, bare, mark) == 0.0


_SMALL = CategoricalTokenizerConfig(variables=4, classes=4, embedding=64, channels=2)
AGENTS = {
    "grid": SMOKE.agent,
    "categorical": replace(PAPER.agent, tokenizer=_SMALL, world_model=SMOKE.agent.world_model),
}


@pytest.mark.parametrize("kind", AGENTS)
def test_probes_of_every_tokenizer_give_their_numbers(agent, kind):
    other = build_agent(AGENTS[kind], agent.setup.make_envs(1)).eval()
    numbers, pictures = probes.probe(other, agent.setup)
    assert numbers["proprioception_from_vision"] == ("chosen" if kind == "grid" else "completed")
    assert numbers["frames"] > 20
    assert set(numbers["mark_erased"]) == {"through the self-prior", "surprising tokens redrawn"}
    assert set(numbers["proprioception_from_vision_rad"]) == {"encoder only", "self-prior", "chance"}
    assert 0.01 < numbers["proprioception_from_vision_rad"]["chance"] < 1.5
    assert all(
        picture.dtype == np.uint8 and picture.shape[1:] == (64, 64, 3) for picture in pictures.values()
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_the_chosen_posture_is_the_most_familiar_one(agent, monkeypatch, sign):
    """A self-prior that knows the truth errs by no more than a bin; one that wants the opposite errs most."""
    angles = agent.agent.tokenizer.slices["proprioception"]

    def log_prob(tokens):
        known = tokens[:, angles].view(probes.RUNS, probes.POSTURES, -1).float()
        away = (known - known[:, probes.POSTURES // 2, None]).abs().sum(-1)
        return -sign * away.flatten()

    monkeypatch.setattr(agent.agent.self_prior, "log_prob", log_prob)
    found = probes.chosen_angles(agent.agent, agent.setup)
    assert found["self-prior"] <= 0.3 * found["chance"] if sign > 0 else found["self-prior"] > found["chance"]


def test_vision_from_angles_sees_nothing_of_its_own_frame(agent):
    """Two frames that differ only in their pictures get the same tokens, but for the room of the other."""
    frames = probes.paired(agent.agent, agent.setup, 0).bare
    torch.manual_seed(0)
    ours = probes._vision_given_angles(agent.agent, agent.agent.tokenizer, frames)
    torch.manual_seed(0)
    black = frames | {"vision": torch.zeros_like(frames["vision"])}
    theirs = probes._vision_given_angles(agent.agent, agent.agent.tokenizer, black)
    for name, tokens in ours.items():
        assert torch.equal(tokens, theirs[name]), name


def test_a_dream_begins_while_the_mark_is_on(agent):
    """Also where the best run removed it before the dream's past was full."""
    rng = np.random.default_rng(0)
    kept = {
        "removed_s": np.array([0.3, 0.6, np.nan]),
        "actions": rng.uniform(-1, 1, (3, 100, agent.agent.actions)),
    }
    kept["actions"] = kept["actions"].astype(np.float32)
    kept["sense/vision"] = rng.integers(0, 255, (3, 100, 64, 64, 3), np.uint8)
    kept["sense/proprioception"] = rng.uniform(-1, 1, (3, 100, agent.agent.actions)).astype(np.float32)
    found = probes.dream_strip(agent.agent, kept)
    assert np.array_equal(found["dream/real"][0], kept["sense/vision"][1, 3])  # 0.15 s: before 0.6 s
    assert found["dream/dreamed"].shape == found["dream/real"].shape
