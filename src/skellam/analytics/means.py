"""Means over all rows: a sum and a count in one release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Unpack

import numpy as np

from skellam import _checks
from skellam.analytics.contribution import Contribution, Outside, Rows, numbers, rounded, share
from skellam.analytics.estimates import Interval
from skellam.analytics.query import Bounds, PlanOptions, Query, Totals, planned
from skellam.analytics.totals import finest, interval
from skellam.entropy import Entropy


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean from two noisy sums: of the rows' distances from the middle, and of the rows.

    Both are scaled so that the mean is ``middle + half * offset / weight``.
    """

    low: float
    high: float
    offset: float
    weight: float
    variance: float
    """Of the noise in each of both."""
    rounding: float
    """The largest variance that rounding adds to ``offset``."""

    @property
    def value(self) -> float:
        """The mean; the middle of the range where noise hides that there are rows at all."""
        ratio = self.offset / self.weight if self.weight > 0 else 0.0
        return self._at(ratio)

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return an interval that covers the mean with this probability (Fieller 1954).

        At the true ratio r the difference ``offset - r weight`` has mean 0 and a known variance;
        the interval holds every r for which it is no further from 0 than a normal variable would
        be. The noise has a deviation of thousands of steps, so it is normal to six digits. Where
        the count may be 0, that is the whole range.
        """
        miss = 1 - _checks.open_unit("confidence", confidence)
        square = NormalDist().inv_cdf(1 - miss / 2) ** 2
        a = self.weight**2 - square * self.variance
        b = self.offset * self.weight
        c = self.offset**2 - square * (self.variance + self.rounding)
        if not (a > 0 and self.weight > 0):
            return Interval(self.low, self.high)
        root = math.sqrt(max(0.0, b * b - a * c))
        return Interval(self._at((b - root) / a), self._at((b + root) / a))

    def _at(self, ratio: float) -> float:
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return middle + half * min(max(ratio, -1.0), 1.0)


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of rows in [``low``, ``high``], of which each user has at most ``max_rows``.

    A user's rows are at most ``steps`` away from the middle, and weigh as much: neither of the two
    sums is known better than the other.
    """

    low: float
    high: float
    max_rows: int
    steps: int
    outside: Outside

    @property
    def bounds(self) -> Bounds:
        """Two numbers of at most ``steps``, reached together by the rows at an end."""
        return Bounds(2, self.steps, 2 * self.steps, self.steps * math.sqrt(2))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return how far the user's rows are from the middle in all, and how many there are."""
        values, clipped = numbers(rows, self.low, self.high, self.outside)
        chosen = values[share(len(values), self.max_rows, entropy=entropy)]
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        each = self.steps // self.max_rows
        offset = math.fsum((chosen - middle) / half) * each
        vector = [rounded(offset, self.steps, entropy=entropy), each * len(chosen)]
        return Contribution(np.array(vector, dtype=np.int32), clipped, len(values) - len(chosen))

    def answer(self, totals: Totals) -> MeanEstimate:
        """Return the mean of all rows that counted."""
        offset, weight = totals.values.tolist()
        return MeanEstimate(
            self.low, self.high, offset, weight, totals.variance, totals.clients / 4
        )


def mean(
    low: float,
    high: float,
    *,
    max_rows: int = 1,
    outside: Outside | str = Outside.CLIP,
    **options: Unpack[PlanOptions],
) -> Query[MeanEstimate]:
    """Ask for the mean of all rows in [``low``, ``high``], at most ``max_rows`` of each user.

    Where every user holds exactly one row, `sum` and ``Estimate.per`` have half the error.
    """
    lowest, highest = interval(low, high)
    rows = _checks.integer("max_rows", max_rows, 1)
    steps = max(1, finest(options) // rows) * rows
    return planned(Mean(lowest, highest, rows, steps, Outside(outside)), **options)
