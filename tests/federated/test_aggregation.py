import pytest

from oracles.tiny_task import plan, seeded, task
from skellam import federated as fl
from skellam.engines import local
from skellam.errors import DomainError, KindError

MEMBERS = tuple(range(5, 25))


def test_a_script_says_who_drops_out_and_when():
    aggregate = fl.secure(dropout={3: (4, 5, 9)})
    assert aggregate.dropouts(3, MEMBERS, entropy=seeded()) == (5, 9)
    assert aggregate.dropouts(2, MEMBERS, entropy=seeded()) == ()


def test_everybody_drops_out_by_a_coin_of_its_own():
    assert fl.unmasked().dropouts(0, MEMBERS, entropy=seeded()) == ()
    assert fl.unmasked(dropout=1).dropouts(0, MEMBERS, entropy=seeded()) == MEMBERS
    some = fl.unmasked(dropout=0.5).dropouts(0, MEMBERS, entropy=seeded())
    assert set(some) < set(MEMBERS)


@pytest.mark.parametrize("chance", [-0.1, 1.1, float("nan")])
def test_a_chance_lies_between_nought_and_one(chance):
    with pytest.raises(DomainError, match="dropout"):
        fl.unmasked(dropout=chance)


def test_clients_that_drop_out_more_often_than_is_accounted_for_are_refused():
    """With a chance of 0.2 in place of 0.1 delta may be three times as large as is stated."""
    made = plan(cohort=30, population=200, expected_dropout=None)
    fl.unmasked(dropout=0.1).require(made)
    for aggregate in (fl.unmasked(dropout=0.2), fl.secure(dropout=0.11)):
        with pytest.raises(DomainError, match=r"more than the chance of 0\.1 .* expected_dropout"):
            aggregate.require(made)
    # Where cohorts are no secret, which rounds run says nothing; without noise nothing is stated.
    fl.unmasked(dropout=0.15).require(plan(sampling="cyclic", cohort=6, expected_dropout=None))
    fl.non_private(dropout=0.2).require(made)


def test_without_noise_nothing_is_private():
    assert fl.unmasked().private(plan())
    assert not fl.non_private().private(plan())
    assert not fl.secure().private(plan(noise="none"))


def test_noise_is_drawn_at_once_only_where_shares_add_up_to_one_draw():
    fl.trusted_sum().require(plan())
    with pytest.raises(DomainError, match="no shares to draw at once"):
        fl.trusted_sum().require(plan(noise="distributed-discrete-gaussian"))
    assert fl.trusted_sum().private(plan())
    assert fl.trusted_sum().name == "trusted_sum"


def test_training_takes_an_aggregation_and_says_so():
    with pytest.raises(KindError, match=r"aggregate cannot be secure; use fl\.secure\(\)"):
        fl.train(task(), plan(), aggregate=local.secure, entropy=seeded())
