import numpy as np
import pytest

import skellam as sk
from oracles.tiny_task import plan, seeded
from skellam.errors import DomainError
from skellam.federated.cohort import Population, heads


def test_poisson_cohorts_have_the_planned_size_on_average():
    """2,000 rounds of 100 clients at 0.1: 7 standard errors of the mean size, 3e-12."""
    population = Population(plan(cohort=10, population=100), 100)
    entropy = sk.SystemEntropy()
    sizes = [len(population.draw(entropy=entropy)) for _ in range(2000)]
    assert np.mean(sizes) == pytest.approx(10, abs=7 * 3 / np.sqrt(2000))
    assert np.var(sizes) == pytest.approx(9, rel=0.3)


def test_every_client_is_as_likely_as_any_other():
    """20 clients in 4,000 rounds at 0.5: each count within 7 standard deviations, 20 * 3e-12."""
    population = Population(plan(cohort=10, population=20), 20)
    entropy = sk.SystemEntropy()
    counts = np.bincount(
        np.concatenate([population.draw(entropy=entropy) for _ in range(4000)]), minlength=20
    )
    assert np.abs(counts - 2000).max() < 7 * np.sqrt(4000) / 2


@pytest.mark.parametrize("sampling", ["fixed", "all"])
def test_fixed_and_full_cohorts_have_exactly_the_planned_size(sampling):
    full = {"sampling": "all", "population": None, "cohort": 12}
    made = plan(**(full if sampling == "all" else {"sampling": "fixed"}))
    members = Population(made, 12).draw(entropy=seeded())
    assert len(set(members)) == made.cohort
    assert members == tuple(sorted(members))


def test_self_sampling_invites_more_than_take_part():
    population = Population(plan(sampling="self", coin=0.6), 12)
    assert population.rate == pytest.approx(6 / 0.6 / 12)


def test_a_hypothetical_population_is_stated_and_cohorts_keep_their_size():
    population = Population(plan(population=1_000_000), 12)
    assert population.hypothetical
    assert population.rate == 0.5
    assert population.statement == "hypothetical population 1000000; the data has 12"
    assert not Population(plan(), 12).hypothetical


def test_a_plan_for_fewer_people_than_there_are_is_refused():
    with pytest.raises(DomainError, match="at least as many"):
        Population(plan(population=11), 12)
    with pytest.raises(DomainError, match="smaller cohort"):
        Population(plan(cohort=13, population=100), 12)


@pytest.mark.parametrize(("chance", "expected"), [(0, 0), (1, 500)])
def test_certain_coins_are_certain(chance, expected):
    assert heads(500, chance, entropy=seeded()).sum() == expected
