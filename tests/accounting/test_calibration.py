import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.accounting import (
    Gaussian,
    RoundedSkellam,
    Sampled,
    calibrate,
    epsilon,
    gaussian_sigma,
    noise_multiplier,
)
from skellam.accounting.accountants import paper_limit
from skellam.errors import DomainError, InfeasibleError

EMNIST = {"rate": 100 / 3400, "rounds": 1500, "delta": 1 / 3400}
SHAKESPEARE = {"rate": 1e-4, "rounds": 1200, "delta": 1e-6}
STACK_OVERFLOW = {"rate": 100 / 342477, "rounds": 1600, "delta": 1e-6}
TABLE = [
    (EMNIST, 3, 1.845, 1.491),
    (EMNIST, 10, 0.892, 0.791),
    (SHAKESPEARE, 1, 0.805, 0.514),
    (SHAKESPEARE, 5, 0.448, 0.380),
    (STACK_OVERFLOW, 1, 0.863, 0.594),
    (STACK_OVERFLOW, 5, 0.488, 0.424),
]


@pytest.mark.parametrize(("setting", "target", "paper", "ours"), TABLE)
def test_the_noise_multipliers_of_the_papers_settings(setting, target, paper, ours):
    """By the paper's method and by the dominating Gaussian's loss distribution."""
    assert noise_multiplier(epsilon=target, method="paper", **setting) == pytest.approx(
        paper, rel=2e-3
    )
    assert noise_multiplier(epsilon=target, method="gdp", **setting) <= ours * 1.005


@pytest.mark.parametrize("method", ["best", "gdp", "rdp", "pld"])
@pytest.mark.parametrize("target", [0.5, 10.0])
def test_calibrate_then_account_meets_the_target_within_a_thousandth(method, target):
    z = noise_multiplier(epsilon=target, method=method, **EMNIST)
    release = Sampled(Gaussian(z, 1.0), EMNIST["rate"])
    spent = epsilon(release, rounds=1500, delta=1 / 3400, method=method)
    assert 0.999 * target <= spent <= target


def test_calibrate_then_account_by_the_paper_meets_the_target_within_a_thousandth():
    z = noise_multiplier(epsilon=3, method="paper", **EMNIST)
    spent = (paper_limit(z, EMNIST["rate"]) * 1500).epsilon(1 / 3400)
    assert 0.999 * 3 <= spent <= 3


def test_calibrate_then_account_holds_for_rounded_skellam():
    def cost(std):
        release = Sampled(RoundedSkellam((500 * std) ** 2, 500.0, 2**20, 1e-22), 0.03)
        return epsilon(release, rounds=1500, delta=1e-5, method="gdp")

    found = calibrate(cost, 6.0)
    assert 0.999 * 6 <= found.cost == cost(found.value) <= 6
    assert cost(found.bracket[0]) > 6


def test_without_sampling_the_multiplier_is_the_analytic_gaussians():
    found = noise_multiplier(epsilon=1.0, delta=1e-5, method="gdp")
    exact = gaussian_sigma(1.0, 1e-5, 1.0)
    assert exact * (1 - 1e-9) <= found <= exact * 1.001


@given(st.floats(1e-3, 1e3), st.floats(0.5, 3), st.floats(1e-2, 1e2), st.floats(1e-3, 1e3))
def test_the_value_is_the_private_end_of_its_bracket(scale, power, target, guess):
    found = calibrate(lambda x: scale * x**-power, target, guess=guess, min_value=1e-12)
    assert found.bracket[1] == found.value
    assert scale * found.bracket[0] ** -power > target
    assert target * (1 - 2.1e-4) <= found.cost <= target


def test_few_evaluations_suffice():
    found = calibrate(lambda x: 3.0 / x + 0.1, 2.0)
    assert found.evaluations <= 12


@pytest.mark.parametrize(("other", "within"), [(3.0, 1e-3), (math.inf, 1e-2)])
def test_a_cost_that_jumps_is_met_on_its_private_side_in_few_evaluations(other, within):
    found = calibrate(lambda x: 1.0 if x > math.pi else other, 2.0)
    assert math.pi < found.value <= math.pi * (1 + within)
    assert found.evaluations <= 25


def test_a_target_that_everything_meets_gives_the_smallest_value():
    assert calibrate(lambda _: 0.0, 1.0, min_value=0.25).value == 0.25


def test_an_unreachable_target_raises_and_says_how_near_one_gets():
    with pytest.raises(InfeasibleError, match="costs 5"):
        calibrate(lambda x: 5 + 1 / x, 3.0)


def test_a_cost_that_is_no_number_raises():
    with pytest.raises(InfeasibleError):
        calibrate(lambda _: math.nan, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": math.nan},
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"rate": 1.5},
        {"rate": 0.0},
        {"rate": math.nan},
        {"rounds": 0},
        {"rounds": 2.5},
        {"method": "hope"},
    ],
    ids=str,
)
def test_bad_arguments_raise(change):
    with pytest.raises(DomainError):
        noise_multiplier(**({"epsilon": 1.0, "delta": 1e-5, "rate": 0.1, "rounds": 10} | change))


@pytest.mark.parametrize(("target", "at", "rounds"), [(0.0924, 0.99987, 7), (23_000.0, 0.01, 2)])
def test_no_target_is_so_large_that_losses_overflow(target, at, rounds):
    """The search tries noise next to nothing, where e to the distance of two losses overflows."""
    found = noise_multiplier(epsilon=target, delta=at, rate=1e-3, rounds=rounds)
    assert 1e-3 <= found <= 1
    assert epsilon(Sampled(Gaussian(found, 1.0), 1e-3), delta=at, rounds=rounds) <= target
