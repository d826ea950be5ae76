import contextlib
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.identity import ALICE, BOB
from skellam.accounting import (
    Audience,
    Gaussian,
    Guarantee,
    Sampled,
    Skellam,
    from_record,
    replace_one,
    to_record,
)
from skellam.accounting.accountants import composed_epsilon
from skellam.accounting.curves import GdpCurve, Slack
from skellam.accounting.ledger import (
    Account,
    Budget,
    GdpFilter,
    Ledger,
    RdpFilter,
    Spend,
    composition,
)
from skellam.errors import BudgetError, DomainError, InfeasibleError, LedgerError

NEWLINE = b"\n"
NOISE = Gaussian(sigma=20.0, l2=1.0)
OTHER = Skellam(variance=900.0, l2=2.0, dimension=8)
SAMPLED = Sampled(Gaussian(sigma=1.0, l2=1.0), 0.01)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def create(path, epsilon=2.0, delta=1e-5, **settings):
    return Ledger.create(path, epsilon=epsilon, delta=delta, **settings)


def spend_until_refused(ledger, mechanism_of_round, **flags):
    count = 0
    with contextlib.suppress(BudgetError):
        while True:
            ledger.spend(mechanism_of_round(count), **flags)
            count += 1
    return count


def test_epsilon_is_computed_from_the_record_alone(path):
    with create(path) as ledger:
        ledger.spend(NOISE, rounds=3)
        ledger.spend(OTHER)
        ledger.spend(NOISE)
        spent = ledger.epsilon(1e-6)
    assert spent == composed_epsilon([(NOISE, 4), (OTHER, 1)], delta=1e-6)
    assert Ledger.verify(path).epsilon(1e-6) == spent
    with Ledger.open(path) as ledger:
        assert ledger.epsilon(1e-6) == spent
        assert ledger.remaining() == 2.0 - ledger.epsilon(1e-5)


def test_nothing_spent_costs_nothing_and_guarantees_nothing(path):
    with create(path) as ledger:
        assert (ledger.epsilon(), ledger.remaining()) == (0.0, 2.0)
        with pytest.raises(LedgerError, match="nothing"):
            ledger.guarantee()


def test_the_release_that_would_exceed_the_budget_is_refused_and_not_written(path):
    with create(path) as ledger:
        rounds = spend_until_refused(ledger, lambda _: NOISE)
        before = path.read_bytes()
        assert ledger.epsilon() <= 2.0 < composed_epsilon([(NOISE, rounds + 1)], delta=1e-5)
        with pytest.raises(BudgetError, match=r"epsilon 2 at delta 1e-05"):
            ledger.spend(NOISE, rounds=1000)
        ledger.spend(Gaussian(sigma=1e6, l2=1.0))
        assert path.read_bytes().startswith(before)
    assert Ledger.verify(path).rounds[NOISE] == rounds


def test_a_long_run_of_equal_rounds_takes_few_evaluations(path, monkeypatch):
    asked = []
    compute = composition.epsilon_of
    monkeypatch.setattr(composition, "epsilon_of", lambda *a: asked.append(1) or compute(*a))
    max_rounds = next(
        n for n in range(200, 1, -1) if composed_epsilon([(NOISE, n)], delta=1e-5) <= 2
    )
    with create(path) as ledger:
        assert spend_until_refused(ledger, lambda _: NOISE) == max_rounds
    assert len(asked) <= 3 * max_rounds.bit_length()


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_whatever_is_spent_in_whatever_order_stays_within_the_budget(tmp_path_factory, counts):
    path = tmp_path_factory.mktemp("ledgers") / "ledger"
    with create(path, epsilon=1.0) as ledger:
        for index, count in enumerate(counts):
            mechanism = Gaussian(sigma=15.0 + index % 2, l2=1.0)
            try:
                ledger.spend(mechanism, rounds=count)
            except BudgetError:
                after = ledger.account.plus(Spend(mechanism, count))
                assert after.epsilon() > 1.0
        assert ledger.epsilon() <= 1.0


def test_a_cut_at_any_byte_of_the_last_two_records_never_lowers_epsilon(path, tmp_path):
    with create(path) as ledger:
        for number in range(3):
            ledger.spend(NOISE, key=b"%d" % number)
        spent = ledger.epsilon()
    whole = path.read_bytes()
    last_two = sum(len(line) + 1 for line in whole.splitlines()[-2:])
    durable = len(whole) - len(whole.splitlines()[-1]) - 1
    for end in range(len(whole) - last_two, len(whole)):
        path.write_bytes(whole[:end])
        if end < durable:
            with pytest.raises(LedgerError, match=r"line 3 .*lost"):
                Ledger.open(path)
        else:
            with Ledger.open(path) as ledger:
                assert ledger.account.rounds == {NOISE: 3}
            assert path.read_bytes() == whole
    assert Ledger.verify(path).epsilon() == spent


def test_a_torn_spend_counts_against_the_budget(path):
    with create(path) as ledger:
        ledger.spend(NOISE, rounds=2)
        ledger.spend(OTHER)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with Ledger.open(path) as ledger:
        assert ledger.account.rounds == {NOISE: 2, OTHER: 1}
        ledger.spend(NOISE)
    assert path.read_bytes().startswith(whole)


def test_every_changed_byte_of_a_record_is_refused_with_its_line(path):
    with create(path) as ledger:
        ledger.spend(NOISE)
        ledger.spend(OTHER)
    whole = path.read_bytes()
    for index in range(0, len(whole), 3):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 2]) + whole[index + 1 :])
        with pytest.raises(LedgerError, match=f"line {whole.count(NEWLINE, 0, index) + 1} "):
            Ledger.verify(path)


def test_a_run_that_replays_spends_once_for_one_release(path):
    with create(path) as ledger:
        first = ledger.spend(NOISE, key=b"round-1", replayable=True)
        assert ledger.spend(NOISE, key=b"round-1", replayable=True, note="again") == first
    once = path.read_bytes()
    with Ledger.open(path) as ledger:
        ledger.spend(NOISE, key=b"round-1", replayable=True)
    assert path.read_bytes() == once


def test_fresh_noise_under_an_old_key_is_another_release_and_costs_again(path):
    with create(path) as ledger:
        ledger.spend(NOISE, key=b"round-1")
        assert ledger.account.find(b"round-1") is not None
        assert ledger.account.find(b"round-2") is None
        ledger.spend(NOISE, key=b"round-1")
        assert ledger.account.rounds == {NOISE: 2}


@pytest.mark.parametrize(
    "other", [{"mechanism": OTHER}, {"rounds": 2}, {"replayable": True}, {"adaptive": True}]
)
def test_one_key_stands_for_one_release(path, other):
    with create(path, filter=GdpFilter()) as ledger:
        ledger.spend(NOISE, key=b"round-1")
        with pytest.raises(LedgerError, match="another release"):
            ledger.spend(**{"mechanism": NOISE, "key": b"round-1"} | other)


def test_seeded_noise_is_counted_but_nothing_is_guaranteed(path):
    with create(path) as ledger:
        ledger.spend(NOISE)
        ledger.spend(NOISE, replayable=True)
        assert ledger.epsilon() > 0
        with pytest.raises(LedgerError, match=r"line 3 .*seed"):
            ledger.guarantee()
    with pytest.raises(LedgerError, match=r"line 3 .*seed"):
        Ledger.verify(path).guarantee()


def test_the_guarantee_says_against_whom(path):
    with create(path) as ledger:
        ledger.spend(SAMPLED, rounds=10)
        public = ledger.guarantee()
        server = ledger.guarantee(audience=Audience.SERVER)
        seldom = ledger.guarantee(audience=Audience.SERVER, participations=2)
    assert isinstance(public, Guarantee)
    assert public.epsilon == ledger.epsilon()
    assert server.epsilon == composed_epsilon([(SAMPLED.mechanism, 10)], delta=1e-5)
    assert seldom.epsilon == composed_epsilon([(SAMPLED.mechanism, 2)], delta=1e-5)
    assert public.epsilon < seldom.epsilon < server.epsilon


@pytest.mark.parametrize("participations", [0, -1, 1.5])
def test_a_number_of_participations_must_be_one(path, participations):
    with create(path) as ledger:
        ledger.spend(SAMPLED)
        with pytest.raises(DomainError):
            ledger.guarantee(audience=Audience.SERVER, participations=participations)


def test_neighbours_are_the_same_throughout_a_ledger(path):
    with create(path) as ledger:
        ledger.spend(NOISE)
        with pytest.raises(LedgerError, match="add-remove"):
            ledger.spend(replace_one(NOISE))


def test_choices_from_earlier_releases_need_a_filter(path):
    with create(path) as ledger, pytest.raises(LedgerError, match="filter"):
        ledger.spend(NOISE, adaptive=True)


@pytest.mark.parametrize("kept", [GdpFilter(), RdpFilter(16.0)])
def test_a_filter_lets_its_capacity_through_and_states_it_from_the_start(path, kept):
    with create(path, filter=kept) as ledger:
        ledger.spend(NOISE)
        capacity = ledger.epsilon()
        assert 1.9 < capacity <= 2.0
        rounds = spend_until_refused(
            ledger, lambda number: Gaussian(sigma=20.0 + number % 3, l2=1.0), adaptive=True
        )
        assert ledger.epsilon() == capacity
        assert 0 <= ledger.remaining() < 0.2
        assert composed_epsilon(ledger.account.rounds.items(), delta=1e-5) <= 2.0
        assert rounds > 10
    with Ledger.open(path) as ledger:
        assert ledger.account.budget.filter == kept
        assert kept.__class__.__name__ in ledger.guarantee().accountant


def test_a_gdp_filter_takes_no_sampled_mechanism_and_an_rdp_filter_does(path, tmp_path):
    with create(path, filter=GdpFilter()) as ledger, pytest.raises(DomainError, match="RdpFilter"):
        ledger.spend(SAMPLED)
    with create(tmp_path / "other", filter=RdpFilter(8.0)) as ledger:
        ledger.spend(SAMPLED, adaptive=True)
        with pytest.raises(LedgerError, match="server"):
            ledger.guarantee(audience=Audience.SERVER)


def test_a_ledger_says_nothing_against_a_helper_who_may_have_drawn_the_noise(path):
    with create(path) as ledger:
        ledger.spend(Gaussian(sigma=10.0, l2=1.0))
        assert ledger.guarantee(audience=Audience.LEADER).epsilon > 0
        with pytest.raises(LedgerError, match="ask the plan"):
            ledger.guarantee(audience=Audience.HELPER)


def test_the_samplers_distance_has_a_capacity_of_its_own(path):
    with create(path, filter=GdpFilter()) as ledger, pytest.raises(BudgetError):
        ledger.spend(Gaussian(sigma=1e3, l2=1.0, sampler_distance=1e-7))


@pytest.mark.parametrize("at", [1e-6, 1e-5, 1e-3])
def test_a_filters_epsilon_covers_the_tails_that_it_lets_through(path, at):
    capacity = GdpFilter().capacity(2.0, 1e-5)
    let_through = GdpCurve(capacity.mu, Slack(rare=0.99e-7, stretch=0.0199))
    with create(path, filter=GdpFilter()) as ledger:
        ledger.spend(NOISE, adaptive=True)
        assert ledger.epsilon(at) >= let_through.epsilon(at)
        assert ledger.epsilon() <= 2.0


def test_a_filter_without_room_cannot_be_created(path):
    with pytest.raises(InfeasibleError, match="higher order"):
        create(path, filter=RdpFilter(1.5))
    with pytest.raises(DomainError, match="ORDERS"):
        RdpFilter(float("nan"))
    assert not path.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": float("nan")},
        {"epsilon": float("inf")},
        {"delta": 0.0},
        {"delta": 1.0},
    ],
)
def test_a_budget_must_be_one(path, wrong):
    with pytest.raises(DomainError):
        create(path, **wrong)
    assert not path.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"rounds": 1.5},
        {"adaptive": 1},
        {"replayable": None},
        {"key": b""},
        {"key": "round-1"},
        {"key": bytes(65)},
        {"note": 3},
    ],
)
def test_a_spend_must_be_one_and_writes_nothing_otherwise(path, wrong):
    with create(path) as ledger:
        before = path.read_bytes()
        with pytest.raises(DomainError):
            ledger.spend(NOISE, **wrong)
        assert path.read_bytes() == before


def test_a_ledger_is_not_created_over_another(path):
    create(path).close()
    with pytest.raises(LedgerError, match="already"):
        create(path)


def test_a_closed_ledger_takes_no_spend(path):
    with create(path) as ledger:
        pass
    with pytest.raises(LedgerError, match="closed"):
        ledger.spend(NOISE)


def test_a_copy_of_both_files_can_be_audited_elsewhere(path, tmp_path):
    with create(path) as ledger:
        ledger.spend(NOISE)
        shutil.copy(path, tmp_path / "copy")
        shutil.copy(path.with_name("ledger.tail"), tmp_path / "copy.tail")
        assert Ledger.verify(tmp_path / "copy") == Ledger.verify(path) == ledger.account


def test_a_signed_ledger_is_written_and_vouched_for_by_its_signer_alone(path):
    with create(path, signer=ALICE) as ledger:
        ledger.spend(NOISE)
    with Ledger.open(path, signer=ALICE) as ledger:
        ledger.spend(NOISE)
    assert Ledger.verify(path, verifier=ALICE).rounds == {NOISE: 2}
    with pytest.raises(LedgerError, match="line 1 "):
        Ledger.verify(path, verifier=BOB)
    for stranger in (BOB, None):
        with pytest.raises(LedgerError, match=r"line 1 .*sign"):
            Ledger.open(path, signer=stranger)


def test_records_carry_mechanisms_exactly():
    spend = Spend(Sampled(Gaussian(sigma=0.1 + 0.2, l2=1 / 3), 1e-300), 7, key=b"\x00\xff")
    assert Spend.from_fields(spend.to_fields()) == spend
    assert from_record(to_record(spend.mechanism)) == spend.mechanism
    assert Account(Budget(1.0, 0.5)).plus(spend).spends == (spend,)


def test_a_path_without_a_ledger_is_named_as_it_was_given(tmp_path):
    with pytest.raises(LedgerError, match=r"there is no ledger .*/nothing; .*Ledger\.create"):
        Ledger.verify(tmp_path / "nothing")
