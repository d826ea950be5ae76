"""Values of the paper's authors (google-research/federated, distributed_dp/accounting_utils at
commit a5af8c4, run unmodified) and of TensorFlow Federated's tests."""

import math

import pytest

from oracles.codec_specs import spec_of
from skellam.codec import (
    Conditional,
    IntegerSensitivity,
    RealSensitivity,
    Unbiased,
    paper_scale,
    rounded_norm_bound,
    sensitivity,
)
from skellam.errors import DomainError, InfeasibleError

PAPER = math.exp(-0.5)


@pytest.mark.parametrize(
    ("l2", "dimension", "beta", "norm"),
    [
        (1, 16, PAPER, 2.8284271247461903),
        (100, 1024, PAPER, 101.84301645179212),
        (1000, 2**20, PAPER, 1124.1245482596669),
        (60000, 2**22, PAPER, 60009.24595426941),
        (1000, 2**20, 0, 2024.0),
        (30, 2**20, 0.01, 514.4792425436166),
    ],
)
def test_the_norm_after_rounding_is_the_authors(l2, dimension, beta, norm):
    assert rounded_norm_bound(l2, dimension, beta) == pytest.approx(norm, rel=1e-15)


@pytest.mark.parametrize(
    ("granularity", "beta", "norm"),
    [
        (1e-9, 0, 1.0000316227766017),
        (1e-2, 0, 317.2277660168379),
        (1e-9, 0.01, 1.000000001642451),
        (1e-2, 0.5, 158.12296930808552),
    ],
)
def test_in_units_of_a_granularity_it_is_tensorflow_federateds(granularity, beta, norm):
    bound = granularity * rounded_norm_bound(1 / granularity, 10**9, beta)
    assert bound == pytest.approx(norm, rel=1e-14)


@pytest.mark.parametrize(
    ("deviation", "clip", "bits", "clients", "dimension", "k", "scale"),
    [
        (0.01, 0.03, 16, 100, 2**20, 3, 109179.81038076726),
        (0.01, 0.03, 12, 100, 2**20, 4, 5117.560106073073),
        (0.5, 0.1, 20, 1000, 2**22, 3.8906, 8522.779585896811),
        (5, 10, 14, 100, 256, 2, 51.174980167284396),
    ],
)
def test_the_scale_is_the_authors(deviation, clip, bits, clients, dimension, k, scale):
    found = paper_scale(
        deviation=deviation, clip=clip, bits=bits, clients=clients, dimension=dimension, k=k
    )
    assert found == pytest.approx(scale, rel=1e-14)


def test_bits_that_rounding_alone_fills_are_refused_with_the_fewest_that_do():
    settings = {"deviation": 0.1, "clip": 1.0, "clients": 1000, "dimension": 64, "k": 4.0}
    with pytest.raises(InfeasibleError, match="at least 7 bits"):
        paper_scale(bits=6, **settings)
    assert paper_scale(bits=7, **settings) > 0


@pytest.mark.parametrize("beta", [-0.1, 1.0, math.nan])
def test_a_bias_outside_its_domain_is_refused(beta):
    with pytest.raises(DomainError, match="beta"):
        rounded_norm_bound(1, 4, beta)


def spec(rounding, **changes):
    return spec_of(clip=2.0, scale=50.0, rounding=rounding, **changes)


def test_conditional_rounding_states_an_integer_sensitivity():
    stated = sensitivity(spec(Conditional(PAPER)))
    assert isinstance(stated, IntegerSensitivity)
    assert stated.l2 == pytest.approx(101.84301645179212, rel=1e-15)
    assert stated.l2 >= 101.84301645179212
    assert stated.l1 == pytest.approx(3258.976526457348, rel=1e-15)
    assert stated.dimension == 1024


def test_unbiased_rounding_states_a_real_sensitivity():
    stated = sensitivity(spec(Unbiased(7.5)))
    assert stated == RealSensitivity(l2=100.0, coordinate_bound=7.5, dimension=1024)
    assert sensitivity(spec(Unbiased())).coordinate_bound == 100.0


def test_kept_coordinates_carry_their_part_of_the_norm():
    stated = sensitivity(spec(Unbiased(), sent_dim=256))
    assert stated.l2 == 50.0
    assert stated.dimension == 256
