"""Each statistic against a worked example whose numbers we have seen at the address given, or against a
computation that is written out here; intervals also against simulation.

PROPINT: tests of the R package propint, which quote Newcombe's three papers of 1998 in Statistics in Medicine
(17:857, 17:873, 17:2635), https://github.com/m-Py/propint, tests/testthat
"""

import itertools
import math

import numpy as np
import pytest

from mirrormark.exam import statistics as st
from mirrormark.exam.statistics import simulate

Z = 1.959964
"""Of 95%, two-sided."""


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"), [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)]
)
def test_wilson(successes, n, low, high):
    """Newcombe (1998), method 3, as quoted by PROPINT, test_Single_Proportion_CI.R."""
    assert st.wilson(successes, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_without_a_success():
    """By hand: the score equation (0 - p)^2 = z^2 p (1 - p) / n has the roots 0 and z^2 / (n + z^2)."""
    assert st.wilson(0, 20) == pytest.approx((0.0, Z**2 / (20 + Z**2)), abs=1e-6)


@pytest.mark.parametrize(
    ("counts", "low", "high"), [((56, 70, 48, 80), 0.0524, 0.3339), ((9, 10, 3, 10), 0.1705, 0.8090)]
)
def test_newcombe(counts, low, high):
    """Newcombe (1998), method 10, as quoted by PROPINT, test_Two_Independent_Props_CI.R; the first also in
    https://www.lexjansen.com/wuss/2016/127_Final_Paper_PDF.pdf."""
    assert st.newcombe(*counts).interval == pytest.approx((low, high), abs=5e-5)


def test_newcombe_at_the_edge():
    """By hand: all of 10 against none of 10; both Wilson intervals are z^2 / (10 + z^2) wide. Fisher: of the
    20 over 10 ways to place ten successes, two are as extreme."""
    found = st.newcombe(10, 10, 0, 10)
    assert found.interval == pytest.approx((1 - math.sqrt(2) * Z**2 / (10 + Z**2), 1.0), abs=1e-6)
    assert found.p == pytest.approx(2 / math.comb(20, 10))


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((36, 12, 2, 0), 0.0569, 0.3404),
        ((18, 12, 2, 18), 0.0562, 0.3290),
        ((53, 0, 0, 1), -0.0729, 0.0729),
        ((0, 30, 0, 0), 0.8395, 1.0),
        ((59, 6, 16, 80), -0.1186, -0.0046),
    ],
)
def test_newcombe_paired(counts, low, high):
    """Newcombe (1998), method 10 for pairs, as quoted by PROPINT, test_Two_Dependent_Props_CI.R; the last:
    https://github.com/ocbe-uio/contingencytables, tests/testthat/test-ch8.R (Fagerland, Lydersen & Laake)."""
    found = st.newcombe_paired(*counts)
    assert found.interval == pytest.approx((low, high), abs=5e-5)
    assert found.n == sum(counts)


def test_exact_mcnemar():
    """By hand: 1 of 8 discordant pairs, so p = 2 (1 + 8) / 2^8."""
    assert st.newcombe_paired(both=1, first=1, second=7, neither=12).p == pytest.approx(18 / 256)


def test_t_interval():
    """Student's sleep data: R's `t.test(extra ~ group, data = sleep, paired = TRUE)`, as printed in "How to
    compare paired data with R" (R for Dummies), https://www.dummies.com."""
    gain = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert st.t_interval(gain) == pytest.approx((0.7001142, 2.4598858), abs=1e-7)


FIRST = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
SECOND = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
"""Hamilton depression scale, 9 patients before and after (Hollander & Wolfe, Table 3.1), as listed in
https://www.math.wustl.edu/~sawyer/m408s09/mprogs/WcxSignRank.txt"""


def test_paired_shift():
    """The p-value by hand: the two positive changes have ranks 2 and 3 (sum 5), and 10 of the 2^9 sets of
    ranks sum to 5 or less. Estimate and interval by their definitions: the median of all averages of two
    changes, and the shifts that the exact test does not reject at 5%."""
    found = st.paired_shift(FIRST, SECOND)
    assert found.p == pytest.approx(2 * 10 / 512) and found.n == 9
    change = np.subtract(SECOND, FIRST)
    averages = [(a + b) / 2 for a, b in itertools.combinations_with_replacement(change, 2)]
    assert found.estimate == pytest.approx(np.median(averages)) == pytest.approx(-0.46)
    kept = [shift for shift in np.arange(-1.2, 0.3, 0.001) + 0.0005 if signed_rank_p(change - shift) > 0.05]
    assert found.interval == pytest.approx((min(kept), max(kept)), abs=1e-3)


def signed_rank_p(change: np.ndarray) -> float:
    """Wilcoxon's two-sided p by trying all signs."""
    ranks = np.abs(change).argsort().argsort() + 1
    sums = np.array([np.dot(signs, ranks) for signs in itertools.product((0, 1), repeat=len(change))])
    observed = ranks[change > 0].sum()
    return min(1.0, 2 * min((sums <= observed).mean(), (sums >= observed).mean()))


CONTROL = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
RELAPSED, CENSORED = [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
"""Weeks of remission of 42 children, half of them treated with 6-mercaptopurine (Freireich et al. 1963)."""


def test_kaplan_meier():
    """Stata's `sts list` of the control arm, as printed in http://data.princeton.edu/eco572/KaplanMeier.html
    (G. Rodríguez; Stata's intervals are log-log)."""
    curve = st.kaplan_meier(CONTROL, [True] * 21)
    assert curve.time_s[:2].tolist() == [1, 2]
    assert curve.share[:2] == pytest.approx([0.9048, 0.8095], abs=5e-5)
    assert curve.low[:2] == pytest.approx([0.6700, 0.5689], abs=5e-5)
    assert curve.high[:2] == pytest.approx([0.9753, 0.9239], abs=5e-5)


def test_kaplan_meier_with_censored_times():
    """The treated arm by hand: a product of shares (relapses of those at risk), and at week 6 Greenwood's
    variance on the log-log scale."""
    curve = st.kaplan_meier(RELAPSED + CENSORED, [True] * 9 + [False] * 12)
    at = {t: i for i, t in enumerate(curve.time_s)}
    share = 1.0
    for week, relapsed, risk in [(6, 3, 21), (7, 1, 17), (10, 1, 15), (13, 1, 12), (16, 1, 11), (22, 1, 7)]:
        share *= 1 - relapsed / risk
        assert curve.share[at[week]] == pytest.approx(share)
    log_share = math.log(18 / 21)
    spread = Z * math.sqrt(3 / (21 * 18)) / -log_share
    ends = [math.exp(log_share * math.exp(sign * spread)) for sign in (1, -1)]
    assert (curve.low[at[6]], curve.high[at[6]]) == pytest.approx(ends, abs=1e-6)
    assert (curve.n, curve.events) == (21, 9)
    assert st.median_time_s(curve) == 23


def test_holm():
    """Four hypotheses of https://www.geeksforgeeks.org/data-science/holm-bonferroni-method/ (0.005 and 0.01
    are rejected at 5%, 0.03 and 0.04 are not), as adjusted p-values: 4, 3, 2, 1 times p, never falling."""
    adjusted = st.holm([0.01, 0.04, 0.03, 0.005])
    assert [p <= 0.05 for p in adjusted] == [True, False, False, True]
    assert adjusted == pytest.approx([3 * 0.01, 2 * 0.03, 2 * 0.03, 4 * 0.005])
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
