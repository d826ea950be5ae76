"""Claimed deltas against simulated ones, in three and in fifty dimensions.

delta(epsilon) = E_P (1 - exp(epsilon - L))+, L the log-likelihood ratio: a mean of draws in [0, 1].
By Hoeffding the mean of N exceeds the truth by sqrt(log(1/a) / (2 N)) with probability at most a;
here a = 1e-8 for each of 12 means, so a test raises a false alarm with probability below 1e-6.
"""

import math

import numpy as np
import pytest

from skellam.accounting.curves import GdpCurve, Slack
from skellam.accounting.gdp import gdp_certificate
from skellam.accounting.laws import skellam_law
from skellam.accounting.mechanisms import RoundedSkellam, Skellam

DRAWS = {3: 200_000, 50: 40_000}
ALARM = 1e-8
EPSILONS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)


def _noise(rng, variance, size):
    return rng.poisson(variance / 2, size) - rng.poisson(variance / 2, size)


def _log_law(variance, outcomes, x):
    """The log-probability of each outcome when x is rounded and Sk(variance) added."""
    log_pmf = skellam_law(variance).log_pmf
    low = np.floor(x).astype(int)
    up = np.exp(log_pmf[np.abs(outcomes - low - 1)])
    return np.log((1 - (x - low)) * np.exp(log_pmf[np.abs(outcomes - low)]) + (x - low) * up)


def _loss(variance, outcomes, x):
    zero = np.zeros_like(x)
    return (_log_law(variance, outcomes, x) - _log_law(variance, outcomes, zero)).sum(axis=1)


def _simulated(variance, x, rng):
    """The losses under P and under Q."""
    size = (DRAWS[x.size], x.size)
    rounded = np.floor(x + rng.random(size)).astype(int)
    return (
        _loss(variance, rounded + _noise(rng, variance, size), x),
        -_loss(variance, _noise(rng, variance, size), x),
    )


def _least_delta(losses, epsilon):
    """A lower confidence bound on delta."""
    empirical = -np.expm1(epsilon - np.maximum(losses, epsilon)).mean()
    return empirical - math.sqrt(math.log(1 / ALARM) / (2 * losses.size))


def _claimed(noise):
    eta, rare = gdp_certificate(noise)
    return GdpCurve(eta, Slack(rare=rare))


def _check(variance, x, noise, seed):
    curve = _claimed(noise)
    for losses in _simulated(variance, x, np.random.default_rng(seed)):
        for epsilon in EPSILONS:
            assert _least_delta(losses, epsilon) <= curve.delta(epsilon)


@pytest.mark.parametrize("variance", [0.2, 2.0, 15.0])
@pytest.mark.parametrize(
    "vector",
    [[1, -1, 1], [2, 0, -1], [1] * 50, [1, -1] * 5 + [0] * 40],
    ids=["even", "uneven", "dense", "sparse"],
)
def test_integer_vectors_cost_no_more_than_claimed(variance, vector):
    x = np.array(vector, dtype=float)
    noise = Skellam(variance, l2=float(np.linalg.norm(x)), dimension=x.size)
    _check(variance, x, noise, seed=[11, x.size, int(10 * variance)])


@pytest.mark.parametrize("variance", [0.5, 2.0, 15.0])
@pytest.mark.parametrize(("dimension", "block"), [(3, 1), (3, 3), (50, 1), (50, 10)])
def test_real_vectors_cost_no_more_than_claimed(variance, dimension, block):
    rng = np.random.default_rng([12, dimension, block, int(10 * variance)])
    x = rng.uniform(-1, 1, dimension) * (1.5 if dimension == 3 else 0.4)
    noise = RoundedSkellam(
        variance,
        l2=float(np.linalg.norm(x)),
        dimension=dimension,
        tail=1e-9,
        block=block,
        coordinate_bound=float(np.abs(x).max()),
    )
    _check(variance, x, noise, seed=[13, dimension, block, int(10 * variance)])


def test_the_check_would_catch_half_the_noise():
    """The same harness rejects a claim made for twice the variance that was drawn."""
    x = np.ones(50)
    claimed = Skellam(30.0, l2=float(np.linalg.norm(x)), dimension=50)
    curve = _claimed(claimed)
    losses, _ = _simulated(15.0, x, np.random.default_rng(14))
    assert _least_delta(losses, 0.5) > curve.delta(0.5)
