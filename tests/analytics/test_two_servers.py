"""Every statistic with two servers: the plan has both noises, and the answer is near the truth."""

import numpy as np
import pytest

import skellam as sk
from skellam import analytics
from skellam.engines.two_servers import two_servers

USERS = [[i % 5] for i in range(12)]
OPTIONS = {"clients": 12, "epsilon": 6.0, "delta": 1e-6, "aggregation": "two-servers"}
QUERIES = {
    "count": (lambda: analytics.count(**OPTIONS), 12, 5),
    "sum": (lambda: analytics.sum(0, 5, **OPTIONS), 21, 60),
    "mean": (lambda: analytics.mean(0, 5, **OPTIONS), 2.5, 2.5),
    "histogram": (lambda: analytics.histogram(range(6), **OPTIONS), [3, 3, 2, 2, 2], 5),
    "frequencies": (lambda: analytics.frequencies(range(5), **OPTIONS), [3, 3, 2, 2, 2], 5),
    "cdf": (lambda: analytics.cdf(range(6), **OPTIONS), [0, 3, 6, 8, 10, 12], 5),
}
"""Each with its answer and how far it may miss: deviations are 0.17 of a count and 5.9 of the sum,
so that any of them fails with a chance below 1e-11; a mean lies within its bounds."""


def answer(query, users=USERS):
    assert query.plan.total_variance == 2 * query.plan.variance
    return analytics.run(query, users, entropy=sk.SystemEntropy(), aggregate=two_servers)


@pytest.mark.parametrize("name", QUERIES)
def test_every_statistic_is_answered_by_two_servers(name):
    query, truth, miss = QUERIES[name]
    found = answer(query())
    values = found.values if hasattr(found, "values") else found.value
    assert np.abs(np.subtract(values, truth)).max() <= miss


def test_sketches_and_quantiles_are_answered_by_two_servers():
    sketch = analytics.hashed_frequencies(64, public_seed=bytes(32), **OPTIONS)
    assert abs(answer(sketch, [["tea"]] * 12)["tea"].value - 12) < 15
    (median,) = answer(analytics.quantiles([0.5], range(6), **OPTIONS))
    assert 0 <= median.value <= 5
