"""Releases at once: dominated as their product is, and stored as their parts are."""

import math

import numpy as np
import pytest
from scipy.stats import skellam

from skellam.accounting import (
    Gaussian,
    Joint,
    Sampled,
    Skellam,
    delta,
    epsilon,
    from_record,
    gdp_parameter,
    replace_one,
    to_record,
)
from skellam.errors import DomainError, KindError

PARTS = (Skellam(4.0, 1.0, sampler_distance=1e-30, atom_error=1e-34), Skellam(0.7, 1.0))


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("level", [0.0, 0.5, 2.0])
def test_one_cohort_for_both_is_covered(rate, level):
    k = np.arange(-80, 81)
    laws = [skellam(part.variance / 2, part.variance / 2) for part in PARTS]
    plain = np.outer(*(law.pmf(k) for law in laws))
    moved = rate * np.outer(*(law.pmf(k - 1) for law in laws)) + (1 - rate) * plain
    exact = max(
        np.maximum(p - math.exp(level) * q, 0).sum() for p, q in ((moved, plain), (plain, moved))
    )
    assert exact <= delta(Sampled(Joint(PARTS), rate), epsilon=level) * (1 + 1e-9)


def test_gaussians_add_in_squares():
    both = Joint((Gaussian(2.0, 1.0), Gaussian(4.0, 1.0)))
    assert gdp_parameter(both) == pytest.approx(math.hypot(1 / 2, 1 / 4))
    alone = epsilon(Gaussian(1 / math.hypot(1 / 2, 1 / 4), 1.0), delta=1e-5)
    assert epsilon(both, delta=1e-5) == pytest.approx(alone, rel=1e-6)


def test_one_part_costs_what_it_costs_by_itself():
    alone = epsilon(PARTS[0], delta=1e-6, method="gdp")
    assert epsilon(Joint(PARTS[:1]), delta=1e-6) == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("mechanism", [Joint(PARTS), Sampled(Joint(PARTS), 0.1)])
def test_records_read_back(mechanism):
    assert from_record(to_record(mechanism)) == mechanism


def test_under_replace_one_every_part_doubles():
    assert replace_one(Joint(PARTS)).parts == tuple(map(replace_one, PARTS))


def test_parts_must_be_noise_under_one_adjacency():
    with pytest.raises(DomainError, match="at least one"):
        Joint(())
    with pytest.raises(DomainError, match="adjacency"):
        Joint((PARTS[0], replace_one(PARTS[1])))
    with pytest.raises(KindError):
        Joint((Sampled(PARTS[0], 0.5),))


def test_a_sampler_stated_for_the_whole_is_charged_like_one_stated_for_a_part():
    of_parts = Joint((Gaussian(2.0, 1.0, sampler_distance=1e-6), Gaussian(4.0, 1.0)))
    of_whole = Joint((Gaussian(2.0, 1.0), Gaussian(4.0, 1.0)), sampler_distance=1e-6)
    assert epsilon(of_whole, delta=1e-5) == epsilon(of_parts, delta=1e-5)
