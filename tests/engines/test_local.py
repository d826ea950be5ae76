import numpy as np
import pytest

import skellam as sk
from skellam.engines.local import Round, clear, plain, secure, sum_in_the_clear
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


def this(**changes):
    return Round(**{"number": 3, "model": bytes(32), "members": tuple(range(10, 20)), **changes})


@pytest.mark.parametrize("silent", [(), (12,), (10, 19)])
@pytest.mark.parametrize("noise", ["skellam", "central-skellam", "distributed-discrete-gaussian"])
def test_the_secure_sum_is_the_clear_sum_bit_for_bit(noise, silent):
    changes = {} if noise == "skellam" else {"noise": noise, "rounding": "conditional"}
    made = plan(**changes)
    open_ = clear(made, this(silent=silent), update, entropy=replay)
    safe = secure(made, this(silent=silent), update, entropy=replay)
    assert np.array_equal(open_.total.values, safe.total.values)
    assert open_.survivors == safe.survivors == tuple(n for n in range(10, 20) if n not in silent)
    assert open_.total.replayable
    assert safe.total.replayable


@pytest.mark.parametrize("silent", [(), (12,), (10, 19)])
def test_removable_noise_is_the_same_in_the_clear_whoever_vanishes(silent):
    made = plan(removable=True)
    open_ = clear(made, this(silent=silent), update, entropy=replay)
    safe = secure(made, this(silent=silent), update, entropy=replay)
    assert np.array_equal(open_.total.values, safe.total.values)


@pytest.mark.parametrize("run", [plain, clear, secure])
@pytest.mark.parametrize("members", [(), (10,)])
def test_nobody_is_summed_alone(run, members):
    with pytest.raises(ThresholdError, match="too small"):
        run(plan(), this(members=members), update, entropy=replay)


def test_plain_sums_are_the_updates_as_they_are():
    outcome = plain(plan(), this(silent=(12,)), lambda n: 1000 * update(n), entropy=replay)
    truth = sum(1000 * update(n) for n in range(10, 20) if n != 12)
    assert np.allclose(outcome.total.values, truth)
    broken = plain(plan(), this(), lambda n: np.full(D, np.inf), entropy=replay)
    assert not broken.total.values.any()


@pytest.mark.parametrize("run", [clear, secure])
def test_the_sum_is_that_of_the_survivors(run):
    made = plan(removable=True)
    outcome = run(made, this(silent=(12, 13)), update, entropy=lambda _: sk.SystemEntropy())
    truth = sum(update(n) for n in range(10, 20) if n not in (12, 13))
    error = outcome.total.values - truth
    # 300 draws: the sample deviation is within 40 % but for 1e-12 (seven standard errors or more).
    assert error.std() == pytest.approx(0.5, rel=0.4)
    assert abs(error.mean()) < 7 * 0.5 / np.sqrt(D)
    assert not outcome.total.replayable


@pytest.mark.parametrize("run", [clear, secure])
def test_too_few_survivors_release_nothing(run):
    with pytest.raises(ThresholdError):
        run(plan(), this(silent=(10, 11, 12)), update, entropy=replay)


@pytest.mark.parametrize("run", [clear, secure])
@pytest.mark.parametrize("bad", [None, np.full(D, np.nan), np.full(D, np.inf)])
def test_a_client_that_fails_on_its_data_adds_zeros_and_its_noise(run, bad):
    def failing(number):
        return bad if number == 10 else np.zeros(D)

    zeros = run(plan(), this(), lambda _: np.zeros(D), entropy=replay)
    assert np.array_equal(
        run(plan(), this(), failing, entropy=replay).total.values, zeros.total.values
    )


def test_gaussian_noise_needs_no_ring():
    made = plan(noise="gaussian")
    outcome = clear(made, this(), lambda n: update(n) * 1000, entropy=replay)
    assert outcome.wrap is None
    assert len(outcome.total) == D
    skipped = clear(made, this(), lambda n: np.full(D, np.nan), entropy=replay)
    assert np.isfinite(skipped.total.values).all()


def test_the_public_seed_depends_on_cohort_model_plan_and_round():
    made = plan()
    labels = {
        this().codec(made).label,
        this(number=4).codec(made).label,
        this(model=bytes([1] * 32)).codec(made).label,
        this(members=tuple(range(11, 21))).codec(made).label,
        this().codec(plan(clip=2.0)).label,
    }
    assert len(labels) == 5


def test_a_round_needs_a_digest():
    with pytest.raises(ShapeError, match="model"):
        this(model=b"short")


@pytest.mark.parametrize("count", [9, 11])
def test_a_sum_of_more_or_fewer_updates_than_shares_of_noise_is_refused(count):
    updates = (update(n) for n in range(count))
    with pytest.raises(ShapeError, match=f"10 updates.*got {count}"):
        sum_in_the_clear(
            plan(), updates, shares=10, public_seed=bytes(32), entropy=sk.SystemEntropy()
        )
