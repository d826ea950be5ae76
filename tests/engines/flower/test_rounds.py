"""Rounds on the in-process grid: what strategies get, and what becomes of failures."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi

from oracles.flower_fleet import D, Fleet, client_app, flat, model, plan, step, train
from skellam.accounting.ledger import Ledger
from skellam.engines import local
from skellam.engines.key_files import read_identity
from skellam.entropy import SeededEntropy
from skellam.errors import BudgetError, DomainError, LedgerError, ShapeError


def replay(purpose):
    return SeededEntropy(bytes(32), purpose)


def by_local_engine(made, report, silent=(), value=0.0, clients=range(1, 6)):
    this = local.Round(report.number, report.content, tuple(clients), silent)
    # The very subtraction that the client does, in float32.
    before = np.full(D, value, dtype=np.float32)
    return local.secure(made, this, lambda n: (before + step(n)) - before, entropy=replay)


def dead(*, node, stage):
    """A network on which ``node`` is gone from ``stage`` on."""
    gone = set()

    def downlink(message):
        if message.metadata.message_type.endswith(stage):
            gone.add(node)
        return None if message.metadata.dst_node_id in gone & {node} else message

    return downlink


def test_the_aggregate_is_the_local_engines_for_the_same_entropy(tmp_path):
    fleet = Fleet(tmp_path, app=client_app(entropy=replay))
    result, (report,) = fleet.start(arrays=model(2.0))
    expected = by_local_engine(fleet.plan, report, value=2.0)
    assert np.array_equal(report.result.total.values, expected.total.values)
    assert report.result.survivors == expected.survivors
    mean = expected.total.values / fleet.plan.cohort
    assert np.array_equal(flat(result.arrays), np.float32(2.0) + mean)


@pytest.mark.parametrize(
    "stage", ["train", "share_keys", "masked_input", "consistency_check", "unmask"]
)
def test_a_node_that_dies_at_any_stage_is_a_dropout(tmp_path, stage):
    made = plan(dropout=0.25, cohort=8, colluding=0.125)
    fleet = Fleet(tmp_path, made, client_app(entropy=replay), count=8)
    _, (report,) = fleet.start(network={"downlink": dead(node=3, stage=stage)})
    assert report.failure == ""
    survivors = set(range(1, 9)) - (
        {2} if stage in {"train", "share_keys", "masked_input"} else set()
    )
    assert set(report.result.survivors) == survivors
    assert set(report.result.participants) == set(range(1, 9)) - (
        {2} if stage == "train" else set()
    )
    if stage != "train":
        silent = set(range(1, 9)) - survivors
        expected = by_local_engine(made, report, silent=silent, clients=range(1, 9))
        assert np.array_equal(report.result.total.values, expected.total.values)


@pytest.mark.parametrize("kind", [FedAvg, FedAdam])
def test_a_round_below_the_threshold_fails_and_the_next_one_runs(tmp_path, kind):
    lost = {2, 3, 4}

    def downlink(message):
        first = message.metadata.group_id == "1"
        late = message.metadata.message_type.endswith("masked_input")
        return None if first and late and message.metadata.dst_node_id in lost else message

    fleet = Fleet(tmp_path)
    strategy = kind(fraction_evaluate=0.0)
    result, reports = fleet.start(rounds=2, strategy=strategy, network={"downlink": downlink})
    assert [bool(report.failure) for report in reports] == [True, False]
    assert "survived" in reports[0].failure
    assert len(Ledger.verify(fleet.ledger_path).spends) == 1
    assert result.arrays is not None


@pytest.mark.parametrize("kind", [FedAvg, FedAvgM, FedAdam, FedAdagrad, FedYogi, FedProx])
def test_mean_based_strategies_run_unchanged(tmp_path, kind):
    extra = {"proximal_mu": 0.1} if kind is FedProx else {}
    fleet = Fleet(tmp_path)
    result, reports = fleet.start(rounds=2, strategy=kind(fraction_evaluate=0.0, **extra))
    assert [report.failure for report in reports] == ["", ""]
    assert np.isfinite(flat(result.arrays)).all()


def test_integer_tensors_are_left_out_and_come_back_as_they_were(tmp_path):
    fleet = Fleet(tmp_path)
    result, reports = fleet.start(rounds=3, arrays=model(batches=np.array(7, dtype=np.int64)))
    assert [report.failure for report in reports] == ["", "", ""]
    assert result.arrays["batches"].numpy() == 7


def test_the_reply_itself_can_be_the_update(tmp_path):
    def gradient(message, context):
        number = context.node_config["partition-id"]
        arrays = {k: np.full(a.shape, step(number)) for k, a in message.content["arrays"].items()}
        record = ArrayRecord({k: Array(v.astype(np.float32)) for k, v in arrays.items()})
        return Message(RecordDict({"arrays": record}), reply_to=message)

    fleet = Fleet(tmp_path, app=client_app(gradient, entropy=replay, update="reply"))
    result, (report,) = fleet.start(arrays=model(2.0), update="reply")
    expected = by_local_engine(fleet.plan, report)
    assert report.failure == ""
    assert np.array_equal(report.result.total.values, expected.total.values)
    mean = (expected.total / fleet.plan.cohort).values
    assert flat(result.arrays) == pytest.approx(mean, rel=1e-6)


def test_server_and_client_must_agree_what_the_update_is(tmp_path):
    _, (report,) = Fleet(tmp_path).start(update="reply")
    assert "0 take part" in report.failure


@pytest.mark.parametrize("sampling", ["poisson", "fixed", "self"])
def test_the_grid_draws_the_cohort(tmp_path, sampling):
    coin = {"participation_probability": 0.9} if sampling == "self" else {}
    shares = {"dropout": 0.1, "colluding": 0.1}
    made = plan(sampling=sampling, cohort=20, population=24, **shares, **coin)
    fleet = Fleet(tmp_path, made, count=24)
    _, reports = fleet.start(rounds=2)
    sizes = {report.invited for report in reports}
    assert sizes <= ({20} if sampling == "fixed" else set(range(25)))
    for report in reports:
        assert report.result is None or len(report.result.survivors) == report.invited


def test_the_ledger_has_the_plans_epsilon_and_stops_the_run_at_the_budget(tmp_path):
    made = plan(z=1.0)
    budget = made.privacy(rounds=2).epsilon
    fleet = Fleet(tmp_path, made, budget=budget, limits={"round_epsilon": 5.0})
    with pytest.raises(BudgetError, match="the run ends here"):
        fleet.start(rounds=3)
    account = Ledger.verify(fleet.ledger_path)
    assert len(account.spends) == 2
    assert account.epsilon() == budget


def test_seeded_noise_is_marked_on_both_ledgers(tmp_path):
    fleet = Fleet(tmp_path, app=client_app(entropy=replay))
    fleet.start()
    for path in (fleet.ledger_path, tmp_path / "nodes" / "1.spend"):
        with pytest.raises(LedgerError, match="drawn from a seed"):
            Ledger.verify(path).guarantee()


def test_nothing_of_a_round_stays_in_the_state(tmp_path):
    fleet = Fleet(tmp_path)
    grid = fleet.grid()
    fleet.start(grid=grid)
    assert all(not context.state for context in grid.contexts.values())


def test_vectors_travel_at_the_planned_width(tmp_path):
    sizes = []

    def uplink(message):
        if message.metadata.message_type == "query.skellam_masked_input":
            sizes.append(len(message.content["skellam.vector"]["packed"].data))
        return message

    made = plan(bits=12)
    Fleet(tmp_path, made).start(network={"uplink": uplink})
    assert sizes == [made.bytes_per_client] * 5


def test_num_examples_never_travels(tmp_path):
    seen = []

    def uplink(message):
        seen.append(message)
        return message

    result, _ = Fleet(tmp_path).start(network={"uplink": uplink})
    assert len(seen) == 25
    assert not any(message.content.metric_records for message in seen)
    assert not result.train_metrics_clientapp[1]


def reporting(message, context):
    reply = train(message, context)
    reply.content["metrics"]["loss"] = 0.123456789
    return reply


def test_metrics_that_nobody_pays_for_stay_on_the_node(tmp_path):
    sent = []

    def uplink(message):
        sent.append(str(message))
        return message

    _, (report,) = Fleet(tmp_path, app=client_app(reporting)).start(network={"uplink": uplink})
    assert report.failure == ""
    assert len(sent) == 25
    assert not any("loss" in text or "0.123" in text for text in sent)


def test_a_client_whose_training_fails_sends_zeros_and_says_nothing(tmp_path, caplog):
    """Whether training fails may depend on the data: dropping out for it would tell."""

    def failing(message, context):
        raise ValueError("Alice has 5 cats")

    texts = []

    def uplink(message):
        texts.append(str(message))
        return message

    with caplog.at_level(logging.INFO):
        result, (report,) = Fleet(tmp_path, app=client_app(failing)).start(
            network={"uplink": uplink}
        )
    assert report.failure == ""
    assert len(report.result.survivors) == 5
    assert np.isfinite(flat(result.arrays)).all()
    assert len(texts) == 25
    assert not any("Alice" in text or "ValueError" in text for text in [*texts, report.failure])
    # The operator of the node reads why in its own log.
    assert "the training function failed; zeros are sent" in caplog.text
    assert "ValueError: Alice has 5 cats" in caplog.text


def test_updates_that_are_not_finite_count_as_zeros(tmp_path):
    def diverging(message, context):
        reply = train(message, context)
        bad = {k: np.full(a.shape, np.nan, np.float32) for k, a in reply.content["arrays"].items()}
        reply.content["arrays"] = ArrayRecord({k: Array(v) for k, v in bad.items()})
        return reply

    result, (report,) = Fleet(tmp_path, app=client_app(diverging)).start()
    assert report.failure == ""
    assert np.isfinite(flat(result.arrays)).all()


def test_a_plan_for_another_model_is_refused(tmp_path):
    with pytest.raises(ShapeError, match="the plan is for 99"):
        Fleet(tmp_path).start(plan=plan(dimension=99))


def test_nothing_goes_around_the_protocol(tmp_path):
    fleet = Fleet(tmp_path)
    with Ledger.open(fleet.ledger_path) as ledger:
        from skellam.engines.flower import SecureGrid

        secure = SecureGrid(
            fleet.grid(),
            fleet.plan,
            ledger,
            strategy=FedAvg(fraction_evaluate=0.0),
            roster=fleet.roster,
            entropy=replay("server"),
        )
        for kind in ("evaluate", "query", "train.other"):
            letter = Message(RecordDict({"arrays": model(), "c": ConfigRecord()}), 2, kind)
            with pytest.raises(DomainError, match="only train messages"):
                secure.send_and_receive([letter])
        with pytest.raises(DomainError, match="around the protocol"):
            secure.push_messages([])
        with pytest.raises(DomainError, match="around the protocol"):
            secure.pull_messages([])


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_client_answers_no_plain_message(tmp_path, kind):
    grid = Fleet(tmp_path).grid()
    content = RecordDict({"arrays": model(), "metrics": MetricRecord()})
    (reply,) = grid.send_and_receive([Message(content, 2, kind)])
    assert reply.has_error()


def test_errors_are_mapped_by_the_message_they_reply_to(tmp_path):
    """A dead node's error comes in the SuperLink's name."""

    def uplink(message):
        if (
            message.metadata.src_node_id == 3
            and message.metadata.message_type == "query.skellam_masked_input"
        ):
            lost = Message(Error(5, "node unavailable"), reply_to=message)
            lost.metadata.__dict__["_reply_to_message_id"] = message.metadata.reply_to_message_id
            lost.metadata.__dict__["_src_node_id"] = 1
            return lost
        return message

    _, (report,) = Fleet(tmp_path).start(network={"uplink": uplink})
    assert report.failure == ""
    assert report.result.survivors == (1, 3, 4, 5)


def test_neither_updates_nor_keys_nor_data_leave_a_node(tmp_path, caplog):
    marker = np.float32(0.0123456789)

    def marked(message, context):
        reply = train(message, context)
        arrays = {k: a.numpy() * 0 + marker for k, a in message.content["arrays"].items()}
        reply.content["arrays"] = ArrayRecord({k: Array(v) for k, v in arrays.items()})
        return reply

    sent = []

    def uplink(message):
        for record in message.content.config_records.values():
            sent.extend(value for value in record.values() if isinstance(value, bytes))
        for record in message.content.array_records.values():
            sent.extend(array.data for array in record.values())
        return message

    fleet = Fleet(tmp_path, app=client_app(marked))
    with caplog.at_level(logging.INFO):
        fleet.start(network={"uplink": uplink})
    keys = [read_identity(tmp_path / "nodes" / f"{n}.key").key for n in range(1, 6)]
    secrets = [np.full(2, marker).tobytes(), np.full(2, marker, dtype=np.float64).tobytes(), *keys]
    assert len(sent) == 5 * (2 * 4 + 3)
    assert not any(secret in data for data in sent for secret in secrets)
    assert "0.0123" not in caplog.text
    assert not any(key.hex() in caplog.text for key in keys)


def test_whoever_is_missing_at_the_first_stage_is_not_of_the_cohort(tmp_path):
    """Two of eight never answer, more than may drop out of six; the six are enough."""
    made = plan(cohort=8, dropout=0.125, colluding=0.125, min_cohort=5)
    assert made.tolerance.dropouts(8) == 1

    def downlink(message):
        return None if message.metadata.dst_node_id in (3, 7) else message

    fleet = Fleet(tmp_path, made, client_app(entropy=replay), count=8)
    _, (report,) = fleet.start(network={"downlink": downlink})
    assert report.failure == ""
    clients = (1, 3, 4, 5, 7, 8)
    assert report.result.participants == report.result.survivors == clients
    expected = by_local_engine(made, report, clients=clients)
    assert np.array_equal(report.result.total.values, expected.total.values)


def assert_as_the_local_engine(folder, count, dropout, lost):
    made = plan(cohort=count, dropout=dropout, colluding=0.05, bits=20)
    limits = {"min_colluding": 0.05}
    fleet = Fleet(folder, made, client_app(entropy=replay), count=count, limits=limits)
    gone = set(range(2, 2 + lost))

    def downlink(message):
        late = message.metadata.message_type.endswith("masked_input")
        return None if late and message.metadata.dst_node_id in gone else message

    _, (report,) = fleet.start(network={"downlink": downlink})
    assert report.failure == ""
    silent = {node - 1 for node in gone}
    expected = by_local_engine(made, report, silent=silent, clients=range(1, count + 1))
    assert np.array_equal(report.result.total.values, expected.total.values)


@pytest.mark.parametrize(
    ("count", "dropout", "lost"),
    [(19, 0.1, 0), (20, 0.1, 1), (21, 0.1, 2), (20, 0.3, 6), (21, 0.07, 1), (19, 0.0, 0)],
)
def test_a_fleets_sum_is_the_local_engines_bit_for_bit(tmp_path, count, dropout, lost):
    """So its noise has the law that the local engines are tested for."""
    assert_as_the_local_engine(tmp_path, count, dropout, lost)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 3, 7])
def test_a_cohort_of_107_with_dropouts_gives_the_local_engines_sum(tmp_path, lost):
    """Noise and protocol disagreed here about whose noise is removed."""
    assert_as_the_local_engine(tmp_path, 107, 0.07, lost)
