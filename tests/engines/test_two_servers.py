"""Rounds of a leader and a helper in one process: exact sums, dropouts, spending."""

import numpy as np
import pytest

import skellam as sk
from oracles import tiny_task as tiny
from skellam import analytics
from skellam import federated as fl
from skellam.accounting.ledger import Ledger
from skellam.engines import two_servers as engine
from skellam.engines.local import Round, secure, unmasked
from skellam.engines.two_servers import two_servers
from skellam.errors import BudgetError, DomainError, ThresholdError
from skellam.plan import Plan
from skellam.twoserver import RunLimits

D = 300


def plan(multiplier=0.5, **changes):
    settings = {
        "dimension": D,
        "clip": 1.0,
        "cohort": 10,
        "rounds": 1,
        "sampling": "all",
        "bits": 12,
        "aggregation": "two-servers",
    }
    return Plan(**{**settings, **changes}).with_noise(multiplier)


def replay(context):
    return sk.SeededEntropy(bytes(32), context)


def update(number):
    return np.full(D, 0.001 * number)


def round_of(**changes):
    return Round(**{"number": 3, "model": bytes(32), "members": tuple(range(10, 20)), **changes})


@pytest.mark.parametrize("dropouts", [(), (12,), tuple(range(12, 20))])
@pytest.mark.parametrize("bits", [4, 8, 12, 16, 24, 32])
def test_without_noise_the_sum_is_the_unmasked_sum_bit_for_bit(bits, dropouts):
    made = plan(0.0, noise="none", bits=bits)
    round_ = round_of(dropouts=dropouts)
    open_ = unmasked(made, round_, update, entropy=replay)
    safe = two_servers(made, round_, update, entropy=replay)
    assert np.array_equal(open_.total.values, safe.total.values)
    assert open_.survivors == safe.survivors
    assert open_.wrap == safe.wrap
    assert safe.total.replayable


@pytest.mark.parametrize("run", [unmasked, two_servers])
@pytest.mark.parametrize(("noise_by", "deviation"), [("both", 0.5 * 2**0.5), ("helper", 0.5)])
def test_the_noise_of_the_sum_is_that_of_the_servers(run, noise_by, deviation):
    made = plan(noise_by=noise_by, rounding="unbiased", block=1)
    found = run(made, round_of(), update, entropy=lambda _: sk.SystemEntropy())
    error = found.total.values - sum(update(n) for n in range(10, 20))
    # 300 draws: the sample deviation is within 40 % but for 1e-12 (seven standard errors or more).
    assert error.std() == pytest.approx(deviation, rel=0.4)
    assert not found.total.replayable


def test_the_same_entropy_gives_the_same_sum_again():
    made = plan()
    first, second = (two_servers(made, round_of(), update, entropy=replay) for _ in range(2))
    assert np.array_equal(first.total.values, second.total.values)


@pytest.mark.parametrize("run", [unmasked, two_servers])
def test_all_but_the_smallest_cohort_may_drop_out(run):
    made = plan()
    found = run(made, round_of(dropouts=range(12, 20)), update, entropy=replay)
    assert found.survivors == (10, 11)
    with pytest.raises(ThresholdError, match="1 of 10 clients are left; 2 must be"):
        run(made, round_of(dropouts=range(11, 20)), update, entropy=replay)


def test_a_round_is_spent_after_its_messages_and_before_it_opens():
    seen = []

    def watched(number):
        seen.append(number)
        return update(number)

    def spend():
        seen.append("spend")
        raise BudgetError("spent")

    with pytest.raises(BudgetError):
        two_servers(plan(), round_of(), watched, entropy=replay, spend=spend)
    assert seen == [*range(10, 20), "spend"]


def test_plan_and_protocol_must_be_for_as_many_servers():
    one = plan(aggregation="one-server")
    with pytest.raises(DomainError, match="for one server"):
        two_servers(one, round_of(), update, entropy=replay)
    with pytest.raises(DomainError, match="for two servers"):
        secure(plan(), round_of(), update, entropy=replay)


@pytest.mark.parametrize("rounding", ["unbiased", "conditional"])
def test_constants_state_the_effective_multiplier_of_the_plan(rounding):
    """So a client or a helper that demands so much noise accepts this run, and not a hair more."""
    made = plan(rounding=rounding)
    constants = engine.constants(made, run_id=bytes(32))
    assert constants.noise_multiplier == pytest.approx(made.effective_multiplier, rel=1e-6)
    assert engine.norm_bound(made) <= constants.norm_bound
    limits = {"max_participations": 1}
    RunLimits(min_noise_multiplier=0.999 * made.effective_multiplier, **limits).require(constants)
    with pytest.raises(sk.errors.ProtocolError, match="min_noise_multiplier"):
        RunLimits(min_noise_multiplier=1.001 * made.effective_multiplier, **limits).require(
            constants
        )


# Analytics.


def test_a_query_is_answered_by_two_servers():
    """Deviations of about 5: nine of them miss with a chance below 1e-12 in all."""
    query = analytics.histogram(
        range(5), clients=20, epsilon=1.0, delta=1e-6, aggregation="two-servers"
    )
    users = [[i % 4] for i in range(20)]
    answer = analytics.run(
        query, users, entropy=sk.SystemEntropy(), aggregate=two_servers, dropouts=(0, 4)
    )
    assert np.abs(answer.values - [3, 5, 5, 5]).max() <= 9 * answer.deviation
    assert answer.variance == query.plan.total_variance == 2 * query.plan.variance


def test_the_ledger_of_a_query_is_spent_by_what_a_server_sees(tmp_path):
    query = analytics.count(clients=20, epsilon=1.0, delta=1e-6, aggregation="two-servers")
    with Ledger.create(tmp_path / "ledger", epsilon=1.5, delta=1e-6) as ledger:
        users = [[1]] * 20
        analytics.run(
            query, users, entropy=sk.SystemEntropy(), aggregate=two_servers, ledger=ledger
        )
        assert ledger.epsilon() == pytest.approx(query.plan.privacy(audience="leader").epsilon)
        with pytest.raises(BudgetError):
            analytics.run(
                query, users, entropy=sk.SystemEntropy(), aggregate=two_servers, ledger=ledger
            )


# Training.


def tiny_plan(**changes):
    return tiny.plan(**{"dropout": 0.0, "aggregation": "two-servers", **changes})


def train(made, *, aggregate=None, entropy=None, **options):
    chosen = fl.two_servers() if aggregate is None else aggregate
    return fl.train(
        tiny.task(),
        made,
        aggregate=chosen,
        entropy=tiny.seeded() if entropy is None else entropy,
        **options,
    )


def test_without_noise_the_trained_model_is_the_unmasked_model_bit_for_bit():
    made = sk.Plan(
        dimension=15,
        clip=1.0,
        cohort=8,
        population=12,
        rounds=5,
        noise="none",
        aggregation="two-servers",
    ).with_noise(0.0)
    safe = train(made)
    open_ = train(made, aggregate=fl.unmasked())
    assert np.array_equal(safe.model, open_.model)


@pytest.mark.parametrize(
    "changes", [{"expected_dropout": 0.0}, {"sampling": "cyclic", "cohort": 4}]
)
def test_training_states_what_holds_against_every_audience(changes):
    made = tiny_plan(**changes)
    history = train(made, entropy=sk.SystemEntropy())
    public, leader, helper = history.guarantees
    stated = made.guarantees()
    assert public.epsilon == pytest.approx(stated.public.epsilon)
    assert leader.epsilon == pytest.approx(stated.leader.epsilon)
    assert helper.epsilon == leader.epsilon
    assert history.records[-1].epsilon_server == leader.epsilon


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_training_that_was_cut_off_ends_like_one_that_was_not(tmp_path, dropout):
    made = tiny_plan(sampling="cyclic", cohort=6)
    aggregate = fl.two_servers(dropout=dropout)
    through = train(made, aggregate=aggregate, folder=tmp_path / "through")

    def cut(record):
        if record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(made, aggregate=aggregate, folder=tmp_path / "cut", watch=cut)
    again = train(made, aggregate=aggregate, folder=tmp_path / "cut", resume=True)
    assert np.array_equal(again.model, through.model)
    assert again.records == through.records


def test_a_run_asks_for_the_aggregation_that_is_planned():
    with pytest.raises(DomainError, match=r"use aggregate=fl\.two_servers\(\)"):
        train(tiny_plan(sampling="cyclic"), aggregate=fl.secure())
    with pytest.raises(DomainError, match=r"use aggregate=fl\.secure\(\)"):
        train(tiny.plan(sampling="cyclic"))
