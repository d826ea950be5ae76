import math

import numpy as np
import pytest

from oracles.algorithm_1 import clipped
from skellam import Reals, SeededEntropy, SystemEntropy
from skellam.codec import GaussianBaseline
from skellam.errors import DomainError, ShapeError

BASELINE = GaussianBaseline(dimension=1 << 14, clip=2.0, deviation=0.5)


def test_the_sum_is_clipped_and_its_noise_has_the_stated_deviation():
    """Chi-square with 2**14 degrees of freedom: 6 deviations, a false alarm in 5e8."""
    xs = [np.random.default_rng(i).normal(size=1 << 14) * i / 100 for i in range(3)]
    total = BASELINE.add(BASELINE.encode(x) for x in xs)
    np.testing.assert_allclose(total.values, sum(clipped(x, 2.0) for x in xs), atol=1e-8)
    noisy = BASELINE.add_central_noise(total, entropy=SeededEntropy(bytes(32), "baseline"))
    square = np.mean((noisy.values - total.values) ** 2) / 0.25
    assert abs(square - 1) <= 6 * math.sqrt(2 / (1 << 14))
    assert noisy.replayable


@pytest.mark.parametrize("value", [1e300, 1e30, 2.0, math.nextafter(2, 3), 5e-324, 0.0])
def test_no_input_exceeds_the_clip(value):
    x = np.full(1 << 14, value)
    norm = math.sqrt(math.fsum(v * v for v in BASELINE.encode(x).values))
    assert norm <= BASELINE.sensitivity.l2 == 2.0


def test_bad_input_is_refused():
    with pytest.raises(ShapeError, match="numbers"):
        BASELINE.encode(np.zeros(3))
    with pytest.raises(ShapeError, match="length"):
        BASELINE.add([Reals(np.zeros(3))])
    with pytest.raises(DomainError, match="finite"):
        BASELINE.encode(np.full(1 << 14, math.nan))
    with pytest.raises(DomainError, match="deviation"):
        GaussianBaseline(dimension=4, clip=1.0, deviation=math.nan)


def test_no_deviation_adds_nothing():
    quiet = GaussianBaseline(dimension=2, clip=1.0, deviation=0.0)
    total = quiet.encode([0.5, 0.25])
    assert list(quiet.add_central_noise(total, entropy=SystemEntropy()).values) == [0.5, 0.25]
