import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skellam.accounting.curves import (
    epsilon_with_distance,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    rdp_delta,
    rdp_epsilon,
)
from skellam.errors import DomainError

mus = st.floats(1e-3, 60)
deltas = st.floats(1e-30, 0.5)


def exact_delta(mu, epsilon):
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        upper = mpmath.ncdf(mu / 2 - epsilon / mu)
        return upper - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@given(mus, st.floats(0, 200))
def test_the_gaussian_profile_is_an_upper_bound_and_tight(mu, epsilon):
    true, claimed = exact_delta(mu, epsilon), gaussian_delta(mu, epsilon)
    assert claimed >= true
    if true > 1e-290:
        assert claimed <= true * (1 + 1e-7)


@given(mus, deltas)
def test_the_gaussian_epsilon_meets_its_delta_and_no_smaller_one_does(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert exact_delta(mu, epsilon) <= delta
    assert epsilon == 0 or exact_delta(mu, epsilon * (1 - 1e-6)) > delta


@given(st.floats(1e-3, 100), st.floats(1e-12, 0.1), st.floats(0.01, 100))
def test_the_gaussian_sigma_is_private_and_no_smaller_one_is(epsilon, delta, l2):
    sigma = gaussian_sigma(epsilon, delta, l2)
    assert exact_delta(l2 / sigma, epsilon) <= delta
    assert exact_delta(l2 / sigma * (1 + 1e-6), epsilon) > delta


@given(st.lists(st.tuples(st.floats(1.01, 500), st.floats(0, 50)), min_size=1), deltas)
def test_renyi_epsilon_and_delta_are_inverses(curve, delta):
    orders, values = zip(*curve, strict=True)
    epsilon = rdp_epsilon(orders, values, delta)
    assert rdp_delta(orders, values, epsilon) <= delta * (1 + 1e-9)


@given(mus, st.floats(1e-12, 0.1), st.floats(1e-30, 1e-3))
def test_epsilon_with_distance_leaves_a_total_delta_of_at_most_the_target(mu, delta, distance):
    epsilon = epsilon_with_distance(lambda left: gaussian_epsilon(mu, left), delta, distance)
    if math.isfinite(epsilon):
        total = exact_delta(mu, epsilon) + distance * (1 + mpmath.exp(epsilon))
        assert total <= delta * (1 + 1e-9)
    assert epsilon >= gaussian_epsilon(mu, delta) * (1 - 1e-12)


@pytest.mark.parametrize("bad", [math.nan, -1.0, 0.0, 1.0, 2.0])
def test_a_delta_outside_the_unit_interval_raises(bad):
    for answer in (
        lambda: gaussian_epsilon(1.0, bad),
        lambda: gaussian_sigma(1.0, bad, 1.0),
        lambda: rdp_epsilon([2.0], [1.0], bad),
        lambda: epsilon_with_distance(lambda _: 1.0, bad, 0.0),
    ):
        with pytest.raises(DomainError):
            answer()


@pytest.mark.parametrize("bad", [math.nan, -1.0, 0.0, math.inf])
def test_a_parameter_that_is_no_positive_number_raises(bad):
    for answer in (
        lambda: gaussian_delta(bad, 1.0),
        lambda: gaussian_epsilon(bad, 1e-5),
        lambda: gaussian_sigma(bad, 1e-5, 1.0),
        lambda: gaussian_sigma(1.0, 1e-5, bad),
    ):
        with pytest.raises(DomainError):
            answer()


def exact_gaussian_delta(mu, e):
    with mpmath.workdps(80):
        mu, e = mpmath.mpf(mu), mpmath.mpf(e)
        below, beyond = (
            mpmath.erfc((e / mu + sign * mu / 2) / mpmath.sqrt(2)) / 2 for sign in (-1, 1)
        )
        return below - mpmath.exp(e) * beyond


@settings(max_examples=300)
@given(st.floats(-9, 3), st.floats(0, 36), st.sampled_from([0.0, 1e-12, 1.0]))
def test_gaussian_delta_lies_above_eighty_digits_and_within_1e_9(log_mu, deviations, part):
    """For every mu from 1e-9 to 1e3, however much the two terms of the closed form cancel."""
    mu = 10**log_mu
    e = min(700.0, part * mu * (mu / 2 + deviations))
    exact, found = exact_gaussian_delta(mu, e), gaussian_delta(mu, e)
    assert found >= exact or found == 1
    assert found <= exact * (1 + mpmath.mpf(1e-9)) + mpmath.mpf(1e-299)


@given(st.floats(-3, 2), st.floats(-50, -1e-9))
def test_gaussian_delta_of_a_negative_epsilon_is_the_mirror_image(log_mu, e):
    mu = 10**log_mu
    exact = exact_gaussian_delta(mu, e)
    assert exact * (1 - mpmath.mpf(1e-14)) <= gaussian_delta(mu, e) <= exact + mpmath.mpf(1e-9)
