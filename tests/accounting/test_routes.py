import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.exact_profile import product, profile, shifted, skellam_masses
from skellam.accounting import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Laplace,
    RoundedSkellam,
    Sampled,
    SampledWithoutReplacement,
    Skellam,
    composed_delta,
    composed_epsilon,
    curves,
    delta,
    epsilon,
    replace_one,
)
from skellam.errors import CertificateError, DomainError

METHODS = ("gdp", "rdp", "pld", "paper")
SCALE = 1000.0
EMNIST = Skellam((0.8 * SCALE) ** 2, SCALE, dimension=2**20)
KINDS = [
    Gaussian(2.0, 1.0),
    Skellam(9.0, 1.0),
    Skellam(900.0, 10.0, dimension=64),
    RoundedSkellam(1e4, 40.0, 64, 1e-22),
    RoundedSkellam(25.0, 2.0, 64, 1e-18, 4, 1.0),
    DiscreteGaussian(3.0, 1.0),
    DiscreteGaussian(30.0, 9.0, dimension=81),
    DistributedDiscreteGaussian(3.0, 9, 2.0, dimension=4),
    Binomial(4000, 3.0),
    DiscreteLaplace(4.0, 1.0),
    Laplace(4.0, 1.0),
]
MECHANISMS = [*KINDS, *(Sampled(noise, 0.05) for noise in KINDS)]


def by_method(mechanism, rounds, at):
    """Epsilon by each method that has an answer."""
    found = {}
    for method in METHODS:
        try:
            found[method] = epsilon(mechanism, rounds=rounds, delta=at, method=method)
        except CertificateError:
            continue
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize(("rounds", "at"), [(1, 1e-5), (40, 1e-8)])
def test_the_best_route_costs_no_more_than_any_other(mechanism, rounds, at):
    best = epsilon(mechanism, rounds=rounds, delta=at)
    others = by_method(mechanism, rounds, at)
    assert {"gdp", "rdp", "pld"} <= set(others)
    assert best <= min(others.values())
    assert delta(mechanism, rounds=rounds, epsilon=best) <= at * (1 + 5e-3)


@pytest.mark.parametrize("variance", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("vector", [(1,), (2,), (1, 1), (2, -1), (1, 1, 1)])
@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_every_bound_lies_above_brute_force_in_one_to_three_dimensions(variance, vector, rate):
    law = skellam_masses(variance, 24)
    plain = product([law] * len(vector))
    moved = product([shifted(law, v) for v in vector])
    p = rate * moved + (1 - rate) * plain
    l1, l2 = sum(map(abs, vector)), math.hypot(*vector)
    release = Sampled(Skellam(variance, l2, l1, len(vector)), rate)
    for curve in curves([(release, 1)]):
        for at in (0.0, 0.2, 1.0, 3.0, 6.0):
            assert profile(p, plain, at) <= curve.delta(at) + 1e-11


@pytest.mark.parametrize("fractions", [(0.3,), (0.5, 1.7), (-0.2, 0.9, 0.4)])
@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_rounding_lies_above_brute_force(fractions, rate):
    law = skellam_masses(6.0, 30)
    plain = product([law] * len(fractions))
    rounded = [
        (1 - (x - math.floor(x))) * shifted(law, math.floor(x))
        + (x - math.floor(x)) * shifted(law, math.floor(x) + 1)
        for x in fractions
    ]
    p = rate * product(rounded) + (1 - rate) * plain
    release = Sampled(RoundedSkellam(6.0, math.hypot(*fractions), len(fractions), 1e-12), rate)
    for curve in curves([(release, 1)]):
        for at in (0.0, 0.2, 1.0, 3.0):
            assert profile(p, plain, at) <= curve.delta(at) + 1e-11


sigmas = st.floats(0.5, 20)
rates = st.floats(1e-3, 1)
rounds_drawn = st.integers(1, 300)


@given(sigmas, rates, rounds_drawn, st.floats(1.02, 3), st.sampled_from(METHODS))
@settings(max_examples=25)
def test_more_noise_never_costs_more(sigma, rate, rounds, more, method):
    less, greater = (
        epsilon(Sampled(Gaussian(s, 1.0), rate), rounds=rounds, delta=1e-5, method=method)
        for s in (sigma, sigma * more)
    )
    assert greater <= less


@given(sigmas, rates, rounds_drawn, st.integers(1, 100), st.sampled_from(METHODS))
@settings(max_examples=25)
def test_fewer_rounds_never_cost_more(sigma, rate, rounds, extra, method):
    few, many = (
        epsilon(Sampled(Gaussian(sigma, 1.0), rate), rounds=n, delta=1e-5, method=method)
        for n in (rounds, rounds + extra)
    )
    assert few <= many


@given(sigmas, st.floats(1e-3, 0.9), rounds_drawn, st.floats(0.1, 0.98), st.sampled_from(METHODS))
@settings(max_examples=25)
def test_a_smaller_rate_never_costs_more(sigma, rate, rounds, less, method):
    small, large = (
        epsilon(Sampled(Gaussian(sigma, 1.0), q), rounds=rounds, delta=1e-5, method=method)
        for q in (rate * less, rate)
    )
    assert small <= large


@given(st.floats(1.0, 300), st.floats(1.05, 4), st.integers(1, 50))
@settings(max_examples=30)
def test_more_skellam_noise_never_costs_more(variance, more, rounds):
    less, greater = (
        epsilon(Skellam(v, 1.0, dimension=3), rounds=rounds, delta=1e-6)
        for v in (variance, variance * more)
    )
    assert greater <= less


def test_releases_composed_apart_cost_what_they_cost_together():
    release = Sampled(EMNIST, 0.03)
    apart = composed_epsilon([(release, 60), (release, 40)], delta=1e-5)
    assert apart == pytest.approx(epsilon(release, rounds=100, delta=1e-5), rel=1e-3)


def test_different_mechanisms_compose():
    releases = [(Sampled(EMNIST, 0.03), 100), (DiscreteLaplace(50.0, 1.0), 3), (EMNIST, 1)]
    total = composed_epsilon(releases, delta=1e-5)
    parts = [epsilon(m, rounds=n, delta=1e-5 / 3) for m, n in releases]
    assert max(epsilon(m, rounds=n, delta=1e-5) for m, n in releases) <= total <= sum(parts)
    assert composed_delta(releases, epsilon=total) <= 1e-5 * (1 + 1e-6)


def test_under_replace_one_a_cohort_of_fixed_size_costs_75_or_more():
    """EMNIST, z = 0.8. Passing z where z/2 belongs would report 19."""
    setting = {"rounds": 1500, "delta": 1 / 3400}
    fixed = SampledWithoutReplacement(replace_one(EMNIST), 100, 3400)
    assert epsilon(Sampled(EMNIST, 100 / 3400), **setting) == pytest.approx(9.74, abs=0.01)
    for method in ("best", "gdp", "pld", "rdp"):
        assert epsilon(fixed, method=method, **setting) >= 75


def test_a_gaussian_fixed_size_cohort_costs_967_by_its_renyi_curve():
    """As dp_accounting has it for z/2; the operator C_p with loss distributions is far less."""
    fixed = SampledWithoutReplacement(replace_one(Gaussian(0.8, 1.0)), 100, 3400)
    setting = {"rounds": 1500, "delta": 1 / 3400}
    assert epsilon(fixed, method="rdp", **setting) == pytest.approx(967, abs=3)
    assert epsilon(fixed, method="pld", **setting) == pytest.approx(89.9, abs=0.1)


def test_a_fixed_size_cohort_has_no_bound_in_the_paper():
    with pytest.raises(CertificateError):
        epsilon(SampledWithoutReplacement(EMNIST, 100, 3400), delta=1e-5, method="paper")


def test_the_samplers_distance_is_paid_out_of_delta():
    exact, inexact = Skellam(100.0, 1.0), Skellam(100.0, 1.0, sampler_distance=1e-9)
    for method in METHODS:
        loose = epsilon(inexact, rounds=10, delta=1e-6, method=method)
        assert loose > epsilon(exact, rounds=10, delta=1e-6, method=method)
    assert epsilon(Skellam(100.0, 1.0, sampler_distance=1e-6), delta=1e-6) == math.inf
    gained = delta(inexact, rounds=10, epsilon=1.0) - delta(exact, rounds=10, epsilon=1.0)
    assert gained == pytest.approx(1e-8 * (1 + math.e), rel=1e-6)


def test_tails_do_not_keep_a_large_epsilon_from_being_stated():
    rounded = RoundedSkellam(1e4, 100.0, 2**20, 1e-17)
    gaussian = epsilon(Gaussian(0.8, 1), rounds=20, delta=1e-5)
    assert 20 < epsilon(rounded, rounds=20, delta=1e-5, method="gdp") < gaussian


def test_few_bits_in_one_round_cost_less_by_their_own_divergence_than_as_a_gaussian():
    noise = RoundedSkellam(25.0, 2.0, 64, 1e-18, 4, 1.0)
    rdp, gdp = (epsilon(noise, delta=1e-6, method=method) for method in ("rdp", "gdp"))
    assert rdp < gdp


def test_rounding_under_replace_one_has_no_divergence_of_its_own():
    noise = replace_one(RoundedSkellam(25.0, 2.0, 64, 1e-18))
    assert len(curves([(noise, 1)], method="rdp")) == 1


@pytest.mark.parametrize("noise", [Binomial(3, 4.0), DiscreteGaussian(0.2, 900.0)], ids=str)
@pytest.mark.parametrize("rounds", [1, 7])
def test_a_shift_beyond_the_noise_is_seen_for_certain(noise, rounds):
    assert epsilon(noise, rounds=rounds, delta=1e-5) > 1e5
    assert delta(noise, rounds=rounds, epsilon=10.0) == 1


RELEASE = Sampled(Gaussian(1.0, 1.0), 0.1)


@pytest.mark.parametrize("bad", [math.nan, 0.0, 1.0, 1.5, -1e-5, "1e-5"])
def test_a_delta_outside_the_unit_interval_raises(bad):
    with pytest.raises(DomainError):
        epsilon(RELEASE, rounds=1, delta=bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, math.nan, "1"])
def test_rounds_that_are_no_positive_whole_number_raise(bad):
    with pytest.raises(DomainError):
        epsilon(RELEASE, rounds=bad, delta=1e-5)
    with pytest.raises(DomainError):
        delta(RELEASE, rounds=bad, epsilon=1.0)


@pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf, "1"])
def test_an_epsilon_outside_its_domain_raises(bad):
    with pytest.raises(DomainError):
        delta(RELEASE, rounds=1, epsilon=bad)


def test_a_method_that_does_not_exist_raises_and_names_those_that_do():
    with pytest.raises(DomainError, match="best"):
        epsilon(RELEASE, rounds=1, delta=1e-5, method="moments")


def test_no_releases_and_mixed_adjacencies_raise():
    with pytest.raises(DomainError, match="at least one"):
        composed_epsilon([], delta=1e-5)
    mixed = [(Gaussian(1.0, 1.0), 1), (replace_one(Gaussian(1.0, 1.0)), 1)]
    with pytest.raises(DomainError, match="adjacencies"):
        composed_epsilon(mixed, delta=1e-5)
