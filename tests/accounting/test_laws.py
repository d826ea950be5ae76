"""Tables of integer laws: accurate far into the tails, and refused when they prove nothing."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from oracles import integer_laws
from skellam.accounting import laws
from skellam.accounting.laws import discrete_gaussian_sum_law
from skellam.errors import CertificateError, DomainError, ShapeError


def _total(law):
    return 2 * math.exp(law.log_survival[0]) - (math.exp(law.log_pmf[0]) if law.shift == 0 else 0)


def _worst(table, wanted):
    with mpmath.workdps(40):
        return max(abs(mpmath.log(w) - t) for t, w in zip(table.tolist(), wanted, strict=False))


@pytest.mark.parametrize("variance", [1e-4, 0.05, 1, 7.5, 99.9, 100, 2500])
def test_skellam_probabilities_and_tails_are_accurate_to_1e_12_down_to_1e_minus_300(variance):
    law = laws.skellam_law(variance)
    reach = int(np.searchsorted(-law.log_survival, 300 * math.log(10)))
    wanted = integer_laws.skellam(variance, law.log_pmf.size + 50)
    assert _worst(law.log_pmf[:reach], wanted) < 1e-12
    with mpmath.workdps(80):
        tails = np.cumsum(np.array(wanted[::-1], dtype=object))[::-1]
    assert _worst(law.log_survival[:reach], tails) < 1e-12


@pytest.mark.parametrize("variance", [1e-6, 1e-4, 0.3, 50, 1e3, 1e5, 1e7, 1e9])
def test_a_skellam_table_sums_to_one_and_has_its_variance(variance):
    law = laws.skellam_law(variance)
    k = np.arange(law.log_pmf.size, dtype=float)
    assert _total(law) == pytest.approx(1, abs=1e-13)
    assert 2 * (k**2 * np.exp(law.log_pmf)).sum() == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("variance", [0.01, 3, 150, 4e4])
def test_chernoff_bounds_the_tail(variance):
    law = laws.skellam_law(variance)
    k = np.arange(law.log_pmf.size, dtype=float)
    assert np.all(law.log_survival[1:] <= laws.log_chernoff(variance, k)[1:] + 1e-12)


@pytest.mark.parametrize("sigma", [0.2, 0.7, 1, 30])
def test_discrete_gaussian_probabilities_are_accurate(sigma):
    law = laws.discrete_gaussian_law(sigma)
    assert _worst(law.log_pmf, integer_laws.discrete_gaussian(sigma, law.log_pmf.size)) < 1e-12


@pytest.mark.parametrize("trials", [1, 2, 3, 40, 41, 999, 1000])
def test_binomial_probabilities_are_binomial_coefficients(trials):
    law = laws.binomial_law(trials)
    wanted = [
        mpmath.mpf(math.comb(trials, (trials + 1) // 2 + k)) / 2**trials
        for k in range(trials // 2 + 1)
    ]
    assert law.shift == (trials % 2) / 2
    assert _worst(law.log_pmf, wanted) < 1e-12
    assert _total(law) == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize(("sigma", "shares"), [(0.5, 1), (0.5, 2), (0.3, 40), (1.0, 7), (0.5, 64)])
def test_a_sum_of_discrete_gaussians_is_the_exact_convolution(sigma, shares):
    half = integer_laws.discrete_gaussian(sigma, math.ceil(45 * sigma) + 2)
    scale = 2**1400
    exact = np.array([int(p * mpmath.mpf(2) ** 1400) for p in half[:0:-1] + half], dtype=object)
    total, copies = None, shares
    while copies:
        if copies % 2:
            total = exact if total is None else np.convolve(total, exact) // scale
        exact, copies = np.convolve(exact, exact) // scale, copies // 2
    with mpmath.workdps(40):
        wanted = [mpmath.mpf(w) / scale for w in total[len(total) // 2 :]]
    law = discrete_gaussian_sum_law(sigma, shares)
    reach = int(np.searchsorted(-law.log_survival, 300 * math.log(10)))
    assert _worst(law.log_pmf[:reach], wanted) < 1e-11


def test_many_narrow_shares_have_the_variance_of_their_sum():
    law, one = discrete_gaussian_sum_law(0.5, 10_000), laws.discrete_gaussian_law(0.5)
    second = [2 * (np.arange(x.log_pmf.size) ** 2 * np.exp(x.log_pmf)).sum() for x in (law, one)]
    assert second[0] == pytest.approx(10_000 * second[1], rel=1e-11)


def test_a_lopsided_law_is_refused():
    with pytest.raises(CertificateError, match="symmetric"):
        laws.law_of(np.log([0.2, 0.5, 0.3]))


def test_a_law_that_is_not_log_concave_is_refused():
    with pytest.raises(CertificateError, match="log-concave"):
        laws.law_of(np.log([0.2, 0.1, 0.4, 0.1, 0.2]))


def test_numbers_that_do_not_sum_to_one_are_refused():
    with pytest.raises(CertificateError, match="sum to one"):
        laws.law_of(np.log([0.2, 0.5, 0.2]))


@pytest.mark.parametrize("bad", [[0.0], [[0.0, 0.0]]])
def test_a_law_needs_a_vector_of_atoms(bad):
    with pytest.raises(ShapeError):
        laws.law_of(bad)


def test_a_law_given_atom_by_atom_is_the_table():
    law = laws.binomial_law(40)
    whole = np.concatenate((law.log_pmf[:0:-1], law.log_pmf))
    assert np.allclose(laws.law_of(whole).log_survival, law.log_survival, rtol=1e-13)


@pytest.mark.parametrize("variance", [0, -1, math.nan, math.inf])
def test_a_variance_outside_its_domain_is_refused(variance):
    with pytest.raises(DomainError, match="variance"):
        laws.skellam_law(variance)


def test_a_variance_too_large_to_certify_is_refused():
    with pytest.raises(CertificateError, match="largest that is certified"):
        laws.skellam_law(1e11)


def test_tables_fall_from_the_centre_outwards():
    for law in (laws.skellam_law(3.0), laws.binomial_law(41), discrete_gaussian_sum_law(0.5, 99)):
        assert all(b < a for a, b in pairwise(law.log_survival.tolist()))


def test_more_shares_than_float64_can_sum_are_refused():
    with pytest.raises(CertificateError, match="largest that is certified"):
        discrete_gaussian_sum_law(0.5, 100_001)
