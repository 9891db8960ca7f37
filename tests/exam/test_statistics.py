"""Each statistic against a worked example that someone else published, and intervals against simulation."""

import numpy as np
import pytest

from mirrormark.exam import statistics as st
from mirrormark.exam.coverage import simulate


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson(successes, n, low, high):
    """Newcombe (1998a), Statistics in Medicine 17:857, Table I, method 3."""
    assert st.wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((6, 7, 2, 7), 0.0582, 0.8062),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 20), -0.1611, 0.2775),
        ((10, 10, 0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe(counts, low, high):
    """Newcombe (1998b), Statistics in Medicine 17:873, Table II, method 10."""
    assert st.newcombe(*counts).interval == pytest.approx((low, high), abs=5e-5)


def test_newcombe_paired():
    """Airway hyper-responsiveness of Bentur et al. (2009), worked in Fagerland, Lydersen & Laake (2014)."""
    found = st.newcombe_paired(both=1, first=1, second=7, neither=12)
    assert found.estimate == pytest.approx(-0.286, abs=5e-4)
    assert found.interval == pytest.approx((-0.507, -0.026), abs=5e-4)
    assert found.p == pytest.approx(0.0703, abs=5e-5)  # exact McNemar, ibid.
    assert found.n == 21


def test_t_interval():
    """Student (1908): extra sleep of ten patients, the data of R's `sleep`."""
    gain = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert st.t_interval(gain) == pytest.approx((0.7001142, 2.4598858), abs=1e-7)


def test_paired_shift():
    """Hollander & Wolfe (1973), p. 29 and 35: Hamilton depression scale, 9 patients, two visits."""
    first = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    second = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    found = st.paired_shift(first, second)
    assert found.estimate == pytest.approx(-0.46)
    assert found.interval == pytest.approx((-0.786, -0.010))
    assert found.p == pytest.approx(0.0390625)  # twice the book's one-sided .0195
    assert found.n == 9


def test_kaplan_meier():
    """6-mercaptopurine arm of Freireich et al. (1963), the example of Cox (1972) and of most textbooks."""
    remission = [6, 6, 6, 7, 10, 13, 16, 22, 23] + [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    curve = st.kaplan_meier(remission, [True] * 9 + [False] * 12)
    at = {t: i for i, t in enumerate(curve.time_s)}
    for t, share in {
        6: 0.8571,
        7: 0.8067,
        10: 0.7529,
        13: 0.6902,
        16: 0.6275,
        22: 0.5378,
        23: 0.4482,
    }.items():
        assert curve.share[at[t]] == pytest.approx(share, abs=5e-5)
    assert (curve.low[at[6]], curve.high[at[6]]) == pytest.approx((0.6197, 0.9516), abs=5e-5)
    assert (curve.low[at[23]], curve.high[at[23]]) == pytest.approx((0.1881, 0.6801), abs=5e-5)
    assert (curve.n, curve.events) == (21, 9)
    assert st.median_time_s(curve) == 23


def test_holm():
    """The four hypotheses of the article "Holm-Bonferroni method" (Wikipedia), as adjusted p-values."""
    assert st.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    adjusted = st.holm([0.01, float("nan"), 0.02])
    assert adjusted[0] == pytest.approx(0.02) and np.isnan(adjusted[1]) and adjusted[2] == pytest.approx(0.02)


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5, 0.7, 0.9])
def test_wilson_covers_at_least_93_percent(rate):
    assert simulate(1, 80, rate, exams=4000).covered >= 0.93


@pytest.mark.parametrize("seeds", [3, 8])
@pytest.mark.parametrize(("rate", "seed_sd"), [(0.2, 0.0), (0.2, 0.05), (0.7, 0.1)])
def test_seed_interval_covers(seeds, rate, seed_sd, capsys):
    found = simulate(seeds, 80, rate, seed_sd, exams=1500)
    with capsys.disabled():
        print(
            f"\n{seeds} seeds × 80 runs, rate {rate}, sd {seed_sd}: 95% interval covers {found.covered:.3f}"
        )
    assert found.covered >= 0.92


def test_seeds_that_agree_keep_their_binomial_noise():
    assert st.seed_interval([0, 0, 0], [80, 80, 80]).high == pytest.approx(st.wilson(0, 240).high)


def test_paired_interval_covers():
    """Two outcomes of the same runs that exclude each other, as a mark and its yoked site nearly do."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(1500):
        both, first, second, neither = rng.multinomial(80, [0.02, 0.38, 0.18, 0.42])
        low, high = st.newcombe_paired(both, first, second, neither).interval
        held += low <= 0.20 <= high
    assert held / 1500 >= 0.93


def test_paired_shift_interval_covers_beyond_the_exact_range():
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(600):
        low, high = st.paired_shift(np.zeros(60), rng.normal(-3.0, 5.0, 60)).interval
        held += low <= -3.0 <= high
    assert 0.92 <= held / 600 <= 0.98


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: st.wilson(0, 0), "n must be at least 1"),
        (lambda: st.wilson(3, 2), "0..n"),
        (lambda: st.t_interval([0.5]), "at least two seeds"),
        (lambda: st.paired_shift([], []), "no pairs"),
        (lambda: st.kaplan_meier([], []), "no runs"),
        (lambda: simulate(3, 80, 0.1, 0.5), "smaller"),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_seeds_that_agree_keep_the_noise_of_their_runs_in_a_difference():
    """Three seeds, each 50 points above the control: Student's interval alone would have no width."""
    pooled = st.newcombe_paired(both=20, first=140, second=20, neither=60)
    assert st.seed_difference([0.5, 0.5, 0.5]).interval == (0.5, 0.5)
    found = st.seed_difference([0.5, 0.5, 0.5], pooled)
    assert found.interval == pooled.interval and found.n == 3 and np.isnan(found.p)
    apart = st.seed_difference([0.1, 0.5, 0.9], pooled)
    assert apart.interval == st.seed_difference([0.1, 0.5, 0.9]).interval and apart.p > 0.05


def test_a_band_over_seeds_is_as_wide_as_seeds_differ():
    """Two seeds that never touch and two that always do at once: runs agree, seeds do not."""
    never, always = ([5.0] * 40, [False] * 40), ([1.0] * 40, [True] * 40)
    curves = [st.kaplan_meier(*one) for one in (never, never, always, always)]
    pooled = st.kaplan_meier(2 * never[0] + 2 * always[0], 2 * never[1] + 2 * always[1])
    found = st.kaplan_meier_of_seeds(curves, pooled)
    assert found.share.tolist() == pooled.share.tolist() == [0.5, 0.5]
    assert pooled.low[0] > 0.4 and found.low[0] == 0.0 and found.high[0] == 1.0
    same = st.kaplan_meier_of_seeds([pooled, pooled], pooled)
    assert same.low.tolist() == pooled.low.tolist() and same.high.tolist() == pooled.high.tolist()


@pytest.mark.parametrize(("removed", "kept"), [(60, 10), (20, 60), (40, 40)])
def test_a_crossed_shift_counts_the_errors_of_both_groups(removed, kept):
    """No effect, drift that differs from run to run: about 5% of exams may find one."""
    rng = np.random.default_rng(11)
    found = 0
    for _ in range(1500):
        drift, other = rng.normal(-5, 4, removed), rng.normal(-5, 4, kept)
        at_each = other[None] + rng.normal(0, 1, (removed, kept))  # the cut's moment matters a little
        found += st.crossed_shift(drift + rng.normal(0, 1, removed), at_each).p < 0.05
    assert found / 1500 <= 0.07
