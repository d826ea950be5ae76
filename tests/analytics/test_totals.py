import numpy as np
import pytest

import skellam as sk
from skellam import analytics
from skellam.errors import DomainError, InfeasibleError, KindError, ShapeError

TERMS = {"clients": 100, "epsilon": 1.0, "delta": 1e-6}


def seeded(context):
    return sk.SeededEntropy(bytes(32), context)


def contribution(query, rows):
    return query.contribution(rows, entropy=sk.SystemEntropy())


def test_a_count_is_within_its_noise():
    """A deviation of 3.8: eight of them miss with a chance below 1e-12."""
    query = analytics.count(**TERMS)
    answer = analytics.run(query, [["row"]] * 60 + [[]] * 40, entropy=sk.SystemEntropy())
    assert abs(answer.value - 60) <= 8 * answer.deviation
    low, high = answer.interval()
    assert low < answer.value < high


def test_a_user_counts_at_most_its_rows():
    query = analytics.count(max_rows=3, **TERMS)
    found = contribution(query, range(10))
    assert (found.vector.tolist(), found.left_out) == ([3], 7)
    assert query.statistic.bounds == analytics.Bounds(1, 3, 3, 3.0)


def test_integers_are_added_as_they_are():
    query = analytics.sum(-5, 9, integer=True, max_rows=2, **TERMS)
    assert contribution(query, [4, -2]).vector.tolist() == [2]
    assert query.statistic.bounds.l1 == 18
    with pytest.raises(DomainError, match="integers"):
        contribution(query, [0.5])
    with pytest.raises(DomainError, match="integers"):
        analytics.sum(0, 0.5, integer=True, **TERMS)


def test_reals_are_rounded_without_bias():
    """Seeded. A coin's deviation is at most 1/2: six standard errors of 4000 are 0.048."""
    query = analytics.sum(0, 1, bits=10, **TERMS)
    entropy = seeded("rounding")
    value = 0.3 * query.statistic.unit
    drawn = [query.contribution([value], entropy=entropy).vector[0] for _ in range(4000)]
    assert set(drawn) == {0, 1}
    assert np.mean(drawn) == pytest.approx(0.3, abs=0.048)


@pytest.mark.parametrize("value", [1.0, -1.0, 0.7, -0.7])
@pytest.mark.parametrize("bits", [10, 16, 24])
def test_a_rounded_sum_never_exceeds_its_bound(value, bits):
    query = analytics.sum(-1, 1, max_rows=3, bits=bits, **TERMS)
    for _ in range(20):
        found = contribution(query, [value] * 3)
        assert abs(found.vector[0]) <= query.statistic.coordinate_bound


def test_finer_steps_cost_more_bits_and_no_more_noise():
    coarse, fine = (analytics.sum(0, 1, bits=b, **TERMS) for b in (12, 20))
    assert fine.statistic.unit < coarse.statistic.unit
    noise = [np.sqrt(q.plan.variance) * q.statistic.unit for q in (coarse, fine)]
    assert noise[0] == pytest.approx(noise[1], rel=0.02)


def test_values_out_of_range_are_clipped_and_counted_on_the_device():
    query = analytics.sum(0, 10, integer=True, max_rows=5, **TERMS)
    found = contribution(query, [5, 20, -3, np.inf])
    assert (found.vector.tolist(), found.clipped) == ([25], 2 + 1)


def test_values_out_of_range_are_refused_if_asked():
    query = analytics.sum(0, 10, outside="refuse", **TERMS)
    with pytest.raises(DomainError, match=r"\[0, 10\], got 11"):
        contribution(query, [11])


@pytest.mark.parametrize(
    ("rows", "error"),
    [([np.nan], DomainError), (["a"], KindError), ([[1.0]], ShapeError), ([None], KindError)],
)
def test_rows_that_are_no_numbers_are_our_errors(rows, error):
    with pytest.raises(error):
        contribution(analytics.sum(0, 10, **TERMS), rows)


def test_rows_beyond_a_users_share_are_left_out_at_random():
    """Seeded. Of 300 choices each row is taken 100 times; six deviations are 49."""
    query = analytics.sum(0, 100, integer=True, **TERMS)
    entropy = seeded("share")
    taken = [int(query.contribution([1, 10, 100], entropy=entropy).vector[0]) for _ in range(300)]
    assert all(51 <= taken.count(value) <= 149 for value in (1, 10, 100))


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (np.nan, 1), (0, np.inf)])
def test_a_range_must_be_one(bounds):
    with pytest.raises(DomainError, match="low must be below high"):
        analytics.sum(*bounds, **TERMS)


@pytest.mark.parametrize("changes", [{"bits": 0}, {"bits": 33}, {"clients": 0}, {"epsilon": -1.0}])
def test_terms_outside_their_domain_are_our_errors(changes):
    with pytest.raises(DomainError):
        analytics.sum(0, 1, **{**TERMS, **changes})


def test_too_few_bits_for_the_clients_are_refused():
    with pytest.raises(InfeasibleError, match="bits"):
        analytics.sum(0, 1, bits=6, **TERMS)
