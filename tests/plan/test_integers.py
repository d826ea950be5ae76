from dataclasses import replace

import numpy as np
import pytest

from skellam import accounting
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import Plan
from skellam.plan.integers import WRAP, min_bits, reach


def plan(**changes):
    settings = {
        "dimension": 8,
        "clip": 1.0,
        "l1": 1,
        "coordinate_bound": 1,
        "rounding": "integer",
        "cohort": 1000,
        "rounds": 1,
        "sampling": "all",
    }
    return Plan(**{**settings, **changes})


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_a_histogram_with_one_row_a_user_costs_what_a_scalar_costs(epsilon):
    many = plan(dimension=65536).calibrated(epsilon=epsilon, delta=1e-6)
    one = plan(dimension=1).calibrated(epsilon=epsilon, delta=1e-6)
    assert many.variance == pytest.approx(one.variance, rel=1e-9)
    assert epsilon * 0.999 <= many.privacy().epsilon <= epsilon


def test_the_calibrated_noise_is_the_least_by_the_exact_law():
    made = plan().calibrated(epsilon=1.0, delta=1e-6)
    k = np.arange(-200, 201)
    from scipy.stats import skellam

    def exact_delta(variance):
        law = skellam(variance / 2, variance / 2)
        return np.maximum(law.pmf(k - 1) - np.e * law.pmf(k), 0).sum()

    assert exact_delta(made.variance) <= 1e-6
    assert exact_delta(0.998 * made.variance) > 1e-6


def test_the_mechanism_states_the_exact_sensitivities():
    mechanism = plan(clip=np.sqrt(3), l1=3).with_noise(2.0).mechanism
    assert isinstance(mechanism, accounting.Skellam)
    assert (mechanism.l1, mechanism.l2) == (3, pytest.approx(np.sqrt(3), rel=1e-11))
    assert mechanism.variance == pytest.approx(12)


def test_too_few_bits_are_refused_and_the_fewest_named():
    wide = plan().calibrated(epsilon=1.0, delta=1e-6)
    least = min_bits(wide)
    with pytest.raises(InfeasibleError, match=f"fewest that can: {least}"):
        plan(bits=least - 1).calibrated(epsilon=1.0, delta=1e-6)
    assert plan(bits=least).calibrated(epsilon=1.0, delta=1e-6).variance == wide.variance
    with pytest.raises(InfeasibleError, match=r"not even 32 bits.*lower the bounds"):
        plan(coordinate_bound=2**23, l1=2**23, clip=2**23).with_noise(1e-3)
    with pytest.raises(InfeasibleError, match=r"can be drawn.*lower the bounds"):
        plan(coordinate_bound=2**30, l1=2**30, clip=2**30).with_noise(1.0)


@pytest.mark.parametrize("variance", [0.01, 0.5, 10.0, 1e4])
def test_noise_leaves_its_room_as_rarely_as_stated(variance):
    from scipy.stats import skellam

    law = skellam(variance / 2, variance / 2)
    assert 2 * law.sf(np.ceil(reach(variance)) - 1) <= WRAP
    assert law.sf(0.8 * reach(variance) - 2) > WRAP


def test_the_predicted_error_is_the_noise():
    made = plan(dropout=0.2).with_noise(3.0)
    assert made.error.total == pytest.approx(9 / 1000**2)
    assert made.wrap_probability <= 1e-15


def test_it_survives_json_and_explains_itself():
    made = plan().calibrated(epsilon=1.0, delta=1e-6)
    assert Plan.from_json(made.to_json()) == made
    assert "integers already" in str(made.explain())


@pytest.mark.parametrize(
    "changes",
    [
        {"l1": None},
        {"coordinate_bound": None},
        {"coordinate_bound": 1.5},
        {"coordinate_bound": 2},
        {"clip": 0.5},
        {"clip": 1.5},
        {"scale": 2.0},
        {"compression": 4},
        {"rounding": None},
    ],
)
def test_inconsistent_bounds_are_refused(changes):
    with pytest.raises(DomainError):
        plan(**changes)


def test_random_cohorts_keep_room_for_more_than_their_mean():
    everybody = plan(bits=32).with_noise(1.0)
    sampled = replace(everybody.request, sampling="poisson", population=10**6)
    assert min_bits(sampled.with_noise(1.0)) >= min_bits(everybody)
