import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from skellam.plan.signal_model import (
    SignalModel,
    cut_square,
    max_scale,
    predicted_error,
    rounding_variance,
    wrap_probability,
    wrap_square,
)


def model(**changes):
    return SignalModel(
        **{
            "padded_dim": 1 << 14,
            "sent_dim": 1 << 14,
            "cohort": 100,
            "clip": 2.0,
            "bits": 10,
            **changes,
        }
    )


@pytest.mark.parametrize("deviation", [1e-6, 1e-3, 0.03, 0.19, 0.2, 0.21, 0.5, 1.0, 7.3])
def test_the_rounding_variance_is_the_mean_of_f_times_one_minus_f(deviation):
    def integrand(x):
        f = x - math.floor(x)
        return f * (1 - f) * norm.pdf(x, scale=deviation)

    reach = 12 * deviation
    edges = [0.0, *(k for k in range(1, math.ceil(reach))), reach]
    truth = 2 * sum(quad(integrand, a, b)[0] for a, b in itertools.pairwise(edges))
    assert rounding_variance(deviation) == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("multiple", [0.0, 1.0, 3.0, 4.5, 6.0])
def test_the_cut_square_is_the_mean_square_beyond_the_cut(multiple):
    truth, _ = quad(lambda x: (x - multiple) ** 2 * norm.pdf(x), multiple, multiple + 10)
    assert cut_square(multiple) == pytest.approx(2 * truth, rel=1e-6)


def test_what_is_cut_is_missing_from_a_mean_of_equal_vectors():
    """2**14 squares, of which 44 on average are cut: 6 deviations are within a factor of 4."""
    ring = model(mean_norm=1.0)
    deviation = 1000.0 * ring.clip / math.sqrt(ring.sent_dim)
    y = np.random.default_rng(1).normal(0.0, deviation, ring.sent_dim)
    lost = np.square(y - np.clip(y, -3 * deviation, 3 * deviation)).mean() / 1000.0**2
    cut = predicted_error(ring, scale=1000.0, multiplier=1.0, coordinate_bound=3 * deviation).cut
    assert cut / 4 < lost < 4 * cut


@pytest.mark.parametrize("ratio", [2.0, 4.0, 8.0])
def test_the_wrap_square_is_the_mean_squared_jump(ratio):
    modulus, spread = 256, 256 / ratio
    jumps = (
        ((j * modulus) ** 2)
        * 2
        * (norm.cdf((j + 0.5) * modulus / spread) - norm.cdf((j - 0.5) * modulus / spread))
        for j in range(1, 50)
    )
    assert wrap_square(spread, modulus) == pytest.approx(sum(jumps), rel=1e-9)


@given(
    bits=st.integers(4, 24),
    cohort=st.integers(1, 10_000),
    multiplier=st.floats(0.05, 50),
    k=st.floats(2, 6),
)
def test_the_largest_scale_fills_the_modulus_with_so_many_deviations(bits, cohort, multiplier, k):
    ring = model(bits=bits, cohort=cohort)
    scale = max_scale(ring, multiplier, k)
    assert k * ring.spread(scale, multiplier) == pytest.approx(ring.modulus / 2, rel=1e-6)
    assert wrap_probability(ring, scale, multiplier) == pytest.approx(2 * norm.sf(k), rel=1e-4)


def test_the_error_of_a_compressed_mean_is_the_formula_of_the_sketch():
    ring = model(sent_dim=1 << 10, mean_norm=0.5)
    parts = predicted_error(ring, scale=1000.0, multiplier=1.0)
    assert parts.compression == pytest.approx((1 / 1024 - 1 / 16384) * 1.0)
    assert parts.noise == pytest.approx((2.0 / 100) ** 2)
    assert parts.total == parts.noise + parts.rounding + parts.wrap + parts.compression
    assert parts.cut == 0.0
