"""Who is asked: cohorts as the accounting has them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.flower_fleet import Fleet, plan
from skellam.accounting.ledger import Ledger
from skellam.engines.flower.round_config import RoundConfig, UpdateKind
from skellam.engines.flower.rounds import cyclic, invited
from skellam.entropy import SeededEntropy
from skellam.errors import DomainError, InfeasibleError


@given(
    population=st.integers(1, 30),
    groups=st.integers(1, 8),
    participations=st.integers(1, 5),
    away=st.sets(st.tuples(st.integers(1, 40), st.integers(0, 29)), max_size=60),
)
def test_nobody_takes_part_too_often_or_too_soon(population, groups, participations, away):
    past = {}
    for round_ in range(1, 41):
        there = [n for n in range(population) if (round_, n) not in away]
        for n in cyclic(there, past, round_=round_, participations=participations, groups=groups):
            past.setdefault(n, []).append(round_)
    for rounds in past.values():
        assert len(rounds) <= participations
        assert all(b - a >= groups for a, b in pairwise(rounds))
    if not away:
        assert all(len(rounds) == min(participations, -(-40 // groups)) for rounds in past.values())


def test_whoever_was_never_asked_may_come():
    asked = cyclic("abcd", {"a": [1], "b": [3]}, round_=4, participations=1, groups=2)
    assert asked == ["c", "d"]


def test_a_cyclic_plan_asks_its_fleet_in_turns(tmp_path):
    """Of a population of twelve, six are there: all are asked once in two rounds."""
    made = plan(sampling="cyclic", cohort=6, population=12, rounds=2)
    assert (made.groups, made.participations) == (2, 1)
    _, reports = Fleet(tmp_path, made, count=6).start(rounds=2)
    assert reports[0].result.participants == (1, 2, 3, 4, 5, 6)
    assert "0 nodes were drawn" in reports[1].failure


def test_poisson_cohorts_have_the_planned_rate():
    """9,600 draws at 5/6: a deviation is 37, and six miss for 2e-9."""
    made = plan(sampling="poisson", cohort=20, population=24, dropout=0.1, colluding=0.1)
    entropy = SeededEntropy(bytes(32), "test")
    drawn = sum(len(invited(made, range(24), {}, round_=1, entropy=entropy)) for _ in range(400))
    assert abs(drawn - 8000) < 6 * 37


def test_more_participants_than_the_protocol_numbers_are_refused_in_words(tmp_path):
    with pytest.raises(DomainError, match=r"at most 65535 in a round.*two bytes.*smaller cohort"):
        RoundConfig(plan(), 1, bytes(32), 65536, UpdateKind.DIFFERENCE, bytes(32))
    made = plan(cohort=70_000, bits=24)
    with pytest.raises(InfeasibleError, match="70000 clients were asked"):
        Fleet(tmp_path).start(plan=made)


def test_a_cycle_is_spent_once_and_every_round_of_it_runs(tmp_path):
    """Ten nodes in two groups of five, four rounds: two releases of each client."""
    made = plan(cohort=5, population=10, rounds=4, sampling="cyclic", z=3.0, dropout=0.0)
    budget = made.privacy().epsilon
    fleet = Fleet(tmp_path, made, count=10, budget=budget * (1 + 1e-9))
    _, reports = fleet.start(rounds=4)
    members = [set(report.result.participants) for report in reports]
    assert [len(group) for group in members] == [5, 5, 5, 5]
    assert not members[0] & members[1]
    assert members[0] | members[1] == set(range(1, 11))
    assert not members[2] & members[3]
    with Ledger.open(fleet.ledger_path) as ledger:
        assert len(ledger.account.spends) == 2
        assert ledger.epsilon() <= budget * (1 + 1e-9)
