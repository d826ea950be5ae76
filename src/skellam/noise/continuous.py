"""Continuous noise for baselines, and only for them: it is not safe in floating point.

The floats that such noise can reach, and so those that a noisy value can, depend on the value
itself (Mironov 2012, "On significance of the least significant bits for differential privacy").
A guarantee that rests on this module (``noise="gaussian"``) says that it assumes real numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.entropy import Entropy
from skellam.vectors import Reals


@dataclass(frozen=True, slots=True)
class _Continuous(ABC):
    """A law on the reals, symmetric about zero, drawn as float64."""

    floating_point_safe: ClassVar[bool] = False

    def draw(self, size: int, *, entropy: Entropy) -> Reals:
        """Return ``size`` independent draws; not safe in floating point."""
        values = self._values(_checks.integer("size", size, 0), entropy)
        return Reals(values, replayable=entropy.replayable)

    @abstractmethod
    def _values(self, size: int, entropy: Entropy) -> NDArray[np.float64]: ...


@final
@dataclass(frozen=True, slots=True)
class GaussianSampler(_Continuous):
    """The normal law of standard deviation ``sigma`` (Box and Muller 1958)."""

    sigma: float

    def __post_init__(self) -> None:
        _checks.positive("sigma", self.sigma)

    @property
    def variance(self) -> float:
        """The variance of the ideal law."""
        return self.sigma**2

    def _values(self, size: int, entropy: Entropy) -> NDArray[np.float64]:
        half = (size + 1) // 2
        radius = self.sigma * np.sqrt(-2 * np.log(_uniform(half, entropy)))
        angle = 2 * math.pi * _uniform(half, entropy)
        return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:size]


@final
@dataclass(frozen=True, slots=True)
class LaplaceSampler(_Continuous):
    """The law with density ``exp(-|x| / scale) / (2 scale)``."""

    scale: float

    def __post_init__(self) -> None:
        _checks.positive("scale", self.scale)

    @property
    def variance(self) -> float:
        """The variance of the ideal law."""
        return 2 * self.scale**2

    def _values(self, size: int, entropy: Entropy) -> NDArray[np.float64]:
        difference = np.log(_uniform(size, entropy)) - np.log(_uniform(size, entropy))
        return self.scale * difference


def _uniform(size: int, entropy: Entropy) -> NDArray[np.float64]:
    """Return multiples of 2**-53 in (0, 1], each as likely."""
    bits = np.empty(size, dtype=np.uint64)
    entropy.fill(bits)
    return ((bits >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53
