import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.masks import mask
from skellam.errors import KindError
from skellam.protocol import masks
from skellam.protocol.masks import add_masks
from skellam.vectors import residue_dtype

WIDTHS = [2, 7, 8, 9, 12, 16, 17, 20, 24, 31, 32]


@pytest.mark.parametrize("bits", WIDTHS)
@given(
    length=st.integers(1, 70),
    added=st.lists(st.binary(min_size=32, max_size=32), max_size=3),
    subtracted=st.lists(st.binary(min_size=32, max_size=32), max_size=3),
)
def test_masks_are_key_streams_modulo_the_power_of_two(bits, length, added, subtracted):
    values = np.arange(length).astype(residue_dtype(bits)) & residue_dtype(bits).type(2**bits - 1)
    expected = values.astype(object)
    for seed in added:
        expected = expected + np.array(mask(seed, length, bits), dtype=object)
    for seed in subtracted:
        expected = expected - np.array(mask(seed, length, bits), dtype=object)
    add_masks(values, bits=bits, added=added, subtracted=subtracted)
    assert values.tolist() == (expected % 2**bits).tolist()


@pytest.mark.parametrize("workers", [None, 2, 3, 16])
@pytest.mark.parametrize("length", [300_001, 131_072, 20_001], ids="{:,}".format)
@pytest.mark.parametrize("bits", [8, 12, 32])
def test_a_mask_that_is_added_and_subtracted_vanishes_across_chunks_groups_and_threads(
    bits, length, workers, monkeypatch
):
    monkeypatch.setattr(masks, "_STREAMS", 2)
    monkeypatch.setattr(masks, "_PARALLEL", 1)
    seeds = [bytes([i]) * 32 for i in range(5)]
    values = np.zeros(length, dtype=residue_dtype(bits))
    add_masks(values, bits=bits, added=seeds, workers=workers)
    alone = np.zeros(length, dtype=residue_dtype(bits))
    monkeypatch.setattr(masks, "_PARALLEL", 1 << 60)
    add_masks(alone, bits=bits, added=seeds)
    assert np.array_equal(values, alone)
    monkeypatch.setattr(masks, "_PARALLEL", 1)
    add_masks(values, bits=bits, added=[], subtracted=seeds, workers=workers)
    assert not values.any()


def test_threads_take_no_copy_of_a_long_vector_each():
    values = np.zeros(1 << 20, dtype=np.uint32)
    tracemalloc.start()
    add_masks(values, bits=32, added=[bytes([i]) * 32 for i in range(3)], workers=64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * (1 << 18)


@pytest.mark.parametrize("bits", [2, 8, 12, 16, 20])
def test_the_full_range_occurs(bits):
    """Among 40 * 2**bits uniform draws a value is missing with probability 2**20 * exp(-40)."""
    values = np.zeros(40 << bits, dtype=residue_dtype(bits))
    add_masks(values, bits=bits, added=[bytes(range(32))])
    assert np.bincount(values, minlength=1 << bits).min() > 0


@pytest.mark.parametrize("bits", WIDTHS)
def test_every_bit_of_a_masked_vector_is_a_fair_coin(bits):
    """Chi-square over the bits of a masked constant; false alarms below 1e-7 for each width."""
    from scipy.stats import chi2

    values = np.full(100_000, 2**bits - 1, dtype=residue_dtype(bits))
    add_masks(values, bits=bits, added=[b"a" * 32, b"b" * 32], subtracted=[b"c" * 32])
    ones = np.array([((values >> j) & 1).sum(dtype=np.int64) for j in range(bits)])
    statistic = float((((ones - 50_000) ** 2) / 25_000).sum())
    assert statistic < chi2.isf(1e-7, bits)


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_masked_values_are_uniform(bits):
    """Chi-square over all residues of 2**22 draws; false alarms below 1e-7 for each width."""
    from scipy.stats import chi2

    values = np.full(1 << 22, 3, dtype=residue_dtype(bits))
    add_masks(values, bits=bits, added=[b"x" * 32], subtracted=[b"y" * 32])
    counts = np.bincount(values, minlength=1 << bits)
    expected = (1 << 22) / (1 << bits)
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert chi2.ppf(1e-7, (1 << bits) - 1) < statistic < chi2.isf(1e-7, (1 << bits) - 1)


def test_residues_of_another_width_are_refused():
    with pytest.raises(KindError, match="residues of 16 bits are uint16"):
        add_masks(np.zeros(3, dtype=np.uint32), bits=16, added=[])
