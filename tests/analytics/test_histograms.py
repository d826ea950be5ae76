import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skellam as sk
from skellam import analytics
from skellam.errors import DomainError, KindError

TERMS = {"clients": 100, "epsilon": 1.0, "delta": 1e-6}


def contribution(query, rows):
    return query.contribution(rows, entropy=sk.SystemEntropy())


def test_rows_fall_between_their_edges():
    query = analytics.histogram([0, 1, 2, 4], max_buckets=3, max_rows=5, **TERMS)
    found = contribution(query, [0, 0.5, 1, 3.9, 4, 7, -1])
    assert found.vector.tolist() == [3, 1, 3]
    assert (found.clipped, found.left_out) == (2, 0)


@given(
    rows=st.lists(st.integers(0, 9), max_size=30),
    max_buckets=st.integers(1, 10),
    max_rows=st.integers(1, 4),
)
def test_a_user_keeps_to_the_exact_bounds(rows, max_buckets, max_rows):
    query = analytics.histograms.Frequencies(
        tuple(range(10)), analytics.histograms.Buckets(10, max_buckets, max_rows)
    )
    found = query.contribution(rows, entropy=sk.SystemEntropy())
    bounds = query.bounds
    assert found.vector.max(initial=0) <= bounds.coordinate_bound
    assert found.vector.sum() <= bounds.l1
    assert np.dot(found.vector, found.vector) <= bounds.l2**2 * (1 + 1e-12)
    assert found.vector.sum() + found.left_out == len(rows)
    full = {b for b in range(10) if found.vector[b]}
    assert len(full) == min(len(set(rows)), max_buckets)


def test_frequencies_of_a_known_domain():
    """The deviation is 3.8: eight of them miss with a chance below 1e-11."""
    query = analytics.frequencies(["red", "green"], **TERMS)
    users = [["red"]] * 70 + [["green"]] * 20 + [[]] * 10
    answer = analytics.run(query, users, entropy=sk.SystemEntropy())
    assert abs(answer["red"].value - 70) <= 8 * answer.deviation
    assert abs(answer["green"].value - 20) <= 8 * answer.deviation
    assert answer.top(1) == ("red",)
    with pytest.raises(DomainError, match="blue"):
        answer["blue"]


def test_unknown_categories_are_our_errors():
    query = analytics.frequencies(["red", "green"], **TERMS)
    with pytest.raises(DomainError, match="unknown category 'blue'"):
        contribution(query, ["blue"])


@pytest.mark.parametrize("edges", [[0], [0, 0], [1, 0], [0, np.nan, 2], [0, np.inf]])
def test_edges_must_increase(edges):
    with pytest.raises(DomainError, match="edges"):
        analytics.histogram(edges, **TERMS)


def test_a_domain_must_not_repeat_itself():
    with pytest.raises(DomainError, match="twice"):
        analytics.frequencies(["a", "a"], **TERMS)


@pytest.mark.parametrize(("rows", "error"), [([np.nan], DomainError), (["a"], KindError)])
def test_rows_that_are_no_numbers_are_refused(rows, error):
    with pytest.raises(error):
        contribution(analytics.histogram([0, 1, 2], **TERMS), rows)
