"""What the self-prior has learned: probes of small minds, and of made-up ones whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mirrormark.exam import crossing, probes, subjects
from mirrormark.life.setup import build_mind
from mirrormark.mind.codec import CodecConfig


@pytest.fixture(scope="module")
def mind():
    torch.set_num_threads(1)
    return subjects.untrained("smoke")


def test_painted_is_one_for_the_mark_and_zero_without():
    mark = torch.zeros(2, 4, 4, 3)
    mark[:, 1, 1] = 0.5
    bare = torch.rand(2, 4, 4, 3)
    assert probes.painted(bare + mark, bare, mark) == pytest.approx(1.0)
    assert probes.painted(bare, bare, mark) == 0.0


CODECS = {
    "senses": {},
    "categorical": {"codec": CodecConfig("categorical", variables=4, classes=4, channels=2, embedding=64)},
}


@pytest.mark.parametrize("kind", CODECS)
def test_probes_of_every_codec_give_their_numbers(mind, kind):
    even = replace(mind.mind.config.imagination, posture_precision=1.0)  # mixed tokens cannot be weighed
    other = build_mind(
        replace(mind.mind.config, imagination=even, **CODECS[kind]), mind.setup.worlds(1)
    ).eval()
    numbers, pictures = probes.probe(other, mind.setup)
    assert numbers["proprioception_from_vision"] == ("chosen" if kind == "senses" else "completed")
    assert numbers["frames"] > 20
    assert set(numbers["mark_erased"]) == {"through the self-prior", "surprising tokens redrawn"}
    assert set(numbers["proprioception_from_vision_rad"]) == {"encoder only", "self-prior", "chance"}
    assert 0.01 < numbers["proprioception_from_vision_rad"]["chance"] < 1.5
    assert all(
        picture.dtype == np.uint8 and picture.shape[1:] == (64, 64, 3) for picture in pictures.values()
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_the_chosen_posture_is_the_most_familiar_one(mind, monkeypatch, sign):
    """A self-prior that knows the truth errs by no more than a bin; one that wants the opposite errs most."""
    angles = mind.mind.codec.tokens["proprioception"]

    def knows(latent):
        tokens = latent[:, angles].view(crossing.RUNS, crossing.POSTURES, -1).float()
        away = (tokens - tokens[:, crossing.POSTURES // 2, None]).abs().sum(-1)
        return -sign * away.flatten()

    monkeypatch.setattr(mind.mind.self_prior, "log_prob", knows)
    found = crossing.chosen_angles(mind.mind, mind.setup)
    assert found["self-prior"] <= 0.3 * found["chance"] if sign > 0 else found["self-prior"] > found["chance"]


def test_vision_from_angles_sees_nothing_of_its_own_frame(mind):
    """Two frames that differ only in their pictures get the same latents, but for the room of the other."""
    frames = probes.paired(mind.mind, mind.setup, 0).bare
    torch.manual_seed(0)
    ours = crossing._vision_given_angles(mind.mind, mind.mind.codec, frames)
    torch.manual_seed(0)
    black = frames | {"vision": torch.zeros_like(frames["vision"])}
    theirs = crossing._vision_given_angles(mind.mind, mind.mind.codec, black)
    for name, latent in ours.items():
        assert torch.equal(latent, theirs[name]), name


def test_a_dream_begins_while_the_mark_is_on(mind):
    """Also where the best run removed it before the dream's past was full."""
    rng = np.random.default_rng(0)
    kept = {
        "removed_s": np.array([0.3, 0.6, np.nan]),
        "actions": rng.uniform(-1, 1, (3, 100, mind.mind.actions)),
    }
    kept["actions"] = kept["actions"].astype(np.float32)
    kept["sense/vision"] = rng.integers(0, 255, (3, 100, 64, 64, 3), np.uint8)
    kept["sense/proprioception"] = rng.uniform(-1, 1, (3, 100, mind.mind.actions)).astype(np.float32)
    found = probes.dream_strip(mind.mind, kept)
    assert np.array_equal(found["dream/real"][0], kept["sense/vision"][1, 3])  # 0.15 s: before 0.6 s
    assert found["dream/dreamed"].shape == found["dream/real"].shape
