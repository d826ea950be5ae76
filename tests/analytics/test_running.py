import numpy as np
import pytest

import skellam as sk
from skellam import analytics
from skellam.accounting.ledger import Ledger
from skellam.analytics.query import arrived_variance
from skellam.engines import local
from skellam.errors import BudgetError, DomainError, ShapeError, ThresholdError

TERMS = {"clients": 20, "epsilon": 1.0, "delta": 1e-6}
USERS = [[i % 4] for i in range(20)]


@pytest.mark.parametrize("aggregate", [local.clear, local.secure])
@pytest.mark.parametrize("removable", [False, True])
def test_the_answer_is_that_of_the_survivors(aggregate, removable):
    """Deviations of 4 to 5: nine of them miss with a chance below 1e-12 in all."""
    query = analytics.histogram(range(5), dropout=0.2, removable=removable, **TERMS)
    answer = analytics.run(
        query, USERS, entropy=sk.SystemEntropy(), aggregate=aggregate, silent=(0, 4)
    )
    assert np.abs(answer.values - [3, 5, 5, 5]).max() <= 9 * answer.deviation
    assert answer.variance >= query.plan.variance * (1 - 1e-9)


def test_the_variance_is_that_of_the_shares_that_arrived():
    query = analytics.count(dropout=0.2, **TERMS)
    guaranteed = query.plan.variance
    everybody = arrived_variance(query.plan, invited=20, survivors=20)
    assert everybody == pytest.approx(1.25 * guaranteed)
    assert arrived_variance(query.plan, invited=20, survivors=16) == pytest.approx(guaranteed)
    removable = analytics.count(dropout=0.2, removable=True, **TERMS).plan
    for survivors in (16, 18, 20):
        left = arrived_variance(removable, invited=20, survivors=survivors)
        assert guaranteed * (1 - 1e-9) <= left <= 1.02 * guaranteed


def test_fewer_users_than_planned_carry_the_same_noise():
    query = analytics.count(**TERMS)
    answer = analytics.run(query, [["row"]] * 10, entropy=sk.SystemEntropy())
    assert answer.variance == pytest.approx(query.plan.variance)


def test_a_release_is_paid_for_before_it_is_made(tmp_path):
    query = analytics.count(**TERMS)
    with Ledger.create(tmp_path / "ledger", epsilon=1.5, delta=1e-6) as ledger:
        analytics.run(query, USERS, entropy=sk.SystemEntropy(), ledger=ledger, key=b"first")
        assert ledger.epsilon() == pytest.approx(query.plan.privacy().epsilon)
        with pytest.raises(BudgetError):
            analytics.run(query, USERS, entropy=sk.SystemEntropy(), ledger=ledger, key=b"second")
        assert [spend.note for spend in ledger.account.spends] == ["Count"]


def test_empty_and_oversized_cohorts_are_our_errors():
    query = analytics.count(**TERMS)
    with pytest.raises(ShapeError, match="at least one"):
        analytics.run(query, [], entropy=sk.SystemEntropy())
    with pytest.raises(DomainError, match="plan for more"):
        analytics.run(query, [[]] * 21, entropy=sk.SystemEntropy())


def test_a_cohort_too_small_to_hide_anybody_releases_and_pays_nothing(tmp_path):
    query = analytics.count(**TERMS)
    with Ledger.create(tmp_path / "ledger", epsilon=1.5, delta=1e-6) as ledger:
        with pytest.raises(ThresholdError):
            analytics.run(query, [["row"]], entropy=sk.SystemEntropy(), ledger=ledger)
        assert not ledger.account.spends


def test_bad_rows_release_nothing():
    query = analytics.histogram(range(5), **TERMS)
    with pytest.raises(DomainError, match="NaN"):
        analytics.run(query, [*USERS[:-1], [np.nan]], entropy=sk.SystemEntropy())


def test_the_digest_tells_queries_apart():
    queries = [
        analytics.count(**TERMS),
        analytics.count(most_rows=2, **TERMS),
        analytics.histogram([0, 1, 2], **TERMS),
        analytics.histogram([0, 1, 3], **TERMS),
    ]
    assert len({query.digest for query in queries}) == 4
    assert analytics.count(**TERMS).digest == queries[0].digest
