"""Distribution functions and quantiles of numbers, from a tree of counts.

A running sum over n noisy buckets would carry the noise of all of them. With a level of counts for
groups of 4, 16, ... buckets beside the buckets themselves, it takes at most three counts a level; a
row then counts once a level, which the noise pays for. As many levels are kept as make the mean
variance least, which for few buckets is one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.analytics.histograms import bucket_of, increasing
from skellam.analytics.query import (
    Band,
    Bounds,
    Contribution,
    Estimate,
    Interval,
    Outside,
    PlanOptions,
    Query,
    Rows,
    Table,
    Totals,
    half_width,
    numbers,
    planned,
    share,
)
from skellam.entropy import Entropy
from skellam.errors import DomainError

FANOUT = 4


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile, between two edges that have it between them with a stated probability."""

    probability: float
    value: float
    interval: Interval


@dataclass(frozen=True, slots=True, eq=False)
class Cdf:
    """How many rows lie below each edge; ``terms`` counts were added up for it."""

    edges: Table
    values: Table
    terms: NDArray[np.int64]
    variance: float
    """Of the noise of one count."""

    @property
    def total(self) -> Estimate:
        """The number of all rows."""
        return Estimate(float(self.values[-1]), self.variance * int(self.terms[-1]))

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Band:
        """Return an interval for the number of rows below each edge.

        Each covers with probability ``confidence``; with ``simultaneous`` all do at once
        (Bonferroni). Sums of Skellam noise are Skellam noise, so the law is exact.
        """
        miss = 1 - _checks.open_unit("confidence", confidence)
        half = self._half_widths(miss / (len(self.edges) - 1 if simultaneous else 1))
        return Band(self.values - half, self.values + half)

    def monotone(self) -> Table:
        """Return the nearest counts that start at 0 and never fall; no longer without bias."""
        from scipy.optimize import isotonic_regression

        weights = 1 / np.maximum(self.terms, 1)
        weights[0] = 1e9  # nothing lies below the first edge
        fitted = isotonic_regression(self.values, weights=weights).x
        return np.maximum(0.0, fitted)

    def quantile(self, probability: float, confidence: float = 0.95) -> Quantile:
        """Return the least number that this share of the rows does not exceed.

        Let i be the first edge below which that share lies. But for the stated chance the counts
        below edges i and i - 1 and the number of rows are all within their intervals (Bonferroni:
        a quarter, a quarter and a half of it), and then so is i within the one that is returned.
        """
        share = _checks.open_unit("probability", probability)
        miss = 1 - _checks.open_unit("confidence", confidence)
        half = self._half_widths(miss / 2)
        rows, around = float(self.values[-1]), float(half[-1])
        reached = np.flatnonzero(self.values + half >= share * (rows - around))
        missed = np.flatnonzero(self.values - half < share * (rows + around))
        first = max(int(reached[0]) - 1, 0) if len(reached) else len(self.edges) - 2
        last = min(int(missed[-1]) + 1, len(self.edges) - 1) if len(missed) else 1
        ends = Interval(float(self.edges[first]), float(self.edges[last]))
        return Quantile(share, min(max(self._inverse(share), ends.low), ends.high), ends)

    def _inverse(self, share: float) -> float:
        below = self.monotone()
        i = int(np.searchsorted(below, share * below[-1]))
        i = min(max(i, 1), len(below) - 1)
        inside = below[i] - below[i - 1]
        part = (share * below[-1] - below[i - 1]) / inside if inside > 0 else 0.5
        return float(self.edges[i - 1] + part * (self.edges[i] - self.edges[i - 1]))

    def _half_widths(self, miss: float) -> Table:
        kinds, where = np.unique(self.terms, return_inverse=True)
        widths = [half_width(self.variance * k, 1 - miss) for k in kinds.tolist()]
        return np.array(widths, dtype=np.float64)[where]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Rows by bucket and by group of buckets."""

    edges: tuple[float, ...]
    max_rows: int
    outside: Outside
    _ends: Table = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _checks.assign(self, _ends=np.array(self.edges))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of counts on each level, the buckets first."""
        return _sizes(len(self.edges) - 1)

    @property
    def bounds(self) -> Bounds:
        """All rows may share a bucket, and then a group on every level."""
        rows, levels = self.max_rows, len(self.sizes)
        return Bounds(sum(self.sizes), rows, rows * levels, rows * math.sqrt(levels))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return a random choice of the user's rows on every level."""
        values, clipped = numbers(rows, self.edges[0], self.edges[-1], self.outside)
        chosen = values[share(len(values), self.max_rows, entropy=entropy)]
        buckets = bucket_of(chosen, self._ends)
        levels = [
            np.bincount(buckets // FANOUT**j, minlength=size) for j, size in enumerate(self.sizes)
        ]
        vector = np.concatenate(levels).astype(np.int32)
        return Contribution(vector, clipped, len(values) - len(chosen))

    def answer(self, totals: Totals) -> Cdf:
        """Return how many rows lie below each edge."""
        values, terms = _running(totals.values, self.sizes)
        return Cdf(self._ends, values, terms, totals.variance)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Some quantiles of a distribution."""

    distribution: Distribution
    probabilities: tuple[float, ...]

    @property
    def bounds(self) -> Bounds:
        """Those of the distribution."""
        return self.distribution.bounds

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return that of the distribution."""
        return self.distribution.contribution(rows, entropy=entropy)

    def answer(self, totals: Totals) -> tuple[Quantile, ...]:
        """Return the quantiles, each with its own 95 % interval."""
        cdf = self.distribution.answer(totals)
        return tuple(cdf.quantile(probability) for probability in self.probabilities)


def cdf(
    edges: Sequence[float],
    *,
    max_rows: int = 1,
    outside: Outside | str = Outside.CLIP,
    **options: Unpack[PlanOptions],
) -> Query[Cdf]:
    """Ask how many rows lie below each of ``edges``; of each user ``max_rows`` rows count."""
    rows = _checks.integer("max_rows", max_rows, 1)
    return planned(Distribution(increasing(edges), rows, Outside(outside)), **options)


def quantiles(
    probabilities: Sequence[float],
    edges: Sequence[float],
    *,
    max_rows: int = 1,
    outside: Outside | str = Outside.CLIP,
    **options: Unpack[PlanOptions],
) -> Query[tuple[Quantile, ...]]:
    """Ask for quantiles of rows from the first edge to the last, as fine as ``edges`` are."""
    wanted = tuple(_checks.open_unit("probabilities", p) for p in probabilities)
    if not wanted:
        raise DomainError("probabilities must hold at least one")
    rows = _checks.integer("max_rows", max_rows, 1)
    distribution = Distribution(increasing(edges), rows, Outside(outside))
    return planned(Quantiles(distribution, wanted), **options)


@lru_cache(maxsize=64)
def _sizes(buckets: int) -> tuple[int, ...]:
    """Return the levels with the least mean variance: the noise of one count grows with them."""
    levels: tuple[int, ...] = (buckets,)
    best, min_mean = levels, math.inf
    while True:
        mean = len(levels) * float(np.mean(_terms(levels)[1:]))
        if mean < min_mean:
            best, min_mean = levels, mean
        if levels[-1] == 1:
            return best
        levels = (*levels, -(-levels[-1] // FANOUT))


def _spans(sizes: tuple[int, ...]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return for each level from which count to which the buckets below every edge are covered."""
    edges = np.arange(sizes[0] + 1)
    spans = []
    for j in range(len(sizes)):
        stop = edges // FANOUT**j
        top = j == len(sizes) - 1
        spans.append((np.zeros_like(stop) if top else stop // FANOUT * FANOUT, stop))
    return spans


def _terms(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    total = np.zeros(sizes[0] + 1, dtype=np.int64)
    for start, stop in _spans(sizes):
        total += stop - start
    return total


def _running(counts: Table, sizes: tuple[int, ...]) -> tuple[Table, NDArray[np.int64]]:
    values = np.zeros(sizes[0] + 1)
    levels = np.split(counts, np.cumsum(sizes)[:-1])
    for level, (start, stop) in zip(levels, _spans(sizes), strict=True):
        sums = np.concatenate(([0.0], np.cumsum(level)))
        values += sums[stop] - sums[start]
    return values, _terms(sizes)
