"""Epsilon of sampled Gaussians between dp_accounting's optimistic and pessimistic estimates.

Measured: its optimistic estimates are themselves up to 1e-4 too high (rate 1e-4, multiplier 0.5,
one round, delta 1e-12: 3.56786, where 3.56758 is right at sixty digits), and its FFT leaves errors
of up to 1e-15 a round in delta, so that both estimates are noise where delta is below that (rate 1,
multiplier 100, a million rounds, delta 1e-12: 158.8 and 113.6, where the closed form is 119.6).
"""

import itertools
import logging
import math

import pytest
from dp_accounting.pld import privacy_loss_distribution

from skellam.accounting import Gaussian, Sampled, epsilon

MAX_POINTS = 1e6
FAST = [
    (1e-4, 1.0, 10**4),
    (1e-3, 3.0, 1000),
    (1e-2, 1.0, 1000),
    (1.0, 100.0, 1000),
    (1.0, 3.0, 1),
]
WHOLE = list(
    itertools.product(
        (1e-4, 1e-3, 1e-2, 0.1, 1.0),
        (0.3, 0.5, 1.0, 3.0, 10.0, 100.0),
        (1, 10, 100, 1000, 10**4, 10**5, 10**6),
    )
)
DELTAS = (1e-2, 1e-6, 1e-9, 1e-12)


@pytest.fixture(autouse=True)
def quiet():
    """Its accountants log at every step."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def interval(rate, z, rounds):
    """As fine as by default, or as a composition of a million points allows."""
    reach = 12 / z + 0.5 / z**2
    if rate < 1:
        reach = math.log1p(rate * math.expm1(min(reach, 600.0)))
    spread = min(reach, rate * math.sqrt(math.expm1(min(1 / z**2, 600.0))))
    width = min(2 * rounds * reach, 20 * math.sqrt(rounds) * spread + rounds * spread**2)
    return max(1e-4, width / MAX_POINTS)


def estimate(rate, z, rounds, *, pessimistic):
    return privacy_loss_distribution.from_gaussian_mechanism(
        z,
        sampling_prob=rate,
        value_discretization_interval=interval(rate, z, rounds),
        pessimistic_estimate=pessimistic,
        use_connect_dots=pessimistic,
    ).self_compose(rounds)


def check(rate, z, rounds):
    try:
        low, high = (estimate(rate, z, rounds, pessimistic=side) for side in (False, True))
        between = [(low.get_epsilon_for_delta(d), high.get_epsilon_for_delta(d)) for d in DELTAS]
    except (OverflowError, MemoryError, ValueError):
        pytest.skip("dp_accounting has no answer here")
    for delta, (below, above) in zip(DELTAS, between, strict=True):
        ours = epsilon(Sampled(Gaussian(z, 1.0), rate), rounds=rounds, delta=delta)
        assert 0 <= ours < math.inf
        if delta >= 1e-15 * rounds:
            assert ours >= below * (1 - 2e-4)
            assert ours <= above * 1.02 + 1e-9


@pytest.mark.parametrize(("rate", "z", "rounds"), FAST)
def test_never_below_the_optimistic_and_at_most_2_percent_above_the_pessimistic(rate, z, rounds):
    check(rate, z, rounds)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "z", "rounds"), WHOLE)
def test_the_same_over_the_whole_grid(rate, z, rounds):
    check(rate, z, rounds)


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
