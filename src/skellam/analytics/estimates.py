"""Results with the law of their noise, from which intervals follow."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.laws import skellam_law
from skellam.errors import DomainError

Label = TypeVar("Label")
Table = NDArray[np.float64]


class Interval(NamedTuple):
    """Two numbers that have the truth between them, with a stated probability."""

    low: float
    high: float


class Band(NamedTuple):
    """An interval for each of several numbers."""

    low: Table
    high: Table


@lru_cache(maxsize=256)
def half_width(variance: float, confidence: float) -> int:
    """Return the least h with P(abs(X) <= h) >= ``confidence`` for Skellam X of ``variance``."""
    miss = 1 - _checks.open_unit("confidence", confidence)
    if variance == 0:
        return 0
    survival = skellam_law(variance).log_survival
    # P(abs(X) > h) = 2 P(X >= h + 1).
    return int(np.searchsorted(-survival, -math.log(miss / 2))) - 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with noise: ``unit`` times Skellam noise of ``variance``."""

    value: float
    variance: float
    """Of the noise and, at most, of rounding, in units of ``unit``."""
    unit: float = 1.0
    lowest: float = -math.inf
    """The truth is known not to lie below."""

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise."""
        return self.unit * math.sqrt(self.variance)

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return the interval that covers the truth with probability ``confidence`` or more.

        Rounding, where there is any, counts as Skellam noise of its largest variance.
        """
        half = self.unit * half_width(self.variance, confidence)
        ends = (max(self.lowest, self.value + side) for side in (-half, half))
        return Interval(*ends)

    def per(self, count: int) -> Self:
        """Return the estimate over a ``count`` that is public, such as the surviving clients."""
        n = _checks.integer("count", count, 1)
        return replace(self, value=self.value / n, unit=self.unit / n, lowest=self.lowest / n)

    def non_negative(self) -> Self:
        """Return the estimate of a number that cannot be negative; no longer without bias."""
        return replace(self, value=max(0.0, self.value), lowest=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Counts(Generic[Label]):
    """A count for every bucket, each with Skellam noise of ``variance`` of its own."""

    labels: tuple[Label, ...]
    values: Table
    variance: float
    lowest: float = -math.inf

    @property
    def deviation(self) -> float:
        """The standard deviation of each count's noise."""
        return math.sqrt(self.variance)

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Band:
        """Return an interval for every count.

        Each covers its count with probability ``confidence``; with ``simultaneous`` all do at once
        (Bonferroni).
        """
        miss = 1 - _checks.open_unit("confidence", confidence)
        half = half_width(self.variance, 1 - miss / (len(self.labels) if simultaneous else 1))
        low, high = (np.maximum(self.lowest, self.values + side) for side in (-half, half))
        return Band(low, high)

    def non_negative(self) -> Self:
        """Return the counts with negative ones set to zero; no longer without bias."""
        return replace(self, values=np.maximum(0.0, self.values), lowest=0.0)

    def __getitem__(self, label: Label) -> Estimate:
        if label not in self.labels:
            raise DomainError(f"there is no bucket {label!r}")
        value = float(self.values[self.labels.index(label)])
        return Estimate(value, self.variance, lowest=self.lowest)

    def top(self, count: int) -> tuple[Label, ...]:
        """Return the labels of the ``count`` largest buckets, largest first."""
        order = np.argsort(-self.values, kind="stable")[: _checks.integer("count", count, 1)]
        return tuple(self.labels[i] for i in order)
