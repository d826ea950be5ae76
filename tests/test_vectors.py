import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam import Lattice, Reals, Residues
from skellam.errors import DomainError, KindError, ShapeError
from skellam.vectors import residue_dtype


def residues(values, bits=8, **marks):
    return Residues(np.array(values, dtype=residue_dtype(bits)), bits=bits, **marks)


@given(bits=st.integers(2, 32), data=st.data())
def test_adding_residues_is_adding_integers_modulo_the_power_of_two(bits, data):
    numbers = st.lists(st.integers(0, 2**bits - 1), min_size=3, max_size=3)
    a, b = data.draw(numbers), data.draw(numbers)
    total = residues(a, bits) + residues(b, bits)
    assert total.values.tolist() == [(x + y) % 2**bits for x, y in zip(a, b, strict=True)]


def test_only_like_residues_can_be_added():
    with pytest.raises(DomainError, match="bits"):
        residues([1], 8) + residues([1], 7)
    with pytest.raises(ShapeError, match="length 2"):
        residues([1]) + residues([1, 2])
    with pytest.raises(DomainError, match="different plans"):
        residues([1], label=b"a") + residues([1], label=b"b")


def test_the_mark_of_replayable_randomness_is_contagious():
    assert (residues([1]) + residues([1], replayable=True)).replayable
    assert not (residues([1]) + residues([1])).replayable
    assert (Reals(np.ones(2), replayable=True) / 2).replayable


def test_a_residue_at_or_above_the_modulus_is_refused():
    with pytest.raises(DomainError, match="below 2"):
        residues([16], bits=4)


@pytest.mark.parametrize("bits", [1, 33, 0, -8])
def test_moduli_outside_two_to_thirty_two_bits_are_refused(bits):
    with pytest.raises(DomainError, match="bits"):
        residue_dtype(bits)


def test_floats_cannot_enter_the_ring_and_integers_are_no_reals():
    with pytest.raises(KindError):
        Residues(np.ones(3), bits=8)
    with pytest.raises(KindError):
        Reals(np.ones(3, dtype=np.int32))
    with pytest.raises(KindError):
        Lattice(np.ones(3))
    with pytest.raises(KindError):
        Lattice([1, 2])
    with pytest.raises(ShapeError):
        Lattice(np.ones((2, 2), dtype=np.int32))


def test_vectors_are_read_only_and_turn_into_arrays():
    vector = Lattice(np.arange(3))
    with pytest.raises(ValueError, match="read-only"):
        vector.values[0] = 1
    assert np.asarray(vector).tolist() == [0, 1, 2]
    assert np.array(vector, dtype=np.float64).dtype == np.float64
    with pytest.raises(KindError, match="only by a copy"):
        np.asarray(vector, dtype=np.float64, copy=False)


@pytest.mark.parametrize("divisor", [0, float("nan"), float("inf"), "2"])
def test_reals_divide_by_finite_numbers_only(divisor):
    with pytest.raises(DomainError):
        Reals(np.ones(2)) / divisor


def test_reals_scale():
    assert ((Reals(np.array([2.0, 4.0])) / 2) * 3).values.tolist() == [3.0, 6.0]
    assert len(Reals(np.ones(2))) == 2
