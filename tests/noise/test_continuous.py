import math

import numpy as np
import pytest

from skellam.entropy import SeededEntropy, SystemEntropy
from skellam.errors import DomainError
from skellam.noise import GaussianSampler, LaplaceSampler


@pytest.mark.parametrize("law", [GaussianSampler, LaplaceSampler])
@pytest.mark.parametrize("value", [math.nan, math.inf, 0, -1])
def test_a_parameter_out_of_range_is_refused(law, value):
    with pytest.raises(DomainError, match="positive and finite"):
        law(value)


@pytest.mark.parametrize("law", [GaussianSampler(2), LaplaceSampler(3)], ids=str)
def test_continuous_noise_says_that_it_is_not_safe(law):
    assert not law.floating_point_safe


@pytest.mark.parametrize("law", [GaussianSampler(2), LaplaceSampler(3)], ids=str)
@pytest.mark.parametrize("size", [0, 1, 2, 1001])
def test_draws_are_finite_and_replay_with_their_entropy(law, size):
    first, again = (law.draw(size, entropy=SeededEntropy(bytes(32), "a")) for _ in range(2))
    assert len(first) == size
    assert first.replayable
    assert np.isfinite(first.values).all()
    np.testing.assert_array_equal(first.values, again.values)
    assert not law.draw(size, entropy=SystemEntropy()).replayable


class Zeros:
    replayable = True

    def fill(self, buffer):
        buffer[:] = 0


@pytest.mark.parametrize("law", [GaussianSampler(2), LaplaceSampler(3)], ids=str)
def test_the_most_extreme_bits_give_finite_draws(law):
    assert np.isfinite(law.draw(4, entropy=Zeros()).values).all()
