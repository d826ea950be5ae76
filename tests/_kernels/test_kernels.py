from fractions import Fraction
from math import floor, trunc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.linalg import hadamard as hadamard_matrix

from skellam import _kernels
from skellam._kernels import _numba, _numpy
from skellam.errors import DomainError, KindError, ShapeError

BACKENDS = [_numpy, _numba]
UINT32 = st.integers(0, 2**32 - 1)


def normal(size, seed=1):
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [2**k for k in range(12)])
def test_hadamard_is_the_product_with_sylvesters_matrix(backend, size):
    x = np.random.default_rng(size).integers(-1000, 1000, size).astype(np.float32)
    expected = hadamard_matrix(size) @ x
    backend.hadamard(x)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("size", [2**k for k in range(21)])
def test_the_two_hadamard_transforms_agree_to_a_few_roundings(size):
    x = normal(size)
    y = x.copy()
    _numpy.hadamard(x)
    _numba.hadamard(y)
    np.testing.assert_allclose(x, y, rtol=0, atol=16 * 2**-24 * np.linalg.norm(x))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [2, 2**13, 2**18])
def test_hadamard_twice_multiplies_by_the_length(backend, size):
    x = np.random.default_rng(size).integers(-8, 8, size).astype(np.float32)
    y = x.copy()
    backend.hadamard(y)
    backend.hadamard(y)
    np.testing.assert_allclose(y, size * x, rtol=0, atol=size * 1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("rows", "length"), [(1, 8), (27, 2048), (63, 512), (3, 1 << 17), (5, 1)])
def test_rows_are_transformed_to_the_same_floats_as_alone(backend, rows, length):
    x = np.random.default_rng(rows).standard_normal((rows, length), dtype=np.float32)
    alone = x.copy()
    for row in alone:
        backend.hadamard(row)
    backend.hadamard(x)
    assert np.array_equal(x, alone)


@pytest.mark.parametrize("size", [0, 3, 12])
def test_hadamard_refuses_other_lengths(size):
    with pytest.raises(ShapeError, match="power of two"):
        _kernels.hadamard(np.zeros(size, dtype=np.float32))


@pytest.mark.parametrize(
    "x", [np.zeros(4), np.zeros((2, 2, 2), np.float32), np.zeros(8, np.float32)[::2]]
)
def test_hadamard_refuses_other_arrays(x):
    with pytest.raises(KindError):
        _kernels.hadamard(x)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 13, 70_003])
def test_flipping_scales_and_negates_where_the_bit_is_set(backend, dtype, size):
    x = normal(size).astype(dtype)
    bits = np.random.default_rng(2).integers(0, 256, -(-size // 8) + 1, dtype=np.uint8)
    signs = 1 - 2 * np.unpackbits(bits, bitorder="little")[:size].astype(dtype)
    out = np.empty(size, dtype=np.float32)
    backend.flip(x, bits, dtype(0.3), out)
    np.testing.assert_array_equal(out, (x * dtype(0.3) * signs).astype(np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 20_003])
@pytest.mark.parametrize("scale", [1e9, 1e-22, 1e-40])
def test_the_square_norm_is_as_near_as_it_says(backend, dtype, size, scale):
    y = normal(size).astype(dtype) * dtype(scale)
    exact = sum(Fraction(float(v)) ** 2 for v in y)
    error = abs(Fraction(backend.square_norm(y)) - exact)
    single = dtype == np.float32
    assert error <= exact / 2 ** (15 if single else 32) + single * Fraction(size, 2**124)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_floats_sum_as_near_as_it_says(backend):
    """Where every addition rounds the same way."""
    y = np.full(1 << 16, 1 + 2.0**-12, dtype=np.float32)
    exact = Fraction(float(y[0])) ** 2 * len(y)
    assert abs(Fraction(backend.square_norm(y)) - exact) <= exact / 2**15


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_square_norm_does_not_hide_what_is_not_finite(backend, bad):
    y = np.ones(20_000, dtype=np.float32)
    y[12_345] = bad
    assert not np.isfinite(backend.square_norm(y))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bound", [0.5, np.inf])
def test_shrinking_scales_and_then_cuts(backend, bound):
    y = normal(1003)
    expected = np.minimum(np.abs(y * np.float32(0.7)), np.float32(bound)) * np.sign(y)
    backend.shrink(y, np.float32(0.7), np.float32(bound))
    np.testing.assert_array_equal(y, expected)


def rounded(y, coins):
    """Round as the contract says, on exact rationals."""
    fixed = (trunc(Fraction(float(v)) * 2**32) for v in y)
    return [floor(Fraction(f + int(c), 2**32)) for f, c in zip(fixed, coins, strict=True)]


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    st.sampled_from([np.float32, np.float64]).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            st.integers(0, 40),
            elements=st.floats(-(2.0**31) + 128, 2.0**31 - 128, width=np.dtype(dtype).itemsize * 8)
            | st.floats(-2, 2, width=np.dtype(dtype).itemsize * 8),
        )
    ),
    st.data(),
)
def test_rounding_is_what_exact_rationals_give(backend, y, data):
    coins = data.draw(hnp.arrays(np.uint32, len(y), elements=UINT32))
    out = np.empty(len(y), dtype=np.int32)
    backend.round_stochastic(y, coins, out)
    assert out.tolist() == rounded(y, coins)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("y", [0.25, -0.25, 7.625, -7.625, 3.0, -3.0, 1 / 3, -1 / 3, 2.0**-40])
def test_the_mean_over_all_coins_is_the_truncated_fraction(backend, y):
    """The coins at which the outcome changes give the probability exactly."""
    part = trunc(Fraction(y) * 2**32) % 2**32
    edges = {0, 2**32 - 1, 2**32 - part, 2**32 - part - 1}
    coins = np.array(sorted(c for c in edges if 0 <= c < 2**32), dtype=np.uint32)
    out = np.empty(len(coins), dtype=np.int32)
    backend.round_stochastic(np.full(len(coins), y), coins, out)
    low = floor(Fraction(trunc(Fraction(y) * 2**32), 2**32))
    assert out.tolist() == [low + (int(c) + part >= 2**32) for c in coins]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1, 1e3, 1e8])
def test_both_back_ends_round_alike(dtype, scale):
    size = 100_003
    y = (np.random.default_rng(3).standard_normal(size) * scale).astype(dtype)
    coins = np.random.default_rng(4).integers(0, 2**32, size, dtype=np.uint32)
    a, b = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
    _numpy.round_stochastic(y, coins, a)
    _numba.round_stochastic(y, coins, b)
    np.testing.assert_array_equal(a, b)


def mostly(backend, y, coins, factor=1.0, bound=2.0**14):
    out = np.empty(len(y), dtype=np.int16)
    one = np.float32(2**16)
    at = backend.round_mostly(y, np.float32(factor) * one, np.float32(bound) * one, coins, out)
    return out, at


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    hnp.arrays(
        np.float32,
        st.integers(0, 40),
        elements=st.floats(-(2.0**14), 2.0**14, width=32)
        | st.floats(-2, 2, width=32)
        | st.floats(-(2.0**-40), 2.0**-40, width=32),
    ),
    st.data(),
)
def test_sixteen_coins_decide_only_what_32_more_cannot_change(backend, y, data):
    """Exact rationals, half of them at the edge where the coins do not decide."""
    edge = (-1 - np.floor(y.astype(np.float64) * 2**16).astype(np.int64)) % 2**16
    drawn = data.draw(hnp.arrays(np.uint16, len(y), elements=st.integers(0, 2**16 - 1)))
    coins = np.where(np.arange(len(y)) % 2, drawn, edge).astype(np.uint16)
    out, at = mostly(backend, y, coins)
    undecided = set(at.tolist())
    for i, (v, c) in enumerate(zip(y, coins, strict=True)):
        fixed = trunc(Fraction(float(v)) * 2**48)
        least, most = (floor(Fraction(fixed + (int(c) << 32) + r, 2**48)) for r in (0, 2**32 - 1))
        assert i in undecided or least == out[i] == most
        assert i not in undecided or i % 2 == 0 or c == edge[i]


@pytest.mark.parametrize("bound", [0.5, 2.0**14])
def test_both_back_ends_shrink_and_round_alike(bound):
    size = 200_003
    y, coins = 3 * normal(size), np.random.default_rng(4).integers(0, 2**16, size, dtype=np.uint16)
    (a, at), (b, bt) = (mostly(backend, y, coins, 0.7, bound) for backend in BACKENDS)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(at, bt)
    shrunk = y.copy()
    _numpy.shrink(shrunk, np.float32(0.7), np.float32(bound))
    np.testing.assert_array_equal(a, mostly(_numpy, shrunk, coins)[0])


def test_rounding_with_few_coins_refuses_what_does_not_fit():
    y, coins, out = np.zeros(3, np.float32), np.zeros(3, np.uint16), np.zeros(3, np.int16)
    one, bound = np.float32(1), np.float32(2)
    with pytest.raises(ShapeError):
        _kernels.round_mostly(y, one, bound, coins[:2], out)
    with pytest.raises(KindError):
        _kernels.round_mostly(y, one, bound, coins.astype(np.uint32), out)
    for bad in (2.0**14 + 1, np.nan, -1.0):
        with pytest.raises(DomainError, match="bound"):
            _kernels.round_mostly(y, one, np.float32(bad), coins, out)


@pytest.mark.parametrize("backend", BACKENDS)
@given(hnp.arrays(np.int32, st.integers(0, 40)))
def test_the_sum_of_squares_is_exact(backend, whole):
    assert backend.sum_of_squares(whole) == sum(k * k for k in whole.tolist())


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_sum_of_squares_is_exact_where_64_bits_would_overflow(backend):
    whole = np.full(70_001, -(2**31), dtype=np.int32)
    assert backend.sum_of_squares(whole) == 70_001 * 2**62


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**31, -(2.0**31)])
def test_rounding_refuses_what_has_no_integer(value, dtype):
    y = np.array([0, value, 0], dtype=dtype)
    with pytest.raises(DomainError, match="clip or scale"):
        _kernels.round_stochastic(y, np.zeros(3, np.uint32), np.empty(3, np.int32))


def test_rounding_refuses_arrays_that_do_not_fit():
    y, coins, out = np.zeros(3), np.zeros(3, np.uint32), np.zeros(3, np.int32)
    with pytest.raises(ShapeError):
        _kernels.round_stochastic(y, coins[:2], out)
    with pytest.raises(KindError):
        _kernels.round_stochastic(y, coins.astype(np.uint64), out)
    with pytest.raises(KindError):
        _kernels.round_stochastic(y.astype(np.float16), coins, out)


@pytest.mark.parametrize("unsigned", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("signed", [np.int16, np.int32, np.int64])
@pytest.mark.parametrize("backend", BACKENDS)
@given(data=st.data())
def test_adding_wraps_as_python_integers_do(backend, unsigned, signed, data):
    bits = data.draw(st.integers(2, 8 * np.dtype(unsigned).itemsize))
    out = data.draw(hnp.arrays(unsigned, st.integers(0, 20), elements=st.integers(0, 2**bits - 1)))
    addend = data.draw(hnp.arrays(signed, len(out)))
    expected = [(a + b) % 2**bits for a, b in zip(out.tolist(), addend.tolist(), strict=True)]
    backend.add_wrap(out, addend, bits)
    assert out.tolist() == expected


def test_adding_refuses_arrays_that_do_not_fit():
    out, addend = np.zeros(3, np.uint16), np.zeros(3, np.int32)
    with pytest.raises(ShapeError):
        _kernels.add_wrap(out, addend[:2], 16)
    with pytest.raises(KindError):
        _kernels.add_wrap(out, addend, 17)
    with pytest.raises(KindError):
        _kernels.add_wrap(out, addend.astype(np.float32), 16)
    with pytest.raises(KindError):
        _kernels.add_wrap(addend, addend, 16)
