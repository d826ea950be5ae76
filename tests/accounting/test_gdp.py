"""Result A: the widest quantile gap, and that no integer vector costs more."""

import itertools
import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri_exp

from oracles import exact_profile, skellam_divergences
from skellam.accounting import gdp, laws
from skellam.accounting.curves import GdpCurve, Slack
from skellam.accounting.gdp import gdp_certificate, gdp_parameter
from skellam.accounting.laws import discrete_gaussian_sum_law
from skellam.accounting.mechanisms import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Laplace,
    RoundedSkellam,
    Skellam,
)
from skellam.errors import CertificateError, DomainError

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "skellam_divergences.json").read_text()
)
EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)


@pytest.mark.parametrize("row", VECTORS["eta"])
def test_eta_is_the_high_precision_value_from_above(row):
    found = gdp_parameter(Skellam(variance=row["variance"], l2=1))
    assert float(row["value"]) < found < float(row["value"]) * (1 + 1e-9)


@pytest.mark.parametrize("variance", [1e-4, 0.03, 1.0, 1.84, 30.0, 400.0])
def test_at_sixty_digits_the_central_gap_is_the_widest_and_gaps_fall_outwards(variance):
    found = skellam_divergences.gaps(variance, 12 + int(6 * math.sqrt(variance)))
    assert all(b < a for a, b in itertools.pairwise(found))
    assert float(found[0]) * (1 + 1e-9) > gdp.eta_skellam(variance) > float(found[0])


@given(st.floats(-9, 20).map(math.exp))
def test_the_gaps_never_rise_outwards_by_more_than_float_noise(variance):
    law = laws.skellam_law(variance)
    last = gdp.last_threshold(law, 1e-300)
    found = -np.diff(ndtri_exp(law.log_survival[1 : last + 1]))
    widest = gdp.eta_of_law(law)
    noise = 1e-13 + 1e-9 * widest
    assert np.all(np.diff(found) <= noise)
    assert found.max(initial=0) <= widest


@given(st.floats(-4, 20).map(math.exp))
def test_the_effective_variance_is_never_more_than_0_4134_below_the_variance(variance):
    effective = gdp.eta_skellam(variance) ** -2
    assert variance * (1 - 2e-9) - 0.41341 <= effective
    if variance > 10:
        assert abs(effective - variance + 1 / 3) <= 3e-9 * variance + 0.12 / variance


def curve_of(noise):
    eta, rare = gdp_certificate(noise)
    return GdpCurve(eta, Slack(rare=rare))


@settings(max_examples=60)
@given(
    st.floats(-3.5, 2.5).map(math.exp),
    st.lists(st.integers(-3, 3), min_size=1, max_size=3).filter(any),
    st.sampled_from([1.0, 0.3, 0.02]),
)
def test_no_integer_vector_costs_more_than_its_norm_times_eta(variance, vector, rate):
    masses = exact_profile.skellam_masses(variance, 15 + int(6 * math.sqrt(variance)))
    plain = exact_profile.product([masses[3:-3]] * len(vector))
    moved = exact_profile.product([masses[3 - v : masses.size - 3 - v] for v in vector])
    norm = math.hypot(*vector)
    curve = curve_of(Skellam(variance, l2=norm, dimension=len(vector)))
    for epsilon in EPSILONS:
        exact = exact_profile.profile(rate * moved + (1 - rate) * plain, plain, epsilon)
        # amplification by advanced joint convexity (Balle, Barthe, Gaboardi 2018, theorem 2)
        base = math.log1p(math.expm1(epsilon) / rate)
        assert exact <= rate * curve.delta(base) * (1 + 1e-9) + 1e-15


def test_a_shift_by_one_meets_the_bound_at_epsilon_zero():
    masses = exact_profile.skellam_masses(2.0, 60)
    exact = exact_profile.profile(exact_profile.shifted(masses, 1), masses, 0.0)
    claimed = curve_of(Skellam(2.0, l2=1)).delta(0.0)
    assert claimed == pytest.approx(exact, rel=2e-9)


@pytest.mark.parametrize("tail", [1e-300, 1e-8, 1e-5])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_bounded_support_is_charged_at_its_edge(tail, shift):
    """Bin(40, 1/2), shift 2, epsilon 6 has delta 3.8e-10, above the Gaussian curve's at a tail."""
    curve = curve_of(Binomial(40, l2=shift, tail=tail))
    masses = np.array([math.comb(40, k) / 2.0**40 for k in range(41)])
    plain, moved = np.pad(masses, (0, shift)), np.pad(masses, (shift, 0))
    for epsilon in EPSILONS:
        assert exact_profile.profile(moved, plain, epsilon) <= curve.delta(epsilon)
    if shift == 2:
        assert exact_profile.profile(moved, plain, 6.0) == pytest.approx(3.8e-10, rel=1e-2)


def test_the_gaussian_curve_alone_would_miss_the_edge():
    noise = Binomial(40, l2=2, tail=1e-8)
    alone = GdpCurve(gdp_parameter(noise))
    assert alone.delta(6.0) < 3.7e-10 < curve_of(noise).delta(6.0)


def test_an_odd_number_of_coins_is_certified_about_its_half_integer_centre():
    eta = gdp_parameter(Binomial(1001, l2=1, tail=1e-10))
    assert eta == pytest.approx(2 / math.sqrt(1001), rel=0.02)


def test_shares_of_discrete_gaussians_pay_no_tau():
    """The paper's tau makes ten thousand shares of 0.5 cost 723; their sum is nearly Gaussian."""
    found = gdp_parameter(DistributedDiscreteGaussian(sigma_local=0.5, shares=10_000, l2=1))
    law = discrete_gaussian_sum_law(0.5, 10_000)
    k = np.arange(law.log_pmf.size)
    variance = 2 * (k**2 * np.exp(law.log_pmf)).sum()
    assert found == pytest.approx(1 / math.sqrt(variance), rel=1e-3)


def test_one_share_is_the_discrete_gaussian():
    one = gdp_parameter(DistributedDiscreteGaussian(sigma_local=3.0, shares=1, l2=2))
    assert one == pytest.approx(gdp_parameter(DiscreteGaussian(sigma=3.0, l2=2)), rel=1e-12)


def test_the_continuous_gaussian_is_itself():
    assert gdp_parameter(Gaussian(sigma=4.0, l2=2.0)) == 0.5


def test_the_tail_that_is_set_aside_is_negligible():
    assert gdp_certificate(Skellam(1e4, l2=100.0, dimension=2**20)).rare < 1e-200


@pytest.mark.parametrize("noise", [DiscreteLaplace(scale=1.0, l1=1.0), Laplace(scale=1.0, l1=1.0)])
def test_laplace_noise_is_not_passed_off_as_gaussian(noise):
    with pytest.raises(CertificateError, match="Laplace"):
        gdp_parameter(noise)


def test_noise_that_never_moves_certifies_nothing():
    with pytest.raises(CertificateError, match="beyond the centre"):
        gdp_parameter(DiscreteGaussian(1e-3, l2=1))


@pytest.mark.parametrize("tail", [0, 1, math.nan, -1e-9])
def test_a_tail_outside_its_domain_is_refused(tail):
    with pytest.raises(DomainError, match="tail"):
        gdp.eta_of_law(laws.skellam_law(1.0), tail=tail)


def test_rounded_vectors_take_kappa_and_its_rare_event():
    noise = RoundedSkellam(1764.0, l2=42.0, dimension=1024, tail=1e-17)
    eta, rare = gdp_certificate(noise)
    assert eta == pytest.approx(1.1019, abs=1e-4)
    assert 2 * 1024 * 1e-17 <= rare < 1e-12


def test_the_vectors_are_those_of_the_oracle():
    row = next(r for r in VECTORS["eta"] if r["variance"] == 10)
    with mpmath.workdps(40):
        assert abs(skellam_divergences.gaps(10, 20)[0] - mpmath.mpf(row["value"])) < 1e-16
