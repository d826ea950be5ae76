import numpy as np
import pytest
from scipy.stats import binom

import skellam as sk
from skellam import analytics
from skellam.analytics.totals import MeanEstimate
from skellam.errors import DomainError, InfeasibleError

TERMS = {"clients": 200, "epsilon": 2.0, "delta": 1e-6}


def seeded(context):
    return sk.SeededEntropy(bytes(32), context)


def released(query, users, entropy):
    """Encode all users once, and return what any number of releases of them say."""
    vectors = [query.contribution(rows, entropy=entropy).vector for rows in users]
    codec = query.plan.codec(public_seed=bytes(32), cohort=len(users))
    while True:
        total = codec.decode(codec.add(codec.encode(v, entropy=entropy) for v in vectors))
        yield query.answer(total, survivors=len(users))


def test_the_mean_is_over_rows_not_users():
    """Noise of 4 % of the range: ten deviations miss with a chance below 1e-20."""
    query = analytics.mean(0, 10, max_rows=3, **TERMS)
    users = [[2.0, 2.0, 2.0]] * 100 + [[8.0]] * 100
    answer = analytics.run(query, users, entropy=sk.SystemEntropy())
    assert answer.value == pytest.approx(3.5, abs=10 * 0.4)


def test_a_user_keeps_to_the_exact_bounds():
    query = analytics.mean(-1, 3, max_rows=2, **TERMS)
    bounds = query.statistic.bounds
    for rows in ([], [3.0], [3.0, 3.0, 3.0], [-1.0, -1.0], [1.0, 2.9], [99.0, -99.0]):
        vector = query.contribution(rows, entropy=sk.SystemEntropy()).vector
        assert np.abs(vector).max() <= bounds.coordinate_bound
        assert np.abs(vector).sum() <= bounds.l1
        assert np.dot(vector.astype(float), vector) <= bounds.l2**2 * (1 + 1e-12)


def test_intervals_cover_at_their_stated_rate():
    """Seeded. Binomial at 0.9 but for the lattice and rounding's allowance; both ends 1e-6."""
    query = analytics.mean(0, 10, **TERMS)
    users = [[x] for x in np.linspace(0, 9, 150)] + [[]] * 50
    draws = released(query, users, seeded("mean coverage"))
    covered = 0
    for _ in range(300):
        low, high = next(draws).interval(0.9)
        covered += low <= 4.5 <= high
    assert binom.ppf(5e-7, 300, 0.9) <= covered <= binom.ppf(1 - 5e-7, 300, 0.9)


def test_without_rows_the_interval_is_the_whole_range():
    empty = MeanEstimate(0.0, 10.0, offset=5.0, weight=-3.0, variance=100.0, rounding=1.0)
    assert empty.value == 5
    assert empty.interval() == (0, 10)


def test_too_many_rows_for_the_bits_are_refused():
    with pytest.raises(InfeasibleError):
        analytics.mean(0, 1, max_rows=1000, bits=12, **TERMS)
    with pytest.raises(DomainError):
        analytics.mean(1, 0, **TERMS)
