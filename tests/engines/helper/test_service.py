"""The helper's service: durable answers, its own record and ledger, its folder."""

import shutil

import numpy as np
import pytest

from oracles.helper_fleet import INPUT, HelperFleet, constants, truth, with_many_runs
from skellam import SystemEntropy
from skellam.accounting import composed_epsilon
from skellam.accounting.ledger import Ledger
from skellam.engines.helper import HelperService
from skellam.engines.helper.service import level_price, verify
from skellam.errors import (
    BudgetError,
    DataError,
    LedgerError,
    MessageError,
    PhaseError,
    ProtocolError,
    TamperError,
    ThresholdError,
)
from skellam.twoserver.messages import Answer, Job


@pytest.fixture
def fleet(tmp_path):
    return HelperFleet(tmp_path)


def service(fleet):
    return HelperService(fleet.config, entropy=SystemEntropy())


def near(release, agreed, members):
    """Noise of deviation up to sqrt(2 * 16): ten of them fail with a chance below 1e-20 in all."""
    modulus = 1 << agreed.bits
    error = (release.total.values.astype(int) - truth(agreed, members) + modulus // 2) % modulus
    return np.abs(error - modulus // 2).max() < 10 * (2 * agreed.variance) ** 0.5


def test_rounds_are_answered_and_the_sums_are_those_of_the_participants(fleet):
    agreed = constants()
    with service(fleet) as helper:
        leader = fleet.lead(helper.handle)
        for round_, members in enumerate([(10, 11, 12, 13), (10, 11), (12, 13)]):
            release = leader.round(round_, INPUT, fleet.collect(members))
            assert release.participants.tolist() == list(members)
            assert near(release, agreed, members)
        (run,) = helper.status()
    assert (run.next_round, run.clients, run.max_participations) == (3, 4, 2)
    assert run.head.count == 3
    assert not run.ended


def test_state_files_are_the_operators_alone(fleet):
    with service(fleet) as helper:
        fleet.lead(helper.handle).round(0, INPUT, fleet.collect())
    for path in (fleet.folder / "helper" / "state").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_one_folder_belongs_to_one_helper(fleet):
    with service(fleet), pytest.raises(DataError, match="in use"):
        service(fleet)
    with service(fleet):
        pass


def test_a_helper_that_is_started_again_repeats_its_answer_and_goes_on(fleet):
    sent = []

    def line(message):
        with service(fleet) as helper:
            first = helper.handle(message)
        with service(fleet) as helper:
            assert helper.handle(message) == first
        sent.append(message)
        return first

    leader = fleet.lead(line)
    leader.round(0, INPUT, fleet.collect((10, 11)))
    leader.round(1, INPUT, fleet.collect((12, 13)))
    jobs = [message for message in sent if message[1] == Job.TAG]
    assert len(jobs) == 2
    with service(fleet) as helper, pytest.raises(PhaseError, match="closed"):
        helper.handle(jobs[0])


def test_a_run_is_spent_once_for_each_participation_of_its_busiest_client(fleet):
    agreed = constants()
    with service(fleet) as helper:
        leader = fleet.lead(helper.handle)
        for round_, members in enumerate([(10, 11), (12, 13), (10, 12), (10, 13), (11, 12)]):
            leader.round(round_, INPUT, fleet.collect(members))
        assert helper.status()[0].max_participations == 3
    account = Ledger.verify(fleet.config.state / "ledger.jsonl")
    assert account.rounds == {level_price(agreed): 3}
    # Gaussian noise of deviation nearly 4 on a vector of norm 1, three times.
    assert level_price(agreed).sigma / level_price(agreed).l2 == pytest.approx(4, rel=0.02)
    assert composed_epsilon(account.rounds.items(), delta=1e-6) < 100


def test_a_hundred_participations_cost_no_less_than_their_exact_loss():
    """Of Sk(1) and vectors of one 1: epsilon is at least 73.5 at delta 0.01 (losses convolved, each
    rounded down), where Gaussian noise of the same variance has 72.4."""
    price = level_price(constants(variance=1.0))
    assert composed_epsilon([(price, 100)], delta=0.01) > 73.5


def test_a_client_beyond_the_budget_is_named_and_the_others_go_on(tmp_path):
    # One level of multiplier 4 costs about epsilon 1.2 at delta 1e-6; two cost 1.8.
    fleet = HelperFleet(tmp_path, epsilon=1.5)
    with service(fleet) as helper:
        leader = fleet.lead(helper.handle)
        leader.round(0, INPUT, fleet.collect((10, 11)))
        release = leader.round(1, INPUT, fleet.collect((10, 12, 13)))
        assert release.participants.tolist() == [12, 13]
        (refused,) = release.rejections
        assert refused.sender == 10
        assert "limit total_epsilon" in refused.reason
        with pytest.raises(ThresholdError, match="refuses too many"):
            leader.round(2, INPUT, fleet.collect((10, 11)))
        assert helper.status()[0].max_participations == 1
    assert len(Ledger.verify(fleet.config.state / "ledger.jsonl").spends) == 1


def test_a_run_without_noise_or_beyond_the_budget_is_not_opened(tmp_path):
    fleet = HelperFleet(tmp_path, epsilon=0.5)
    with service(fleet) as helper:
        with pytest.raises(BudgetError, match="not one participation"):
            fleet.lead(helper.handle)
        (fleet.folder / "leader.run").unlink()
        with pytest.raises(BudgetError, match="no noise"):
            fleet.lead(helper.handle, constants(variance=0.0))
        assert helper.status() == ()


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"min_cohort": 1}, "min_cohort"),
        ({"participations": 60, "rounds": 60}, "max_participations"),
        ({"noise_by": "helper"}, "helper_noise_alone"),
        ({"rounds": 1 << 17, "participations": 1}, "max_rounds"),
    ],
)
def test_limits_of_the_operator_are_kept_whatever_a_leader_proposes(fleet, changes, limit):
    with service(fleet) as helper, pytest.raises(ProtocolError, match=f"limit {limit}"):
        fleet.lead(helper.handle, constants(**changes))


def test_what_is_no_message_of_the_leaders_changes_nothing(fleet):
    with service(fleet) as helper:
        leader = fleet.lead(helper.handle)
        leader.round(0, INPUT, fleet.collect())
        before = helper.status()
        for junk in (b"", b"\x03", bytes(1000), b"\x01" + bytes([Job.TAG]) + bytes(500)):
            with pytest.raises(ProtocolError):
                helper.handle(junk)
        with pytest.raises(MessageError):
            helper.handle(bytes([1, Answer.TAG]) + bytes(400))
        assert helper.status() == before


def test_a_job_of_an_unknown_run_is_refused(fleet):
    with service(fleet) as helper:
        leader = fleet.lead(helper.handle)
    shutil.rmtree(fleet.config.state)
    with service(fleet) as helper:
        leader._helper = helper.handle
        with pytest.raises(TamperError, match="no run that this helper knows"):
            leader.round(0, INPUT, fleet.collect())


def test_the_secrets_of_a_run_are_erased_at_its_end(fleet):
    agreed = constants(rounds=2, participations=2)
    with service(fleet) as helper:
        leader = fleet.lead(helper.handle, agreed)
        leader.round(0, INPUT, fleet.collect())
        (state,) = helper._states.values()
        sealing, noise = state.secrets.sealing, state.secrets.noise
        leader.round(1, INPUT, fleet.collect())
        assert helper.status()[0].ended
    for path in fleet.folder.rglob("*"):
        if path.is_file():
            assert sealing not in path.read_bytes()
            assert noise not in path.read_bytes()
    with service(fleet) as helper, pytest.raises(ProtocolError):
        fleet.lead(helper.handle, agreed, name="other.run")


def test_many_runs_share_one_budget(fleet):
    with service(fleet) as helper:
        for number in range(3):
            agreed = with_many_runs(constants(), number)
            leader = fleet.lead(helper.handle, agreed, name=f"leader-{number}.run")
            leader.round(0, INPUT, fleet.collect())
        assert len(helper.status()) == 3
    account = Ledger.verify(fleet.config.state / "ledger.jsonl")
    assert account.rounds == {level_price(constants()): 3}


# Verifying.


def run_rounds(fleet, count, *, first=0):
    with service(fleet) as helper:
        leader = fleet.lead(helper.handle)
        for round_ in range(first, first + count):
            leader.round(round_, INPUT, fleet.collect())
        return helper.status()[0].head


def test_a_folder_as_it_was_left_verifies_and_has_every_head_that_was_kept(fleet):
    first = run_rounds(fleet, 1)
    second = run_rounds(fleet, 2, first=1)
    (run,) = verify(fleet.config, {b"r" * 32: first})
    assert run.head == second
    assert verify(fleet.config, {b"r" * 32: second}) == [run]


def test_a_folder_restored_from_an_older_copy_is_recognised(fleet):
    state = fleet.config.state
    run_rounds(fleet, 1)
    shutil.copytree(state, fleet.folder / "copy")
    head = run_rounds(fleet, 1, first=1)
    shutil.rmtree(state)
    (fleet.folder / "copy").rename(state)
    with pytest.raises(TamperError, match="older copy"):
        verify(fleet.config, {b"r" * 32: head})
    # The leader recognises it too: its job names a head that this helper never had.
    with service(fleet) as helper:
        leader = fleet.lead(helper.handle)
        with pytest.raises(TamperError, match="set back"):
            leader.round(2, INPUT, fleet.collect())


def test_an_older_ledger_beside_a_newer_run_is_recognised(fleet):
    state = fleet.config.state
    run_rounds(fleet, 1)
    kept = {path: path.read_bytes() for path in state.glob("ledger*")}
    run_rounds(fleet, 1, first=1)
    for path in state.glob("ledger*"):
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    with pytest.raises(LedgerError, match="old copy"):
        verify(fleet.config)


def test_every_damaged_byte_of_a_run_is_recognised(fleet):
    run_rounds(fleet, 1)
    (path,) = (fleet.config.state / "runs").iterdir()
    octets = path.read_bytes()
    for at in range(0, len(octets), 97):
        flipped = bytearray(octets)
        flipped[at] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(DataError, match="cannot read"):
            verify(fleet.config)
    path.write_bytes(octets)
    path.rename(path.with_name("00" * 32 + ".run"))
    with pytest.raises(DataError, match="another run"):
        verify(fleet.config)
