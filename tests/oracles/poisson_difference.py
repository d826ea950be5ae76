"""The sampler of the paper: the difference of two Poisson draws, from an insecure generator."""

import numpy as np


def draw(variance: float, size: int, seed: int) -> np.ndarray:
    """Return ``size`` Skellam draws; each Poisson has half the variance as its mean."""
    generator = np.random.default_rng(seed)
    return generator.poisson(variance / 2, size) - generator.poisson(variance / 2, size)
