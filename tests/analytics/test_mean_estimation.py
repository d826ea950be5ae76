import dataclasses

import numpy as np
import pytest

import skellam as sk
from skellam.analytics import estimate_mean, mean_error
from skellam.errors import DomainError
from skellam.plan import Plan


def plan(**changes):
    settings = {"dimension": 250, "clip": 10.0, "cohort": 100, "rounds": 1, "sampling": "all"}
    return Plan(**{**settings, **changes})


def seeded(context):
    return sk.SeededEntropy(bytes(32), context)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("noise", ["skellam", "central-skellam", "gaussian"])
def test_the_measured_error_is_the_predicted_one(noise, same):
    """Seeded. Twenty repeats of 250 coordinates: six standard errors are 12 % of the error."""
    made = plan(noise=noise, bits=12).calibrated(epsilon=4, delta=1e-5)
    error = mean_error(made, repeats=20, same=same, entropy=seeded(f"{noise} {same}"))
    assert error.value == pytest.approx(made.error.total, rel=0.15)
    assert error.low < error.value < error.high


def test_the_estimate_is_the_mean_up_to_its_noise():
    made = plan().with_noise(1e-3)
    vectors = [np.full(250, 0.1 * i / 100) for i in range(100)]
    estimate = estimate_mean(made, vectors, entropy=sk.SystemEntropy())
    assert np.asarray(estimate) == pytest.approx(np.full(250, 0.0495), abs=0.01)
    assert not estimate.replayable


def test_an_estimate_from_seeded_entropy_is_marked():
    made = plan(cohort=2).with_noise(1.0)
    estimate = estimate_mean(made, [np.ones(250)] * 2, entropy=seeded("mark"))
    assert estimate.replayable


def test_progress_is_told_of_every_repeat():
    told = []
    mean_error(
        plan(cohort=3).with_noise(1.0), repeats=4, entropy=seeded("progress"), progress=told.append
    )
    assert told == [1, 2, 3, 4]


def test_one_repeat_has_no_interval():
    with pytest.raises(DomainError, match="repeats"):
        mean_error(plan().with_noise(1.0), repeats=1, entropy=seeded("one"))


# google-research/federated, distributed_dp: calibration of its mean-estimation experiment
# (c = 10, delta = 1e-5, k = 2, n = 100, d = 256): bits, epsilon, scale, central deviation.
AUTHORS = [
    (10, 1.0, 3.39209, 42.2759),
    (12, 1.0, 13.7316, 40.6778),
    (14, 1.0, 55.0002, 40.4954),
    (10, 4.0, 4.02205, 11.9754),
]


@pytest.mark.parametrize(("bits", "epsilon", "scale", "deviation"), AUTHORS)
def test_the_papers_method_gives_the_authors_calibration(bits, epsilon, scale, deviation):
    made = dataclasses.replace(
        plan(bits=bits, signal_multiple=2.0), rounding="conditional", accountant="paper"
    ).calibrated(epsilon=epsilon, delta=1e-5)
    assert made.scale == pytest.approx(scale, rel=1e-5)
    assert made.noise_multiplier * 10 == pytest.approx(deviation, rel=1e-5)
