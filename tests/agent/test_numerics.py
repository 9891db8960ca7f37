import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mirrormark.agent.numerics import ReturnRange, TwoHot, ZClip, ema_update, symexp, symlog


@given(st.floats(-1e5, 1e5))
def test_symexp_undoes_symlog(x):
    value = torch.tensor(x, dtype=torch.float64)
    assert torch.isclose(symexp(symlog(value)), value, rtol=1e-9, atol=1e-9)


@given(st.floats(-3e4, 3e4))
def test_two_hot_round_trip(x):
    """The two-hot of x, read as probabilities, decodes to x (the expected bin is exact in symlog space)."""
    two_hot = TwoHot()
    weights = two_hot.encode(torch.tensor(x))
    assert torch.isclose(weights.sum(), torch.tensor(1.0), atol=1e-4) and (weights > 0).sum() <= 2
    assert torch.isclose(two_hot.decode(weights.log()), torch.tensor(x), rtol=2e-3, atol=2e-3)


def test_two_hot_holds_the_ends():
    two_hot = TwoHot(11, -2, 2)
    assert two_hot.encode(torch.tensor([1e9, -1e9])).argmax(-1).tolist() == [10, 0]


def test_linear_bins_learn_the_mean_where_symlog_ones_do_not():
    """Returns of -500 and +100, equally often: their mean is -200."""
    seen = torch.tensor([-500.0, 100.0])
    linear, symlogged = TwoHot(255, -1000, 1000, linear=True), TwoHot()
    learned = [two_hot.decode(two_hot.encode(seen).mean(0).log()) for two_hot in (linear, symlogged)]
    assert learned[0] == pytest.approx(-200, abs=1) and learned[1] > -50
    assert linear.decode(linear.encode(torch.tensor(37.0)).log()) == pytest.approx(37, abs=0.1)


def test_two_hot_cross_entropy_is_least_at_the_target():
    two_hot = TwoHot()
    right, wrong = (
        two_hot.encode(torch.tensor(5.0)).add(1e-4).log(),
        two_hot.encode(torch.tensor(9.0)).add(1e-4).log(),
    )
    assert two_hot.cross_entropy(right, torch.tensor(5.0)) < two_hot.cross_entropy(wrong, torch.tensor(5.0))


@pytest.mark.parametrize("from_zero", [False, True])
def test_the_range_of_returns_starts_at_the_first_batch_or_at_zero_and_is_smoothed(from_zero):
    """P4."""
    spread = ReturnRange(from_zero, 0.1, 1.0, decay=0.9)
    first, second = torch.arange(1.0, 11.0), torch.arange(1.0, 11.0) * 2
    now = 0.9 if from_zero else 9.0  # 10 - 1
    assert spread.update(first).item() == pytest.approx(now)
    assert spread.update(second).item() == pytest.approx(0.9 * now + 0.1 * 18)


@given(st.integers(20, 400))
def test_a_percentile_is_a_member_of_the_batch(n):
    """P6: the ⌊q·n⌋-th smallest."""
    returns = torch.randn(n, generator=torch.Generator().manual_seed(n))
    spread = ReturnRange(from_zero=False)
    spread.update(returns)
    ordered = sorted(returns.tolist())
    assert spread.ends.tolist() == [ordered[int(0.05 * n) - 1], ordered[int(0.95 * n) - 1]]


def test_returns_that_are_not_finite_leave_the_range_alone():
    spread = ReturnRange(from_zero=False)
    spread.update(torch.full((20,), torch.nan))
    assert spread.update(torch.arange(1.0, 21.0)) == 18 and spread.ends.tolist() == [1, 19]


def clip(zclip: ZClip, norm: float) -> float:
    """The norm that is left."""
    return norm * zclip.factor(torch.tensor(norm), torch.tensor(True)).item()


def test_zclip_tames_a_spike_and_leaves_the_usual_alone():
    zclip = ZClip(cap=1e9)
    for _ in range(40):
        usual = 1 + 0.1 * torch.randn(()).item()
        assert clip(zclip, usual) == usual
    mean, deviation = zclip.mean.item(), zclip.variance.sqrt().item()
    z = (50 - mean) / (deviation + 1e-6)
    assert clip(zclip, 50.0) == pytest.approx(mean + 2.5**2 / z * deviation, rel=1e-3)
    assert zclip.mean < 1.2, "the spike must not enter the averages whole"


def test_zclips_first_averages_are_exact_and_the_cap_holds_from_the_start():
    zclip, norms = ZClip(), torch.rand(25) * 3
    for norm in norms.tolist():
        assert clip(zclip, norm) == pytest.approx(min(norm, 1.0), abs=1e-5)
    assert torch.isclose(zclip.mean, norms.mean())
    assert torch.isclose(zclip.variance, norms.var(unbiased=False))


def test_zclip_learns_nothing_from_a_norm_that_is_not_trusted():
    zclip = ZClip()
    zclip.factor(torch.tensor(torch.nan), torch.tensor(False))
    assert not any(buffer.any() for buffer in zclip.buffers())


def test_the_norm_is_of_all_gradients_together():
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    parameters[0].grad, parameters[2].grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    grads, norm = ZClip.norm(parameters)
    assert norm == 5 and len(grads) == 2
    with pytest.raises(ValueError, match="backward"):
        ZClip.norm(parameters[1:2])


def test_ema():
    fast, decay = nn.Linear(2, 2), 0.98
    ema = copy.deepcopy(fast)
    start = ema.weight.detach().clone()
    with torch.no_grad():
        fast.weight.add_(1.0)
    ema_update(ema, fast, decay)
    assert torch.allclose(ema.weight, start + 0.02)
