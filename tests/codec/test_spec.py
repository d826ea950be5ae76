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
    NoNoise,
    SkellamShares,
    Unbiased,
)
from skellam.errors import DomainError, KindError


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
        ("padded_dim", 999),
        ("padded_dim", 1001),
        ("sent_dim", -1),
        ("sent_dim", 1025),
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
        lambda sigma: DiscreteGaussianShares(sigma, 10),
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
def test_all_shares_together_carry_exactly_the_variance(variance, shares):
    assert shares * SkellamShares(variance, shares).share == Fraction(variance)


def test_a_spec_says_how_many_shares_it_needs_and_whether_they_can_be_removed():
    specs = {
        (7, True): SkellamShares(100.0, 7, removable=True),
        (8, False): SkellamShares(100.0, 8),
        (9, True): DiscreteGaussianShares(2.0, 9, removable=True),
        (0, False): CentralSkellam(100.0),
    }
    for expected, noise in specs.items():
        spec = spec_of(noise=noise)
        assert (spec.shares, spec.removable) == expected
    with pytest.raises(KindError, match="removable must be True or False"):
        SkellamShares(100.0, 7, removable=1)


@pytest.mark.parametrize(
    "other",
    [
        SkellamShares(100.0, 8),
        SkellamShares(100.0, 7, removable=True),
        CentralSkellam(100.0),
        NoNoise(),
    ],
)
def test_the_clip_count_gets_its_noise_from_whom_the_vector_gets_it(other):
    spec = spec_of(noise=SkellamShares(100.0, 7), clip_count=DiscreteGaussianShares(3.0, 7))
    assert spec.message_len == spec.sent_dim + 1
    with pytest.raises(DomainError, match="clip_count must get its noise"):
        spec_of(noise=SkellamShares(100.0, 7), clip_count=other)
    with pytest.raises(KindError, match="clip_count"):
        spec_of(noise=SkellamShares(100.0, 7), clip_count="skellam")


def test_all_coordinates_are_sent_unless_the_spec_says_otherwise():
    assert spec_of().sent_dim == spec_of().message_len == 1024
    assert spec_of(sent_dim=300).message_len == 300
