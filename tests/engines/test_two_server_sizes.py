"""With the noise off two servers open, bit for bit, what the engine without masks sums."""

import numpy as np
import pytest

from engines.test_two_servers import plan, replay
from skellam.engines.local import Round, unmasked
from skellam.engines.two_servers import two_servers


@pytest.mark.parametrize(
    ("clients", "dimension", "bits"),
    [
        *((3, 1, bits) for bits in range(4, 33)),
        (100, 1 << 14, 12),
        pytest.param(1000, 64, 16, marks=pytest.mark.slow),
        *(pytest.param(10, 1 << 20, bits, marks=pytest.mark.slow) for bits in (4, 18, 32)),
    ],
)
def test_sums_are_those_of_the_engine_without_masks(clients, dimension, bits):
    made = plan(0.0, noise="none", bits=bits, cohort=clients, dimension=dimension)
    round_ = Round(number=0, model=bytes(32), members=tuple(range(clients)))

    def update(number):
        return np.random.default_rng(number).normal(size=dimension) / dimension**0.5

    summed = [run(made, round_, update, entropy=replay) for run in (unmasked, two_servers)]
    assert np.array_equal(*(result.total.values for result in summed))
    assert len(summed[1].survivors) == clients
