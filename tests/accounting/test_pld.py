import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oracles.exact_profile import product, profile, shifted, skellam_masses
from skellam.accounting import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Sampled,
    SampledWithoutReplacement,
    Skellam,
    composed_delta,
    composed_epsilon,
    curves,
    replace_one,
)
from skellam.accounting.curves import gaussian_delta, gaussian_epsilon
from skellam.accounting.losslaw import LossLaw, scalar_pair
from skellam.accounting.pld import (
    Composition,
    _interpolated,
    gaussian_pld,
    mechanism_pld,
    pair_pld,
    symmetrised,
)
from skellam.errors import DomainError

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)


def sampled_gaussian_delta(z, rate, epsilon):
    """The profile of one Poisson sampled Gaussian (Balle, Barthe, Gaboardi 2018, theorem 8)."""
    return rate * gaussian_delta(1 / z, math.log1p(math.expm1(epsilon) / rate))


@pytest.mark.parametrize("z", [0.3, 1, 20, 1e3, 1e5])
@pytest.mark.parametrize("rate", [1.0, 0.3, 1e-2, 1e-4, 1e-7])
def test_one_sampled_gaussian_lies_above_its_exact_profile_and_near_it(z, rate):
    one = gaussian_pld(z, rate=rate)
    for epsilon in (0.0, *(gaussian_epsilon(1 / z, delta) * rate for delta in (1e-2, 1e-5, 1e-8))):
        exact = sampled_gaussian_delta(z, rate, epsilon)
        assert exact * (1 - 2e-10) <= one.delta(epsilon) <= exact * 1.002 + 1e-12


@pytest.mark.parametrize(
    ("z", "rate", "rounds"), [(0.791, 0.0294, 1500), (0.514, 1e-4, 1200), (5, 0.3, 40), (1, 1, 3)]
)
def test_sampled_gaussians_agree_with_dp_accounting_on_a_fine_grid(z, rate, rounds):
    ours = gaussian_pld(z, rate=rate) * rounds
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        z, sampling_prob=rate, value_discretization_interval=1e-4
    ).self_compose(rounds)
    for at in (1e-3, 1e-6, 1e-9):
        found, known = ours.epsilon(at), theirs.get_epsilon_for_delta(at)
        assert known * (1 - 2e-2) <= found <= known * (1 + 2e-3)


@pytest.mark.parametrize(
    ("z", "rounds"), [(1, 2), (10, 100), (40, 1500), (1000, 10**6), (0.3, 20), (3e3, 10**7)]
)
def test_composed_gaussians_lie_above_the_exact_profile_and_near_it(z, rounds):
    composed = gaussian_pld(z) * rounds
    for delta in (1e-2, 1e-6, 1e-12, 1e-20):
        exact = gaussian_epsilon(math.sqrt(rounds) / z, delta)
        assert exact * (1 - 1e-9) <= composed.epsilon(delta) <= exact * 1.001
        known = gaussian_delta(math.sqrt(rounds) / z, exact)
        assert known * (1 - 1e-9) <= composed.delta(exact) <= known * 1.05


def test_a_tiny_rate_is_as_sharp_as_a_grid_of_ten_times_the_points():
    """q = 1e-4, z = 1 over a million rounds: 0.5331, where dp_accounting's own says 0.5608."""
    found = (gaussian_pld(1.0, rate=1e-4) * 10**6).epsilon(1e-6)
    assert 0.5331 * (1 - 3e-4) <= found <= 0.5331 * 1.003


@example([0.0, 1.7071937746583062e-31], 2, 0.25)
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=6, unique=True),
    st.integers(2, 6),
    st.floats(1e-12, 0.3),
)
def test_composition_lies_above_the_sum_over_all_outcomes(losses, rounds, at):
    """A law of a few atoms, and every one of the sums of their losses."""
    atoms = np.sort(np.array(losses))
    masses = np.linspace(1, 2, len(atoms)) / np.linspace(1, 2, len(atoms)).sum()
    law = LossLaw(atoms, masses, 0.0)
    sums, weights = np.zeros(1), np.ones(1)
    for _ in range(rounds):
        sums = (sums[:, None] + atoms).ravel()
        weights = (weights[:, None] * masses).ravel()
    composed = Composition(((law, rounds),))
    epsilon = composed.epsilon(at)
    above = sums > epsilon
    exact = math.fsum(weights[above] * -np.expm1(epsilon - sums[above]))
    assert exact <= at * (1 + 1e-12)
    assert exact * (1 - 1e-9) <= composed.delta(epsilon)


SCALARS = [
    Skellam(0.7, 1),
    Skellam(3.0, 2),
    Skellam(400.0, 7),
    DiscreteGaussian(1.3, 1),
    DiscreteGaussian(25.0, 4),
    DiscreteLaplace(2.5, 2),
    Binomial(20, 1),
    Binomial(41, 2),
]


@pytest.mark.parametrize("noise", SCALARS, ids=str)
def test_a_scalar_pair_sums_to_one(noise):
    shifted_law, plain, outside = scalar_pair(noise)
    assert math.fsum(shifted_law) == pytest.approx(1, abs=1e-11)
    assert math.fsum(plain) == pytest.approx(1, abs=1e-11)
    assert outside <= 1e-19


@pytest.mark.parametrize("noise", SCALARS, ids=str)
@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_one_scalar_release_lies_above_its_exact_profile_and_near_it(noise, rate):
    pair = scalar_pair(noise).sampled(rate)
    one = pair_pld(pair.shifted, pair.unshifted, outside=pair.outside)
    for epsilon in EPSILONS:
        exact = profile(pair.shifted, pair.unshifted, epsilon)
        assert exact * (1 - 1e-12) <= one.delta(epsilon) <= exact * 1.0001 + 1e-10


@pytest.mark.parametrize("variance", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("rounds", [2, 3])
def test_composed_scalar_skellam_lies_above_brute_force(variance, rounds):
    law = skellam_masses(variance, 30)
    p, q = (product([x] * rounds) for x in (shifted(law, 1), law))
    noise = Skellam(variance, 1)
    composed = mechanism_pld(noise) * rounds
    for epsilon in EPSILONS:
        exact = profile(p, q, epsilon)
        assert exact * (1 - 1e-9) - 1e-12 <= composed.delta(epsilon) <= exact * 1.01 + 1e-9


@given(st.floats(0.4, 3), st.floats(0.01, 0.9))
def test_symmetry_keeps_the_profile_above_zero_and_the_total_mass(z, rate):
    one = gaussian_pld(z, rate=rate)
    both = symmetrised(one)
    ((law, _),) = both.remove.parts
    assert float(np.sum(law.masses)) + law.infinite == pytest.approx(1, abs=1e-9)
    for epsilon in EPSILONS:
        assert both.delta(epsilon) == pytest.approx(one.delta(epsilon), rel=1e-6, abs=1e-12)


def fixed_size_laws(law, values, cohort):
    """The law of a uniform cohort's noisy sum: the mean over all cohorts of that size."""
    cohorts = list(itertools.combinations(values, cohort))
    return sum(shifted(law, sum(chosen)) for chosen in cohorts) / len(cohorts)


def assert_above(release, rounds, p, q):
    for curve in curves([(release, rounds)]):
        for epsilon in EPSILONS:
            assert profile(p, q, epsilon) <= curve.delta(epsilon) + 1e-10


@pytest.mark.parametrize(
    ("others", "cohort", "rounds", "variance"),
    [
        ((0, 0), 1, 1, 0.5),
        ((0, 0), 1, 3, 3.0),
        ((1, -1), 2, 2, 0.5),
        ((1, 1, -1), 2, 1, 3.0),
        ((1, 1, -1), 2, 3, 0.5),
    ],
)
def test_fixed_size_cohorts_lie_above_brute_force_under_replace_one(
    others, cohort, rounds, variance
):
    """One user's value goes from -1 to 1 (the clip norm is 1); every cohort is enumerated."""
    law = skellam_masses(variance, 20)
    p, q = (product([fixed_size_laws(law, (own, *others), cohort)] * rounds) for own in (1, -1))
    release = SampledWithoutReplacement(replace_one(Skellam(variance, 1)), cohort, len(others) + 1)
    assert_above(release, rounds, p, q)


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_poisson_cohorts_lie_above_brute_force_under_replace_one(rate, rounds):
    law = skellam_masses(2.0, 20)
    p, q = (product([rate * shifted(law, own) + (1 - rate) * law] * rounds) for own in (1, -1))
    assert_above(Sampled(replace_one(Skellam(2.0, 1)), rate), rounds, p, q)


@pytest.mark.parametrize("bad", [math.nan, 0.0, -1.0, math.inf])
def test_what_dp_accounting_would_answer_with_zero_raises(bad):
    with pytest.raises(DomainError):
        gaussian_pld(bad)
    with pytest.raises(DomainError):
        gaussian_pld(1.0, rate=bad)


def test_a_gaussian_has_no_scalar_pair():
    assert scalar_pair(Gaussian(1.0, 1.0)) is None
    assert scalar_pair(Skellam(1.0, 1.5, dimension=2)) is None


@pytest.mark.parametrize("dimension", [1, 7, 65536])
def test_a_release_that_moves_one_coordinate_by_one_costs_what_a_scalar_costs(dimension):
    wide, scalar = (
        composed_epsilon([(Skellam(2.0, 1.0, 1.0, d), 1)], delta=1e-6, method="pld")
        for d in (dimension, 1)
    )
    assert wide == pytest.approx(scalar)


@pytest.mark.parametrize(
    ("mechanism", "true"),
    [
        (Laplace(scale=1.0, l1=400.0), 400.0),
        (DiscreteLaplace(0.0025, 1), 400.0),
        (DiscreteGaussian(sigma=0.03, l2=1.0), 1 / (2 * 0.03**2)),
    ],
)
def test_losses_that_are_hundreds_apart_are_not_lost(mechanism, true):
    assert composed_epsilon([(mechanism, 1)], delta=1e-6) == pytest.approx(true, rel=1e-3)
    assert composed_delta([(mechanism, 3)], epsilon=10 * true) <= 1e-6


def test_between_losses_whose_distance_overflows_the_larger_delta_is_taken():
    losses, profile = np.array([0.0, 2000.0]), np.array([0.5, 0.25])
    assert _interpolated(losses, profile, 1000.0) == pytest.approx(0.5, rel=1e-9)
