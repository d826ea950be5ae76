"""Integer noise by inversion of a 128-bit table: Skellam, discrete Gaussian, discrete Laplace.

Drawing is exact to 128 bits: ``total_variation`` bounds the distance of what is drawn from the
ideal law, with the table's start, truncation and rounding, and is at most ``2**-100``. For Skellam
every single probability is within ``2**-126`` of its law's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skellam import _checks
from skellam.entropy import Entropy
from skellam.errors import CertificateError, DomainError, KindError
from skellam.noise import _cache, _inversion, _weights
from skellam.noise._table import Table
from skellam.noise._weights import Weights
from skellam.vectors import Lattice

DRAW_DISTANCE: Final = 2.0**-100
"""Total variation of one draw from its law, at most, whatever the law."""
ATOM_ERROR: Final = 2.0**-126
"""Error of the probability of any integer in one draw of Skellam noise, at most."""


@dataclass(frozen=True, slots=True)
class _Tabulated(ABC):
    """A law on the integers, symmetric about zero, and how to draw from it."""

    _table: Table = field(init=False, repr=False, compare=False)
    _largest_atom_error: ClassVar[float] = 1.0

    @abstractmethod
    def _parameter(self) -> tuple[str, float, float, float]:
        """Return the parameter's name and value, and the smallest and largest that work."""

    @abstractmethod
    def _weights(self) -> Weights:
        """Return the law as whole numbers."""

    def __post_init__(self) -> None:
        name, given, low, high = self._parameter()
        value = _checks.between(name, given, low, high)
        object.__setattr__(self, name, value)
        table = _cache.table((type(self), value), self._weights)
        if not (
            table.total_variation <= DRAW_DISTANCE and table.atom_error <= self._largest_atom_error
        ):
            raise CertificateError(
                f"the table for {name} = {value!r} is not close enough to its law"
            )
        object.__setattr__(self, "_table", table)

    def __reduce__(self) -> tuple[type[Self], tuple[float]]:
        return type(self), (self._parameter()[1],)

    @property
    def total_variation(self) -> float:
        """An upper bound on the total variation between one draw and the ideal law."""
        return self._table.total_variation

    @property
    def bound(self) -> int:
        """The largest absolute value that is ever drawn."""
        return self._table.bound

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the draws: the narrowest of int16 and int32 that holds ``bound``."""
        return self._table.cells.dtype

    def pmf(self, k: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each ``k``; zero beyond ``bound``, where nothing is drawn."""
        mass = np.append(self._table.mass, 0.0)
        distance = np.abs(_whole(k, self.bound + 1))
        return mass[distance]

    def log_pmf(self, k: ArrayLike) -> NDArray[np.float64]:
        """Return the natural logarithm of ``pmf``."""
        with np.errstate(divide="ignore"):
            return np.log(self.pmf(k))

    def draw(self, size: int, *, entropy: Entropy) -> Lattice:
        """Return ``size`` independent draws."""
        values = np.empty(_checks.integer("size", size, 0), dtype=self.dtype)
        _inversion.draw_into(values, self._table, entropy=entropy)
        return Lattice(values, replayable=entropy.replayable)

    def draw_into(self, buffer: NDArray[Any], *, entropy: Entropy) -> None:
        """Overwrite ``buffer``, of a signed type that holds ``bound``, with independent draws."""
        if not isinstance(buffer, np.ndarray) or buffer.dtype.kind != "i" or buffer.ndim != 1:
            raise KindError("buffer must be a one-dimensional NumPy array of signed integers")
        if np.iinfo(buffer.dtype).max < self.bound:
            raise DomainError(
                f"buffer of {buffer.dtype} cannot hold draws up to {self.bound}; use {self.dtype}"
            )
        if not buffer.flags.writeable:
            raise DomainError("buffer must be writeable; pass a fresh array")
        _inversion.draw_into(buffer, self._table, entropy=entropy)


@final
@dataclass(frozen=True, slots=True)
class Skellam(_Tabulated):
    """The difference of two Poisson draws of mean ``variance / 2``; shares of it add up to it."""

    variance: float
    _largest_atom_error: ClassVar[float] = ATOM_ERROR

    def _parameter(self) -> tuple[str, float, float, float]:
        return "variance", self.variance, 1e-6, 1e9

    def _weights(self) -> Weights:
        return _weights.skellam(self.variance)


@final
@dataclass(frozen=True, slots=True)
class DiscreteGaussian(_Tabulated):
    """Probability proportional to ``exp(-k^2 / (2 sigma^2))`` (Canonne, Kamath, Steinke 2020)."""

    sigma: float

    def _parameter(self) -> tuple[str, float, float, float]:
        return "sigma", self.sigma, 1e-3, 31_623

    def _weights(self) -> Weights:
        return _weights.discrete_gaussian(self.sigma)

    @property
    def variance(self) -> float:
        """The variance of the law, at most ``sigma**2``."""
        k = np.arange(1.0, self.bound + 1)
        return float(2 * np.sum(k * k * self._table.mass[1:]))


@final
@dataclass(frozen=True, slots=True)
class DiscreteLaplace(_Tabulated):
    """Probability proportional to ``exp(-|k| / scale)``."""

    scale: float

    def _parameter(self) -> tuple[str, float, float, float]:
        return "scale", self.scale, 0.01, 22_361

    def _weights(self) -> Weights:
        return _weights.discrete_laplace(self.scale)

    @property
    def variance(self) -> float:
        """The variance of the law, ``1 / (2 sinh(1 / (2 scale))^2)``."""
        return 0.5 / math.sinh(0.5 / self.scale) ** 2


IntegerNoise: TypeAlias = Skellam | DiscreteGaussian | DiscreteLaplace


def _whole(k: ArrayLike, limit: int) -> NDArray[np.int64]:
    """Return ``k`` cut off at ``limit`` on both sides."""
    values = np.asarray(k)
    if values.dtype.kind not in "iu":
        raise KindError(f"k must be whole numbers, got {values.dtype}")
    below: NDArray[np.int64] = np.minimum(values, limit).astype(np.int64)
    return np.maximum(below, -limit)
