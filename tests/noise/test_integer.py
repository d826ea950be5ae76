import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import DomainError, KindError
from skellam.noise import DiscreteGaussianSampler, DiscreteLaplaceSampler, SkellamSampler

SAMPLERS = [
    SkellamSampler(1e-6),
    SkellamSampler(0.25),
    SkellamSampler(100),
    SkellamSampler(1e6),
    DiscreteGaussianSampler(0.001),
    DiscreteGaussianSampler(3),
    DiscreteLaplaceSampler(0.01),
    DiscreteLaplaceSampler(5),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_the_distance_from_the_ideal_law_is_at_most_two_to_the_minus_hundred(sampler):
    assert 0 < sampler.total_variation <= 2**-100


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_the_pmf_sums_to_one_is_symmetric_and_gives_the_variance(sampler):
    k = np.arange(-sampler.bound, sampler.bound + 1)
    p = sampler.pmf(k)
    assert math.fsum(p) == pytest.approx(1, abs=1e-15)
    np.testing.assert_array_equal(p, p[::-1])
    assert math.fsum(p * k.astype(float) ** 2) == pytest.approx(
        sampler.variance, rel=1e-12, abs=1e-40
    )


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_nothing_lies_beyond_the_bound(sampler):
    assert sampler.pmf([sampler.bound + 1, -sampler.bound - 1]).tolist() == [0, 0]
    assert sampler.pmf(np.array([-(2**63), 2**63 - 1])).tolist() == [0, 0]
    assert sampler.pmf(np.array([2**64 - 1], dtype=np.uint64)).tolist() == [0]
    assert np.isneginf(sampler.log_pmf(sampler.bound + 1))


@pytest.mark.parametrize("law", [SkellamSampler, DiscreteGaussianSampler, DiscreteLaplaceSampler])
@pytest.mark.parametrize("value", [math.nan, math.inf, 0, -1, -math.inf, 1e-9, 1e12])
def test_a_parameter_out_of_range_is_refused_with_the_range(law, value):
    with pytest.raises(DomainError, match=r"must lie in \["):
        law(value)


def test_the_variances_at_both_ends_work():
    assert SkellamSampler(1e-6).dtype == np.int16
    assert SkellamSampler(1e9).dtype == np.int32
    assert SkellamSampler(1e9).total_variation <= 2**-100


@pytest.mark.parametrize("value", ["1", None, 1j])
def test_a_parameter_that_is_no_number_is_refused(value):
    with pytest.raises(KindError):
        SkellamSampler(value)


def test_draws_are_of_the_narrowest_type_and_say_whether_they_replay():
    drawn = SkellamSampler(100).draw(1000, entropy=SystemEntropy())
    assert drawn.values.dtype == np.int16
    assert not drawn.replayable
    assert SkellamSampler(1).draw(1, entropy=SeededEntropy(bytes(32), "noise")).replayable


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_every_buffer_that_is_wide_enough_receives_the_same_draws(dtype):
    expected = SkellamSampler(100).draw(200_000, entropy=SeededEntropy(bytes(32), "noise"))
    buffer = np.empty(200_000, dtype=dtype)
    SkellamSampler(100).draw_into(buffer, entropy=SeededEntropy(bytes(32), "noise"))
    np.testing.assert_array_equal(buffer, expected.values)


def test_a_strided_buffer_receives_the_same_draws():
    buffer = np.zeros(2000, dtype=np.int16)
    SkellamSampler(100).draw_into(buffer[::2], entropy=SeededEntropy(bytes(32), "noise"))
    expected = SkellamSampler(100).draw(1000, entropy=SeededEntropy(bytes(32), "noise"))
    np.testing.assert_array_equal(buffer[::2], expected.values)
    assert not buffer[1::2].any()


def test_a_buffer_that_cannot_hold_the_bound_is_refused():
    with pytest.raises(DomainError, match="cannot hold"):
        SkellamSampler(1e9).draw_into(np.empty(4, dtype=np.int16), entropy=SystemEntropy())


@pytest.mark.parametrize(
    "buffer", [np.empty(4), np.empty(4, np.uint16), np.empty((2, 2), np.int32), [0, 0]]
)
def test_a_buffer_of_another_kind_is_refused(buffer):
    with pytest.raises(KindError):
        SkellamSampler(1).draw_into(buffer, entropy=SystemEntropy())


def test_a_read_only_buffer_is_refused():
    buffer = np.empty(4, dtype=np.int32)
    buffer.flags.writeable = False
    with pytest.raises(DomainError, match="writeable"):
        SkellamSampler(1).draw_into(buffer, entropy=SystemEntropy())


def test_a_fraction_has_no_probability():
    with pytest.raises(KindError):
        SkellamSampler(1).pmf(0.5)


def test_samplers_are_values():
    assert SkellamSampler(3) == SkellamSampler(3.0)
    assert SkellamSampler(3) != SkellamSampler(4)
    assert pickle.loads(pickle.dumps(SkellamSampler(3))) == SkellamSampler(3)
    assert len(pickle.dumps(SkellamSampler(1e6))) < 200


@pytest.mark.parametrize("shares", [1, 3, 7, 19, 100])
def test_a_fraction_is_taken_exactly_and_survives_a_pickle(shares):
    exact = Fraction(1000.1) / shares
    sampler = SkellamSampler(exact)
    assert sampler.variance == exact
    assert sampler.total_variation <= 2**-100
    again = pickle.loads(pickle.dumps(sampler))
    assert again == sampler
    assert again.variance == exact


def test_a_float_and_its_fraction_are_one_law_with_one_table():
    one, other = SkellamSampler(2.5), SkellamSampler(Fraction(5, 2))
    assert one == other
    assert one._table is other._table
    rounded = SkellamSampler(1 / 3)
    assert rounded != SkellamSampler(Fraction(1, 3))
    assert rounded._table is not SkellamSampler(Fraction(1, 3))._table


@pytest.mark.parametrize(
    "variance", [Fraction(1, 10**7), Fraction(10**10), Fraction(-1), Fraction(0)]
)
def test_a_fraction_out_of_range_is_refused(variance):
    with pytest.raises(DomainError, match="variance"):
        SkellamSampler(variance)
