"""Poisson cohorts whose rate is public and varies: a mixture that composes like any other pair."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import skellam

from skellam.accounting import Gaussian, Sampled, Skellam, epsilon, from_record, to_record
from skellam.accounting import delta as delta_of
from skellam.errors import DomainError

MIXTURE = ((0.7, 0.1), (0.2, 0.25), (0.05, 0.4))


def exact_delta(variance, rounds, e):
    """Sum over all public rates and all outcomes, in the worse direction."""
    k = np.arange(-30, 32)
    law = skellam(variance / 2, variance / 2)
    plain, moved = law.pmf(k), law.pmf(k - 1)
    choices = [*MIXTURE, (1 - sum(w for w, _ in MIXTURE), 0.0)]
    total = {"remove": 0.0, "add": 0.0}
    for labels in itertools.product(choices, repeat=rounds):
        weight = math.prod(w for w, _ in labels)
        p = q = np.ones(1)
        for _, rate in labels:
            p = np.outer(p, rate * moved + (1 - rate) * plain).ravel()
            q = np.outer(q, plain).ravel()
        total["remove"] += weight * np.maximum(p - math.exp(e) * q, 0).sum()
        total["add"] += weight * np.maximum(q - math.exp(e) * p, 0).sum()
    return max(total.values())


@pytest.mark.parametrize("variance", [0.7, 4.0])
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("e", [0.0, 0.3, 1.0])
def test_a_mixture_covers_the_exact_sum_over_rates_and_outcomes(variance, rounds, e):
    mixed = Sampled(Skellam(variance, 1.0), 0.4, MIXTURE)
    exact = exact_delta(variance, rounds, e)
    stated = delta_of(mixed, epsilon=e, rounds=rounds, method="pld")
    assert exact <= stated <= exact * 1.01 + 1e-9


def test_a_mixture_lies_between_its_smallest_and_its_largest_rate():
    noise = Gaussian(1.0, 1.0)
    low, mixed, high = (
        epsilon(sampled, rounds=100, delta=1e-5)
        for sampled in (
            Sampled(noise, 0.01),
            Sampled(noise, 0.02, ((0.9, 0.01), (0.1, 0.02))),
            Sampled(noise, 0.02),
        )
    )
    assert low < mixed < high


def test_a_mixture_of_one_rate_is_that_rate():
    noise = Gaussian(0.8, 1.0)
    alone = epsilon(Sampled(noise, 0.03), rounds=50, delta=1e-6)
    mixed = epsilon(Sampled(noise, 0.03, ((0.5, 0.03), (0.5, 0.03))), rounds=50, delta=1e-6)
    assert alone * (1 - 1e-9) <= mixed <= alone * 1.002


def test_a_mixture_is_recorded_and_read_again():
    mixed = Sampled(Skellam(3.0, 1.0, distance=1e-9, rare=1e-8), 0.4, MIXTURE)
    assert from_record(to_record(mixed)) == mixed
    assert hash(from_record(to_record(mixed))) == hash(mixed)
    with pytest.raises(DomainError, match="mixture"):
        from_record({**to_record(mixed), "mixture": [1, 2]})


@pytest.mark.parametrize(
    "mixture", [((0.5, 0.5),), ((0.9, 0.1), (0.2, 0.1)), ((-0.1, 0.1),), ((0.5, 0.0),)]
)
def test_a_mixture_that_is_none_is_refused(mixture):
    with pytest.raises(DomainError):
        Sampled(Gaussian(1.0, 1.0), 0.4, mixture)


def test_a_distance_is_charged_with_its_factor():
    near, exact = Gaussian(1.0, 1.0, distance=1e-7), Gaussian(1.0, 1.0)
    for e in (0.5, 3.0):
        extra = delta_of(near, epsilon=e, rounds=3) - delta_of(exact, epsilon=e, rounds=3)
        assert extra == pytest.approx(3e-7 * (1 + math.exp(e)), rel=1e-6)
