"""The in-process grid with an app that knows nothing of skellam."""

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from oracles.flower_fleet import flat, model, step, train
from skellam.engines.flower import InProcessGrid

NODES = [{"partition-id": n} for n in range(1, 5)]


def plain_app():
    app = ClientApp()
    app.train()(train)

    @app.evaluate()
    def evaluate(message, context):
        metrics = {"num-examples": 1, "loss": float(context.node_config["partition-id"])}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    @app.query("count")
    def count(message, context):
        seen = context.state.get("seen", ConfigRecord({"times": 0}))["times"] + 1
        context.state["seen"] = ConfigRecord({"times": seen})
        if seen == 2:
            raise ValueError("twice")
        return Message(RecordDict({"seen": context.state["seen"]}), reply_to=message)

    return app


def test_a_plain_app_trains_and_evaluates():
    result = FedAvg().start(InProcessGrid(plain_app(), NODES), model(), num_rounds=2)
    weighted = sum(n * step(n) for n in range(1, 5)) / 10
    assert flat(result.arrays) == pytest.approx(2 * weighted, rel=1e-5)
    assert result.evaluate_metrics_clientapp[2]["loss"] == 2.5


def ask(grid, node):
    (reply,) = grid.send_and_receive([Message(RecordDict(), node, "query.count")])
    return reply


def test_state_belongs_to_a_node_and_survives_an_error():
    grid = InProcessGrid(plain_app(), NODES)
    assert ask(grid, 2).content["seen"]["times"] == 1
    failed = ask(grid, 2)
    assert "<class 'ValueError'>:<'twice'>" in failed.error.reason
    assert ask(grid, 2).content["seen"]["times"] == 3
    assert ask(grid, 3).content["seen"]["times"] == 1


def test_what_the_network_loses_never_arrives():
    grid = InProcessGrid(plain_app(), NODES, downlink=lambda m: None)
    assert grid.send_and_receive([Message(RecordDict(), 2, "query.count")]) == []
    grid = InProcessGrid(plain_app(), NODES, uplink=lambda m: None)
    assert grid.send_and_receive([Message(RecordDict(), 2, "query.count")]) == []
    assert grid.contexts[2].state["seen"]["times"] == 1


def test_a_reply_is_pulled_once():
    grid = InProcessGrid(plain_app(), NODES)
    ids = grid.push_messages([Message(RecordDict(), 2, "query.count")])
    assert [reply.metadata.reply_to_message_id for reply in grid.pull_messages(ids)] == ids
    assert grid.pull_messages(ids) == []
