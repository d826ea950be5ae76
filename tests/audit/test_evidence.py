import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from skellam import audit

EPSILON = 1.0


def coins(rng, p, count):
    return (rng.random(count) < p).astype(float)


def response(rng, count, *, leak=0.0):
    """Randomised response with EPSILON: the claim is tight, in both directions."""
    p = math.exp(EPSILON) / (1 + math.exp(EPSILON))
    return coins(rng, p + leak, count), coins(rng, 1 - p, count)


def bound(scores, confidence=0.999, delta=0.0):
    return audit.lower_bound(*scores, delta=delta, confidence=confidence)


def test_a_tight_claim_is_refuted_no_more_often_than_stated():
    """With confidence 0.9 at most a tenth of 300 audits may err; more than 64 do with p < 1e-6."""
    rng = np.random.default_rng(1)
    most = binom.isf(1e-6, 300, 0.1)
    assert sum(bound(response(rng, 200), 0.9) > EPSILON for _ in range(300)) <= most


def test_the_bound_comes_close_with_many_trials():
    assert EPSILON - 0.1 < bound(response(np.random.default_rng(2), 40_000)) <= EPSILON


def test_a_leak_that_shows_only_in_absence_is_found():
    """The canary's score is never below 1, so a low score proves that it is absent."""
    rng = np.random.default_rng(3)
    absent = rng.integers(0, 3, 1000).astype(float)
    present = np.maximum(absent, 1)
    assert bound((present, absent)) > 2


def test_scores_that_say_nothing_bound_nothing():
    rng = np.random.default_rng(4)
    assert bound((rng.normal(size=1000), rng.normal(size=1000))) == 0
    assert bound((np.zeros(1000), np.zeros(1000))) == 0


@given(st.integers(0, 50), st.integers(0, 50))
def test_the_intervals_are_those_of_clopper_and_pearson(hits, alarms):
    alpha = 1e-3 / 4
    found = audit._one_event(hits, alarms, 50, 0.05, alpha)
    low, high = (
        binomtest(k, 50).proportion_ci(1 - 2 * alpha, method="exact") for k in (hits, alarms)
    )
    expected = math.log(max(low.low - 0.05, np.finfo(float).tiny) / high.high)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("trials", [10, 11, 500])
def test_no_scores_give_more_than_the_most(trials):
    perfect = (np.ones(trials), np.zeros(trials))
    most = audit.max_epsilon(trials, delta=0.01, confidence=0.999)
    assert bound(perfect, delta=0.01) == pytest.approx(most)


@pytest.mark.parametrize(("factor", "trials"), [(4, 400), (3, 400), (2, 1000)])
def test_the_stated_power(factor, trials):
    """Normal noise too small by the factor, where (1, 0.1) is claimed: 20 of 20 audits say so."""
    rng = np.random.default_rng(5)
    shift = 0.921 * factor  # the normal mechanism with shift 0.921 is (1, 0.1)-private
    for _ in range(20):
        assert bound((rng.normal(shift, 1, trials), rng.normal(size=trials)), delta=0.1) > 1
