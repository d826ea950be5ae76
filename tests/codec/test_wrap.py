import math

import numpy as np
import pytest

from oracles.algorithm_1 import modular_clip
from oracles.codec_specs import codec_of
from skellam import SeededEntropy
from skellam.codec import SkellamShares
from skellam.codec.arithmetic import WrapEstimate, centred, wrap_estimate
from skellam.errors import DomainError, WrapError
from skellam.vectors import Residues, residue_dtype


def residues(values, bits):
    return Residues((np.asarray(values) % 2**bits).astype(residue_dtype(bits)), bits)


def normal(deviation, bits, count, seed=1):
    values = np.rint(np.random.default_rng(seed).normal(0, deviation, count)).astype(np.int64)
    return residues(values, bits)


@pytest.mark.parametrize(
    ("low", "high", "value", "clipped"),
    [
        (-5, 10, 5, 5),
        (-5, 10, -15, 0),
        (-5, 10, 20, 5),
        (-5, 10, -5, -5),
        (-5, 10, 10, -5),
        (-20, -10, -25, -15),
        (20, 40, 50, 30),
    ],
)
def test_the_oracle_of_centring_is_tensorflow_federateds_modular_clip(low, high, value, clipped):
    assert modular_clip(value, low, high) == clipped


@pytest.mark.parametrize("bits", range(2, 33))
def test_centring_is_the_modular_clip_around_zero(bits):
    half = 2 ** (bits - 1)
    values = [0, 1, half - 1, half, half + 1, 2 * half - 1]
    expected = [modular_clip(v, -half, half) for v in values]
    assert list(centred(residues(values, bits))) == expected


@pytest.mark.parametrize("bits", [6, 12, 16, 24, 32])
@pytest.mark.parametrize("k", [1.5, 3, 6])
def test_the_deviation_is_found_through_the_wrapping(bits, k):
    """Within 6 standard errors: a false alarm in 5e8, and the standard error is a few per cent."""
    true = 2 ** (bits - 1) / k
    found = wrap_estimate(normal(true, bits, 1 << 14))
    # Rounding to integers adds a variance of 1/12.
    assert abs(found.deviation - math.hypot(true, math.sqrt(1 / 12))) <= 6 * found.standard_error
    assert found.standard_error <= 0.05 * true


def test_the_standard_error_is_the_spread_of_the_estimates():
    """The spread of 400 estimates is known to 3.5 %: 6 deviations, a false alarm in 5e8."""
    found = [wrap_estimate(normal(90.0, 9, 1024, seed)) for seed in range(400)]
    spread = np.std([estimate.deviation for estimate in found])
    assert spread == pytest.approx(np.mean([e.standard_error for e in found]), rel=0.21)


def test_a_modulus_that_was_too_small_raises():
    estimate = wrap_estimate(normal(100.0, 8, 1 << 14))
    estimate.require(1.2)
    with pytest.raises(WrapError, match="more bits"):
        estimate.require(2)


def test_residues_like_uniform_ones_raise():
    values = np.random.default_rng(1).integers(0, 256, 1 << 14)
    estimate = wrap_estimate(residues(values, 8))
    assert estimate.deviation == math.inf
    assert estimate.probability == 1
    with pytest.raises(WrapError):
        estimate.require(0.5)


def test_a_constant_sum_has_no_deviation():
    estimate = wrap_estimate(residues([0] * 100, 8))
    assert estimate == WrapEstimate(8, 0.0, 0.0)
    assert estimate.probability == 0
    with pytest.raises(DomainError, match="k must be positive"):
        estimate.require(math.nan)


@pytest.mark.parametrize("bits", [9, 12])
def test_a_real_total_shows_the_deviation_of_signal_noise_and_rounding(bits):
    """Six standard errors: a false alarm in 5e8. At 9 bits k is 2.3, and one in 50 wraps."""
    codec = codec_of(
        bits=bits, dimension=1 << 14, padded_dim=1 << 14, noise=SkellamShares(1e4, 20), scale=300.0
    )
    x = np.random.default_rng(3).normal(size=1 << 14)
    source = SeededEntropy(bytes(32), "wrap")
    total = codec.add(codec.encode(x, entropy=source) for _ in range(20))
    found = codec.wrap(total)
    signal = (20 * 300) ** 2 / (1 << 14)
    low, high = (math.sqrt(signal + 1e4 + rounding) for rounding in (0, 20 / 4))
    assert low - 6 * found.standard_error <= found.deviation <= high + 6 * found.standard_error
    found.require(2.0)
    if bits == 9:
        with pytest.raises(WrapError):
            found.require(3.0)
