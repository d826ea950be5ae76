"""A fleet with a leader and a helper: one message a node, limits, metrics, lies, a helper away."""

import json
import random
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg

from oracles.flower_fleet import Fleet, client_app, flat, model, plan, train
from oracles.mutations import BYTES
from skellam import SystemEntropy
from skellam.accounting.ledger import Ledger
from skellam.engines.flower import LeaderFiles
from skellam.engines.flower.messages import _VECTOR
from skellam.engines.flower.round_config import ranges_of
from skellam.engines.helper import HelperConfig, HelperService
from skellam.engines.helper.config import write_new
from skellam.engines.key_files import write_identity
from skellam.errors import DomainError, HelperUnreachableError
from skellam.protocol.identity import Identity
from skellam.twoserver.leader import Idle
from skellam.twoserver.messages import Forget, Job

TWO = {"aggregation": "two-servers", "dropout": 0.0, "colluding": 0.0, "min_cohort": 3}


@dataclass
class TwoServerFleet(Fleet):
    """A fleet whose nodes know a leader and a helper; ``service`` is the helper."""

    helper_limits: dict = field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        entropy = SystemEntropy()
        given = {"epsilon": 100.0, "delta": 1e-6, "min_cohort": 3, "participations": 100}
        self.toml, public = write_new(
            self.folder / "helper", entropy=entropy, **{**given, **self.helper_limits}
        )
        leading = write_identity(self.folder / "leader.key", Identity.generate(0, entropy=entropy))
        nodes = self.folder / "nodes"
        for folder in (nodes, self.folder / "helper"):
            (folder / "leader.key.pub").write_bytes(leading.read_bytes())
        (nodes / "helper.key.pub").write_bytes(public.read_bytes())
        roster = (nodes / "roster.json").read_bytes()
        (self.folder / "helper" / "roster.json").write_bytes(roster)
        for path in nodes.glob("*.toml"):
            names = 'leader = "leader.key.pub"\nhelper = "helper.key.pub"\n'
            path.write_text(names + path.read_text())
        self.asked, self.away = [], 0

    @property
    def files(self):
        return LeaderFiles(
            identity=self.folder / "leader.key",
            helper=self.folder / "helper" / "helper.key.pub",
            state=self.folder / "leader",
        )

    def line(self, message):
        """Ask the helper, which is started for each request, unless it is away."""
        self.asked.append(message)
        if self.away:
            self.away -= 1
            raise HelperUnreachableError("away")
        with HelperService(HelperConfig.load(self.toml), entropy=SystemEntropy()) as service:
            return service.handle(message)

    def start(self, **options):
        return super().start(helper=self.line, leader=self.files, **options)


def fleet(folder, *, app=None, helper_limits=None, limits=None, budget=100.0, **changes):
    made = plan(**{**TWO, **changes})
    return TwoServerFleet(
        folder,
        made,
        app or client_app(),
        limits=limits or {},
        helper_limits=helper_limits or {},
        budget=budget,
    )


def counted(messages):
    """A network that keeps what kind of message went to each node."""

    def downlink(message):
        messages.append((message.metadata.dst_node_id, message.metadata.message_type))
        return message

    return downlink


def far(message, context):
    """Add 0.15 to every parameter: nearly a vector of norm one."""
    arrays = {k: Array(a.numpy() + np.float32(0.15)) for k, a in message.content["arrays"].items()}
    return Message(RecordDict({"arrays": ArrayRecord(arrays)}), reply_to=message)


def near(result, made):
    """The mean of 24 coordinates: eight of its deviations fail with a chance below 1e-14."""
    error = flat(result.arrays).mean() - 0.15
    return abs(error) < 8 * (made.error.total / 24) ** 0.5 < 0.15


def test_a_round_is_one_message_a_node_and_one_request_to_the_helper(tmp_path):
    made, sent = fleet(tmp_path), []
    result, reports = made.start(rounds=3, network={"downlink": counted(sent)})
    assert [report.failure for report in reports] == ["", "", ""]
    assert sorted(sent) == sorted([(n, "train") for n in range(2, 7)] * 3)
    assert sum(message[1] == Job.TAG for message in made.asked) == 3
    assert len(made.asked) == 4
    assert reports[0].result.survivors == (1, 2, 3, 4, 5)
    assert np.isfinite(flat(result.arrays)).all()
    assert len(Ledger.verify(made.ledger_path).spends) == 3


@pytest.mark.parametrize("noise_by", ["both", "helper"])
def test_the_mean_is_that_of_the_clients_with_the_noise_of_the_servers(tmp_path, noise_by):
    limits = {"helper_noise_alone": "true"}
    made = fleet(
        tmp_path,
        z=0.3,
        app=client_app(far),
        noise_by=noise_by,
        budget=1e6,
        limits={**limits, "round_epsilon": 1e6, "total_epsilon": 1e6},
        helper_limits={"epsilon": 1e6},
    )
    made.toml.write_text(made.toml.read_text().replace("alone = false", "alone = true"))
    result, (report,) = made.start()
    assert report.failure == ""
    assert near(result, made.plan)


def test_nodes_that_die_after_their_one_message_or_before_change_nothing_but_the_sum(tmp_path):
    dead = set()

    def downlink(message):
        return None if message.metadata.dst_node_id in dead else message

    def uplink(message):
        dead.add(message.metadata.src_node_id)
        return message

    made = fleet(tmp_path)
    _, (report,) = made.start(network={"uplink": uplink, "downlink": downlink})
    assert report.failure == ""
    assert report.result.survivors == (1, 2, 3, 4, 5)
    dead = {2, 3}
    _, (report,) = made.start(network={"downlink": downlink})
    assert report.result.survivors == (3, 4, 5)


def test_too_few_reports_give_the_round_up_at_no_cost_and_the_next_one_runs(tmp_path):
    def downlink(message):
        lost = message.metadata.group_id == "1" and message.metadata.dst_node_id < 5
        return None if lost else message

    made = fleet(tmp_path)
    _, reports = made.start(rounds=2, network={"downlink": downlink})
    assert [bool(report.failure) for report in reports] == [True, False]
    assert "at least 3 are agreed" in reports[0].failure
    assert len(Ledger.verify(made.ledger_path).spends) == 1


def test_a_helper_that_is_away_costs_a_round_and_the_next_one_runs(tmp_path):
    made = fleet(tmp_path)
    made.start()
    made.away = 1
    _, reports = made.start(rounds=2)
    assert "away" in reports[0].failure
    assert reports[1].failure == ""
    # The job that was open was sent again, with the same bytes, before the next round began.
    jobs = [message for message in made.asked if message[1] == Job.TAG]
    assert len(jobs) == 4
    assert jobs[1] == jobs[2]


def test_a_server_that_is_started_again_goes_on_with_its_run(tmp_path):
    made = fleet(tmp_path)
    for _ in range(3):
        _, (report,) = made.start()
        assert report.failure == ""
    with HelperService(HelperConfig.load(made.toml), entropy=SystemEntropy()) as service:
        (run,) = service.status()
    assert (run.next_round, run.max_participations) == (3, 3)


def test_metrics_are_summed_with_noise_and_evaluations_are_a_run_of_their_own(tmp_path):
    ranges = ranges_of({"loss": (0.0, 10.0)})

    def trained(message, context):
        reply = train(message, context)
        reply.content["metrics"] = MetricRecord({"loss": 4.0})
        return reply

    app = client_app(trained, metrics=ranges, evaluate_metrics=ranges)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"loss": 6.0})}), reply_to=message)

    base = plan(**TWO).request
    made = fleet(
        tmp_path,
        app=app,
        limits={"round_epsilon": 1e6, "total_epsilon": 1e6},
        helper_limits={"epsilon": 1e6},
        budget=1e6,
    )
    paid = ranges.planned(base).with_noise(0.3, delta=1e-5)
    alone = replace(base, dimension=1, clip=1.0).with_noise(0.3, delta=1e-5)
    _, reports = made.start(
        strategy=FedAvg(), plan=paid, metrics=ranges, evaluate_plan=alone, evaluate_metrics=ranges
    )
    assert [report.failure for report in reports] == ["", ""]
    # Eight deviations, from intervals of 95 %: a false alarm in 10^14 runs.
    for report, truth in zip(reports, (4.0, 6.0), strict=True):
        found = report.result.metrics
        deviation = (found["loss-high"] - found["loss-low"]) / (2 * 1.96)
        assert abs(found["loss"] - truth) < 8 * deviation
    with HelperService(HelperConfig.load(made.toml), entropy=SystemEntropy()) as service:
        assert len(service.status()) == 2


# Limits.


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"min_cohort": 4}, "limit min_cohort"),
        ({"round_epsilon": 0.01}, "limit round_epsilon"),
        ({"total_epsilon": 0.01}, "limit total_epsilon"),
        ({"plans": '["' + "00" * 32 + '"]'}, "limit plans"),
        ({"models": '["' + "00" * 32 + '"]'}, "limit models"),
    ],
)
def test_limits_of_the_nodes_are_kept(tmp_path, limits, text):
    made = fleet(tmp_path, limits=limits)
    _, (report,) = made.start()
    assert text in report.failure
    assert not Ledger.verify(made.ledger_path).spends


def test_a_node_counts_its_participations_over_all_runs(tmp_path):
    made = fleet(tmp_path, limits={"max_participations": 2})
    _, reports = made.start(rounds=3)
    assert [bool(report.failure) for report in reports] == [False, False, True]
    assert "max_participations" in reports[2].failure


def test_noise_by_the_helper_alone_needs_the_nodes_consent(tmp_path):
    made = fleet(tmp_path, noise_by="helper")
    made.toml.write_text(made.toml.read_text().replace("alone = false", "alone = true"))
    _, (report,) = made.start()
    assert "limit helper_noise_alone" in report.failure


def test_a_node_that_knows_no_helper_refuses(tmp_path):
    made = fleet(tmp_path)
    for path in (tmp_path / "nodes").glob("*.toml"):
        path.write_text("\n".join(path.read_text().splitlines()[2:]))
    _, (report,) = made.start()
    assert "knows no leader and helper" in report.failure


def test_plan_and_servers_must_go_together(tmp_path):
    made = fleet(tmp_path)
    with pytest.raises(DomainError, match="helper and leader go with"):
        Fleet.start(made)
    with pytest.raises(DomainError, match="helper and leader go with"):
        made.start(plan=plan())


# Lies.


def test_a_helper_of_another_key_is_believed_by_nobody(tmp_path):
    made = fleet(tmp_path)
    public = write_identity(tmp_path / "x.key", Identity.generate(0, entropy=SystemEntropy()))
    (tmp_path / "nodes" / "helper.key.pub").write_bytes(public.read_bytes())
    _, (report,) = made.start()
    assert "in the name of the helper is false" in report.failure


def test_a_round_start_for_other_nodes_content_is_refused(tmp_path):
    """The server shows one node another model than the digest that it signed."""

    def downlink(message):
        if message.metadata.dst_node_id == 2:
            message.content["arrays"] = model(1.0)
        return message

    made = fleet(tmp_path)
    _, (report,) = made.start(network={"downlink": downlink})
    assert report.failure == ""
    assert report.result.survivors == (2, 3, 4, 5)


def test_a_node_that_is_asked_again_sends_the_same_bytes(tmp_path):
    seen = []

    def uplink(message):
        if not message.has_error():
            seen.append(message.content[_VECTOR]["report"].data)
        return message

    kept = []

    def downlink(message):
        kept.append(deepcopy(message))
        return message

    made = fleet(tmp_path)
    grid = made.grid(uplink=uplink, downlink=downlink)
    made.start(grid=grid)
    first = list(seen)
    again = [
        Message(m.content, m.metadata.dst_node_id, "train", group_id=m.metadata.group_id)
        for m in list(kept)
    ]
    grid.push_messages(again)
    assert len(first) == 5
    assert seen[len(first) :] == first


def test_garbage_and_reports_in_other_names_are_blamed_on_the_node_that_sent_them(tmp_path):
    def uplink(message):
        record = message.content.get(_VECTOR)
        if isinstance(record, ArrayRecord):
            array, number = record["report"], message.metadata.src_node_id
            if number == 3:
                array.data = bytes(100)
            if number == 4:  # in the name of client 1, which node 2 is
                array.data = array.data[:2] + (1).to_bytes(8, "big") + array.data[10:]
        return message

    made = fleet(tmp_path)
    _, (report,) = made.start(network={"uplink": uplink})
    assert report.failure == ""
    assert report.result.survivors == (1, 4, 5)
    assert {fault.node for fault in report.faults} == {3, 4}


def test_whom_the_helper_refuses_is_blamed_and_the_others_are_summed(tmp_path):
    made = fleet(tmp_path)
    roster = tmp_path / "helper" / "roster.json"
    record = json.loads(roster.read_text())
    record["keys"].pop("4")
    del record["sha256"]
    roster.write_text(json.dumps(record))
    _, (report,) = made.start()
    assert report.failure == ""
    assert report.result.survivors == (1, 2, 3, 5)
    assert [(fault.node, fault.stage) for fault in report.faults] == [(5, "helper")]


BANDED = {
    "correlation": (2, 1),
    "rounding": "conditional",
    "sampling": "cyclic",
    "population": 6,
    "cohort": 3,
    "rounds": 6,
}


def banded(folder, **changes):
    return fleet(
        folder,
        z=2.0,
        limits={"min_cohort": 2, "total_epsilon": 40.0, "round_epsilon": 40.0},
        helper_limits={"min_cohort": 2},
        **{**BANDED, "min_cohort": 2, **changes},
    )


def test_correlated_rounds_run_on_a_fleet_and_their_noise_cancels_as_in_the_clear(tmp_path):
    made = banded(tmp_path)
    _, reports = made.start(rounds=4)
    assert [report.failure for report in reports] == [""] * 4
    seen = [report.result.survivors for report in reports]
    assert not set(seen[0]) & set(seen[1])
    (path,) = (tmp_path / "leader").glob("*.run")
    agreed = Idle.from_bytes(path.read_bytes()).constants
    assert (agreed.band, agreed.separation) == ((2, 1), 2)
    # One participation in each of two cycles: two spends.
    assert len(Ledger.verify(made.ledger_path).spends) == 2


def test_a_correlated_round_that_a_helper_lost_is_forgotten_by_both(tmp_path):
    made = banded(tmp_path)
    kept = {"rounds": 1, "progress_file": tmp_path / "progress"}
    made.start(**kept)
    made.away = 1
    _, (failed,) = made.start(**kept)
    assert "away" in failed.failure
    _, (after,) = made.start(**kept)
    assert after.failure == ""
    assert made.asked[-2][1] == Forget.TAG
    assert made.asked[-1][1] == Job.TAG


def test_strategies_that_weigh_rounds_differently_are_refused_with_a_band(tmp_path):
    made = banded(tmp_path)
    with pytest.raises(DomainError, match="FedAvgM"):
        made.start(strategy=FedAdam())


def disturbed(rng, direction):
    """A network on which what one node sends, or what it is sent, is changed."""

    def change(message):
        node = (
            message.metadata.src_node_id if direction == "uplink" else message.metadata.dst_node_id
        )
        if node != 4 or not message.has_content():
            return message
        if direction == "uplink":
            array = message.content[_VECTOR]["report"]
            array.data = rng.choice(BYTES)(array.data, rng)
        else:
            record, name = message.content["skellam"], rng.choice(["offer", "start", "config"])
            octets = record[name] if name != "config" else record[name].encode()
            wrong = rng.choice(BYTES)(octets, rng)
            record[name] = wrong if name != "config" else wrong.decode(errors="replace")
        return message

    return {direction: change}


def assert_refused_or_left_out(made, rng, direction):
    _, (report,) = made.start(network=disturbed(rng, direction))
    assert report.failure == ""
    assert {fault.node for fault in report.faults} <= {4}
    assert set(report.result.survivors) >= {1, 2, 4, 5}


@pytest.mark.parametrize("direction", ["uplink", "downlink"])
def test_runs_go_on_whatever_one_node_sends_or_gets(tmp_path, direction):
    """Nobody but the node whose message was changed is blamed or lost."""
    rng = random.Random(6)
    limits = {"max_participations": 100, "total_epsilon": 1000.0}
    made = fleet(tmp_path, limits=limits, budget=1e4, helper_limits={"epsilon": 1e4})
    for _ in range(8):
        assert_refused_or_left_out(made, rng, direction)
