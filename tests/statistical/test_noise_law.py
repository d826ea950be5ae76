"""The law of the noise in a released sum is Sk(V), whatever the cohort and whoever drops out.

Updates are zeros, so that a sum is its noise, in integers. All seeded; each chi-square test fails
by chance with 1e-6, some hundred and thirty of them together with less than 1e-4.
"""

import numpy as np
import pytest
from scipy import stats

import skellam as sk
from skellam.engines.local import Round, secure, trusted_sum, unmasked
from skellam.plan import Plan

DIMENSION = 4096
VARIANCE = 9.0
SIZES = (19, 20, 21, 107)
DROPOUTS = (0.0, 0.07, 0.1, 0.3)


def planned(dropout):
    """One plan for all of these sizes, for vectors of integers."""
    return Plan(
        dimension=DIMENSION,
        clip=1.0,
        l1=1,
        coordinate_bound=1,
        rounding="integer",
        cohort=107,
        population=1000,
        rounds=1,
        bits=10,
        dropout=dropout,
        min_cohort=15,
    ).with_noise(VARIANCE**0.5)


def some_dropouts(n, dropout):
    most = planned(dropout).tolerance.dropouts(n)
    return sorted({0, 1, most // 2, most} & set(range(most + 1)))


CASES = [(n, p, k) for n in SIZES for p in DROPOUTS for k in some_dropouts(n, p)]


def released(run, n, dropout, dropped):
    made = planned(dropout)
    members = tuple(range(100, 100 + n))
    round_ = Round(1, bytes(32), members, members[3 : 3 + dropped])
    seed = bytes([n, dropped, int(100 * dropout), *bytes(29)])
    result = run(
        made,
        round_,
        lambda _: np.zeros(DIMENSION, dtype=np.int32),
        entropy=lambda context: sk.SeededEntropy(seed, context),
    )
    return result.total.values


def assert_skellam(values):
    edges = np.arange(-7, 8)
    law = stats.skellam(VARIANCE / 2, VARIANCE / 2)
    cdf = np.concatenate(([0.0], law.cdf(edges), [1.0]))
    counts = np.histogram(values, np.concatenate(([-np.inf], edges + 0.5, [np.inf])))[0]
    assert stats.chisquare(counts, np.diff(cdf) * len(values)).pvalue > 1e-6


@pytest.mark.parametrize(("n", "dropout", "dropped"), CASES)
def test_the_noise_of_an_unmasked_sum_is_skellam_of_the_planned_variance(n, dropout, dropped):
    assert_skellam(released(unmasked, n, dropout, dropped))


@pytest.mark.parametrize(("n", "dropout", "dropped"), CASES)
def test_noise_drawn_at_once_is_skellam_of_the_planned_variance(n, dropout, dropped):
    assert_skellam(released(trusted_sum, n, dropout, dropped))


def test_noise_drawn_at_once_has_the_law_of_the_shares():
    """Two samples, one chi-square of their table; fails by chance with 1e-6."""
    runs = (trusted_sum, unmasked)
    values = [np.concatenate([released(run, *case) for case in CASES]) for run in runs]
    edges = np.concatenate(([-np.inf], np.arange(-9, 10) + 0.5, [np.inf]))
    table = [np.histogram(each, edges)[0] for each in values]
    assert not np.array_equal(*values)
    assert stats.chi2_contingency(table).pvalue > 1e-6


@pytest.mark.parametrize(("n", "dropout", "dropped"), [c for c in CASES if c[0] < 100])
def test_the_noise_of_a_secure_sum_is_the_same_bit_for_bit(n, dropout, dropped):
    safe = released(secure, n, dropout, dropped)
    assert np.array_equal(safe, released(unmasked, n, dropout, dropped))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dropout", "dropped"), [c for c in CASES if c[0] > 100])
def test_the_noise_of_a_large_secure_sum_is_the_same_bit_for_bit(n, dropout, dropped):
    safe = released(secure, n, dropout, dropped)
    assert np.array_equal(safe, released(unmasked, n, dropout, dropped))


def test_the_law_of_all_cases_together_is_skellam():
    values = [released(unmasked, n, dropout, dropped) for n, dropout, dropped in CASES]
    assert_skellam(np.concatenate(values))
