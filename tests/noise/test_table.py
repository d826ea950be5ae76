import itertools
import json
from pathlib import Path

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import integer_laws
from oracles.scripted_bits import FULL, steps
from skellam.noise import (
    DiscreteGaussianSampler,
    DiscreteLaplaceSampler,
    SkellamSampler,
    integer,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/skellam_log_pmf.json").read_text())


@pytest.mark.parametrize("row", VECTORS["log_pmf"], ids=str)
def test_log_probabilities_agree_with_the_golden_ones_to_1e_14(row):
    law = SkellamSampler(row["variance"])
    with mpmath.workdps(30):
        difference = mpmath.mpf(row["value"]) - mpmath.mpf(float(law.log_pmf(row["k"])))
    assert abs(difference) <= 1e-14


def total_variation(law, ideal):
    """Return the distance of what the table draws from the ideal law, to eighty digits."""
    C = [0, *steps(law._table), FULL]
    with mpmath.workdps(integer_laws.DIGITS):
        drawn = [mpmath.mpf(b - a) / FULL for a, b in itertools.pairwise(C)]
        wanted = [ideal[abs(k)] for k in range(-law.bound, law.bound + 1)]
        beyond = 1 - mpmath.fsum(wanted)
        apart = mpmath.fsum(abs(p - q) for p, q in zip(drawn, wanted, strict=True))
        return (apart + abs(beyond)) / 2


@pytest.mark.parametrize("variance", [1e-6, 1e-3, 0.1, 0.25, 1, 3, 99.9, 100, 1e4, 1e6])
def test_the_stated_distance_holds_for_skellam(variance):
    law = SkellamSampler(variance)
    true = total_variation(law, integer_laws.skellam(variance, law.bound))
    assert 0 < true <= law.total_variation <= 2**-100


@settings(max_examples=40)
@given(st.floats(-6, 4).map(lambda exponent: 10**exponent))
def test_the_stated_distance_holds_for_skellam_of_any_variance(variance):
    law = SkellamSampler(variance)
    true = total_variation(law, integer_laws.skellam(variance, law.bound))
    assert 0 < true <= law.total_variation <= 2**-100


@pytest.mark.slow
@pytest.mark.parametrize("variance", [1e8, 1e9])
def test_the_stated_distance_holds_for_skellam_of_great_variance(variance):
    law = SkellamSampler(variance)
    true = total_variation(law, integer_laws.skellam(variance, law.bound))
    assert 0 < true <= law.total_variation <= 2**-100


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 0.5, 1, 9.99, 100, 1000])
def test_the_stated_distance_holds_for_the_discrete_gaussian(sigma):
    law = DiscreteGaussianSampler(sigma)
    true = total_variation(law, integer_laws.discrete_gaussian(sigma, law.bound))
    assert true <= law.total_variation <= 2**-100


@pytest.mark.parametrize("scale", [0.01, 0.1, 1, 9.99, 100])
def test_the_stated_distance_holds_for_the_discrete_laplace(scale):
    law = DiscreteLaplaceSampler(scale)
    true = total_variation(law, integer_laws.discrete_laplace(scale, law.bound))
    assert true <= law.total_variation <= 2**-100


@pytest.mark.parametrize("variance", [0.25, 3, 99.9])
def test_each_step_is_the_true_cdf_to_128_bits(variance):
    law = SkellamSampler(variance)
    ideal = integer_laws.skellam(variance, law.bound)
    with mpmath.workdps(integer_laws.DIGITS):
        upper = 1 + ideal[0]  # twice P(X <= 0)
        below = mpmath.mpf(0)
        for k in range(law.bound):
            cumulative = (upper / 2 + below) * FULL
            assert abs(cumulative - steps(law._table)[law.bound + k]) <= 32
            below += ideal[k + 1]


def test_a_table_is_built_once_for_a_parameter(monkeypatch):
    SkellamSampler(12.5)
    monkeypatch.setattr(integer, "build_table", None)
    assert SkellamSampler(12.5).bound > 0


def test_the_tables_at_hand_stay_below_the_limit_of_memory(monkeypatch):
    monkeypatch.setattr(integer, "_CACHE_BYTES", 1_000_000)
    for variance in range(20, 40):
        SkellamSampler(variance)
    assert sum(table.nbytes for table in integer._cache.values()) <= 1_000_000


def test_the_weights_of_a_law_carry_nearly_all_of_its_mass():
    assert integer.skellam_weights(100.0).total_variation < 2**-110
