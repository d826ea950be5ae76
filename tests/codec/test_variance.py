"""End to end: the error of a decoded sum is what the spec states, for every mechanism.

Noise that is not scaled, or scaled twice, or lost, fails. The squared error over its prediction is
a mean of at least 2**14 nearly independent squares: 6 deviations, a false alarm in 5e8.
"""

import math

import numpy as np
import pytest

from oracles.algorithm_1 import clipped
from oracles.codec_specs import codec_of
from skellam import SeededEntropy
from skellam.codec import (
    CentralDiscreteGaussian,
    CentralSkellam,
    Conditional,
    DiscreteGaussianShares,
    NoNoise,
    SkellamShares,
    Unbiased,
)
from skellam.codec.arithmetic import shrink

CLIENTS = 20
DIMENSION = 1 << 14
SCALE = 300.0
FEWEST = 14
NOISES = {
    "Skellam": (SkellamShares(3500.0, FEWEST), 250.0, 0),
    "removable Skellam": (SkellamShares(3500.0, FEWEST, removable=True), 250.0, 0),
    "discrete Gaussian": (DiscreteGaussianShares(15.0, FEWEST), 225.0, 0),
    "removable Gaussian": (DiscreteGaussianShares(15.0, FEWEST, removable=True), 225.0, 0),
    "central Skellam": (CentralSkellam(4000.0), 0, 4000),
    "central discrete Gaussian": (CentralDiscreteGaussian(60.0), 0, 3600),
    "none": (NoNoise(), 0, 0),
}


def vectors(count):
    rng = np.random.default_rng(2)
    return [rng.normal(size=DIMENSION) * 2 / math.sqrt(DIMENSION) for _ in range(count)]


def rounding_variance(codec, xs):
    """The mean of f (1 - f) over the fractions that each client really rounds, summed."""
    total = 0.0
    for x in xs:
        y = np.concatenate(
            list(shrink(*codec._prepared(codec._read(x)), codec.spec.radius))
        ).astype(float)
        fraction = y - np.floor(y)
        total += float(np.mean(fraction * (1 - fraction)))
    return total


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("dropped", [0, 6])
@pytest.mark.parametrize("rounding", [Unbiased(20.0), Conditional(math.exp(-0.5))])
@pytest.mark.parametrize("padded", [1 << 14, 33 << 9])
def test_the_squared_error_is_the_noise_of_those_who_stayed_less_what_was_removed(
    name, dropped, rounding, padded
):
    noise, client, central = NOISES[name]
    codec = codec_of(
        dimension=DIMENSION, scale=SCALE, rounding=rounding, noise=noise, padded_dim=padded
    )
    source = SeededEntropy(bytes(32), name)
    xs = vectors(CLIENTS - dropped)
    seeds = [codec.new_noise_seed(entropy=source) if codec.spec.removable else None for _ in xs]
    total = codec.add(
        codec.encode(x, entropy=source, noise_seed=seed) for x, seed in zip(xs, seeds, strict=True)
    )
    shares = len(xs)
    if codec.spec.removable:
        total, shares = codec.remove(total, seeds[FEWEST:]), FEWEST
    if central:
        total = codec.add_central_noise(total, entropy=source)
    error = codec.decode(total).values - sum(clipped(x, 1.0) for x in xs)
    expected = shares * client + central + rounding_variance(codec, xs)
    measured = float(np.mean(error.astype(float) ** 2)) * SCALE**2
    assert abs(measured / expected - 1) <= 6 * math.sqrt(2 / DIMENSION)


@pytest.mark.parametrize("mean_norm", [0.05, 1.0])
def test_the_squared_error_of_a_sketch_adds_what_is_not_sampled(mean_norm):
    """Expected over seeds: ``(D/d) ((d/d')**2 d' v / s**2 + (d/d' - 1) |sum|**2)``; 60 seeds.

    The sampling part is a quadratic form in random signs whose relative deviation is about
    sqrt(2 / d'), so the mean of 60 is within 6 * sqrt(2 / (60 * 2048)).
    """
    clients, dimension, padded, sent = 10, 6000, 6016, 2048
    rng = np.random.default_rng(3)
    direction = rng.normal(size=dimension)
    x = direction / np.linalg.norm(direction) * mean_norm * 0.9
    squares = []
    source = SeededEntropy(bytes(32), "sketch")
    for i in range(60):
        codec = codec_of(
            i.to_bytes(32, "big"),
            dimension=dimension,
            scale=SCALE,
            noise=SkellamShares(900.0, clients),
            padded_dim=padded,
            sent_dim=sent,
        )
        total = codec.add(codec.encode(x, entropy=source) for _ in range(clients))
        squares.append(float(np.sum((codec.decode(total).values - clients * x) ** 2)))
        fraction = rounding_variance(codec, [x]) * clients
    noise = (padded / sent) ** 2 * sent * (900 + fraction) / SCALE**2
    sampling = (padded / sent - 1) * (clients * np.linalg.norm(x)) ** 2
    expected = dimension / padded * (noise + sampling)
    assert np.mean(squares) == pytest.approx(expected, rel=6 * math.sqrt(2 / (60 * sent)))
