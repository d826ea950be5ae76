"""Who is asked: cohorts as the accounting has them."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.flower_fleet import Fleet, client_app, plan
from skellam.accounting.ledger import Ledger
from skellam.engines import local
from skellam.engines.flower.round_config import RoundConfig, UpdateKind
from skellam.engines.flower.rounds import Progress
from skellam.engines.sampling import Turns, cyclic, invited
from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import BudgetError, DataError, InfeasibleError


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
    asked = cyclic([1, 2, 3, 4], {1: [1], 2: [3]}, round_=4, participations=1, groups=2)
    assert asked == [3, 4]


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
    drawn = sum(len(invited(made, range(24), round_=1, entropy=entropy)) for _ in range(400))
    assert abs(drawn - 8000) < 6 * 37


def test_more_participants_than_the_protocol_numbers_are_refused_in_words(tmp_path):
    """Wherever the protocol runs, and only there."""
    words = r"protocol takes at most 65535 in a round.*two bytes.*smaller cohort"
    with pytest.raises(InfeasibleError, match=words):
        RoundConfig(plan(), 1, bytes(32), 65536, UpdateKind.DIFFERENCE, bytes(32))
    made = plan(cohort=70_000, bits=24, dimension=1, dropout=0.0, colluding=0.0)
    with pytest.raises(InfeasibleError, match=words):
        Fleet(tmp_path).start(plan=made)
    everybody = local.Round(1, bytes(32), tuple(range(70_000)), set())
    with pytest.raises(InfeasibleError, match=words):
        local.secure(made, everybody, lambda _: np.ones(1), entropy=lambda _: SystemEntropy())
    found = local.non_private(made, everybody, lambda _: np.ones(1), entropy=lambda _: None)
    assert found.total.values.tolist() == [70_000]


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


CYCLIC = plan(cohort=5, population=10, rounds=4, sampling="cyclic", z=3.0, dropout=0.0)


def cyclic_fleet(folder, app=None):
    budget = CYCLIC.privacy().epsilon * (1 + 1e-9)
    return Fleet(folder, CYCLIC, app or client_app(), count=10, budget=budget)


def members(reports):
    return [set(report.result.participants) for report in reports]


def spends(fleet):
    return len(Ledger.verify(fleet.ledger_path).spends)


def test_a_server_that_restarts_within_a_cycle_asks_the_others_and_spends_nothing_more(tmp_path):
    fleet, file = cyclic_fleet(tmp_path), tmp_path / "progress.json"
    found = []
    for number in range(1, 5):
        _, (report,) = fleet.start(progress_file=file)
        assert (report.number, report.failure) == (number, "")
        found += members([report])
    everybody = set(range(1, 11))
    assert found[0] | found[1] == found[2] | found[3] == everybody
    assert not found[0] & found[1]
    assert not found[2] & found[3]
    assert spends(fleet) == 2
    for number in everybody:
        assert len(Ledger.verify(tmp_path / "nodes" / f"{number}.spend").spends) == 2


def test_without_a_file_a_new_server_spends_for_a_new_cycle(tmp_path):
    """Nobody knows who had a turn in the cycle that was cut short, so it is never gone on with."""
    fleet = cyclic_fleet(tmp_path)
    for _ in range(2):
        _, (report,) = fleet.start()
        assert report.failure == ""
    assert spends(fleet) == 2
    with pytest.raises(BudgetError):
        fleet.start()


@pytest.mark.parametrize("stage", ["spend", "unmask"])
def test_a_server_killed_around_the_release_bars_those_who_took_part(tmp_path, stage, monkeypatch):
    """Who took part is on disk before the spend, and both before anybody opens the sum."""
    fleet, file = cyclic_fleet(tmp_path), tmp_path / "progress.json"
    asked = []

    spend = Ledger.spend

    def killed_in_spend(self, *args, **kwargs):
        if kwargs["note"] == "round 1":
            raise KeyboardInterrupt
        return spend(self, *args, **kwargs)

    def downlink(message):
        if message.metadata.message_type == "train":
            asked.append(message.metadata.dst_node_id - 1)
        if message.metadata.message_type.endswith("unmask"):
            raise KeyboardInterrupt
        return message

    with monkeypatch.context() as patch:
        if stage == "spend":
            patch.setattr(Ledger, "spend", killed_in_spend)
        with pytest.raises(KeyboardInterrupt):
            fleet.start(progress_file=file, network={"downlink": downlink})
    assert len(asked) == 5
    assert spends(fleet) == (1 if stage == "unmask" else 0)
    _, (report,) = fleet.start(progress_file=file)
    assert report.failure == ""
    assert not set(asked) & set(report.result.participants)
    assert spends(fleet) == 1


def test_a_client_under_a_new_node_number_gets_no_second_turn_in_a_cycle(tmp_path):
    """A SuperNode without authentication has another number every time that it is started."""
    fleet, file = cyclic_fleet(tmp_path), tmp_path / "progress.json"
    _, (one,) = fleet.start(progress_file=file)
    fleet.nodes = fleet.nodes[::-1]
    _, (two,) = fleet.start(progress_file=file)
    assert two.result is None or not set(one.result.participants) & set(two.result.participants)
    assert two.faults == ()


@pytest.mark.parametrize(
    "damage",
    [
        {"run": "00"},
        {"rounds": -1},
        {"turns": {"a": 1}},
        {"clients": [1]},
        {"more": 1},
        {"plan": ""},
    ],
)
def test_a_progress_file_that_is_damaged_or_of_another_run_is_refused(tmp_path, damage):
    file, new = tmp_path / "progress.json", Progress.begin(None, entropy=SystemEntropy())
    played = new.begun(CYCLIC).taken(CYCLIC, [1, 2]).knowing({7: 1})
    played.keep(file, CYCLIC)
    assert new.restored(file, CYCLIC) == played
    assert played.of(CYCLIC) == Turns(1, {1: (1,), 2: (1,)})
    assert played.free(CYCLIC, [7, 8]) == [8]
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    with pytest.raises(DataError, match=r"progress\.json"):
        new.restored(file, CYCLIC)


@pytest.mark.parametrize("sampling", ["poisson", "self", "fixed"])
def test_a_fleet_of_which_too_many_are_offline_draws_no_random_cohort(tmp_path, sampling):
    """Its cohorts would be so small that one client decides which of them run."""
    coin = {"participation_probability": 0.9} if sampling == "self" else {}
    made = plan(sampling=sampling, cohort=13, population=16, dropout=0.0, colluding=0.05, **coin)
    fleet = Fleet(tmp_path, made, count=12, limits={"min_colluding": 0.05})
    _, (report,) = fleet.start()
    assert "12 clients are there; the plan is accounted for a population of 16" in report.failure


def test_more_nodes_than_the_plans_population_are_not_even_asked(tmp_path):
    _, (report,) = Fleet(tmp_path, count=6).start()
    assert "6 nodes are there; the plan is for a population of 5" in report.failure
    assert not list((tmp_path / "nodes").glob("*.spend*"))
