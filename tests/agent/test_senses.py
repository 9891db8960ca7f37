import pytest
import torch

from mirrormark.agent.senses import centred_image, lead_shape
from tests.agent.tiny import SENSES, observe


def test_leading_axes():
    assert lead_shape(observe(SENSES, 2, 5), SENSES) == (2, 5)


def test_images_are_centred():
    assert centred_image(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-0.5, 0.5]
    assert centred_image(torch.tensor([0.0, 1.0])).tolist() == [-0.5, 0.5]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"vision": torch.zeros(2, 64, 64, 4)}, "must end in"),
        ({"vision": torch.zeros(2, 64, 64, 3, dtype=torch.int64)}, "wrong dtype"),
        ({"proprioception": torch.zeros(3, 3)}, "leading axes"),
        ({"proprioception": torch.zeros(2, 3, dtype=torch.int64)}, "wrong dtype"),
        ({"proprioception": None}, "lacks the senses"),
        ({"smell": torch.zeros(2, 3)}, r"\['smell'\] unknown to this agent"),
    ],
)
def test_clear_sentences_for_impossible_observations(change, sentence):
    observation = {k: v for k, v in {**observe(SENSES, 2), **change}.items() if v is not None}
    with pytest.raises(ValueError, match=sentence):
        lead_shape(observation, SENSES)
