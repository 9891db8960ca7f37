import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mirrormark.agent.numerics import (
    PercentileRange,
    TwoHot,
    ZClip,
    ema_update,
    lambda_return,
    quantile,
    symexp,
    symlog,
)


@given(st.floats(-1e5, 1e5))
def test_symexp_undoes_symlog(x):
    value = torch.tensor(x, dtype=torch.float64)
    assert torch.isclose(symexp(symlog(value)), value, rtol=1e-9, atol=1e-9)


@given(st.floats(-3e4, 3e4))
def test_two_hot_round_trip(x):
    """The two-hot of x, read as probabilities, decodes to x (the expected bin is exact in symlog space)."""
    tokenizer = TwoHot()
    weights = tokenizer.encode(torch.tensor(x))
    assert torch.isclose(weights.sum(), torch.tensor(1.0), atol=1e-4) and (weights > 0).sum() <= 2
    assert torch.isclose(tokenizer.decode(weights.log()), torch.tensor(x), rtol=2e-3, atol=2e-3)


def test_two_hot_holds_the_ends():
    tokenizer = TwoHot(11, -2, 2)
    assert tokenizer.encode(torch.tensor([1e9, -1e9])).argmax(-1).tolist() == [10, 0]


def test_linear_bins_learn_the_mean_where_symlog_ones_do_not():
    """Returns of -500 and +100, equally often: their mean is -200."""
    seen = torch.tensor([-500.0, 100.0])
    linear, symlogged = TwoHot(255, -1000, 1000, linear=True), TwoHot()
    learned = [tokenizer.decode(tokenizer.encode(seen).mean(0).log()) for tokenizer in (linear, symlogged)]
    assert learned[0] == pytest.approx(-200, abs=1) and learned[1] > -50
    assert linear.decode(linear.encode(torch.tensor(37.0)).log()) == pytest.approx(37, abs=0.1)


def test_two_hot_cross_entropy_is_least_at_the_target():
    tokenizer = TwoHot()
    right, wrong = (
        tokenizer.encode(torch.tensor(5.0)).add(1e-4).log(),
        tokenizer.encode(torch.tensor(9.0)).add(1e-4).log(),
    )
    assert tokenizer.cross_entropy(right, torch.tensor(5.0)) < tokenizer.cross_entropy(
        wrong, torch.tensor(5.0)
    )


@pytest.mark.parametrize("lambda_", [0.0, 0.95, 1.0])
def test_lambda_return_against_the_sum_over_n_step_returns(lambda_):
    """R_t = (1−λ) Σ_n λ^(n−1) R_t^(n) + λ^(N−1) R_t^(N): the definition, not the recursion."""
    torch.manual_seed(0)
    horizon, discount = 5, 0.9
    cost, value = torch.randn(3, horizon).double(), torch.randn(3, horizon + 1).double()
    got = lambda_return(cost, value, discount, torch.tensor(lambda_))
    for t in range(horizon):
        expected, longest = torch.zeros(3).double(), horizon - t
        for n in range(1, longest + 1):
            n_step = sum(discount**i * cost[:, t + i] for i in range(n)) + discount**n * value[:, t + n]
            weight = lambda_ ** (n - 1) * (1.0 if n == longest else 1 - lambda_)
            expected = expected + weight * n_step
        assert torch.allclose(got[:, t], expected)


@given(st.integers(2, 50), st.floats(0, 1))
def test_quantile_is_torchs(n, q):
    x = torch.randn(n, generator=torch.Generator().manual_seed(n)).double()
    assert torch.isclose(quantile(x, q), torch.quantile(x, q))


def test_percentile_range_takes_the_first_batch_whole_and_then_smooths():
    spread = PercentileRange(0.0, 1.0, decay=0.9)
    assert torch.isclose(spread.update(torch.tensor([0.0, 10.0])), torch.tensor(10.0))
    assert torch.isclose(spread.update(torch.tensor([0.0, 20.0])), torch.tensor(11.0))


def _one_parameter(gradient: float) -> list[nn.Parameter]:
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.tensor([gradient])
    return [parameter]


def test_zclip_tames_a_spike_and_leaves_the_usual_alone():
    clip = ZClip(cap=1e9)
    torch.manual_seed(0)
    for _ in range(40):
        usual = _one_parameter(1 + 0.1 * torch.randn(()).item())
        before = usual[0].grad.clone()
        clip.clip(usual)
    assert torch.allclose(usual[0].grad, before, rtol=1e-4)
    mean, deviation = clip.mean.clone(), clip.variance.sqrt()
    spike = _one_parameter(50.0)
    norm = clip.clip(spike)
    z = (50 - mean) / (deviation + 1e-6)
    assert norm == 50 and torch.allclose(spike[0].grad, mean + 2.5**2 / z * deviation, rtol=1e-2)
    assert clip.mean < 1.2, "the spike must not enter the statistics whole"


def test_zclip_warm_up_statistics_are_exact_and_the_cap_holds_from_the_start():
    clip, norms = ZClip(), torch.rand(25) * 3
    for norm in norms:
        parameters = _one_parameter(norm.item())
        clip.clip(parameters)
        assert parameters[0].grad.abs() <= 1.0 + 1e-5
    assert torch.isclose(clip.mean, norms.mean()) and torch.isclose(clip.variance, norms.var(unbiased=False))


def test_zclip_without_gradients_says_so():
    with pytest.raises(ValueError, match="backward"):
        ZClip().clip([nn.Parameter(torch.zeros(1))])


def test_ema():
    fast, decay = nn.Linear(2, 2), 0.98
    ema = copy.deepcopy(fast)
    start = ema.weight.detach().clone()
    with torch.no_grad():
        fast.weight.add_(1.0)
    ema_update(ema, fast, decay)
    assert torch.allclose(ema.weight, start + 0.02)
