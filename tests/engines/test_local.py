import numpy as np
import pytest

import skellam as sk
from skellam.engines.local import (
    Round,
    non_private,
    secure,
    sum_unmasked,
    trusted_sum,
    unmasked,
)
from skellam.errors import ShapeError, ThresholdError
from skellam.plan import Plan

D = 300


def plan(**changes):
    settings = {
        "dimension": D,
        "clip": 1.0,
        "cohort": 10,
        "rounds": 1,
        "sampling": "all",
        "bits": 12,
        "dropout": 0.2,
    }
    return Plan(**{**settings, **changes}).with_noise(0.5)


def replay(context):
    return sk.SeededEntropy(bytes(32), context)


def update(number):
    return np.full(D, 0.001 * number)


def round_of(**changes):
    return Round(**{"number": 3, "model": bytes(32), "members": tuple(range(10, 20)), **changes})


@pytest.mark.parametrize("dropouts", [(), (12,), (10, 19)])
@pytest.mark.parametrize("noise", ["skellam", "central-skellam", "distributed-discrete-gaussian"])
def test_the_secure_sum_is_the_unmasked_sum_bit_for_bit(noise, dropouts):
    changes = {} if noise == "skellam" else {"noise": noise, "rounding": "conditional"}
    made = plan(**changes)
    open_ = unmasked(made, round_of(dropouts=dropouts), update, entropy=replay)
    safe = secure(made, round_of(dropouts=dropouts), update, entropy=replay)
    assert np.array_equal(open_.total.values, safe.total.values)
    assert open_.survivors == safe.survivors == tuple(n for n in range(10, 20) if n not in dropouts)
    assert open_.total.replayable
    assert safe.total.replayable


@pytest.mark.parametrize("run", [unmasked, trusted_sum, secure])
def test_one_entropy_serves_every_purpose_of_a_round(run):
    made = plan()
    result = run(made, round_of(), update, entropy=sk.SystemEntropy())
    assert not result.total.replayable
    # The sum of 10 updates of 0.01 to 0.019, and noise of deviation 0.5 a coordinate.
    assert abs(result.total.values.mean() - 0.145) < 9 * 0.5 / D**0.5
    again = [
        run(made, round_of(), update, entropy=sk.SeededEntropy(bytes(32), "all")) for _ in range(2)
    ]
    assert np.array_equal(*(result.total.values for result in again))


@pytest.mark.parametrize("run", [non_private, unmasked, secure])
@pytest.mark.parametrize("members", [(), (10,)])
def test_nobody_is_summed_alone(run, members):
    with pytest.raises(ThresholdError, match="too small"):
        run(plan(), round_of(members=members), update, entropy=replay)


def test_non_private_sums_are_the_updates_as_they_are():
    outcome = non_private(
        plan(), round_of(dropouts=(12,)), lambda n: 1000 * update(n), entropy=replay
    )
    truth = sum(1000 * update(n) for n in range(10, 20) if n != 12)
    assert np.allclose(outcome.total.values, truth)
    broken = non_private(plan(), round_of(), lambda n: np.full(D, np.inf), entropy=replay)
    assert not broken.total.values.any()


@pytest.mark.parametrize("run", [unmasked, secure])
def test_the_sum_is_that_of_the_survivors(run):
    made = plan()
    outcome = run(made, round_of(dropouts=(12, 13)), update, entropy=lambda _: sk.SystemEntropy())
    truth = sum(update(n) for n in range(10, 20) if n not in (12, 13))
    error = outcome.total.values - truth
    # 300 draws: the sample deviation is within 40 % but for 1e-12 (seven standard errors or more).
    assert error.std() == pytest.approx(0.5, rel=0.4)
    assert abs(error.mean()) < 7 * 0.5 / np.sqrt(D)
    assert not outcome.total.replayable


@pytest.mark.parametrize("run", [unmasked, secure])
def test_too_few_survivors_release_nothing(run):
    with pytest.raises(ThresholdError):
        run(plan(), round_of(dropouts=(10, 11, 12)), update, entropy=replay)


@pytest.mark.parametrize("run", [unmasked, secure])
@pytest.mark.parametrize("bad", [None, np.full(D, np.nan), np.full(D, np.inf)])
def test_a_client_that_fails_on_its_data_adds_zeros_and_its_noise(run, bad):
    def failing(number):
        return bad if number == 10 else np.zeros(D)

    zeros = run(plan(), round_of(), lambda _: np.zeros(D), entropy=replay)
    assert np.array_equal(
        run(plan(), round_of(), failing, entropy=replay).total.values, zeros.total.values
    )


def test_gaussian_noise_needs_no_ring():
    made = plan(noise="gaussian")
    outcome = unmasked(made, round_of(), lambda n: update(n) * 1000, entropy=replay)
    assert outcome.wrap is None
    assert len(outcome.total) == D
    skipped = unmasked(made, round_of(), lambda n: np.full(D, np.nan), entropy=replay)
    assert np.isfinite(skipped.total.values).all()


def test_the_public_seed_depends_on_plan_model_and_round_and_not_on_the_cohort():
    made = plan(cohort=10, min_cohort=8)
    codec = round_of().codec(made)
    smaller = round_of(members=tuple(range(30, 39))).codec(made)
    moved = [
        round_of(number=4).codec(made),
        round_of(model=bytes([1] * 32)).codec(made),
        round_of().codec(plan(clip=2.0)),
    ]
    x = np.random.default_rng(0).normal(size=D)
    turned = [np.array(c._rotation.forward(x, 1.0)) for c in (codec, smaller, *moved)]
    assert np.array_equal(turned[0], turned[1])
    assert not any(np.array_equal(turned[0], other) for other in turned[2:])


@pytest.mark.parametrize("run", [unmasked, secure, non_private])
def test_a_round_is_spent_when_its_messages_are_in_and_before_it_is_opened(run):
    seen = []

    def watched(number):
        seen.append(number)
        return update(number)

    class RefusedError(Exception):
        pass

    def refuse():
        seen.append("spend")
        raise RefusedError

    with pytest.raises(RefusedError):
        run(plan(), round_of(dropouts=(12,)), watched, entropy=replay, spend=refuse)
    assert seen == [n for n in range(10, 20) if n != 12] + ["spend"]


@pytest.mark.parametrize("run", [unmasked, secure])
def test_nothing_is_spent_for_a_round_that_cannot_be_opened(run):
    spent = []
    with pytest.raises(ThresholdError):
        run(
            plan(),
            round_of(dropouts=(10, 11, 12)),
            update,
            entropy=replay,
            spend=lambda: spent.append(1),
        )
    assert not spent


def test_a_round_needs_a_digest():
    with pytest.raises(ShapeError, match="model"):
        round_of(model=b"short")


@pytest.mark.parametrize("count", [9, 11])
def test_a_sum_of_more_or_fewer_updates_than_shares_of_noise_is_refused(count):
    updates = (update(n) for n in range(count))
    with pytest.raises(ShapeError, match=f"10 updates.*got {count}"):
        sum_unmasked(
            plan(dropout=0.0), updates, cohort=10, public_seed=bytes(32), entropy=sk.SystemEntropy()
        )
