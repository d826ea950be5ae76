import errno
import os
import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import skellam as sk
from oracles.tiny_task import examples, plan, seeded, task
from skellam import federated as fl
from skellam.accounting.ledger import Ledger
from skellam.engines.sampling import bernoulli
from skellam.errors import (
    BudgetError,
    DataError,
    DomainError,
    InfeasibleError,
    KindError,
    LedgerError,
    TrainingError,
)
from skellam.federated.history import read_operator
from skellam.federated.sampling import Participations, Population, Streams

ADAPTIVE = plan(quantile_noise=0.1)
CLIP = fl.AdaptiveClip(clip=0.1, learning_rate=0.5)
START = task().initial(entropy=seeded())


def run(made=None, *, learnt=None, aggregate=None, entropy=None, **options):
    return fl.train(
        learnt or task(),
        made or plan(),
        aggregate=aggregate or fl.unmasked(),
        entropy=entropy or seeded(),
        **options,
    )


def test_training_without_privacy_learns_the_task():
    history = run(plan(rounds=30, cohort=10), aggregate=fl.non_private())
    assert history.records[-1].test_accuracy > 0.9
    assert history.records[-1].epsilon_public is None
    assert history.guarantees is None
    assert not history.header.private


def test_training_with_little_noise_learns_the_task():
    made = replace(plan(rounds=30, noise="none"))
    assert run(made).records[-1].test_accuracy > 0.9


@pytest.mark.parametrize("changes", [{}, {"noise": "central-skellam"}])
@pytest.mark.parametrize("dropout", [0.0, {1: range(3), 3: (5,)}])
def test_the_secured_model_is_the_clear_model_bit_for_bit(changes, dropout):
    made = plan(rounds=4, **changes)
    clear = run(made, aggregate=fl.unmasked(dropout=dropout))
    secure = run(made, aggregate=fl.secure(dropout=dropout))
    assert np.array_equal(clear.model, secure.model)
    assert clear.records == secure.records


def test_dropouts_change_nothing_but_the_survivors():
    """Without noise a client that drops out is one that never was: other updates stay the same."""
    made = plan(rounds=1, sampling="all", population=None, cohort=12)
    all_of_them, rest = (
        run(made, aggregate=fl.non_private(dropout={0: gone}), server=fl.fedavg()).model
        for gone in ((), (3,))
    )
    assert np.allclose(all_of_them - rest, clients_update(3, START) / 12, atol=1e-6)


def clients_update(number, start, learnt=None):
    learnt, streams = learnt or task(), Streams.of(seeded()).scope("round/0")
    client = list(learnt.clients)[number]
    return learnt.worker().update(start, client, 0, entropy=streams(f"training/{number}"))


@pytest.mark.parametrize("noise", ["gaussian", "central-skellam", "distributed-discrete-gaussian"])
def test_every_noise_trains(noise):
    rounding = "conditional" if "discrete" in noise else None
    history = run(plan(noise=noise, rounding=rounding, rounds=2), entropy=sk.SystemEntropy())
    assert history.records[-1].epsilon_public > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": "fixed"},
        {"sampling": "all", "population": None, "cohort": 12},
        {"sampling": "self", "participation_probability": 0.8},
    ],
)
def test_every_sampling_trains_and_is_accounted_as_such(changes):
    made = plan(rounds=2, **changes)
    history = run(made, entropy=sk.SystemEntropy())
    assert history.records[-1].epsilon_public == pytest.approx(made.privacy().epsilon)
    server = made.privacy(audience="server", participations=2)
    assert history.guarantees.server.epsilon == server.epsilon


def test_on_tails_a_self_sampling_client_sends_zeros():
    """The rounds whose coins all fall on tails are those in which the model does not move."""
    made = plan(sampling="self", participation_probability=0.8, rounds=1)
    moved = run(made, aggregate=fl.non_private(), server=fl.fedavg()).model - START
    inner = Streams.of(seeded()).scope("round/0")
    heads_up = [
        number
        for number in Population(made, 12).draw(0, entropy=inner("cohort"))
        if bernoulli(1, 0.8, entropy=inner(f"coin/{number}"))[0]
    ]
    assert 0 < len(heads_up) < 12
    total = sum(clients_update(number, START) for number in heads_up)
    assert np.allclose(moved, total / made.cohort, atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise": "gaussian"},
        {"noise": "distributed-discrete-gaussian"},
        {"accountant": "paper"},
        {"sampling": "fixed"},
        {"sampling": "self", "participation_probability": 0.8},
    ],
)
def test_a_calibrated_plan_can_pay_for_all_its_rounds(changes):
    made = plan(rounds=3, **changes).calibrated(epsilon=8, delta=1e-3)
    history = run(made, entropy=sk.SystemEntropy(), every=3)
    assert history.stop is fl.Stop.FINISHED
    assert 0 < history.guarantees.public.epsilon <= 8


def test_with_a_seed_nothing_is_guaranteed_and_the_ledger_says_why(tmp_path):
    history = run(folder=tmp_path)
    assert history.header.replayable
    assert history.guarantees is None
    assert all(record.epsilon_public is None for record in history.records)
    account = Ledger.verify(tmp_path / "ledger")
    assert len(account.spends) == 5
    with pytest.raises(LedgerError, match="seed"):
        account.guarantee()


def test_the_guarantee_names_both_audiences_and_the_population():
    history = run(entropy=sk.SystemEntropy())
    public, worst, mean = history.guarantees
    assert max(public.epsilon, mean.epsilon) < worst.epsilon
    assert "population 12" in str(public)
    made = plan(population=1000)
    stated = run(made, entropy=sk.SystemEntropy())
    assert "hypothetical population 1000" in stated.header.population
    assert "hypothetical population 1000" in str(stated.guarantees.public)


def test_the_budget_stops_training_with_the_model_so_far(tmp_path):
    made = plan(sampling="all", population=None, cohort=12)
    epsilon = made.privacy(rounds=3).epsilon
    with Ledger.create(tmp_path / "book", epsilon=epsilon, delta=1e-3) as ledger:
        history = run(made, ledger=ledger, entropy=sk.SystemEntropy())
        assert len(ledger.account.spends) == 3
    assert history.stop is fl.Stop.BUDGET
    assert len(history.records) == 3
    assert np.isfinite(history.model).all()
    assert history.guarantees.public.epsilon <= epsilon


def test_a_cohort_below_the_threshold_skips_the_round_and_costs_nothing(tmp_path):
    gone = fl.unmasked(dropout={1: range(12), 3: range(9)})
    history = run(aggregate=gone, folder=tmp_path)
    skipped = [record.round for record in history.records if record.skipped]
    assert skipped == [1, 3]
    assert len(Ledger.verify(tmp_path / "ledger").spends) == 5 - len(skipped)


@pytest.mark.parametrize("aggregate", [fl.unmasked, fl.secure])
def test_too_many_dropouts_skip_the_round_and_cost_nothing(tmp_path, aggregate, caplog):
    history = run(aggregate=aggregate(dropout={2: range(12)}), folder=tmp_path)
    assert [record.skipped for record in history.records] == [None, None, "too few clients"] + [
        None
    ] * 2
    assert history.records[2].test_accuracy == history.records[1].test_accuracy
    assert len(Ledger.verify(tmp_path / "ledger").spends) == 4
    assert "round 2 was skipped: too few clients" in caplog.text


def held(**changes):
    return {**{f"c{n:02d}": examples(6, n) for n in range(12)}, **changes}


BAD = (np.zeros((6, 4), dtype=np.float32), np.full(6, 99))  # no such class: torch raises
EVERYBODY = plan(sampling="all", population=None, cohort=12, rounds=2)


def test_a_client_whose_training_fails_sends_zeros_and_its_noise(tmp_path, caplog):
    history = run(EVERYBODY, learnt=task(clients=held(c05=BAD)), folder=tmp_path)
    assert all(record.skipped is None for record in history.records)
    logged = read_operator(tmp_path)
    assert [line["failures"] for line in logged] == [1, 1]
    assert [line["survivors"] for line in logged] == [12, 12]
    assert "IndexError" in logged[0]["first_failure"]
    assert "IndexError" in caplog.text
    for name in ("history.jsonl", "run.json"):
        assert "IndexError" not in (tmp_path / name).read_text()


def test_too_many_failures_stop_the_run_with_the_first_one_before_anything_is_spent(tmp_path):
    broken = task(clients=held(c05=BAD, c06=BAD, c07=BAD))
    with pytest.raises(TrainingError, match=r"more than 2 .*IndexError: Target 99"):
        run(EVERYBODY, learnt=broken, folder=tmp_path)
    assert len(Ledger.verify(tmp_path / "ledger").spends) == 0
    assert read_operator(tmp_path)[0]["failures"] == 3
    assert "IndexError" not in (tmp_path / "history.jsonl").read_text()
    assert run(EVERYBODY, learnt=broken, max_failures=0.25).stop is fl.Stop.FINISHED


def test_an_update_that_is_not_finite_is_a_failure():
    huge = (np.full((6, 4), 3e38, dtype=np.float32), np.arange(6) % 3)
    with pytest.raises(TrainingError, match="not finite"):
        run(EVERYBODY, learnt=task(clients=held(c05=huge)), max_failures=0)


def test_what_the_first_client_raises_is_raised_as_it_is_and_leaves_no_file(tmp_path):
    with pytest.raises(IndexError, match="99"):
        run(EVERYBODY, learnt=task(clients=held(c00=BAD)), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_a_metric_raises_is_raised_before_anything_is_spent(tmp_path):
    def broken(outputs, targets):
        raise ZeroDivisionError("my metric")

    with pytest.raises(ZeroDivisionError, match="my metric"):
        run(learnt=task(metrics={"broken": broken}), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_measure_that_fails_in_the_middle_loses_no_round_that_was_spent(tmp_path):
    calls = []

    def third_time(outputs, targets):
        calls.append(1)
        if len(calls) == 5:
            raise ZeroDivisionError("my metric")
        return fl.accuracy(outputs, targets)

    def go_on():
        learnt = task(metrics={"accuracy": third_time}, validation=None)
        return run(EVERYBODY, learnt=learnt, folder=tmp_path, entropy=sk.SystemEntropy(), **again)

    again = {"resume": True}
    calls += [1, 1]
    with pytest.raises(ZeroDivisionError):
        go_on()
    assert len(Ledger.verify(tmp_path / "ledger").spends) == 2
    history = go_on()
    assert len(Ledger.verify(tmp_path / "ledger").spends) == 2
    assert [record.evaluated for record in history.records] == [True, False]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"task": nn.Linear(4, 3)}, r"task cannot be Linear; use fl\.Task"),
        (
            {"plan": sk.Plan(dimension=15, clip=1, cohort=8, population=12, rounds=1)},
            r"plan cannot be Plan.*calibrated",
        ),
        ({"aggregate": fl.secure}, r"aggregate cannot be secure; use fl\.secure\(\)"),
        ({"entropy": 7}, "entropy cannot be int"),
        ({"server": torch.optim.Adam}, "server cannot be Adam"),
    ],
)
def test_what_people_pass_by_mistake_is_refused_with_what_to_use(wrong, match):
    given = {"task": task(), "plan": plan(), "aggregate": fl.unmasked(), "entropy": seeded()}
    with pytest.raises(KindError, match=match):
        fl.train(**{**given, **wrong})


def test_a_run_that_released_nothing_ends_with_an_error_that_says_what_it_spent():
    nobody = {number: range(12) for number in range(5)}
    with pytest.raises(TrainingError, match=r"none of 5 rounds released.*nothing was spent"):
        run(aggregate=fl.unmasked(dropout=nobody))


def test_a_budget_for_no_release_is_an_error(tmp_path):
    with (
        Ledger.create(tmp_path / "small", epsilon=0.01, delta=1e-3) as ledger,
        pytest.raises(BudgetError, match="no release"),
    ):
        run(ledger=ledger, entropy=sk.SystemEntropy())


def test_cohorts_that_cannot_survive_their_dropouts_are_refused_before_the_run(tmp_path):
    with pytest.raises(DomainError, match=r"dropout=0\.3 .* plan with dropout=0\.3"):
        run(aggregate=fl.secure(dropout=0.3), folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("entropy", [seeded, sk.SystemEntropy])
def test_nobody_takes_part_more_often_than_the_plan_says(tmp_path, monkeypatch, entropy):
    """Every client trains in the first two rounds, and sends zeros with its noise afterwards."""
    monkeypatch.setattr(Population, "max_participations", 2)
    made = plan(sampling="all", population=None, cohort=12, rounds=4, noise="none")
    trained = []

    def update(model, batches, round_):
        trained.append(round_.number)
        with torch.no_grad():
            model.bias += 1

    history = run(
        made, learnt=task(update=update), server=fl.fedavg(), entropy=entropy(), folder=tmp_path
    )
    assert trained[1:] == [0] * 12 + [1] * 12  # the first is the rehearsal
    kept = Participations.from_bytes((tmp_path / "participations.npz").read_bytes())
    assert kept.counts.tolist() == [2] * 12
    assert kept.members.size == 0
    assert not history.header.private


def test_what_is_secret_is_the_operators_alone(tmp_path):
    run(folder=tmp_path)
    for name in ("operator.jsonl", "checkpoint.npz"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    shown = "".join((tmp_path / name).read_text() for name in ("history.jsonl", "run.json"))
    for secret in ("invited", "survivors", "failures", "members", "seed"):
        assert secret not in shown


def test_a_run_is_not_started_twice_in_one_folder(tmp_path):
    run(folder=tmp_path)
    with pytest.raises(DomainError, match="resume"):
        run(folder=tmp_path)
    again = run(folder=tmp_path, resume=True)
    assert len(again.records) == 5


def test_a_folder_that_cannot_be_written_is_refused_by_our_error(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", fails)
        with pytest.raises(DataError, match=r"cannot write .*run: Read-only .*try again"):
            run(folder=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fails)
        with pytest.raises(DataError, match="Read-only"):
            run(folder=tmp_path)


def clips(history):
    return [record.clip for record in history.records]


@pytest.mark.parametrize("changes", [{}, {"noise": "central-skellam"}])
def test_under_a_clip_that_adapts_secure_and_clear_agree_bit_for_bit(changes):
    made = plan(quantile_noise=0.1, **changes)
    dropout = {1: range(2), 3: (5,)}
    clear = run(made, clip=CLIP, aggregate=fl.unmasked(dropout=dropout))
    secure = run(made, clip=CLIP, aggregate=fl.secure(dropout=dropout))
    assert np.array_equal(clear.model, secure.model)
    assert clear.records == secure.records
    assert len(set(clips(clear))) > 3
    assert clips(clear)[0] == 0.1


def test_the_clip_follows_the_norms_of_the_updates_and_trains():
    """From far below and from far above it comes to the same norms, which shrink as it learns."""
    made = plan(rounds=40, noise="none", quantile_noise=0.1)
    low, high = (
        run(made, clip=fl.AdaptiveClip(clip=start, learning_rate=1.0), every=40)
        for start in (1e-3, 1e3)
    )
    assert 1 / 5 < clips(low)[-1] / clips(high)[-1] < 5
    assert low.records[-1].test_accuracy > 0.9
    assert clips(low)[5] > clips(low)[0]
    assert clips(high)[5] < clips(high)[0]


def test_the_server_moves_in_units_of_the_clip():
    """Nobody is beyond the clip, so it moves by exp(-rate (1 - target)), and the mean with it."""
    settings = {"rounds": 1, "noise": "none", "clip": 10.0, "bits": 28, "cohort": 12}
    settings |= {"sampling": "all", "population": None}
    fixed = run(plan(**settings), server=fl.fedavg()).model - START
    made, clip = plan(**settings, quantile_noise=0.1), fl.AdaptiveClip(clip=10.0, learning_rate=2.0)
    moved = run(made, clip=clip, server=fl.fedavg()).model - START
    assert np.allclose(moved, fixed * np.exp(-1), atol=1e-4)


def test_a_skipped_round_leaves_the_clip():
    history = run(ADAPTIVE, clip=CLIP, aggregate=fl.unmasked(dropout={2: range(12)}))
    assert history.records[2].skipped
    assert clips(history)[3] == clips(history)[2] != clips(history)[1]


def test_the_ledger_pays_for_vector_and_count_together():
    history = run(ADAPTIVE, clip=CLIP, entropy=sk.SystemEntropy())
    assert history.guarantees.public.epsilon == pytest.approx(ADAPTIVE.privacy().epsilon)
    assert ADAPTIVE.privacy().epsilon > plan().privacy().epsilon


@pytest.mark.parametrize(
    ("made", "clip", "aggregate", "match"),
    [
        (plan(), CLIP, fl.unmasked(), "quantile_noise"),
        (ADAPTIVE, None, fl.unmasked(), "clip must be given"),
        (ADAPTIVE, CLIP, fl.non_private(), "nothing is clipped"),
    ],
)
def test_a_clip_and_a_plan_that_do_not_go_together_are_refused(
    tmp_path, made, clip, aggregate, match
):
    with pytest.raises(DomainError, match=match):
        run(made, clip=clip, aggregate=aggregate, folder=tmp_path)
    assert not list(tmp_path.iterdir())


class CutOffError(Exception):
    pass


@pytest.mark.parametrize("server", [fl.fedavg(momentum=0.9), fl.adam(learning_rate=0.1)])
@pytest.mark.parametrize(
    "options",
    [
        {"aggregate": fl.unmasked(dropout={0: (3,), 1: (5,), 2: range(12)})},
        {"aggregate": fl.secure(dropout={0: (3,), 1: (5,), 2: range(12)})},
        {"aggregate": fl.non_private()},
        {"made": ADAPTIVE, "clip": CLIP},
    ],
)
def test_a_run_that_was_cut_off_ends_like_one_that_was_not(tmp_path, server, options):
    def cut_off(record):
        if record.round in (1, 2):
            raise CutOffError

    options = {"server": server, **options}
    whole = run(folder=tmp_path / "whole", **options)
    for _ in range(2):
        with pytest.raises(CutOffError):
            run(folder=tmp_path / "cut", resume=True, watch=cut_off, **options)
    rest = run(folder=tmp_path / "cut", resume=True, **options)
    assert np.array_equal(rest.model, whole.model)
    assert rest.records == whole.records
    for name in ("history.jsonl", "run.json", "operator.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_that_was_cut_off_still_knows_how_often_everybody_took_part(tmp_path, monkeypatch):
    monkeypatch.setattr(Population, "max_participations", 2)

    def cut_off(record):
        if record.round == 2:
            raise CutOffError

    expected = run(folder=tmp_path / "whole")
    with pytest.raises(CutOffError):
        run(folder=tmp_path / "cut", watch=cut_off)
    assert np.array_equal(run(folder=tmp_path / "cut", resume=True).model, expected.model)
    kept, other = ((tmp_path / n / "participations.npz").read_bytes() for n in ("cut", "whole"))
    assert kept == other
    assert Participations.from_bytes(kept).counts.max() == 2
    monkeypatch.setattr(Population, "max_participations", None)
    assert not np.array_equal(run().model, expected.model)


@pytest.mark.parametrize(
    "changes",
    [
        {"made": plan(rounds=4)},
        {"entropy": seeded("another")},
        {"aggregate": fl.secure()},
        {"server": fl.fedavg()},
        {"learnt": task(optimizer=fl.sgd(0.1))},
        {"learnt": task(batch_size=2)},
        {"learnt": task(loss=nn.functional.multi_margin_loss)},
    ],
)
def test_a_run_goes_on_only_as_it_began(tmp_path, changes):
    run(folder=tmp_path)
    with pytest.raises(DataError, match="resume"):
        run(folder=tmp_path, resume=True, **changes)


@pytest.mark.parametrize("change", [{"clip": 0.2}, {"target": 0.6}, {"learning_rate": 0.2}])
def test_a_run_goes_on_only_with_the_clip_that_it_began_with(tmp_path, change):
    run(ADAPTIVE, clip=CLIP, folder=tmp_path)
    with pytest.raises(DataError, match="resume"):
        run(ADAPTIVE, clip=replace(CLIP, **change), folder=tmp_path, resume=True)


def test_a_ledger_that_lost_spends_is_refused(tmp_path):
    run(folder=tmp_path / "run")
    with (
        Ledger.create(tmp_path / "other", epsilon=100, delta=1e-3) as other,
        pytest.raises(LedgerError, match="old copy"),
    ):
        run(folder=tmp_path / "run", ledger=other, resume=True)


def test_a_foreign_ledger_with_as_many_cheap_spends_is_refused(tmp_path):
    history = run(folder=tmp_path / "run")
    spends = len(Ledger.verify(tmp_path / "run" / "ledger").spends)
    with Ledger.create(tmp_path / "other", epsilon=100, delta=1e-3) as other:
        for _ in range(spends + 5):
            other.spend(sk.accounting.Gaussian(sigma=1e6, l2=1.0))
        with pytest.raises(LedgerError, match="not this run's ledger"):
            run(folder=tmp_path / "run", ledger=other, resume=True)
    assert history.folder == tmp_path / "run"


def test_the_plan_must_fit_the_model_and_the_data():
    with pytest.raises(DomainError, match="15"):
        run(plan(dimension=16))
    with pytest.raises(DomainError, match="12"):
        run(plan(population=11))
    with pytest.raises(DomainError, match="smaller cohort"):
        run(plan(cohort=13, population=100))


def test_what_can_never_work_is_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(DomainError, match="unmasked"):
        run(plan(noise="gaussian"), aggregate=fl.secure(), folder=tmp_path)
    with pytest.raises(InfeasibleError, match="honest majority"):
        run(plan(dropout=0.6), folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    run(folder=tmp_path)
    kept = (tmp_path / "history.jsonl").stat().st_mtime_ns
    with Ledger.open(tmp_path / "ledger"), pytest.raises(LedgerError, match="another process"):
        run(folder=tmp_path, resume=True)
    assert (tmp_path / "history.jsonl").stat().st_mtime_ns == kept


def test_a_plan_without_delta_needs_a_ledger():
    made = plan(delta=None, sampling="all", population=None, cohort=12)
    with pytest.raises(DomainError, match="ledger"):
        run(made)


def test_the_model_is_measured_every_so_many_rounds():
    history = run(plan(rounds=5), every=2)
    measured = [record.test_accuracy is not None for record in history.records]
    assert measured == [False, True, False, True, True]
    assert history.last(2).test_accuracy == pytest.approx(
        np.mean([r.test_accuracy for r in history.records[-2:]])
    )


def test_the_mean_divides_by_the_planned_cohort():
    """The cohort that was drawn is not of the planned size; its sum is divided by that size."""
    streams = Streams.of(seeded()).scope("round/0")
    actual = Population(plan(), 12).draw(0, entropy=streams("cohort"))
    assert len(actual) != plan().cohort
    part = run(plan(rounds=1), aggregate=fl.non_private(), server=fl.fedavg()).model
    total = sum(clients_update(number, START) for number in actual)
    assert np.allclose(part - START, total / plan().cohort, atol=1e-6)
