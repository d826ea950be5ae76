import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oracles.algorithm_1 import exact_norm
from skellam import SeededEntropy
from skellam.codec.arithmetic import (
    MAX_TRIES,
    finite_peak,
    round_conditional,
    round_unbiased,
    shrink,
    upper_norm,
)
from skellam.errors import DomainError

FLOATS = st.floats(-1e6, 1e6, width=32)
VECTORS = arrays(np.float32, st.integers(1, 200), elements=FLOATS)


def whole(chunks):
    return np.concatenate([chunk.copy() for chunk in chunks])


def entropy(name="rounding"):
    return SeededEntropy(bytes(32), name)


@given(VECTORS)
def test_the_norm_is_an_upper_bound_and_tight(y):
    exact = exact_norm(y)
    assert exact <= upper_norm(y) <= exact * (1 + 2.0**-15) + 2.0**-40
    assert exact <= upper_norm(y.astype(np.float64)) <= exact * (1 + 2.0**-29)


@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_the_norm_of_floats_whose_squares_no_float32_holds_is_an_upper_bound(scale):
    y = np.full(1000, scale, dtype=np.float32)
    exact = exact_norm(y)
    assert exact <= upper_norm(y) <= exact * (1 + 2.0**-15) + 2.0**-40


@given(VECTORS, st.floats(2.0**-30, 2.0**30))
def test_after_shrinking_the_floats_themselves_are_within_the_radius(y, radius):
    before = exact_norm(y)
    y = whole(shrink(y, upper_norm(y), radius))
    assert exact_norm(y) <= radius
    assert exact_norm(y) >= min(before, radius) * (1 - 2.0**-14) - 1e-40


@given(VECTORS, st.floats(1e-3, 1e6))
def test_after_cutting_no_coordinate_is_larger(y, largest):
    signs = np.sign(y)
    y = whole(shrink(y, 0.0, 1.0, largest))
    assert float(np.abs(y).max()) <= largest
    assert np.all(np.sign(y) * signs >= 0)


@pytest.mark.parametrize("largest", [None, 2.0**14, 2.0**15])
def test_unbiased_rounding_has_the_mean_and_neighbours_of_each_float(largest):
    """The mean of 2**20 roundings of each value is within 6 deviations: a false alarm in 5e8."""
    source = entropy()
    for value in (-2.75, -0.5, -1e-3, 0.0, 1e-6, 0.25, 0.999, 3.0, 100.4):
        y = np.full(1 << 20, value, dtype=np.float32)
        z = whole(round_unbiased(y, 0.0, 1.0, largest, entropy=source))
        fraction = float(y[0]) - math.floor(float(y[0]))
        assert set(np.unique(z)) <= {math.floor(float(y[0])), math.ceil(float(y[0]))}
        spread = math.sqrt(fraction * (1 - fraction) / len(y))
        assert abs(z.mean() - float(y[0])) <= 6 * spread + 2.0**-32


class Scripted:
    """Gives the same coins to everybody, and then as many more bits as are asked for."""

    replayable = True

    def __init__(self, coins, more):
        self._coins, self._more = coins, more

    def fill(self, buffer):
        buffer[:] = self._coins if buffer.dtype == np.uint16 else self._more


@given(
    st.floats(-300, 300, width=32) | st.floats(-(2.0**-17), 2.0**-17, width=32),
    st.integers(-1, 1),
    st.sampled_from([0, 1, 2**31, 2**32 - 2, 2**32 - 1]),
)
def test_where_16_bits_do_not_decide_48_do(value, beside, more):
    """On exact rationals, at the only coin that leaves a value undecided and at its neighbours."""
    y = np.array([value], dtype=np.float32)
    coin = (-1 - math.floor(Fraction(value) * 2**16) + beside) % 2**16
    (z,) = whole(round_unbiased(y, 0.0, 1.0, 2.0**14, entropy=Scripted(coin, more)))
    fixed = math.trunc(Fraction(value) * 2**48)
    assert z == math.floor(Fraction(fixed + (coin << 32) + more, 2**48))


def test_rounding_with_few_bits_shrinks_and_cuts():
    y = np.array([8.0, -8.0, 1.0, 0.0], dtype=np.float32)
    z = whole(round_unbiased(y, upper_norm(y), 4.0, 2.0, entropy=Scripted(2**16 - 1, 0)))
    assert z.tolist() == [2, -2, 1, 0]
    np.testing.assert_array_equal(y, [8.0, -8.0, 1.0, 0.0])


def test_conditional_rounding_keeps_to_its_square():
    source = entropy()
    y = np.full(100, 0.5, dtype=np.float32)
    squares = {int((whole(round_conditional(y, 50, entropy=source)) ** 2).sum()) for _ in range(50)}
    assert max(squares) <= 50
    assert len(squares) > 5


def test_conditional_rounding_that_cannot_succeed_gives_zeros_after_capped_tries():
    class Counting:
        replayable = True
        filled = 0

        def fill(self, buffer):
            buffer[:] = 0xFFFFFFFF
            self.filled += 1

    source = Counting()
    y = np.full(10, 0.5, dtype=np.float32)
    assert not whole(round_conditional(y, 1, entropy=source)).any()
    assert source.filled == MAX_TRIES


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_entry_that_is_not_finite_is_named(bad):
    x = np.zeros(10)
    x[7] = bad
    with pytest.raises(DomainError, match=r"x\[7\]"):
        finite_peak(x)
