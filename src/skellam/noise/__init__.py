"""Noise samplers; the integer laws are drawn within a proven distance of the ideal ones."""

from __future__ import annotations

from skellam.noise.continuous import GaussianSampler, LaplaceSampler
from skellam.noise.integer import (
    ATOM_ERROR,
    DRAW_DISTANCE,
    DiscreteGaussianSampler,
    DiscreteLaplaceSampler,
    IntegerSampler,
    SkellamSampler,
)

__all__ = [
    "ATOM_ERROR",
    "DRAW_DISTANCE",
    "DiscreteGaussianSampler",
    "DiscreteLaplaceSampler",
    "GaussianSampler",
    "IntegerSampler",
    "LaplaceSampler",
    "SkellamSampler",
]


def __dir__() -> list[str]:
    return sorted(__all__)
