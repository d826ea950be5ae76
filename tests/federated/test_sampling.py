import numpy as np
import pytest

import skellam as sk
from oracles.tiny_task import plan, seeded
from skellam.engines.sampling import bernoulli
from skellam.errors import DataError, DomainError
from skellam.federated.sampling import Participations, Population


def test_poisson_cohorts_have_the_planned_size_on_average():
    """2,000 rounds of 100 clients at 0.1: 7 standard errors of the mean size, 3e-12."""
    population = Population(plan(cohort=10, population=100), 100)
    entropy = sk.SystemEntropy()
    sizes = [len(population.draw(0, entropy=entropy)) for _ in range(2000)]
    assert np.mean(sizes) == pytest.approx(10, abs=7 * 3 / np.sqrt(2000))
    assert np.var(sizes) == pytest.approx(9, rel=0.3)


def test_every_client_is_as_likely_as_any_other():
    """20 clients in 4,000 rounds at 0.5: each count within 7 standard deviations, 20 * 3e-12."""
    population = Population(plan(cohort=10, population=20), 20)
    entropy = sk.SystemEntropy()
    counts = np.bincount(
        np.concatenate([population.draw(0, entropy=entropy) for _ in range(4000)]), minlength=20
    )
    assert np.abs(counts - 2000).max() < 7 * np.sqrt(4000) / 2


@pytest.mark.parametrize("sampling", ["fixed", "all"])
def test_fixed_and_full_cohorts_have_exactly_the_planned_size(sampling):
    full = {"sampling": "all", "population": None, "cohort": 12}
    made = plan(**(full if sampling == "all" else {"sampling": "fixed"}))
    members = Population(made, 12).draw(0, entropy=seeded())
    assert len(set(members)) == made.cohort
    assert members == tuple(sorted(members))


def test_self_sampling_invites_more_than_take_part():
    population = Population(plan(sampling="self", participation_probability=0.8), 12)
    assert population.selection_rate == pytest.approx(8 / 0.8 / 12)


def test_a_hypothetical_population_is_stated_and_cohorts_keep_their_size():
    population = Population(plan(population=1_000_000), 12)
    assert population.hypothetical
    assert population.selection_rate == 8 / 12
    assert population.max_participations is None
    assert population.statement == (
        "hypothetical population 1000000; the data has 12, which take part more often: "
        "nothing is guaranteed to these"
    )
    assert not Population(plan(), 12).hypothetical


def test_a_plan_for_fewer_people_than_there_are_is_refused():
    with pytest.raises(DomainError, match="at least as many"):
        Population(plan(population=11), 12)
    with pytest.raises(DomainError, match="smaller cohort"):
        Population(plan(cohort=13, population=100), 12)


@pytest.mark.parametrize(("chance", "expected"), [(0, 0), (1, 500)])
def test_certain_coins_are_certain(chance, expected):
    assert bernoulli(500, chance, entropy=seeded()).sum() == expected


def test_cyclic_sampling_asks_every_client_once_in_as_many_rounds_as_there_are_groups():
    population = Population(plan(sampling="cyclic", cohort=4), 12)
    groups = [population.draw(number, entropy=seeded()) for number in range(6)]
    assert sorted(sum(groups[:3], ())) == list(range(12))
    assert groups[:3] == groups[3:]
    assert groups[0] != (0, 3, 6, 9)
    with pytest.raises(DomainError, match="cyclic cohorts need a plan for the 12 clients"):
        Population(plan(sampling="cyclic", cohort=4, population=100), 12)


BEFORE = Participations(4, np.array([1, 0, 2], np.uint32), np.array([0, 2], np.uint32))


def test_a_round_that_was_cut_off_counts_unless_it_will_be_the_same_again():
    assert BEFORE.after(5, last_release=4, replayable=True).tolist() == [2, 0, 3]
    assert BEFORE.after(4, last_release=3, replayable=False).tolist() == [2, 0, 3]
    assert BEFORE.after(4, last_release=3, replayable=True).tolist() == [1, 0, 2]
    assert BEFORE.after(7, last_release=4, replayable=True).tolist() == [2, 0, 3]
    for next_round, last_release in ((6, 5), (3, 2)):
        with pytest.raises(DataError, match="old copy"):
            BEFORE.after(next_round, last_release=last_release, replayable=True)


def test_participations_read_back_and_damaged_ones_are_refused():
    octets = BEFORE.to_bytes()
    read = Participations.from_bytes(octets)
    assert read.round == 4
    assert read.counts.tolist() == [1, 0, 2]
    assert read.members.tolist() == [0, 2]
    with pytest.raises(DataError, match="participations"):
        Participations.from_bytes(octets[:50])
