"""Private metrics: they arrive with noise and an interval, and cost what the plan pays."""

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from oracles.flower_fleet import D, Fleet, client_app, plan, step, train
from skellam.engines.flower import MetricRanges
from skellam.errors import DomainError
from skellam.plan import Plan

RANGES = {"loss": (0, 10), "accuracy": (0, 1)}
METRICS = MetricRanges.of(RANGES)
CLIENTS = 12
VALUES = {n: {"loss": 0.5 * n, "accuracy": n / CLIENTS} for n in range(1, CLIENTS + 1)}


def with_metrics(message, context):
    reply = train(message, context)
    reply.content["metrics"] = MetricRecord(
        {"num-examples": 10, **VALUES[context.node_config["partition-id"]]}
    )
    return reply


def evaluate(message, context):
    values = VALUES[context.node_config["partition-id"]]
    return Message(RecordDict({"metrics": MetricRecord(values)}), reply_to=message)


def planned(ranges=METRICS, **changes):
    settings = {"cohort": CLIENTS, "colluding": 0.1, "dropout": 0.1, **changes}
    bare = Plan(dimension=D, clip=1.0, rounds=3, sampling="all", **settings)
    return ranges.planned(bare).with_noise(0.5, delta=1e-5)


def evaluation(z=0.5):
    return plan(dimension=2, cohort=CLIENTS, colluding=0.1, dropout=0.1, z=z)


def fleet(folder, app, made):
    return Fleet(
        folder,
        made,
        app,
        count=CLIENTS,
        limits={"round_epsilon": 100.0, "total_epsilon": 1000.0},
        budget=1000.0,
    )


def test_train_metrics_arrive_with_their_intervals(tmp_path):
    """Each interval misses for one in twenty; four of eight do for 3e-4."""
    run = fleet(tmp_path, client_app(with_metrics, metrics=RANGES), planned())
    result, reports = run.start(rounds=4, metrics=RANGES)
    assert [report.failure for report in reports] == [""] * 4
    truth = {"loss": 3.25, "accuracy": 6.5 / 12}
    missed = 0
    for number in range(1, 5):
        found = result.train_metrics_clientapp[number]
        for name, value in truth.items():
            low, high = found[f"{name}-low"], found[f"{name}-high"]
            assert low < found[name] < high
            assert (high - low) / (RANGES[name][1]) < 0.9
            missed += not low <= value <= high
    assert missed < 4
    total = sum(report.result.total.values for report in reports)
    expected = 4 * sum(step(n) for n in range(1, CLIENTS + 1))
    assert total.shape == (D,)
    assert total.mean() == pytest.approx(expected, abs=6 * 2 * 0.6 * 1.2 / D**0.5)


def test_evaluate_rounds_sum_metrics_alone(tmp_path):
    app = client_app(with_metrics, metrics=RANGES, evaluate_metrics=RANGES)
    app.evaluate()(evaluate)
    run = fleet(tmp_path, app, planned())
    strategy = FedAvg()
    result, reports = run.start(
        rounds=1,
        strategy=strategy,
        metrics=RANGES,
        evaluate_metrics=RANGES,
        evaluate_plan=evaluation(),
    )
    assert [report.failure for report in reports] == ["", ""]
    found = result.evaluate_metrics_clientapp[1]
    assert set(found) == {f"{n}{end}" for n in RANGES for end in ("", "-low", "-high")}
    # Half an interval is two deviations; five deviations miss for 6e-7.
    for name, value in {"loss": 3.25, "accuracy": 6.5 / 12}.items():
        half = (found[f"{name}-high"] - found[f"{name}-low"]) / 2
        assert abs(found[name] - value) < 2.6 * half


def test_what_is_not_named_or_not_a_number_counts_as_the_middle(tmp_path):
    values = {"loss": float("nan"), "more": 3.0, "accuracy": [1.0]}
    joined = METRICS.joined(np.zeros(3), values, 1.0)
    assert np.array_equal(joined, np.zeros(5))


def test_other_ranges_than_the_apps_are_refused(tmp_path):
    run = fleet(tmp_path, client_app(with_metrics, metrics=RANGES), planned())
    _, (report,) = run.start(metrics={"loss": (0, 1e9), "accuracy": (0, 1)})
    assert "other metrics or ranges" in report.failure


def test_an_app_without_metrics_is_asked_for_none(tmp_path):
    run = fleet(tmp_path, client_app(with_metrics), planned())
    _, (report,) = run.start(metrics=RANGES)
    assert "other metrics or ranges" in report.failure


def test_metrics_must_be_paid_for(tmp_path):
    with pytest.raises(DomainError, match=r"before \.calibrated"):
        METRICS.planned(plan())
    with pytest.raises(DomainError, match="one dimension for each"):
        fleet(tmp_path, client_app(), plan()).start(evaluate_metrics=RANGES, evaluate_plan=plan())


@pytest.mark.parametrize(
    "ranges", [{}, {"a": (1, 1)}, {"a": (2, 1)}, {"a": (0, float("inf"))}, {"a": (0, float("nan"))}]
)
def test_ranges_have_a_width(ranges):
    with pytest.raises(DomainError):
        MetricRanges.of(ranges)


finite = st.floats(-1e6, 1e6)


@given(
    update=st.lists(finite, max_size=8),
    loss=st.floats(allow_nan=True),
    accuracy=st.floats(allow_nan=True),
    clip=st.floats(1e-3, 1e3),
    share=st.floats(1e-3, 10),
)
def test_the_vector_never_exceeds_the_planned_clip(update, loss, accuracy, clip, share):
    ranges = MetricRanges.of(RANGES, share=share)
    x = np.array(update, dtype=np.float32)
    joined = ranges.joined(x, {"loss": loss, "accuracy": accuracy}, clip)
    assert len(joined) == len(x) + 2
    assert np.linalg.norm(joined) <= clip * (1 + 1e-9)


@given(loss=st.floats(0, 10), accuracy=st.floats(0, 1), clip=st.floats(1e-3, 1e3))
def test_without_noise_the_mean_is_the_metric(loss, accuracy, clip):
    for dimension in (0, 3):
        joined = METRICS.joined(np.zeros(dimension), {"loss": loss, "accuracy": accuracy}, clip)
        found = METRICS.released(
            7 * joined[dimension:], dimension=dimension, clip=clip, clients=7, error=0.0
        )
        assert found["loss"] == pytest.approx(loss, abs=1e-6)
        assert found["accuracy-low"] == found["accuracy-high"] == pytest.approx(accuracy, abs=1e-6)


def test_a_metric_takes_its_share_of_the_clip():
    made = planned()
    assert made.dimension == D + 2
    assert made.clip == pytest.approx(1.2**0.5)
    update = METRICS.joined(np.full(D, 1.0), {}, made.clip)
    assert np.linalg.norm(update) == pytest.approx(1.0)
