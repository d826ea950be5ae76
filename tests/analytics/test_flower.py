"""A query on Flower's grid: its plan is the grid's plan, and its vector is the reply."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, RecordDict

from oracles.flower_fleet import Fleet, client_app
from skellam import analytics
from skellam.entropy import SystemEntropy

COLOURS = ("red", "green", "blue")


def held_by(number):
    return ["red"] if number % 2 else ["blue"]


def record(values):
    return ArrayRecord({"counts": Array(np.asarray(values, dtype=np.float32))})


def test_a_histogram_comes_through_the_fleets_secure_sum(tmp_path):
    """Ten deviations of the noise have a chance below 1e-20."""
    query = analytics.frequencies(
        COLOURS, clients=5, epsilon=2.0, delta=1e-5, dropout=0.2, colluding=0.2
    )

    def reply(message, context):
        rows = held_by(context.node_config["partition-id"])
        found = query.contribution(rows, entropy=SystemEntropy())
        return Message(RecordDict({"arrays": record(found.vector)}), reply_to=message)

    fleet = Fleet(tmp_path, query.plan, client_app(reply, update="reply"))
    _, (report,) = fleet.start(arrays=record(np.zeros(3)), update="reply")
    assert report.failure == ""
    found = report.result
    answer = query.answer(found.total, survivors=len(found.survivors))
    assert np.abs(answer.values - [3, 0, 2]).max() <= 10 * answer.deviation
    assert answer.values.tolist() == np.round(answer.values).tolist()
    assert answer.variance == query.plan.total_variance > query.plan.variance
