import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.codec_specs import spec_of
from skellam.codec import (
    CentralDiscreteGaussian,
    CentralSkellam,
    Conditional,
    DiscreteGaussianShares,
    SkellamShares,
    Unbiased,
)
from skellam.errors import DomainError, KindError, ThresholdError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dimension", 0),
        ("dimension", 1.5),
        ("clip", 0.0),
        ("clip", math.nan),
        ("scale", -1.0),
        ("scale", math.inf),
        ("bits", 1),
        ("bits", 33),
        ("padded", 999),
        ("padded", 1001),
        ("kept", 0),
        ("kept", 1025),
    ],
)
def test_a_number_outside_its_domain_is_refused_by_name(name, value):
    with pytest.raises(DomainError, match=name):
        spec_of(**{name: value})


def test_a_scale_whose_integers_would_overflow_is_refused():
    with pytest.raises(DomainError, match=r"scale \* clip"):
        spec_of(scale=2.0**31)


@pytest.mark.parametrize("name", ["rounding", "noise"])
def test_a_rounding_or_noise_of_another_kind_is_refused(name):
    with pytest.raises(KindError, match=name):
        spec_of(**{name: "skellam"})


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, "1"])
@pytest.mark.parametrize(
    "kind",
    [
        Unbiased,
        DiscreteGaussianShares,
        CentralSkellam,
        CentralDiscreteGaussian,
        lambda variance: SkellamShares(variance, 10),
        lambda beta: Conditional(beta or 1.0),
    ],
)
def test_a_parameter_outside_its_domain_is_refused(kind, value):
    with pytest.raises(DomainError):
        kind(value)


def test_numbers_of_other_types_mean_the_same_spec():
    same = spec_of(clip=np.float64(1), bits=np.int64(16), noise=SkellamShares(np.float32(3), 2))
    assert repr(same) == repr(spec_of(noise=SkellamShares(3.0, 2)))


@given(st.floats(1e-3, 1e9), st.integers(1, 10**5))
def test_all_shares_together_never_carry_less_than_the_variance(variance, shares):
    noise = SkellamShares(variance, shares)
    assert shares * Fraction(noise.share) >= Fraction(variance)
    assert noise.share <= variance / shares * (1 + 1e-15)


@given(st.floats(1, 1e6), st.integers(2, 1000), st.data())
def test_after_dropouts_what_stays_is_at_least_the_plan_and_at_most_a_hundredth_more(
    variance, shares, data
):
    noise = SkellamShares(variance, shares, components=6)
    dropped = data.draw(st.integers(0, int(0.3 * shares)))
    removed = noise.superfluous(dropped)
    kept = [noise.component(j) for j in range(6) if j not in removed]
    total = (shares - dropped) * (Fraction(noise.share) + sum(map(Fraction, kept)))
    assert total >= Fraction(variance)
    assert float(total) <= 1.01 * variance * (1 + 1e-12)


def test_more_dropouts_than_the_components_make_up_for_are_refused():
    noise = SkellamShares(100.0, 10, components=6)
    assert noise.superfluous(0) == (0, 1, 2, 3, 4, 5)
    for dropped in (4, 9, 10):
        with pytest.raises(ThresholdError, match="dropped out"):
            noise.superfluous(dropped)
    with pytest.raises(ThresholdError):
        SkellamShares(100.0, 10).superfluous(1)
    assert SkellamShares(100.0, 10).superfluous(0) == ()
