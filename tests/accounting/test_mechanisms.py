import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skellam.accounting import (
    Adjacency,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    DistributedDiscreteGaussian,
    Gaussian,
    Joint,
    Laplace,
    RoundedSkellam,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    Skellam,
    against_public,
    against_server,
    composed_delta,
    composed_epsilon,
    curves,
    delta,
    epsilon,
    from_record,
    gdp_parameter,
    noise_of,
    replace_one,
    to_event,
    to_record,
)
from skellam.accounting.mechanisms import l1_bound
from skellam.errors import DomainError, KindError, SkellamError

NOISES = [
    Gaussian(1.5, 2.0),
    Skellam(25.0, 3.0, 4.0, 16),
    Skellam(variance=2500, l2=1),
    RoundedSkellam(1e4, 50.0, 64, 1e-20, 16, 20.0, sampler_distance=1e-28),
    DiscreteGaussian(5.0, 2.0, None, 9),
    DistributedDiscreteGaussian(0.5, 100, 1.0),
    Binomial(40, 2.0, tail=1e-12),
    DiscreteLaplace(3.0, 2.0),
    Laplace(3.0, 0.5, 4),
]
MECHANISMS = [
    *NOISES,
    *(replace_one(noise) for noise in NOISES),
    *(Sampled(noise, 0.03) for noise in NOISES),
    *(SampledWithoutReplacement(noise, 100, 3400) for noise in NOISES),
    *(SampledKnownSize(noise, 0.03, 3400) for noise in NOISES),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_record_survives_json_and_gives_the_same_mechanism_back(mechanism):
    record = json.loads(json.dumps(to_record(mechanism)))
    assert from_record(record) == mechanism
    assert to_record(from_record(record)) == record


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"mechanism": "magic"},
        {"mechanism": "skellam", "variance": 1.0},
        {"mechanism": "skellam", "variance": 1.0, "l2": 1.0, "extra": 1},
        {"mechanism": "skellam", "variance": math.nan, "l2": 1.0},
        {"mechanism": "gaussian", "sigma": 1.0, "l2": 1.0, "adjacency": "near"},
        {"mechanism": "gaussian", "sigma": "1", "l2": 1.0},
        {"sampling": "poisson", "mechanism": "gaussian", "sigma": 1.0, "l2": 1.0},
        {"sampling": "bootstrap", "mechanism": "gaussian", "sigma": 1.0, "l2": 1.0},
        "skellam",
    ],
    ids=str,
)
def test_a_record_that_is_none_raises(record):
    with pytest.raises(DomainError):
        from_record(record)


@pytest.mark.parametrize("bad", [math.nan, -1.0, 0.0, math.inf, "1", None])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: Gaussian(x, 1.0),
        lambda x: Gaussian(1.0, x),
        lambda x: Skellam(x, 1.0),
        lambda x: Skellam(1.0, x),
        lambda x: RoundedSkellam(x, 1.0, 4, 1e-20),
        lambda x: RoundedSkellam(100.0, x, 4, 1e-20),
        lambda x: RoundedSkellam(100.0, 1.0, 4, x),
        lambda x: DiscreteGaussian(x, 1.0),
        lambda x: DistributedDiscreteGaussian(x, 10, 1.0),
        lambda x: DiscreteLaplace(x, 1.0),
        lambda x: DiscreteLaplace(1.0, x),
        lambda x: Laplace(x, 1.0),
        lambda x: Sampled(Gaussian(1.0, 1.0), x),
    ],
)
def test_what_is_no_positive_number_raises(make, bad):
    with pytest.raises(DomainError):
        make(bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sampled(Gaussian(1.0, 1.0), 1.01),
        lambda: Sampled(Sampled(Gaussian(1.0, 1.0), 0.1), 0.1),
        lambda: SampledWithoutReplacement(Gaussian(1.0, 1.0), 11, 10),
        lambda: SampledWithoutReplacement(Gaussian(1.0, 1.0), 0, 10),
        lambda: SampledKnownSize(Gaussian(1.0, 1.0), 0.0, 10),
        lambda: SampledKnownSize(Gaussian(1.0, 1.0), 0.5, 0),
        lambda: Skellam(1.0, 1.0, dimension=0),
        lambda: Skellam(1.0, 1.0, dimension=1.5),
        lambda: DistributedDiscreteGaussian(1.0, 0, 1.0),
        lambda: Binomial(0, 1.0),
        lambda: RoundedSkellam(100.0, 1.0, 4, 0.5),
        lambda: RoundedSkellam(100.0, 1.0, 4, 1e-20, 5, 1.0),
        lambda: RoundedSkellam(100.0, 1.0, 4, 1e-20, block=4),
        lambda: Gaussian(1.0, 1.0, sampler_distance=-1e-9),
        lambda: replace_one(replace_one(Gaussian(1.0, 1.0))),
    ],
)
def test_what_cannot_be_raises(make):
    with pytest.raises(SkellamError):
        make()


def test_an_integer_vector_of_norm_below_one_raises_and_names_the_scale():
    with pytest.raises(DomainError, match="scale"):
        Skellam(variance=1e-4, l2=0.03)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Skellam(1.0, 3.0, l1=2.0),
        lambda: RoundedSkellam(100.0, 9.0, 4, 1e-20, 1, 4.0),
    ],
)
def test_a_norm_that_no_vector_reaches_raises(make):
    with pytest.raises(DomainError, match="l2 must be at most"):
        make()


def test_a_mechanism_that_is_no_mechanism_raises():
    with pytest.raises(KindError):
        noise_of("skellam")


@given(st.floats(1, 1e6), st.integers(1, 2**24))
def test_l1_of_an_integer_vector_is_bounded_by_both_norms(l2, dimension):
    noise = Skellam(1.0, l2, dimension=dimension)
    assert l1_bound(noise) == pytest.approx(min(l2 * math.sqrt(dimension), l2 * l2))


def test_replace_one_doubles_every_sensitivity():
    doubled = replace_one(RoundedSkellam(1e4, 50.0, 64, 1e-20, 16, 20.0))
    assert (doubled.l2, doubled.coordinate_bound) == (100.0, 40.0)
    assert doubled.adjacency is Adjacency.REPLACE_ONE
    assert replace_one(Skellam(1.0, 2.0, 3.0)).l1 == 6.0


def test_a_cohort_of_fixed_size_keeps_the_adjacency_that_it_is_given():
    noise = Skellam(variance=100, l2=5)
    for given_noise in (noise, replace_one(noise)):
        assert SampledWithoutReplacement(given_noise, 10, 100).mechanism == given_noise
        assert SampledKnownSize(given_noise, 0.1, 100).mechanism == given_noise


def test_rare_events_are_kept_by_replace_one_and_joint_releases():
    noise = Skellam(100.0, 5.0, rare=1e-9)
    assert replace_one(noise).rare == 1e-9
    assert replace_one(Joint((noise,), rare=1e-7)).parts[0].rare == 1e-9
    with pytest.raises(DomainError):
        Skellam(100.0, 5.0, rare=-1e-9)


@pytest.mark.parametrize("wrong", [1.5, "skellam", None, [], Sampled(Gaussian(1.0, 1.0), 0.1)])
def test_what_is_no_noise_gets_our_own_error(wrong):
    for call in (gdp_parameter, replace_one, lambda x: Sampled(x, 0.1), lambda x: Joint((x,))):
        with pytest.raises(KindError):
            call(wrong)


@pytest.mark.parametrize("wrong", [1.5, "skellam", None, []])
def test_what_is_no_mechanism_gets_our_own_error(wrong):
    calls = (
        noise_of,
        to_record,
        to_event,
        lambda x: epsilon(x, delta=1e-5),
        lambda x: delta(x, epsilon=1.0),
        lambda x: composed_epsilon([(x, 3)], delta=1e-5),
        lambda x: composed_epsilon([x], delta=1e-5),
        lambda x: composed_delta([(x, 3)], epsilon=1.0),
        lambda x: curves([(x, 3)]),
        lambda x: against_public(x, rounds=3, delta=1e-5),
        lambda x: against_server(x, participations=3, delta=1e-5),
    )
    for call in calls:
        with pytest.raises(KindError):
            call(wrong)
