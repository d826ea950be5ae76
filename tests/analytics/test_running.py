import numpy as np
import pytest

import skellam as sk
from skellam import analytics
from skellam import federated as fl
from skellam.accounting.ledger import Ledger
from skellam.engines import local
from skellam.errors import BudgetError, DomainError, ShapeError, ThresholdError

TERMS = {"clients": 20, "epsilon": 1.0, "delta": 1e-6}
USERS = [[i % 4] for i in range(20)]


@pytest.mark.parametrize("aggregate", [local.unmasked, local.secure, fl.secure()])
def test_the_answer_is_that_of_the_survivors(aggregate):
    """Deviations of 4 to 5: nine of them miss with a chance below 1e-12 in all."""
    query = analytics.histogram(range(5), dropout=0.2, **TERMS)
    answer = analytics.run(
        query, USERS, entropy=sk.SystemEntropy(), aggregate=aggregate, dropouts=(0, 4)
    )
    assert np.abs(answer.values - [3, 5, 5, 5]).max() <= 9 * answer.deviation
    assert answer.variance >= query.plan.variance * (1 - 1e-9)


def test_an_aggregation_of_training_draws_the_dropouts_of_a_query():
    query = analytics.count(dropout=0.2, **TERMS)
    script = fl.unmasked(dropout={0: (1, 2, 3)})
    answer = analytics.run(query, USERS, entropy=sk.SystemEntropy(), aggregate=script)
    assert abs(answer.value - 17) <= 9 * answer.deviation
    answer = analytics.run(
        query, USERS, entropy=sk.SystemEntropy(), aggregate=script, dropouts=(0,)
    )
    assert abs(answer.value - 19) <= 9 * answer.deviation


@pytest.mark.parametrize("dropouts", [(), (3,), (0, 4, 7, 19)])
def test_the_noise_is_the_same_whoever_drops_out(dropouts):
    query = analytics.count(dropout=0.2, **TERMS)
    answer = analytics.run(query, USERS, entropy=sk.SystemEntropy(), dropouts=dropouts)
    assert answer.variance == query.plan.total_variance == query.plan.variance


def test_users_that_drop_out_more_often_than_is_accounted_for_are_refused():
    query = analytics.count(
        clients=30, population=200, dropout=0.2, sampling="poisson", epsilon=1, delta=1e-5
    )
    with pytest.raises(DomainError, match="expected_dropout"):
        analytics.run(
            query, [["row"]] * 200, entropy=sk.SystemEntropy(), aggregate=fl.unmasked(dropout=0.2)
        )


def test_a_cyclic_query_is_asked_of_the_same_users_in_every_round():
    """Dealt anew without one of them, users of the first group are in the second one as well."""
    query = analytics.count(
        clients=10, population=20, rounds=2, sampling="cyclic", epsilon=1, delta=1e-6
    )
    assert query.plan.participations == 1
    with pytest.raises(ShapeError, match="the same 20 in every round"):
        analytics.run(query, [["row"]] * 19, entropy=sk.SystemEntropy(), round_=1)


def test_a_cyclic_query_asks_one_group_after_the_other():
    users = [[1]] * 60
    query = analytics.count(
        clients=20, population=60, rounds=6, sampling="cyclic", epsilon=20, delta=1e-6
    )
    assert query.plan.participations == 2
    asked = [
        analytics.run(query, users, entropy=sk.SystemEntropy(), round_=t).value for t in range(3)
    ]
    # Noise of deviation below 1: a miss by 9 has a chance below 1e-9.
    assert all(abs(found - 20) < 9 for found in asked)
    privacy = query.plan.guarantees()
    assert privacy.public.epsilon == privacy.server.epsilon


def test_a_user_with_bad_rows_costs_nothing(tmp_path):
    query = analytics.sum(0, 1, outside="refuse", **TERMS)
    with Ledger.create(tmp_path / "ledger", epsilon=1.5, delta=1e-6) as ledger:
        with pytest.raises(DomainError):
            analytics.run(query, [[5.0]] * 20, entropy=sk.SystemEntropy(), ledger=ledger)
        assert not ledger.account.spends


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
        analytics.count(max_rows=2, **TERMS),
        analytics.histogram([0, 1, 2], **TERMS),
        analytics.histogram([0, 1, 3], **TERMS),
    ]
    assert len({query.digest for query in queries}) == 4
    assert analytics.count(**TERMS).digest == queries[0].digest


def test_an_unknown_option_is_refused_and_the_known_ones_are_named():
    with pytest.raises(DomainError, match="unknown option 'most_rows'; the options are clients"):
        analytics.count(most_rows=2, **TERMS)


def test_an_answer_states_how_many_took_part_so_sizes_are_accounted_as_public():
    poisson = analytics.count(clients=20, population=100, sampling="poisson", epsilon=2, delta=1e-4)
    assert poisson.plan.public_sizes
    with pytest.raises(DomainError, match="hides how many take part"):
        analytics.count(clients=20, population=100, sampling="self", epsilon=2, delta=1e-4)


def test_a_sample_of_fewer_users_than_were_planned_for_is_refused():
    """Three of three who take part are known; the plan counts on three of a hundred."""
    query = analytics.count(clients=20, population=100, sampling="poisson", epsilon=2, delta=1e-4)
    with pytest.raises(ThresholdError, match="3 clients are there"):
        analytics.run(query, [[1]] * 3, entropy=sk.SystemEntropy())
