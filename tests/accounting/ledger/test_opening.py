"""Opening, creating and naming ledgers, and files of format version 1."""

import shutil
from pathlib import Path

import pytest

from oracles.identity import ALICE, BOB
from skellam.accounting import (
    Adjacency,
    Gaussian,
    RoundedSkellam,
    Sampled,
    SampledWithoutReplacement,
    Skellam,
    from_record,
    replace_one,
    to_record,
)
from skellam.accounting.ledger import GdpFilter, Head, Ledger, RdpFilter, read_ledger
from skellam.errors import DomainError, LedgerError

VECTORS = Path(__file__).parents[2] / "vectors" / "ledger_v1"
"""Ledgers that version 0.1.0 wrote; the signed one with the key of `oracles.identity.ALICE`."""
NOISE = Gaussian(sigma=20.0, l2=1.0)
BUDGET = {"epsilon": 2.0, "delta": 1e-5}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copytree(VECTORS, tmp_path / "old"))


def test_open_or_create_makes_a_ledger_once_and_then_goes_on(path):
    for spends in range(3):
        with Ledger.open_or_create(path, **BUDGET) as ledger:
            assert len(ledger.account.spends) == spends
            ledger.spend(NOISE)


@pytest.mark.parametrize("other", [{"epsilon": 3.0}, {"delta": 1e-6}, {"filter": GdpFilter()}])
def test_open_or_create_refuses_another_budget_and_names_both(path, other):
    Ledger.open_or_create(path, **BUDGET).close()
    with pytest.raises(LedgerError, match=r"budget of epsilon 2 at delta 1e-05, got epsilon"):
        Ledger.open_or_create(path, **BUDGET | other)
    Ledger.open_or_create(path, **BUDGET).close()


def test_open_or_create_needs_the_signer_that_created(path):
    Ledger.open_or_create(path, **BUDGET, signer=ALICE).close()
    for other in (BOB, None):
        with pytest.raises(LedgerError, match="sign"):
            Ledger.open_or_create(path, **BUDGET, signer=other)
    Ledger.open_or_create(path, **BUDGET, signer=ALICE).close()


def test_open_or_create_goes_on_from_an_empty_file_and_no_tail(path):
    path.touch()
    with pytest.raises(LedgerError, match=r"empty.*create it again"):
        Ledger.open(path)
    with Ledger.open_or_create(path, **BUDGET) as ledger:
        ledger.spend(NOISE)
    assert Ledger.verify(path).rounds == {NOISE: 1}


def test_open_or_create_does_not_replace_a_ledger_that_lost_its_tail(path):
    Ledger.open_or_create(path, **BUDGET).close()
    path.with_name("ledger.tail").unlink()
    with pytest.raises(LedgerError, match=r"no .*\.tail"):
        Ledger.open_or_create(path, **BUDGET)


def test_a_wrong_budget_makes_no_file(path):
    with pytest.raises(DomainError):
        Ledger.open_or_create(path, epsilon=-1, delta=1e-5)
    assert not path.exists()


def test_a_head_stands_for_one_ledger_and_all_that_follows_it(path, tmp_path):
    heads = []
    with Ledger.create(path, **BUDGET) as ledger:
        heads.append(ledger.head)
        for number in range(3):
            ledger.spend(NOISE, key=b"%d" % number)
            heads.append(ledger.head)
    with Ledger.open(path) as ledger:
        assert all(ledger.contains(head) for head in heads)
        assert ledger.head == heads[-1] == read_ledger(path)[1]
        assert [head.line for head in heads] == [1, 2, 3, 4]
        for wrong in (Head(), Head(5, heads[-1].digest), Head(3, heads[-1].digest), Head(-1, "")):
            assert not ledger.contains(wrong)
    with Ledger.create(tmp_path / "foreign", **BUDGET) as foreign:
        for number in range(9):
            foreign.spend(Gaussian(sigma=1e6, l2=1.0), key=b"%d" % number)
        assert not any(foreign.contains(head) for head in heads[1:])


def test_ledgers_of_version_1_are_read_and_gone_on_with(old):
    account = Ledger.verify(old / "plain.ledger")
    sampled = Sampled(Skellam(variance=900.0, l2=2.0, dimension=8), 0.01)
    assert account.rounds == {NOISE: 3, sampled: 1}
    assert account.find(b"first").note == "größer"
    with Ledger.open(old / "plain.ledger") as ledger:
        ledger.spend(NOISE)
        assert ledger.account.rounds[NOISE] == 4
    with Ledger.open(old / "signed.ledger", signer=ALICE) as ledger:
        assert ledger.budget.filter == RdpFilter(16.0)
        ledger.spend(NOISE, adaptive=True)
    assert Ledger.verify(old / "signed.ledger", verifier=ALICE).rounds == {NOISE: 2}


def test_what_this_version_writes_is_byte_for_byte_what_version_1_wrote(old, path):
    with Ledger.create(path, **BUDGET) as ledger:
        ledger.spend(NOISE, rounds=3, key=b"first", note="größer")
        ledger.spend(Sampled(Skellam(variance=900.0, l2=2.0, dimension=8), 0.01), key=b"second")
    assert path.read_bytes() == (old / "plain.ledger").read_bytes()
    tail = path.with_name("ledger.tail").read_bytes()
    assert tail == (old / "plain.ledger.tail").read_bytes()


def test_cohorts_and_bounds_of_version_1_keep_their_meaning(old):
    """Version 0.1.0 wrote this ledger, and gave epsilon 1.5237204423258965 in all."""
    account = Ledger.verify(old / "replaced.ledger")
    drawn, rounded, everybody = (spend.mechanism for spend in account.spends)
    assert isinstance(drawn, SampledWithoutReplacement)
    assert isinstance(rounded, SampledWithoutReplacement)
    assert drawn.mechanism == replace_one(Gaussian(sigma=4.0, l2=1.0))
    assert rounded.mechanism == everybody
    assert everybody.coordinate_bound == 30.0
    assert account.adjacency is Adjacency.REPLACE_ONE
    assert account.epsilon() == pytest.approx(1.5237204423258965, rel=1e-3)
    with Ledger.open(old / "replaced.ledger") as ledger:
        ledger.spend(rounded)
    assert Ledger.verify(old / "replaced.ledger").rounds[rounded] == 6


def test_a_record_with_both_names_of_a_bound_is_refused():
    bound = RoundedSkellam(variance=100.0, l2=3.0, dimension=4, tail=1e-9, coordinate_bound=2.0)
    record = to_record(bound)
    renamed = {**record, "largest": record["coordinate_bound"]}
    del renamed["coordinate_bound"]
    assert from_record(renamed) == bound
    with pytest.raises(DomainError, match="largest"):
        from_record({**record, "largest": 2.0})


def test_what_version_2_added_is_written_where_it_is_used_alone():
    assert "rare" not in to_record(NOISE)
    rare = Gaussian(sigma=20.0, l2=1.0, rare=1e-9, distance=1e-12)
    assert to_record(rare)["rare"] == 1e-9
    assert from_record(to_record(rare)) == rare
