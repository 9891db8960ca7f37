import math

import pytest
import torch

from mirrormark.swift.fsq import FSQ, bin_centre, bin_index


def test_bins_round_trip():
    angles = torch.rand(1000) * 2 - 1
    assert (bin_centre(bin_index(angles, 32), 32) - angles).abs().max() <= 1 / 32 + 1e-6
    assert bin_index(torch.tensor([-1.0, 1.0, -3.0, 3.0]), 32).tolist() == [0, 31, 0, 31]


@pytest.mark.parametrize("levels", [(8, 4), (5, 5), (3,), (2, 3, 4)])
def test_all_classes_are_reachable_and_stand_for_what_was_rounded(levels):
    quantise = FSQ(levels)
    assert quantise.classes == math.prod(levels) == len(quantise.codebook.unique(dim=0))
    raw = torch.atanh(quantise.codebook.clamp(-0.999, 0.999))
    index, rounded, unrounded = quantise(raw)
    assert index.tolist() == list(range(quantise.classes))
    torch.testing.assert_close(rounded, quantise.codebook, atol=1e-5, rtol=0)
    torch.testing.assert_close(unrounded, raw.tanh())


@pytest.mark.parametrize("levels", [(5, 5, 5), (3,)])
def test_of_odd_levels_the_middle_class_is_exactly_inactive(levels):
    quantise = FSQ(levels)
    index, rounded, _ = quantise(torch.full((1, len(levels)), -0.01))
    assert index.item() == quantise.classes // 2
    torch.testing.assert_close(rounded, torch.zeros(1, len(levels)), atol=1e-6, rtol=0)


def test_the_gradient_goes_straight_through_the_rounding():
    quantise, raw = FSQ((5, 4)), torch.randn(6, 3, 2, requires_grad=True)
    _, rounded, unrounded = quantise(raw)
    pull = torch.randn(6, 3, 2)
    (got,) = torch.autograd.grad((rounded * pull).sum(), raw, retain_graph=True)
    (wanted,) = torch.autograd.grad((unrounded * pull).sum(), raw)
    torch.testing.assert_close(got, wanted)


def test_levels_of_one_are_refused():
    with pytest.raises(ValueError, match=r"tokenizer\.levels"):
        FSQ((5, 1))
