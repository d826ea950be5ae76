"""Epsilon of sampled Gaussians between dp_accounting's optimistic and pessimistic estimates.

Of all 776 estimates 18 leave no room for ours: they are wrong, by a closed form (one round, or no
sampling) or by proven bounds that know neither implementation. Its sums and its FFT leave errors of
1e-16 to 1e-15 a round in delta, and numbers above epsilon 700 overflow.
"""

import logging
import math
from pathlib import Path

import mpmath
import pytest

from oracles.dp_accounting_grid import DELTAS, GRID, estimates, recorded
from oracles.sampled_gaussian_bounds import bounds
from skellam.accounting import Gaussian, Sampled, epsilon

PAGE = Path(__file__).parents[2] / "docs" / "maths" / "accounting.md"
RECORDED = recorded()
FAST = [setting for setting in GRID if setting[2] in {10, 1000}]
SLOW = [setting for setting in GRID if setting not in FAST]
LIVE = [(1e-4, 1.0, 10**4), (1e-3, 3.0, 1000), (1.0, 100.0, 1000), (1.0, 3.0, 1)]
CLOSED = [
    (1.0, 0.3, 1, 1e-12),
    (1.0, 0.5, 1, 1e-12),
    (1.0, 1.0, 1, 1e-12),
    (0.1, 0.3, 1, 1e-12),
    (0.01, 1.0, 1, 1e-12),
    (1e-3, 0.5, 1, 1e-12),
    (1e-4, 0.5, 1, 1e-12),
    (1.0, 0.3, 100, 1e-6),
    (1.0, 0.3, 100, 1e-9),
    (1.0, 0.3, 100, 1e-12),
    (1.0, 100.0, 10**6, 1e-12),
]
BOUNDED = [
    (0.1, 10.0, 10**5, 1e-12),
    (0.1, 10.0, 10**6, 1e-12),
    (0.1, 1.0, 10**5, 1e-9),
    (1e-3, 3.0, 10**6, 1e-12),
    (1e-3, 0.5, 10**5, 1e-12),
    (1e-3, 0.5, 10**6, 1e-12),
    (1e-4, 0.5, 10**5, 1e-12),
]
"""Settings and deltas at which an estimate contradicts ours, and by which means it is refuted."""


@pytest.fixture(autouse=True)
def quiet():
    """Its accountants log at every step."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def check(rate, z, rounds):
    for delta in DELTAS:
        ours = epsilon(Sampled(Gaussian(z, 1.0), rate), rounds=rounds, delta=delta)
        assert 0 <= ours < math.inf
        if rate == 1 or rounds == 1:
            assert true_delta(rate, math.sqrt(rounds) / z, ours) <= delta
        if RECORDED[rate, z, rounds] is not None:
            below, above = estimated(rate, z, rounds, delta)
            agrees = below <= ours <= above * 1.02 + 1e-9
            assert agrees is ((rate, z, rounds, delta) not in CLOSED + BOUNDED)


def estimated(rate, z, rounds, delta):
    """Return the optimistic and the pessimistic estimate."""
    return [side[DELTAS.index(delta)] for side in RECORDED[rate, z, rounds]]


def true_delta(rate, mu, e):
    """Return the larger delta, at sixty digits, of one sample of a Gaussian mechanism."""
    with mpmath.workdps(60):
        mu, x = mpmath.mpf(mu), 1 + mpmath.expm1(e) / mpmath.mpf(rate)
        a = mpmath.log(x) / mu
        return rate * (mpmath.ncdf(mu / 2 - a) - x * mpmath.ncdf(-mu / 2 - a))


def true_epsilon(rate, z, rounds, delta):
    """Return the epsilon of the closed form, to twelve digits."""
    low, high = 0.0, 1e4
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if true_delta(rate, math.sqrt(rounds) / z, middle) > delta:
            low = middle
        else:
            high = middle
    return low, high


def test_every_setting_of_the_grid_is_recorded_and_nearly_all_have_an_answer():
    assert set(RECORDED) == set(GRID)
    assert sum(value is not None for value in RECORDED.values()) >= 0.85 * len(GRID)


@pytest.mark.parametrize(("rate", "z", "rounds"), FAST)
def test_never_below_the_optimistic_and_at_most_2_percent_above_the_pessimistic(rate, z, rounds):
    check(rate, z, rounds)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "z", "rounds"), SLOW)
def test_the_same_over_the_rest_of_the_grid(rate, z, rounds):
    check(rate, z, rounds)


def assert_refuted(point, lower, upper):
    """Assert that the truth is on our side of the estimates of ``point``, as the page says."""
    rate, z, rounds, delta = point
    below, above = estimated(*point)
    ours = epsilon(Sampled(Gaussian(z, 1.0), rate), rounds=rounds, delta=delta)
    assert lower <= ours <= upper * (1 + 1e-4)
    assert upper < below or lower > above
    assert ours >= below or upper < below
    assert ours <= 1.02 * above or lower > above
    numbers = " | ".join(f"{x:.7g}" for x in (below, above, ours, lower, upper))
    assert f"| {rate:g}, {z:g}, {rounds:g}, {delta:g} | {numbers} |" in PAGE.read_text("utf-8")


@pytest.mark.parametrize("point", CLOSED)
def test_estimates_that_contradict_ours_contradict_the_closed_form(point):
    assert_refuted(point, *true_epsilon(*point))


@pytest.mark.parametrize(
    "point", [BOUNDED[0], *(pytest.param(point, marks=pytest.mark.slow) for point in BOUNDED[1:])]
)
def test_estimates_that_contradict_ours_contradict_proven_bounds(point):
    assert_refuted(point, *bounds(*point))


@pytest.mark.parametrize(("z", "rounds", "delta"), [(10.0, 10**4, 1e-6), (3.0, 1000, 1e-9)])
def test_proven_bounds_hold_the_closed_form(z, rounds, delta):
    lower, upper = bounds(1.0, z, rounds, delta)
    truth, _ = true_epsilon(1.0, z, rounds, delta)
    assert 0.99 * truth < lower < truth < upper < 1.01 * truth


@pytest.mark.parametrize("setting", LIVE)
def test_what_is_recorded_is_what_dp_accounting_says(setting):
    """Its round-off decides at delta 1e-12, and depends on the processor."""
    for kept, now in zip(RECORDED[setting], estimates(*setting), strict=True):
        assert now[:3] == pytest.approx(kept[:3], rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(
    ("rate", "z", "rounds", "delta"),
    [
        (1e-4, 0.3, 10**12, 1e-12),
        (1.0, 0.3, 10**12, 1e-300),
        (1e-9, 1.0, 10**9, 1e-12),
        (0.5, 1e-4, 10, 1e-5),
        (0.01, 1e6, 10**12, 1e-2),
    ],
)
def test_extreme_settings_are_answered_by_a_finite_bound(rate, z, rounds, delta):
    assert 0 <= epsilon(Sampled(Gaussian(z, 1.0), rate), rounds=rounds, delta=delta) < math.inf
