"""Attacks on the helper's program, from outside and from its disk, and on the line to it."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from engines.helper.test_web import served
from oracles.helper_fleet import INPUT, HelperFleet, constants
from skellam import SystemEntropy
from skellam.engines.helper import HelperService, service, web
from skellam.engines.leader import HttpsLine
from skellam.errors import (
    DataError,
    DomainError,
    HelperUnreachableError,
    LedgerError,
    PhaseError,
    ProtocolError,
    ThresholdError,
)
from skellam.twoserver.helper import HelperState
from skellam.twoserver.messages import Answer, Forget, Job, leader_context


@pytest.fixture
def fleet(tmp_path):
    return HelperFleet(tmp_path)


def opened(fleet):
    return HelperService(fleet.config, entropy=SystemEntropy())


def run_rounds(fleet, count, *, first=0):
    with opened(fleet) as helper:
        leader = fleet.lead(helper.handle)
        for round_ in range(first, first + count):
            leader.round(round_, INPUT, fleet.collect())


def job_for(fleet, helper, members):
    """Return a job for ``members`` alone, of the latest round that a leader asked about."""
    kept = []

    def line(message):
        kept.append(message)
        if message[1] == Job.TAG:
            raise ProtocolError("kept back")
        return helper.handle(message)

    leader = fleet.lead(line)
    with pytest.raises(ProtocolError, match="kept back"):
        leader.round(leader.next_round, INPUT, fleet.collect())
    job = Job.decode(kept[-1])
    entries = job.entries[[sender in members for sender in job.entries["sender"]]]
    context = leader_context(leader._phase.run.constants)
    return replace(job, entries=entries).signed(fleet.setting.identity, context)


def test_of_many_jobs_for_one_round_at_once_one_is_answered(fleet):
    with opened(fleet) as helper:
        whole = job_for(fleet, helper, {10, 11, 12, 13})
        job, context = Job.decode(whole), leader_context(helper.status()[0].constants)
        jobs = [
            replace(job, entries=job.entries[[i != left_out for i in range(4)]]).signed(
                fleet.setting.identity, context
            )
            for left_out in range(4)
        ]
        gate = threading.Barrier(8)

        def ask(message):
            gate.wait()
            try:
                return helper.handle(message)
            except PhaseError:
                return None

        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(ask, [*jobs, whole, *jobs[:3]]))
        answers = {reply for reply in replies if reply is not None}
        assert len(answers) == 1
        assert Answer.decode(answers.pop()).round_ == 0
        (run,) = helper.status()
        assert run.max_participations == 1


@pytest.mark.parametrize("removed", [True, False])
def test_a_helper_does_not_start_with_a_ledger_older_than_its_runs(fleet, removed):
    state = fleet.config.state
    run_rounds(fleet, 1)
    kept = {path: path.read_bytes() for path in state.glob("ledger*")}
    run_rounds(fleet, 1, first=1)
    for path, content in kept.items():
        path.unlink()
        if not removed:
            path.write_bytes(content)
    with pytest.raises(LedgerError, match="old copy"):
        opened(fleet)


def test_a_helper_does_not_start_with_a_run_older_than_its_ledger(fleet):
    runs = fleet.config.state / "runs"
    run_rounds(fleet, 1)
    shutil.copytree(runs, fleet.folder / "copy")
    run_rounds(fleet, 2, first=1)
    shutil.rmtree(runs)
    (fleet.folder / "copy").rename(runs)
    with pytest.raises(LedgerError, match="the file is an old copy"):
        opened(fleet)


def test_a_running_helper_can_be_verified_at_any_moment(fleet, monkeypatch):
    """A round is answered while the folder is read."""
    read = service._states
    with opened(fleet) as helper:
        leader = fleet.lead(helper.handle)
        leader.round(0, INPUT, fleet.collect())

        def busy(folder):
            leader.round(leader.next_round, INPUT, fleet.collect())
            return read(folder)

        monkeypatch.setattr(service, "_states", busy)
        (run,) = service.verify(fleet.config)
    assert run.max_participations == 2


def test_a_leader_that_ends_its_run_makes_both_servers_erase_their_keys(fleet):
    with opened(fleet) as helper:
        leader = fleet.lead(helper.handle)
        leader.round(0, INPUT, fleet.collect())
        leader.end()
        leader.end()
        assert leader.ended
        (run,) = helper.status()
        assert run.ended
        with pytest.raises(ProtocolError, match="begin another run"):
            leader.round(leader.next_round, INPUT, fleet.collect())
    (path,) = (fleet.config.state / "runs").iterdir()
    state = HelperState.from_bytes(path.read_bytes())
    assert set(state.secrets.sealing + state.secrets.noise) == {0}
    assert state.participations.counts.tolist() == [1] * 4
    kept = (fleet.folder / "leader.run").read_bytes()
    assert bytes(96 + 32) in kept
    service.verify(fleet.config)


def test_a_stranger_cannot_end_a_run(fleet):
    with opened(fleet) as helper:
        fleet.lead(helper.handle)
        (run,) = helper.status()
        lie = Forget(run.constants.digest, run.constants.rounds, (), run.head)
        stranger = fleet.identities[0]
        with pytest.raises(ProtocolError, match="in the name of the leader is false"):
            helper.handle(lie.signed(stranger, leader_context(run.constants)))
        assert not helper.status()[0].ended


def test_an_operator_ends_a_run_that_its_leader_left_open(fleet):
    with opened(fleet) as helper:
        leader = fleet.lead(helper.handle)
        leader.round(0, INPUT, fleet.collect())
        helper.end(constants().run_id)
        with pytest.raises(PhaseError, match="is closed"):
            leader.round(1, INPUT, fleet.collect())
        with pytest.raises(DataError, match="has no run"):
            helper.end(bytes(32))
    with opened(fleet) as helper:
        assert helper.status()[0].ended


def test_a_round_that_cannot_be_finished_after_a_restart_is_given_up_and_the_next_one_runs(fleet):
    """The helper refuses a client of the job, and the leader has no reports any more."""
    with opened(fleet) as helper:
        job_for(fleet, helper, set())
    roster = fleet.folder / "helper" / "roster.json"
    record = json.loads(roster.read_text())
    record["keys"]["99"] = record["keys"].pop("13")
    del record["sha256"]
    roster.write_text(json.dumps(record))
    with opened(fleet) as helper:
        leader = fleet.lead(helper.handle)
        assert leader.release is None
        assert leader.next_round == 1
        release = leader.round(1, INPUT, fleet.collect([10, 11, 12]))
        assert release.participants.tolist() == [10, 11, 12]


def test_a_threshold_error_in_the_helpers_name_does_not_close_the_round(fleet):
    with opened(fleet) as helper:
        job_for(fleet, helper, set())

        def refuses(message):
            raise ThresholdError("the helper refuses: so it says")

        with pytest.raises(ThresholdError, match="so it says"):
            fleet.lead(refuses)
        assert fleet.lead(helper.handle).release.participants.tolist() == [10, 11, 12, 13]


def answering(*parts, status=200):
    """An app that answers every request with ``status`` and ``parts``."""

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": status, "headers": []})
            for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    return app


@pytest.mark.parametrize("url", ["http://helper.example", "helper.example:8443", "ftp://x", ""])
def test_who_takes_part_does_not_travel_in_the_clear(url):
    with pytest.raises(DomainError, match="https://"):
        HttpsLine(url)
    for here in ("http://127.0.0.1:80", "http://localhost", "http://[::1]:1", "https://x:8443"):
        assert HttpsLine(here).url == here


def test_a_reply_without_end_is_cut_off():
    with served(answering(*[bytes(1000)] * 100)) as port:
        line = HttpsLine(f"http://127.0.0.1:{port}", timeout=5, max_reply=5000)
        with pytest.raises(ProtocolError, match="longer than max_reply=5000"):
            line(b"message")
        assert len(replace(line, max_reply=100_000)(b"message")) == 100_000


def test_a_refusal_of_brackets_without_end_is_still_a_refusal():
    with (
        served(answering(b"[" * 100_000, status=422)) as port,
        pytest.raises(ProtocolError, match="refuses: status 422"),
    ):
        HttpsLine(f"http://127.0.0.1:{port}", timeout=5)(b"message")


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_whose_helper_is_away_is_asked_again(status):
    asked = []
    away, back = answering(b"away", status=status), answering(b"reply")

    async def app(scope, receive, send):
        asked.append(scope["path"])
        await (away if len(asked) < 3 else back)(scope, receive, send)

    with served(app) as port:
        assert HttpsLine(f"http://127.0.0.1:{port}", timeout=10)(b"message") == b"reply"
    assert asked == [web.PATH] * 3
    with served(away) as port, pytest.raises(HelperUnreachableError, match=f"status {status}"):
        HttpsLine(f"http://127.0.0.1:{port}", timeout=2)(b"message")
