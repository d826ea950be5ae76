"""A leader that lies to the nodes of a fleet: two messages at once, rounds beyond the limits; and
the end of a run, after which nothing that was sealed in it opens."""

from engines.flower.test_two_servers import fleet
from oracles.flower_fleet import client_app, train
from skellam.accounting.ledger import Ledger
from skellam.engines.flower.node import StageLog
from skellam.engines.helper import HelperConfig
from skellam.engines.helper.service import verify
from skellam.errors import HelperUnreachableError
from skellam.twoserver import ChainHead
from skellam.twoserver.client import ClientState, RunRecord
from skellam.twoserver.helper import HelperState
from skellam.twoserver.messages import Forget

OTHER = RunRecord(b"o" * 32, b"d" * 32, ChainHead(0, bytes(32)), (0,))


def test_a_node_that_reports_in_two_rounds_at_once_is_counted_in_one(tmp_path):
    """While node 2 trains, it reports in a round of another run, from the same record."""
    reports = tmp_path / "nodes" / "1.spend.reports"

    def busy(message, context):
        if context.node_config["partition-id"] == 1:
            reports.write_bytes(ClientState((OTHER,), b"sent").to_bytes())
        return train(message, context)

    made = fleet(tmp_path, app=client_app(busy))
    _, (report,) = made.start()
    assert report.failure == ""
    assert report.result.survivors == (2, 3, 4, 5)
    assert ClientState.from_bytes(reports.read_bytes()).runs == (OTHER,)
    # What might have left the node is spent all the same.
    assert len(Ledger.verify(tmp_path / "nodes" / "1.spend").spends) == 1


def test_a_leader_that_begins_another_run_of_a_plan_gets_no_participation_more(tmp_path):
    """The plan's epsilon against the leader is that of its participations, in however many runs."""
    made = fleet(tmp_path, rounds=1)
    assert made.plan.participations == 1
    _, (report,) = made.start()
    assert report.failure == ""
    for path in (tmp_path / "leader").iterdir():
        path.unlink()
    made.ledger_path = made.folder / "second.ledger"
    Ledger.create(made.ledger_path, epsilon=100.0, delta=1e-5).close()
    _, (report,) = made.start()
    assert "took part in 1 rounds of this plan, over all runs; the plan allows 1" in report.failure
    assert len(Ledger.verify(tmp_path / "nodes" / "1.spend").spends) == 1


def test_two_messages_at_once_do_not_train_beyond_the_limit(tmp_path, monkeypatch):
    enter = StageLog.enter

    def raced(self, round_id, stage, **limits):
        with self.path.open("ab") as file:
            file.write(b"00" * 32 + b" train\n")  # what another process notes at the same moment
        enter(self, round_id, stage, **limits)

    monkeypatch.setattr(StageLog, "enter", raced)
    made = fleet(tmp_path, limits={"max_trainings": 1})
    _, (report,) = made.start()
    assert "limit max_trainings" in report.failure


def test_after_the_last_round_that_the_budget_allows_both_servers_erase_their_keys(tmp_path):
    made = fleet(tmp_path, budget=2.0)
    made.start(rounds=1)
    (path,) = (tmp_path / "helper" / "state" / "runs").iterdir()
    state = HelperState.from_bytes(path.read_bytes())
    assert (state.secrets.sealing, state.secrets.noise) == (bytes(96), bytes(32))
    (leader,) = (tmp_path / "leader").iterdir()
    assert bytes(128) in leader.read_bytes()
    (run,) = verify(HelperConfig.load(made.toml))
    assert run.ended
    assert run.max_participations == len(Ledger.verify(made.ledger_path).spends) == 1
    # The same plan on another ledger is another run.
    made.ledger_path = made.folder / "second.ledger"
    Ledger.create(made.ledger_path, epsilon=100.0, delta=1e-5).close()
    _, (report,) = made.start()
    assert report.failure == ""
    assert [run.ended for run in verify(HelperConfig.load(made.toml))].count(False) == 1


def test_a_helper_that_is_away_when_the_run_ends_costs_no_round(tmp_path, caplog):
    made = fleet(tmp_path, budget=2.0)
    there = made.line

    def line(message):
        if message[1] == Forget.TAG:
            raise HelperUnreachableError("away")
        return there(message)

    made.line = line
    _, (report,) = made.start()
    assert report.failure == ""
    assert "could not be told that the run is over: away" in caplog.text
