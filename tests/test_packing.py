import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.algorithm_1 import packed
from skellam.errors import DomainError, ShapeError
from skellam.vectors import pack_residues, packed_size, residue_dtype, unpack_residues


@st.composite
def residues(draw):
    bits = draw(st.integers(2, 32))
    values = draw(st.lists(st.integers(0, 2**bits - 1), max_size=40))
    return bits, np.array(values, dtype=residue_dtype(bits))


@given(residues())
def test_packing_is_one_little_endian_number(case):
    bits, values = case
    assert pack_residues(values, bits) == packed(values, bits)


@given(residues())
def test_unpacking_undoes_packing(case):
    bits, values = case
    back = unpack_residues(pack_residues(values, bits), len(values), bits)
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize("bits", range(2, 33))
def test_long_vectors_survive_their_chunks(bits):
    rng = np.random.default_rng(bits)
    values = rng.integers(0, 2**bits, (1 << 17) + 3).astype(residue_dtype(bits))
    data = pack_residues(values, bits)
    assert len(data) == packed_size(len(values), bits)
    np.testing.assert_array_equal(unpack_residues(data, len(values), bits), values)


@pytest.mark.parametrize("bits", [3, 8, 16])
@pytest.mark.parametrize("change", [-1, 1])
def test_data_of_a_wrong_length_is_refused(bits, change):
    with pytest.raises(ShapeError, match="bytes"):
        unpack_residues(bytes(packed_size(10, bits) + change), 10, bits)


def test_bits_after_the_last_residue_are_refused():
    with pytest.raises(DomainError, match="zero bits"):
        unpack_residues(bytes([0, 0b1000_0000]), 5, 3)
