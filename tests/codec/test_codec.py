import math

import numpy as np
import pytest

from skellam import SeededEntropy
from skellam.codec import Codec, CodecSpec, Conditional, NoNoise, SkellamShares, Unbiased


def spec_of(**changes):
    settings = {
        "dimension": 1000,
        "clip": 1.0,
        "scale": 500.0,
        "bits": 16,
        "rounding": Unbiased(),
        "noise": NoNoise(),
        "padded": 1024,
    }
    return CodecSpec(**(settings | changes))


def entropy(name="test"):
    return SeededEntropy(bytes(32), name)


@pytest.mark.parametrize("rounding", [Unbiased(), Unbiased(200.0), Conditional(math.exp(-0.5))])
@pytest.mark.parametrize("padded", [1008, 1024, 4096])
def test_without_noise_the_sum_comes_back_within_its_rounding(rounding, padded):
    codec = Codec(spec_of(rounding=rounding, padded=padded), public_seed=bytes(32))
    rng = np.random.default_rng(1)
    xs = [rng.normal(size=1000) * size for size in (0.001, 0.01, 0.03, 10)]
    clipped = sum(x * min(1, 1 / np.linalg.norm(x)) for x in xs)
    source = entropy()
    total = codec.decode(codec.add(codec.encode(x, entropy=source) for x in xs))
    # Each of the four roundings moves a coordinate by less than one unit of 1/500.
    assert np.linalg.norm(total.values - clipped) <= 4 * math.sqrt(padded) / 500


def test_the_noise_has_the_variance_that_the_spec_states():
    """Chi-square with 2**14 degrees of freedom: 6 deviations, a false alarm in 10**9."""
    noise = SkellamShares(4000.0, 10)
    spec = spec_of(dimension=1 << 14, padded=1 << 14, noise=noise)
    codec = Codec(spec, public_seed=bytes(32))
    source = entropy()
    total = codec.add(codec.encode_zeros(entropy=source) for _ in range(10))
    square = np.mean(codec.decode(total).values.astype(float) ** 2) * 500**2 / 4000
    assert abs(square - 1) <= 6 * math.sqrt(2 / (1 << 14))
