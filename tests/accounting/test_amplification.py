import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.accounting.laws import skellam_law
from skellam.accounting.rdp import fixed_size_gaussian_rdp, gaussian_rdp, poisson_rdp
from skellam.errors import DomainError


def exact_gaussian(z, rate, order):
    """The divergence of the sampled Gaussian, by adaptive quadrature at thirty digits."""
    with mpmath.workdps(30):

        def integrand(x):
            likelihood = 1 - rate + rate * mpmath.exp(x / z - mpmath.mpf(1) / (2 * z * z))
            return mpmath.npdf(x) * likelihood**order

        places = [-20, -5, 0, 2, 5, 10, 20, 30 + order / z]
        return mpmath.log(mpmath.quad(integrand, places)) / (order - 1)


@pytest.mark.parametrize("order", [1.05, 1.5, 2, 2.5, 3.95, 7, 20])
@pytest.mark.parametrize(("z", "rate"), [(0.8, 0.03), (5, 0.1), (30, 0.5), (0.5, 1e-3)])
def test_the_sampled_gaussians_divergence_is_an_upper_bound_and_tight(z, rate, order):
    true, (claimed,) = exact_gaussian(z, rate, order), gaussian_rdp(z, rate=rate, orders=[order])
    assert true <= claimed <= true * (1 + 1e-7)


def sampled_divergences(variance, shift, rate, order):
    """Both directions of the divergence of a Poisson sampled scalar Skellam release."""
    half = skellam_law(variance).log_pmf[:200]
    law = np.exp(np.concatenate((half[:0:-1], half)))
    plain, shifted = np.pad(law, (0, shift)), np.pad(law, (shift, 0))
    keep = (plain > 1e-250) & (shifted > 1e-250)
    q = plain[keep]
    p = rate * shifted[keep] + (1 - rate) * q
    return [math.log(np.sum((a / b) ** order * b)) / (order - 1) for a, b in ((p, q), (q, p))]


def unsampled_divergence(variance, shift, order):
    return sampled_divergences(variance, shift, 1.0, order)[0]


@given(st.floats(0.5, 40), st.integers(1, 3), st.floats(0.001, 0.9), st.integers(2, 12))
def test_factor_one_bounds_both_directions_for_an_integer_shift(variance, shift, rate, order):
    (claimed,) = poisson_rdp(
        lambda a: unsampled_divergence(variance, shift, a),
        rate=rate,
        orders=[order],
        involution=True,
    )
    assert max(sampled_divergences(variance, shift, rate, order)) <= claimed * (1 + 1e-9) + 1e-12


@given(st.floats(0.3, 10), st.floats(1e-6, 1), st.integers(2, 64))
def test_sampling_never_costs_more_and_factor_three_never_less_than_factor_one(z, rate, order):
    def plain(a):
        return a / (2 * z * z)

    (three,) = poisson_rdp(plain, rate=rate, orders=[order])
    (one,) = poisson_rdp(plain, rate=rate, orders=[order], involution=True)
    assert one <= three <= plain(order)


def test_a_fixed_size_cohort_is_amplified_but_less_than_a_poisson_one():
    orders = [2.0, 3.0]
    fixed = fixed_size_gaussian_rdp(2.0, cohort=100, population=3400, orders=orders)
    poisson = gaussian_rdp(2.0, rate=100 / 3400, orders=orders)
    for order, value, least in zip(orders, fixed, poisson, strict=True):
        assert least < value < order / (2 * 2.0**2)


@pytest.mark.parametrize("bad", [math.nan, 0.0, -0.1, 1.1, "1"])
def test_a_rate_outside_its_domain_raises(bad):
    with pytest.raises(DomainError):
        poisson_rdp(lambda a: a, rate=bad, orders=[2])
    with pytest.raises(DomainError):
        gaussian_rdp(1.0, rate=bad, orders=[2.0])


@pytest.mark.parametrize("bad", [math.nan, 0.0, -1.0, math.inf])
def test_a_noise_multiplier_outside_its_domain_raises(bad):
    with pytest.raises(DomainError):
        gaussian_rdp(bad, rate=0.1, orders=[2.0])
    with pytest.raises(DomainError):
        fixed_size_gaussian_rdp(bad, cohort=1, population=2, orders=[2.0])


def test_an_order_below_two_raises():
    with pytest.raises(DomainError):
        poisson_rdp(lambda a: a, rate=0.1, orders=[1])
