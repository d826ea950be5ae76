"""Whole shares: whatever n is and whoever drops out, the noise in the sum is exactly Sk(V)."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from oracles import whole_shares
from skellam.cohorts import Tolerance
from skellam.secagg import RoundParameters
from skellam.secagg.simulation import Stage

DROPOUTS = ("0", "7/100", "1/10", "1/4", "3/10")
FALSE_ALARM = 1e-7
VARIANCE = 40.0
LENGTH = 1 << 16


def tolerated(n, dropout):
    return Tolerance(Fraction(dropout)).dropouts(n)


def p_value(values, variance, cells=24):
    """Return the smaller p-value of two tests against Sk(variance): chi-square, and of variance.

    The fourth central moment of Sk(v) is 3 v**2 + v.
    """
    k = np.arange(-200, 201)
    mass = stats.skellam.pmf(k, variance / 2, variance / 2)
    edges = np.unique(k[np.searchsorted(np.cumsum(mass), np.arange(1, cells) / cells)])
    found = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
    expected = np.bincount(np.searchsorted(edges, k), weights=mass, minlength=len(edges) + 1)
    shape = stats.chisquare(found, expected * len(values) / expected.sum()).pvalue
    deviation = math.sqrt((2 * variance**2 + variance) / len(values))
    spread = 2 * stats.norm.sf(abs(np.mean(np.square(values)) - variance) / deviation)
    return min(shape, spread)


@pytest.mark.parametrize("shares", [17, 18, 19, 20, 21])
def test_the_test_of_the_law_finds_one_share_too_many_or_too_few(shares):
    """So that it can fail: 20 shares of 19 move the variance by nine deviations."""
    rng = np.random.default_rng(shares)
    mean = VARIANCE / 19 * shares / 2
    values = rng.poisson(mean, LENGTH) - rng.poisson(mean, LENGTH)
    assert (p_value(values, VARIANCE) > FALSE_ALARM) == (shares == 19)


def law_cases():
    """0 to D dropouts of 19, 20 and 21; the most of 107; all of 107 when slow."""
    for dropout in ("0", "7/100", "1/10", "3/10"):
        for n in (19, 20, 21, 107):
            most = tolerated(n, dropout)
            for dropped in range(most + 1):
                quick = n < 100 or (dropout == "7/100" and dropped == most)
                yield pytest.param(n, dropout, dropped, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("n", "dropout", "dropped"), list(law_cases()))
def test_the_sum_less_the_true_sum_has_exactly_the_planned_law(n, dropout, dropped):
    """Two tests on 2**16 coordinates a case, seeded; false alarm 2e-7 a case, over seeds."""
    released = whole_shares.run(n, dropout, dropped, length=LENGTH, variance=VARIANCE)
    assert len(released.outcome.survivors) == n - dropped
    assert len(released.outcome.noise_seeds) == tolerated(n, dropout) - dropped
    noise = (released.decoded - released.true_sum).astype(int)
    assert p_value(noise, VARIANCE) > FALSE_ALARM


def run_cases():
    """Every n up to 13, then a few; sizes of the ring and those near its start when slow."""
    quick, slow = (*range(2, 14), 19, 20, 21, 29), (53, 107, 127, 128, 129, 150, 200, 256, 300)
    for dropout in DROPOUTS:
        for n in quick + slow:
            for dropped in sorted({0, min(1, tolerated(n, dropout)), tolerated(n, dropout)}):
                yield pytest.param(
                    n, dropout, dropped, marks=() if n in quick else pytest.mark.slow
                )


@pytest.mark.parametrize(("n", "dropout", "dropped"), list(run_cases()))
def test_every_feasible_cohort_runs(n, dropout, dropped):
    assert Tolerance(Fraction(dropout)).feasible(n)
    stage = Stage.SHARE_KEYS if n % 2 else Stage.MASKED_INPUT
    released = whole_shares.run(n, dropout, dropped, length=3, stage=stage)
    # 40 is the variance, and 60 more than nine deviations: no false alarm in 1e16.
    assert np.abs(released.decoded - released.true_sum).max() <= 60
    assert len(released.outcome.survivors) == n - dropped


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_for_every_cohort_up_to_300_the_kept_shares_are_those_that_were_planned(dropout):
    tolerance = Tolerance(Fraction(dropout))
    for n in range(2, 301):
        assert tolerance.feasible(n)
        round_ = RoundParameters(
            bytes(32), bytes(32), bytes(32), 16, 1, tolerance, min_participants=n, removable=True
        )
        shape = round_.topology(n)
        assert shape.survivors == tolerance.survivors(n)
        for survivors in range(shape.survivors, n + 1):
            numbers = range(100, 100 + survivors)
            removed = round_.removed(n, numbers)
            assert survivors - len(removed) == tolerance.survivors(n)
            assert removed == tuple(numbers[survivors - len(removed) :])
