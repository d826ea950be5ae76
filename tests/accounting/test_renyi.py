"""Result A': Rényi divergences as numbers, and bounds on them that hold for every vector."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import exact_profile, rounded_release, skellam_divergences
from skellam.accounting.rdp import rdp_bound
from skellam.accounting.renyi import delta_exact, rdp_exact, rdp_integer, rdp_rounded
from skellam.errors import CertificateError, DomainError

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "skellam_divergences.json").read_text()
)
ORDERS = (1.05, 1.5, 2.0, 2.4, 3.0, 8.0, 32.0)


@pytest.mark.parametrize("row", VECTORS["rdp"])
def test_divergences_are_the_high_precision_values_from_above(row):
    found = rdp_exact(row["variance"], row["shift"], row["order"])
    assert float(row["value"]) <= found <= float(row["value"]) * (1 + 1e-9)


@pytest.mark.parametrize("row", VECTORS["delta"])
def test_deltas_are_the_high_precision_values_from_above(row):
    found = delta_exact(row["variance"], row["shift"], row["epsilon"])
    assert float(row["value"]) <= found <= float(row["value"]) * (1 + 1e-9)


@pytest.mark.parametrize("variance", [0.02, 1.0, 40.0, 300.0])
@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 9.7])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_divergences_at_any_real_order_match_the_oracle(variance, order, shift):
    reach = int(order * shift + 20 + 18 * math.sqrt(variance))
    wanted = float(skellam_divergences.renyi(variance, shift, order, reach))
    assert rdp_exact(variance, shift, order) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("variance", [0.05, 1.0, 25.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 8.5])
def test_at_fifty_digits_the_divergence_over_the_square_of_the_shift_falls(variance, order):
    reach = int(8 * order + 30 + 20 * math.sqrt(variance))
    found = [skellam_divergences.renyi(variance, k, order, reach) / k**2 for k in range(1, 9)]
    assert all(b < a for a, b in itertools.pairwise(found))


@given(st.floats(-5, 12).map(math.exp), st.floats(-3, 5).map(lambda x: 1 + math.exp(x)), st.data())
def test_the_divergence_over_the_square_of_the_shift_never_rises(variance, order, data):
    k = data.draw(st.integers(1, 12))
    near, far = (rdp_exact(variance, j, order) / j**2 for j in (k, k + 1))
    assert far <= near * (1 + 1e-8)


@given(st.floats(-3, 12).map(math.exp), st.integers(2, 64), st.integers(1, 6))
def test_the_exact_divergence_is_below_the_papers_bound(variance, order, shift):
    bound = rdp_bound(variance, shift, shift, order)
    assert rdp_exact(variance, shift, order) <= bound * (1 + 1e-9)


def test_few_bits_gain_most():
    """At variance 25 and order 32 the exact value is 0.814 of the Gaussian's, the bound 1.043."""
    gaussian = 32 / (2 * 25)
    assert rdp_exact(25, 1, 32) / gaussian == pytest.approx(0.814, abs=1e-3)
    assert rdp_bound(25, 1, 1, 32) / gaussian == pytest.approx(1.043, abs=1e-3)


def test_near_order_one_skellam_costs_more_than_the_gaussian():
    assert rdp_exact(1, 1, 1.0001) * 2 * 1 / 1.0001 == pytest.approx(1.05, abs=0.01)


@given(
    st.floats(-3, 5).map(math.exp),
    st.lists(st.integers(-6, 6), min_size=1, max_size=5).filter(any),
    st.sampled_from(ORDERS),
)
def test_no_integer_vector_diverges_more_than_its_norm_allows(variance, vector, order):
    total = sum(rdp_exact(variance, v, order) for v in vector if v)
    assert total <= rdp_integer(variance, math.hypot(*vector), order) * (1 + 1e-8)


@pytest.mark.parametrize("order", [1.5, 2.0, 7.3])
def test_large_shifts_are_bounded_without_being_evaluated(order):
    bound = rdp_integer(400.0, 60.0, order)
    for shift in (33, 40, 60):
        assert rdp_exact(400.0, shift, order) <= bound * (shift / 60) ** 2


def _moments(variance, x, order):
    p, q = rounded_release.pair(variance, [x], int(order * (x + 2) + 25 + 12 * math.sqrt(variance)))
    seen = (p > 1e-280) & (q > 1e-280)
    p, q = np.log(p[seen]), np.log(q[seen])
    both = [np.exp(order * a + (1 - order) * b).sum() for a, b in ((p, q), (q, p))]
    return max(math.log(m) for m in both) / (order - 1)


@settings(max_examples=60)
@given(
    st.floats(-2, 4).map(math.exp), st.floats(0.05, 3), st.sampled_from([1.5, 2.0, 2.4, 3.0, 6.0])
)
def test_no_real_value_diverges_more_than_rounding_allows(variance, x, order):
    bound = rdp_rounded(variance, order, max(x, 1.0))
    assert _moments(variance, x, order) <= bound * x**2 * (1 + 1e-8) + 1e-12


@pytest.mark.parametrize("order", [1.5, 2.0, 2.5, 3.0, 8.0, 32.0])
def test_rounding_at_deviation_42_costs_within_a_percent_of_the_gaussian(order):
    ratio = rdp_rounded(42.0**2, order, 1.0) * 2 * 42**2 / order
    assert 1 < ratio < 1.007


@pytest.mark.parametrize("order", [1.5, 2.5, 4.0])
def test_a_wider_range_of_values_is_never_cheaper(order):
    found = [rdp_rounded(9.0, order, end) for end in (0.3, 0.9, 1.0, 2.0, 3.5)]
    assert all(b >= a * (1 - 2e-3) for a, b in itertools.pairwise(found))


def test_values_and_growth_beyond_what_is_proven_raise():
    with pytest.raises(CertificateError, match="bound the coordinates"):
        rdp_rounded(100.0, 2.0, 1000.0)
    with pytest.raises(CertificateError, match="lower the order"):
        rdp_rounded(1.0, 500.0, 4.0)
    with pytest.raises(CertificateError, match="too large a table"):
        rdp_exact(1.0, 1000, 1e6)


@pytest.mark.parametrize("order", [1, 0.5, -2, math.nan, math.inf])
def test_an_order_must_be_finite_and_above_one(order):
    for call in (lambda a: rdp_exact(1, 1, a), lambda a: rdp_rounded(1, a, 1)):
        with pytest.raises(DomainError, match="order"):
            call(order)


@pytest.mark.parametrize("variance", [0, -1, math.nan, math.inf])
def test_a_variance_must_be_positive(variance):
    for call in (
        lambda v: rdp_exact(v, 1, 2),
        lambda v: rdp_rounded(v, 2, 1),
        lambda v: delta_exact(v, 1, 1),
    ):
        with pytest.raises(DomainError, match="variance"):
            call(variance)


@pytest.mark.parametrize("shift", [0, 1.5])
def test_a_shift_is_a_whole_number_that_moves(shift):
    with pytest.raises(DomainError, match="shift"):
        rdp_exact(1, shift, 2)


def test_the_sign_of_a_shift_does_not_matter():
    assert rdp_exact(7, -3, 2.5) == rdp_exact(7, 3, 2.5)
    assert delta_exact(7, -3, 0.5) == delta_exact(7, 3, 0.5)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_epsilon_is_finite_and_not_negative(epsilon):
    with pytest.raises(DomainError, match="epsilon"):
        delta_exact(1, 1, epsilon)


@given(st.floats(-2, 3).map(math.exp), st.integers(1, 4), st.floats(0, 6))
def test_the_exact_delta_is_the_sum_over_all_outcomes(variance, shift, epsilon):
    masses = exact_profile.skellam_masses(variance, 25 + int(9 * math.sqrt(variance)))
    p, q = masses[4 - shift : masses.size - 4 - shift], masses[4:-4]
    wanted = exact_profile.profile(p, q, epsilon)
    assert delta_exact(variance, shift, epsilon) == pytest.approx(wanted, rel=1e-9, abs=1e-15)


def test_a_shift_beyond_all_noise_costs_everything():
    assert delta_exact(0.01, 1000, 1.0) == 1.0
