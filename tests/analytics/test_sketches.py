import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import skellam as sk
from skellam import analytics
from skellam.analytics.histograms import Sketch, SketchEstimate
from skellam.analytics.query import Totals
from skellam.errors import DomainError, KindError, ShapeError
from skellam.noise import SkellamSampler

TERMS = {"clients": 300, "epsilon": 2.0, "delta": 1e-6}
SEED = bytes(range(32))


def test_a_heavy_item_is_found():
    """The median's noise deviates by 6: the gap of 190 between the two is never crossed."""
    query = analytics.hashed_frequencies(256, public_seed=SEED, **TERMS)
    users = [["often"]] * 200 + [["seldom"]] * 10 + [[f"once {i}"] for i in range(90)]
    answer = analytics.run(query, users, entropy=sk.SystemEntropy())
    assert answer.top(["seldom", "often", "never"], 1) == ("often",)
    assert abs(answer["often"].value - 200) < 60


@given(
    st.lists(st.text(max_size=3), max_size=12), st.integers(1, 6), st.sampled_from([1, 2, 8, 100])
)
def test_a_user_keeps_to_the_exact_bounds(items, max_items, width):
    sketch = Sketch(width, 5, max_items, SEED)
    found = sketch.contribution(items, entropy=sk.SystemEntropy())
    bounds = sketch.bounds
    assert np.abs(found.vector).max() <= bounds.coordinate_bound
    assert np.abs(found.vector).sum() <= bounds.l1
    assert np.dot(found.vector, found.vector) <= bounds.l2**2 * (1 + 1e-12)
    assert found.left_out == max(0, len(set(items)) - max_items)


def test_intervals_cover_noise_and_collisions_at_the_stated_rate():
    """Every run has a seed of its own: rows are independent. The lower end has a chance of 1e-6,
    and so has the upper one at the exact rate of the order statistics, 0.961, had no ties occurred.
    """
    entropy = sk.SeededEntropy(bytes(32), "sketch coverage")
    counts = {f"item {i}": 400 // (i + 1) for i in range(60)}
    covered, errors = 0, []
    for run in range(1000):
        sketch = Sketch(40, 9, 1, run.to_bytes(32, "big"))
        cells = SkellamSampler(200.0).draw(360, entropy=entropy).values.astype(float)
        for item, count in counts.items():
            where, signs = sketch.cells_of(item)
            cells[where] += signs * count
        found = sketch.answer(Totals(cells, 200.0, 1000))["item 7"]
        low, high = found.interval(0.95)
        covered += low <= 50 <= high
        errors.append(found.value - 50)
    assert covered >= binom.ppf(1e-6, 1000, 0.95)
    assert abs(np.mean(errors)) <= 5 * np.std(errors) / np.sqrt(1000)


def test_more_confidence_than_the_rows_support_is_refused():
    with pytest.raises(DomainError, match="deeper"):
        SketchEstimate((1.0, 2.0, 3.0)).interval(0.95)
    assert SketchEstimate((1.0, 2.0, 3.0)).interval(0.75) == (1, 3)


def test_the_hash_spreads_items_and_signs():
    """Seeded by the names. 4000 items: each of 8 cells holds 500, seven deviations are 146."""
    sketch = Sketch(8, 2, 1, SEED)
    cells, signs = zip(*(sketch.cells_of(str(i)) for i in range(4000)), strict=True)
    for row in (0, 1):
        counts = np.bincount(np.array(cells)[:, row] - 8 * row, minlength=8)
        assert np.abs(counts - 500).max() <= 146
    assert abs(np.sum(signs)) <= 7 * np.sqrt(8000)


@pytest.mark.parametrize("item", [1, b"bytes", None, np.nan])
def test_items_are_strings(item):
    query = analytics.hashed_frequencies(16, public_seed=SEED, **TERMS)
    with pytest.raises(KindError, match="strings"):
        query.contribution([item], entropy=sk.SystemEntropy())


def test_a_seed_has_32_bytes():
    with pytest.raises(ShapeError, match="public_seed"):
        analytics.hashed_frequencies(16, public_seed=b"short", **TERMS)
