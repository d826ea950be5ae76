"""Result B: kappa, its tables, and that no real vector costs more after rounding."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from oracles import exact_profile, rounded_release
from skellam.accounting.curves import GdpCurve, Slack
from skellam.accounting.gdp import (
    certificate_of_rounding,
    eta_skellam,
    kappa,
    last_threshold,
)
from skellam.accounting.laws import skellam_law
from skellam.errors import CertificateError, DomainError

DEVIATIONS = (5, 10, 20, 42, 100, 170, 682, 2730, 10922)
TABLES = {
    1e-22: (1.821, 1.466, 1.244, 1.117, 1.049, 1.029, 1.007, 1.0018, 1.0005),
    1e-10: (1.577, 1.316, 1.161, 1.076, 1.032, 1.019, 1.005, 1.0012, 1.0003),
}
EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)


@pytest.mark.parametrize(
    ("tail", "deviation", "printed"),
    [(t, s, v) for t, row in TABLES.items() for s, v in zip(DEVIATIONS, row, strict=True)],
)
def test_the_tables_of_kappa_are_met(tail, deviation, printed):
    found = kappa(float(deviation) ** 2, tail=tail) * deviation
    assert found == pytest.approx(printed, abs=1e-3)


@given(
    st.floats(-4, 8).map(math.exp),
    st.floats(1e-6, 1),
    st.sampled_from([1e-6, 1e-10]),
)
def test_no_certified_threshold_has_a_wider_gap_than_kappa_times_the_fraction(variance, f, tail):
    law = skellam_law(variance)
    last = last_threshold(law, tail)
    p, beyond = np.exp(law.log_pmf), np.exp(law.log_survival)
    at = np.arange(1, last + 1)
    above = ndtri(beyond[at] + f * p[at - 1]) - ndtri(beyond[at])
    below = ndtri(beyond[at]) - ndtri(beyond[at] - f * p[at])  # t = 1 - at, reflected
    noise = 1e-12 / tail**0.05
    assert max(above.max(), below.max()) <= kappa(variance, tail=tail) * f + noise


@settings(max_examples=80)
@given(
    st.floats(-3.5, 2.5).map(math.exp),
    st.lists(st.floats(-2.5, 2.5), min_size=1, max_size=3).filter(lambda v: math.hypot(*v) > 1e-3),
    st.sampled_from([1.0, 0.3, 0.02]),
    st.sampled_from([1e-4, 1e-7, 1e-12]),
)
def test_no_real_vector_costs_more_than_its_norm_times_kappa(variance, vector, rate, tail):
    moved, plain = rounded_release.pair(variance, vector, 12 + int(6 * math.sqrt(variance)))
    found = certificate_of_rounding(
        variance, l2=math.hypot(*vector), dimension=len(vector), tail=tail
    )
    curve = GdpCurve(found.eta, Slack(rare=found.rare))
    for epsilon in EPSILONS:
        exact = exact_profile.profile(rate * moved + (1 - rate) * plain, plain, epsilon)
        base = math.log1p(math.expm1(epsilon) / rate)
        assert exact <= rate * curve.delta(base) * (1 + 1e-9) + 1e-15


def rare(variance, *, l2=1.0, dimension=1, tail=1e-12, block=1, bound=None):
    return certificate_of_rounding(
        variance,
        l2=l2,
        dimension=dimension,
        tail=tail,
        block=block,
        coordinate_bound=bound,
    ).rare


@given(st.floats(-2, 12).map(math.exp), st.sampled_from([1e-6, 1e-10, 1e-17, 1e-22]))
def test_what_is_set_aside_is_both_ends_of_the_law(variance, tail):
    law = skellam_law(variance)
    last = last_threshold(law, tail)
    ends = 2 * math.exp(law.log_survival[last - 1])
    assert rare(variance, tail=tail) == pytest.approx(ends, rel=1e-6)


def test_rare_events_are_counted_once_a_coordinate_or_once_a_block():
    one = rare(100.0)
    assert rare(100.0, dimension=1000) == pytest.approx(1000 * one)
    blocks = rare(100.0, dimension=1000, block=64, bound=1e-3)
    assert blocks == pytest.approx(16 * 2e-12, rel=0.01)


def test_a_norm_beyond_the_last_threshold_leaves_nothing_rare():
    assert rare(100.0, l2=90.0) == 1.0


@given(st.floats(-4, 15).map(math.exp), st.sampled_from([1e-6, 1e-17]))
def test_kappa_is_at_least_eta_and_falls_with_a_larger_tail(variance, tail):
    assert eta_skellam(variance) <= kappa(variance, tail=tail) <= kappa(variance, tail=tail / 100)


def test_a_real_vector_is_cheaper_than_the_norm_it_could_round_up_to():
    """The paper pays sqrt(r^2 + d/4 + r + sqrt(d)/2); rounding in expectation costs almost r."""
    r, d = 200.0, 2**16
    inflated = math.sqrt(r**2 + d / 4 + r + math.sqrt(d) / 2)
    assert kappa(1e4, tail=1e-17) * r < 0.9 * inflated * eta_skellam(1e4)


def test_no_certified_threshold_raises():
    with pytest.raises(CertificateError, match="raise the variance"):
        kappa(1e-12, tail=1e-6)


def test_a_norm_beyond_the_certified_table_raises():
    with pytest.raises(CertificateError, match="lower the norm"):
        certificate_of_rounding(4.0, l2=200.0, dimension=10, tail=1e-12)


@pytest.mark.parametrize("tail", [0, 0.7, 1, math.nan, -1e-9])
@pytest.mark.parametrize("block", [1, 16])
def test_a_tail_outside_its_domain_is_refused(tail, block):
    with pytest.raises((DomainError, CertificateError), match=r"tail|threshold"):
        kappa(100.0, tail=tail, block=block, coordinate_bound=1.0)


@pytest.mark.parametrize("bound", [None, 0, -1.0, math.nan, math.inf])
def test_blocks_need_a_bound_on_the_coordinates(bound):
    with pytest.raises(DomainError, match="coordinate_bound"):
        kappa(100.0, tail=1e-12, block=16, coordinate_bound=bound)


@pytest.mark.parametrize("block", [0, -4, 1.5])
def test_a_block_is_a_positive_integer(block):
    with pytest.raises(DomainError, match="block"):
        kappa(100.0, tail=1e-12, block=block, coordinate_bound=1.0)


@settings(max_examples=30)
@given(
    st.floats(-2, 1.5).map(math.exp),
    st.lists(st.tuples(st.floats(-1.5, 1.5), st.floats(-1.5, 1.5)), min_size=2, max_size=3),
    st.sampled_from([1, 2]),
    st.sampled_from([1e-3, 1e-6, 1e-10]),
)
def test_no_vector_replaced_by_another_costs_more(variance, entries, block, tail):
    one, other = zip(*entries, strict=True)
    norm = max(math.hypot(*one), math.hypot(*other), 1e-3)
    largest = max(*map(abs, one), *map(abs, other), 1e-3)
    found = certificate_of_rounding(
        variance,
        l2=2 * norm,
        dimension=len(entries),
        tail=tail,
        block=block,
        coordinate_bound=2 * largest,
        replaced=True,
    )
    curve = GdpCurve(found.eta, Slack(rare=found.rare))
    moved, _ = rounded_release.pair(variance, [*one, 1.5], 20)
    replaced, _ = rounded_release.pair(variance, [*other, 1.5], 20)
    size = round(moved.size ** (1 / (len(entries) + 1)))
    # the extra coordinate only gives both releases the same window; it is summed away
    p, q = (law.reshape(-1, size).sum(axis=1) for law in (moved, replaced))
    for epsilon in (0.0, 0.5, 2.0, 5.0):
        assert exact_profile.profile(p, q, epsilon) <= curve.delta(epsilon) + 1e-12
