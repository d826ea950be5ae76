"""Result D against exact integration, exact sums over all cohorts, and an adversary."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import fftconvolve
from scipy.stats import binom, norm

from oracles.exact_profile import product, shifted, skellam_masses
from skellam.accounting import (
    Gaussian,
    Joint,
    RoundedSkellam,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    Skellam,
    curves,
    delta,
    epsilon,
    gdp_parameter,
    replace_one,
)
from skellam.accounting.fixed_size import (
    add_profile,
    max_sizes,
    poisson_sizes,
    remove_profile,
)
from skellam.accounting.interop import from_record, to_record
from skellam.accounting.pld import dominating_pld

EPSILONS = np.array([0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0])
SETTINGS = [
    (0.5, 0.1),
    (0.25, 0.5),
    (1.0, 0.01),
    (1 / 3, 0.01),
    (2.0, 0.3),
    (0.05, 0.9),
    (3.0, 1e-3),
]


def hockey_stick(p, q, factor, step):
    return float(np.sum(np.maximum(p - factor * q, 0.0))) * step


def densities(eta, share, substitute, step=1e-4):
    """One Gaussian round: the user's vector is at eta, its substitute's anywhere."""
    t = np.arange(-14 - 2 * eta, 14 + 2 * eta, step)
    other = (1 - share) * norm.pdf(t - substitute)
    return share * norm.pdf(t - eta) + other, share * norm.pdf(t) + other, step


@pytest.mark.parametrize(("eta", "share"), SETTINGS)
def test_a_gaussian_round_attains_both_bounds_by_exact_integration(eta, share):
    with_user, without, step = densities(eta, share, -eta)
    for e, bound in zip(EPSILONS, remove_profile(eta, share, EPSILONS), strict=True):
        exact = hockey_stick(with_user, without, math.exp(e), step)
        assert exact == pytest.approx(bound, rel=1e-6, abs=1e-10)
    with_user, without, step = densities(eta, share, eta)
    for e, bound in zip(EPSILONS, add_profile(eta, share, EPSILONS), strict=True):
        exact = hockey_stick(without, with_user, math.exp(e), step)
        assert exact == pytest.approx(bound, rel=1e-6, abs=1e-10)


@settings(max_examples=60)
@given(
    st.floats(0.05, 3.0),
    st.floats(1e-3, 0.999),
    st.floats(-1.0, 1.0),
    st.floats(-1.0, 1.0),
    st.floats(0.0, 4.0),
)
def test_no_user_and_no_substitute_pass_the_bounds(eta, share, user, substitute, e):
    """The adversary's lower bound: it knows all but whether S' + {u} or S' + {j} is the cohort."""
    t = np.arange(-16.0, 16.0, 1e-3)
    other = (1 - share) * norm.pdf(t - substitute * eta)
    with_user = share * norm.pdf(t - user * eta) + other
    without = share * norm.pdf(t) + other
    at = np.array([e])
    for pair, bound in (
        ((with_user, without), remove_profile(eta, share, at)),
        ((without, with_user), add_profile(eta, share, at)),
    ):
        assert hockey_stick(*pair, math.exp(e), 1e-3) <= bound[0] * (1 + 1e-6) + 1e-9


def cohort_law(law, values, cohort):
    """The law of a uniform cohort's noisy sum: the mean over all cohorts of that size."""
    cohorts = list(itertools.combinations(values, cohort))
    return sum(moved(law, np.sum(chosen, axis=0)) for chosen in cohorts) / len(cohorts)


def moved(law, by):
    return product([shifted(law, int(k)) for k in np.atleast_1d(by)])


def exact_deltas(p, q, e):
    factor = math.exp(e)
    return float(np.maximum(p - factor * q, 0).sum()), float(np.maximum(q - factor * p, 0).sum())


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from([0.7, 2.0, 6.0]),
    st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from([-1, 1]),
    st.integers(1, 2),
)
def test_scalar_skellam_cohorts_lie_below_the_claim(variance, others, cohort, own, rounds):
    """Every cohort is enumerated; the user's value is zeroed out and stays in the draw."""
    cohort = min(cohort, len(others) + 1)
    law = skellam_masses(variance, 18)
    p, q = (product([cohort_law(law, (value, *others), cohort)] * rounds) for value in (own, 0))
    release = SampledWithoutReplacement(Skellam(variance, 1.0), cohort, len(others) + 1)
    for curve in curves([(release, rounds)]):
        for e in (0.0, 0.3, 1.0, 2.5):
            assert max(exact_deltas(p, q, e)) <= curve.delta(e) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("variance", [1.0, 4.0])
@pytest.mark.parametrize("cohort", [1, 2, 3])
def test_skellam_vectors_in_two_dimensions_lie_below_the_claim(variance, cohort):
    law = skellam_masses(variance, 16)
    others = [(-1, -1), (1, 0), (0, 1)]
    p, q = (cohort_law(law, (own, *others), cohort) for own in ((1, 1), (0, 0)))
    noise = Skellam(variance, math.sqrt(2), dimension=2)
    release = SampledWithoutReplacement(noise, cohort, 4)
    ours = dominating_pld(release)
    for e in (0.0, 0.3, 1.0, 2.5):
        remove, add = exact_deltas(p, q, e)
        assert remove <= ours.remove.delta(e) + ours.slack.rare + 1e-9
        assert add <= ours.add.delta(e) + ours.slack.rare + 1e-9


@pytest.mark.parametrize(
    ("sigma", "cohort", "population", "rounds", "remove", "add"),
    [
        (2.0, 20, 200, 20, 2.764, 1.359),
        (4.0, 50, 100, 50, 5.06, 4.619),
        (1.0, 1, 100, 10, 4.19, 0.610),
        (3.0, 10, 1000, 300, 0.3615, 0.2949),
    ],
)
def test_composed_numbers(sigma, cohort, population, rounds, remove, add):
    """At delta 1e-6. An independent computation on another grid gave the same within 1 %."""
    release = SampledWithoutReplacement(Gaussian(sigma, 1.0), cohort, population)
    composed = dominating_pld(release) * rounds
    assert composed.remove.epsilon(1e-6) == pytest.approx(remove, rel=1e-2)
    assert composed.add.epsilon(1e-6) == pytest.approx(add, rel=1e-2)
    assert epsilon(release, rounds=rounds, delta=1e-6) == pytest.approx(remove, rel=1e-2)


def rounded_losses(eta, share, substitute, interval):
    """Losses of one Gaussian round with this substitute, rounded to the nearest multiple."""
    with_user, without, step = densities(eta, share, substitute, step=1e-3)
    index = np.round(np.log(with_user / without) / interval).astype(int)
    reach = int(np.abs(index).max())
    return np.bincount(index + reach, with_user * step), reach


@pytest.mark.parametrize(
    ("sigma", "cohort", "population", "rounds"), [(2.0, 20, 200, 20), (4.0, 50, 100, 50)]
)
def test_an_adversary_comes_near_the_composed_bound_and_not_above(
    sigma, cohort, population, rounds
):
    """A fixed substitute at -x in every round, its losses convolved on a grid: 2.72 and 4.89."""
    interval = 1e-3
    one, reach = rounded_losses(1 / sigma, cohort / population, -1 / sigma, interval)
    law, offset = np.ones(1), 0
    for _ in range(rounds):
        law, offset = fftconvolve(law, one), offset + reach
    losses = interval * (np.arange(len(law)) - offset)
    release = SampledWithoutReplacement(Gaussian(sigma, 1.0), cohort, population)
    bound = epsilon(release, rounds=rounds, delta=1e-6)

    def lower(e):
        return float(np.sum(law * np.maximum(0.0, -np.expm1(e - losses))))

    assert lower(bound) <= 1e-6 * (1 + 1e-2)
    assert lower(bound * 0.95) >= 1e-6


def test_the_fixed_size_price_lies_between_poisson_and_replace_one():
    noise, setting = Gaussian(2.0, 1.0), {"rounds": 20, "delta": 1e-6}
    poisson = epsilon(Sampled(noise, 0.1), **setting)
    fixed = epsilon(SampledWithoutReplacement(noise, 20, 200), **setting)
    known = epsilon(SampledKnownSize(noise, 0.1, 200), **setting)
    replaced = epsilon(SampledWithoutReplacement(replace_one(noise), 20, 200), **setting)
    assert poisson == pytest.approx(1.27, abs=0.01)
    assert replaced == pytest.approx(4.43, abs=0.02)
    assert poisson < fixed < known < replaced


@pytest.mark.parametrize(("rate", "population"), [(0.1, 50), (0.03, 3400), (0.5, 7), (1.0, 10)])
@pytest.mark.parametrize("e", [0.0, 0.2, 1.5])
def test_a_known_size_costs_the_mean_over_all_sizes(rate, population, e):
    eta, at, sizes = 0.7, np.array([e]), range(1, population + 1)
    weights = binom.pmf(sizes, population, rate)
    for profile in (remove_profile, add_profile):
        exact = sum(
            w * profile(eta, n / population, at)[0] for n, w in zip(sizes, weights, strict=True)
        )
        found = sum(w * profile(eta, p, at)[0] for p, w in poisson_sizes(rate, population))
        assert exact * (1 - 1e-9) <= found <= exact * 1.02 + 1e-25


@settings(max_examples=20, deadline=None)
@given(
    skipped=st.lists(st.floats(0, 1), min_size=61, max_size=61), e=st.sampled_from([0.0, 0.3, 2.0])
)
def test_no_rule_for_which_sizes_run_costs_more_than_the_largest(skipped, e):
    """Each of 0 to 60 who take part runs with a chance of its own."""
    weights = binom.pmf(range(61), 60, 0.2) * (1 - np.array(skipped))
    chance = weights.sum()
    if chance < 1e-3:
        return
    for profile in (remove_profile, add_profile):
        costs = [profile(0.7, max(n, 1e-9) / 60, np.array([e]))[0] for n in range(61)]
        allowed = max_sizes(poisson_sizes(0.2, 60), chance)
        bound = sum(w * profile(0.7, share, np.array([e]))[0] for share, w in allowed)
        assert weights @ costs / chance <= bound * (1 + 1e-6) + 1e-9


def test_a_run_chance_is_recorded_and_costs_something():
    every, some = (SampledKnownSize(Gaussian(1.0, 1.0), 0.1, 60, c) for c in (1.0, 0.5))
    assert [from_record(to_record(m)) for m in (every, some)] == [every, some]
    costs = [epsilon(m, rounds=3, delta=1e-5) for m in (every, some)]
    assert costs[0] < costs[1] < epsilon(Gaussian(1.0, 1.0), rounds=3, delta=1e-5)


@pytest.mark.parametrize("adjacent", [lambda noise: noise, replace_one])
def test_a_cohort_that_is_the_whole_population_is_no_sample(adjacent):
    noise = adjacent(Skellam(30.0, 2.0, dimension=3))
    plain = epsilon(noise, delta=1e-6, rounds=4)
    for release in (SampledWithoutReplacement(noise, 9, 9), SampledKnownSize(noise, 1.0, 9)):
        assert epsilon(release, delta=1e-6, rounds=4) == pytest.approx(plain, rel=1e-3)


def test_three_laws_have_the_rare_events_of_two_certificates():
    noise = RoundedSkellam(400.0, 3.0, 1000, 1e-20, 16, 1.0)
    own, doubled = (dominating_pld(x).slack.rare for x in (noise, replace_one(noise)))
    sized = dominating_pld(SampledWithoutReplacement(noise, 10, 100))
    assert sized.slack.rare == pytest.approx(own + doubled)


@pytest.mark.parametrize("method", ["best", "gdp", "rdp", "pld"])
@pytest.mark.parametrize(
    "sampled",
    [
        lambda noise: noise,
        lambda noise: Sampled(noise, 0.1),
        lambda noise: SampledWithoutReplacement(noise, 10, 100),
        lambda noise: SampledKnownSize(noise, 0.1, 100),
    ],
)
def test_rare_events_are_added_once_a_release_and_not_amplified(method, sampled):
    noise, rare = Skellam(50.0, 2.0, dimension=4), 1e-9
    single, half = (Skellam(50.0, 2.0, dimension=4, rare=r) for r in (rare, rare / 2))
    for pair in ((single, noise), (Joint((half,), rare=rare / 2), Joint((noise,)))):
        with_rare, without = (
            delta(sampled(x), epsilon=1.5, rounds=30, method=method) for x in pair
        )
        assert with_rare - without == pytest.approx(30 * rare, rel=1e-3)


def test_a_large_eta_falls_back_to_no_sampling():
    noise = Gaussian(0.04, 1.0)
    plain = epsilon(noise, delta=1e-6)
    assert gdp_parameter(noise) == pytest.approx(25)
    assert epsilon(SampledWithoutReplacement(noise, 1, 10), delta=1e-6) <= plain * (1 + 1e-3)
