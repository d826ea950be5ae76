import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import skellam as sk
from skellam import analytics
from skellam.analytics.distributions import Cdf, Distribution
from skellam.analytics.query import Outside, Totals
from skellam.errors import DomainError
from skellam.noise import SkellamSampler

TERMS = {"clients": 500, "epsilon": 2.0, "delta": 1e-6}


def seeded(context):
    return sk.SeededEntropy(bytes(32), context)


def distribution(buckets, max_rows=1):
    return Distribution(tuple(map(float, range(buckets + 1))), max_rows, Outside.CLIP)


def summed(statistic, users):
    entropy = sk.SystemEntropy()
    return sum(statistic.contribution(rows, entropy=entropy).vector for rows in users)


@given(st.integers(1, 300), st.lists(st.integers(0, 299), min_size=1, max_size=40))
def test_without_noise_the_counts_below_every_edge_are_exact(buckets, rows):
    statistic = distribution(buckets)
    inside = [row % buckets for row in rows]
    vector = summed(statistic, [[row] for row in inside])
    answer = statistic.answer(Totals(vector.astype(float), 1.0, len(rows)))
    truth = [sum(row < edge for row in inside) for edge in range(buckets + 1)]
    assert answer.values.tolist() == truth
    assert answer.terms[0] == 0


@given(st.integers(1, 200), st.integers(1, 4), st.lists(st.integers(0, 199), max_size=20))
def test_a_user_keeps_to_the_exact_bounds(buckets, max_rows, rows):
    statistic = distribution(buckets, max_rows)
    vector = statistic.contribution(rows, entropy=sk.SystemEntropy()).vector
    bounds = statistic.bounds
    assert len(vector) == bounds.dimension
    assert vector.sum() <= bounds.l1
    assert vector.max() <= bounds.coordinate_bound
    assert np.dot(vector, vector) <= bounds.l2**2 * (1 + 1e-12)


def test_the_bounds_are_reached():
    statistic = distribution(100, 3)
    vector = statistic.contribution([7, 7, 7], entropy=sk.SystemEntropy()).vector
    assert vector.sum() == statistic.bounds.l1
    assert np.linalg.norm(vector) == pytest.approx(statistic.bounds.l2)


@pytest.mark.parametrize(("buckets", "levels"), [(1, 1), (8, 1), (64, 3), (1024, 5)])
def test_few_buckets_need_no_groups(buckets, levels):
    assert len(distribution(buckets).sizes) == levels


def test_groups_beat_adding_up_all_buckets():
    sizes = distribution(1024).sizes
    terms = distribution(1024).answer(Totals(np.zeros(sum(sizes)), 1.0, 1)).terms
    # A row counts once a level, so at one guarantee a count's variance is `levels` times as large.
    assert len(sizes) * terms.mean() < 512 / 10


def test_intervals_of_counts_and_quantiles_cover_at_their_stated_rate():
    """Seeded. At least the stated rate, so only the lower end can fail: with a chance of 1e-6."""
    statistic, entropy = distribution(64), seeded("cdf coverage")
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 64, 500)
    clean = summed(statistic, [[row] for row in rows]).astype(float)
    below = np.array([np.sum(rows < edge) for edge in range(65)])
    wanted = 0.3
    truth = np.sort(rows)[int(np.ceil(wanted * 500)) - 1]
    noise = SkellamSampler(30.0)
    each = quantile = every = 0
    for _ in range(1000):
        totals = clean + noise.draw(len(clean), entropy=entropy).values
        answer = statistic.answer(Totals(totals, 30.0, 500))
        low, high = answer.interval(0.9)
        each += low[20] <= below[20] <= high[20]
        low, high = answer.interval(0.9, simultaneous=True)
        every += bool(np.all((low <= below) & (below <= high)))
        ends = answer.quantile(wanted, 0.9).interval
        quantile += ends.low <= truth <= ends.high
    least = binom.ppf(1e-6, 1000, 0.9)
    assert each >= least
    assert each <= binom.ppf(1 - 1e-6, 1000, 0.93)
    assert every >= least
    assert quantile >= least


def test_a_cdf_without_bias():
    """Seeded. Six standard errors of 400 runs, 17 edges: a chance of 1e-6 in all is five."""
    statistic, entropy = distribution(16), seeded("cdf bias")
    sums = [
        statistic.answer(
            Totals(SkellamSampler(9.0).draw(20, entropy=entropy).values.astype(float), 9.0, 1)
        ).values
        for _ in range(400)
    ]
    terms = statistic.answer(Totals(np.zeros(20), 9.0, 1)).terms
    assert np.all(np.abs(np.mean(sums, axis=0)) <= 6 * np.sqrt(9.0 * terms / 400))


def test_the_monotone_cdf_never_falls():
    answer = Cdf(np.arange(5.0), np.array([0, 3, -1, 4, 2.0]), np.arange(5), 1.0)
    fitted = answer.monotone()
    assert np.all(np.diff(fitted) >= 0)
    assert fitted[0] == pytest.approx(0, abs=1e-6)


def test_quantiles_of_a_crowd():
    """The noise is some 20 rows of 500 here; the median moves by no more than 4 of 100 edges each
    five deviations, so 20 is safe but for 1e-6.
    """
    query = analytics.quantiles([0.25, 0.5], np.linspace(0, 1, 101), **TERMS)
    users = [[x] for x in np.linspace(0, 1, 500)]
    answers = analytics.run(query, users, entropy=sk.SystemEntropy())
    for answer, truth in zip(answers, (0.25, 0.5), strict=True):
        assert answer.value == pytest.approx(truth, abs=0.2)
        assert answer.interval.low <= answer.value <= answer.interval.high


def test_an_empty_crowd_has_wide_quantiles():
    answer = Cdf(np.arange(5.0), np.zeros(5), np.arange(5), 25.0)
    assert answer.quantile(0.5).interval == (0, 4)


@pytest.mark.parametrize("probabilities", [[], [0.0], [1.0], [np.nan]])
def test_probabilities_are_strictly_inside(probabilities):
    with pytest.raises(DomainError, match="probabilities"):
        analytics.quantiles(probabilities, [0, 1], **TERMS)
