"""What a plan predicts is what happens, end to end: noise not scaled, or scaled twice, fails.

All seeded. The error of d coordinates of nearly normal noise has a mean square that is off by more
than six of its standard errors, 6 sqrt(2/d), with probability below 2e-9.
"""

import dataclasses
import math

import numpy as np
import pytest

import skellam as sk
from skellam.analytics import mean_error
from skellam.engines.local import sum_unmasked, with_central_noise
from skellam.plan import Plan

NOISES = [
    "skellam",
    "central-skellam",
    "distributed-discrete-gaussian",
    "central-discrete-gaussian",
    "gaussian",
]
D = 1 << 14
SLACK = 6 * math.sqrt(2 / D)


def plan(**changes):
    settings = {"dimension": D, "clip": 3.0, "cohort": 20, "rounds": 1, "sampling": "all"}
    return Plan(**{**settings, **changes})


def seeded(*context):
    return sk.SeededEntropy(bytes(32), repr(context))


def updates(count):
    """Vectors just at the clip, whose mean is about half of it."""
    rng = np.random.default_rng(7)
    common = rng.normal(size=D)
    vectors = common + 1.7 * rng.normal(size=(count, D))
    return 3.0 * vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("noise", NOISES)
def test_the_variance_of_the_decoded_sum_is_the_plans(noise):
    made = plan(noise=noise).matched(0.7)
    x = updates(20)
    total = sum_unmasked(
        made, x, cohort=20, public_seed=bytes(32), entropy=seeded("variance", noise)
    )
    square = np.mean((total.values - x.sum(axis=0)) ** 2)
    assert square == pytest.approx(made.error.total * 20**2, rel=SLACK)
    assert made.error.noise * 20**2 == pytest.approx((made.noise_multiplier * 3.0) ** 2)


@pytest.mark.parametrize("dropped", [0, 1, 4, 6])
@pytest.mark.parametrize("noise", ["skellam", "distributed-discrete-gaussian"])
def test_the_variance_is_the_plans_whoever_drops_out(noise, dropped):
    made = plan(noise=noise, dropout=0.3).matched(0.7)
    codec = made.codec(public_seed=bytes(32), cohort=20)
    x = updates(20)[dropped:]
    entropy = seeded("dropout", noise, dropped)
    seeds = [codec.new_noise_seed(entropy=entropy) for _ in x]
    total = codec.add(
        codec.encode(v, entropy=entropy, noise_seed=s) for v, s in zip(x, seeds, strict=True)
    )
    total = codec.remove(total, seeds[14:])
    square = np.mean((codec.decode(total) - x.sum(axis=0)) ** 2)
    planned = (made.noise_multiplier * 3.0) ** 2
    rounding = made.error.rounding * 20 * (20 - dropped)
    assert square == pytest.approx(planned + rounding, rel=SLACK)


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
@pytest.mark.parametrize("log_dimension", [14, pytest.param(20, marks=pytest.mark.slow)])
def test_few_bits_cost_what_the_plan_predicts(log_dimension, bits):
    """Ten (or two) repeats, all clients alike: the worst case that the plan is made for."""
    repeats = 10 if log_dimension == 14 else 2
    made = plan(dimension=2**log_dimension, cohort=100, bits=bits).matched(1.0)
    error = mean_error(made, repeats=repeats, same=True, entropy=seeded(log_dimension, bits))
    slack = 6 * math.sqrt(2 / (repeats * 2**log_dimension))
    assert error.value == pytest.approx(made.error.total, rel=slack)


@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_a_sketch_costs_what_the_plan_predicts(ratio):
    """The sampling error is an expectation over the seed, and re-clipping only lowers it."""
    made = plan(cohort=100, bits=12, compression=3000, signal=ratio, dimension=2**14).with_noise(
        0.8
    )
    rng = np.random.default_rng(3)
    common = rng.normal(size=D)
    x = 3.0 * ratio * common / np.linalg.norm(common)
    squares = []
    for i in range(10):
        total = sum_unmasked(
            made, [x] * 100, cohort=100, public_seed=bytes([i] * 32), entropy=seeded(ratio, i)
        )
        squares.append(np.mean((total.values / 100 - x) ** 2))
    assert 0.9 * made.error.total <= np.mean(squares) <= 1.03 * made.error.total


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "most_bits"), [(1.0, 2.0), (0.3, 0.25)])
def test_a_million_parameters_travel_in_few_bits_each(ratio, most_bits):
    """All clients alike, three seeds: the mean error is within five per cent of the formula.

    Its sampling part is a sum over 2**20 coordinates or the ten thousands that are kept, so its
    relative deviation is below one per cent.
    """
    d = 1 << 20
    whole = plan(dimension=d, cohort=100, bits=12, signal=ratio).with_noise(0.8)
    made = dataclasses.replace(whole.request, compression="auto").matched(
        whole.effective_multiplier
    )
    assert 8 * made.bytes_per_client / d <= most_bits
    assert made.error.total <= 1.12 * whole.error.total
    common = np.random.default_rng(3).normal(size=d).astype(np.float32)
    x = (3.0 * ratio / np.linalg.norm(common)) * common
    squares = []
    for i in range(3):
        total = sum_unmasked(
            made, [x] * 100, cohort=100, public_seed=bytes([i] * 32), entropy=seeded(ratio, i)
        )
        squares.append(np.mean((total.values / 100 - x) ** 2))
    assert 0.9 * made.error.total <= np.mean(squares) <= 1.05 * made.error.total


def test_central_noise_comes_once():
    made = plan(noise="central-skellam").with_noise(1.0)
    codec = made.codec(public_seed=bytes(32), cohort=20)
    total = codec.add([codec.encode(np.zeros(D), entropy=seeded("central"))])
    noisy = with_central_noise(codec, total, entropy=seeded("noise"))
    assert np.mean(codec.decode(noisy).values ** 2) == pytest.approx(9.0, rel=SLACK)
