"""Noise from the one source of randomness; the integer laws within a proven distance of ideal."""

from __future__ import annotations

from skellam.noise.continuous import Gaussian, Laplace
from skellam.noise.integer import (
    ATOM_ERROR,
    DRAW_DISTANCE,
    DiscreteGaussian,
    DiscreteLaplace,
    IntegerNoise,
    Skellam,
)

__all__ = [
    "ATOM_ERROR",
    "DRAW_DISTANCE",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "IntegerNoise",
    "Laplace",
    "Skellam",
]
