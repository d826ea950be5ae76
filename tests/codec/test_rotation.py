import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.algorithm_1 import rotation_matrix, subset
from skellam.codec.arithmetic import Rotation, coordinate_subset
from skellam.codec.spec import MAX_BLOCKS, block_of, padded_length


@pytest.mark.parametrize("length", [1, 2, 3, 12, 64, 72, 126, 160])
def test_the_rotation_is_random_signs_then_the_matrix_of_the_definition(length):
    seed = bytes(range(32))
    rotation = Rotation(length, seed)
    columns = np.array([rotation.forward(row, 1.0) for row in np.eye(length)]).T
    signs = columns.T @ rotation_matrix(length)
    np.testing.assert_allclose(np.abs(signs), np.eye(length), atol=2e-6)


@pytest.mark.parametrize("length", [1 << 14, 33 << 9, (1 << 16) + (1 << 11), 63 << 11])
def test_going_back_undoes_going_forth(length):
    x = np.random.default_rng(1).normal(size=length - 3)
    rotation = Rotation(length, bytes(32))
    back = rotation.backward(rotation.forward(x, 7.0), 1 / 7, len(x))
    np.testing.assert_allclose(back, x, atol=1e-5)


@pytest.mark.parametrize("length", [1 << 12, 33 << 7, 63 << 6])
def test_a_spike_spreads_over_every_coordinate(length):
    x = np.zeros(length)
    x[length // 3] = 1
    y = Rotation(length, bytes(32)).forward(x, 1.0)
    assert np.abs(y).max() <= math.sqrt(2 / length) * 1.00001
    assert np.linalg.norm(y) == pytest.approx(1, rel=1e-5)


def test_other_seeds_give_other_signs_half_of_them():
    """The number of equal signs is binomial: 7 deviations, a false alarm in 10**11."""
    x = np.zeros(1 << 14, dtype=np.float32)
    x[:] = 1
    a, b = (Rotation(1 << 14, bytes([i]) * 32) for i in (1, 2))
    signs = [r.backward(r.forward(x, 1.0), 1.0, len(x)) for r in (a, b)]
    np.testing.assert_allclose(signs[0], 1, atol=1e-5)
    mixed = b.backward(a.forward(x, 1.0), 1.0, len(x))
    assert abs(np.sign(mixed).sum()) <= 7 * math.sqrt(len(x))


@given(st.integers(1, 1 << 40))
def test_padding_costs_at_most_a_thirty_second(dimension):
    length = padded_length(dimension)
    assert dimension <= length <= dimension * (1 + 1 / 32)
    assert length // block_of(length) <= MAX_BLOCKS


def test_one_more_than_a_power_of_two_does_not_cost_the_next():
    assert padded_length((1 << 22) + 1) == 33 << 17


@pytest.mark.parametrize(("length", "kept"), [(1, 1), (16, 4), (1000, 100), (1000, 1000)])
def test_a_subset_is_the_coordinates_of_the_smallest_keys_in_order(length, kept):
    assert list(coordinate_subset(length, kept, bytes(32))) == subset(length, kept, bytes(32))


def test_every_coordinate_is_kept_equally_often():
    """Chi-square over 64 coordinates and 4000 seeds: 63 degrees of freedom, a false alarm in 1e6.

    The covariance of what one seed keeps is p (1 - p) 64/63 (I - J/64), with p = 1/4.
    """
    counts = np.zeros(64)
    for i in range(4000):
        counts[coordinate_subset(64, 16, i.to_bytes(32, "big"))] += 1
    statistic = np.sum((counts - 1000) ** 2) / (1000 * (1 - 16 / 64)) * 63 / 64
    assert statistic <= 132
