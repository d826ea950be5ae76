"""Exact privacy profiles of small mechanisms, by summing over every outcome."""

import math
from functools import reduce

import numpy as np

from oracles import integer_laws


def skellam_masses(variance, reach):
    """P(X = k) for |k| <= reach, from high-precision Bessel functions."""
    half = [float(p) for p in integer_laws.skellam(variance, reach)]
    return np.array(half[:0:-1] + half)


def shifted(masses, by):
    """The law of X + by on the same window; ``by`` may be negative."""
    moved = np.zeros_like(masses)
    if by >= 0:
        moved[by:] = masses[: len(masses) - by]
    else:
        moved[:by] = masses[-by:]
    return moved


def product(laws):
    """The joint law of independent outcomes, flattened."""
    return reduce(np.multiply.outer, laws).ravel()


def profile(p, q, epsilon):
    """The larger delta of the two directions, without what the window cuts off."""
    factor = math.exp(epsilon)
    return max(
        float(np.sum(np.maximum(p - factor * q, 0))), float(np.sum(np.maximum(q - factor * p, 0)))
    )
