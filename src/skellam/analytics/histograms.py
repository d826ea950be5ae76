"""Histograms of numbers, and frequencies over a known domain."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.analytics.contribution import Contribution, Outside, Rows, numbers, tally
from skellam.analytics.estimates import Counts, Interval
from skellam.analytics.query import Bounds, PlanOptions, Query, Totals, planned
from skellam.entropy import Entropy
from skellam.errors import DomainError


@dataclass(frozen=True, slots=True)
class Buckets:
    """How much of a user counts: ``max_buckets`` of them, with ``max_rows`` rows in each."""

    count: int
    max_buckets: int
    max_rows: int

    def __post_init__(self) -> None:
        max_buckets = _checks.integer("max_buckets", self.max_buckets, 1, self.count)
        _checks.assign(
            self, max_buckets=max_buckets, max_rows=_checks.integer("max_rows", self.max_rows, 1)
        )

    @property
    def bounds(self) -> Bounds:
        """The norms of ``max_buckets`` entries of ``max_rows`` each."""
        k, m = self.max_buckets, self.max_rows
        return Bounds(self.count, m, k * m, m * math.sqrt(k))

    def tally(self, indices: NDArray[np.intp], clipped: int, *, entropy: Entropy) -> Contribution:
        """Return the counts of a user's ``indices``, within the bounds."""
        vector, left_out = tally(
            indices,
            self.count,
            max_buckets=self.max_buckets,
            max_rows=self.max_rows,
            entropy=entropy,
        )
        return Contribution(vector, clipped, left_out)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Rows by the interval between ``edges`` that they lie in; the last one is closed."""

    edges: tuple[float, ...]
    buckets: Buckets
    outside: Outside
    _ends: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _checks.assign(self, _ends=np.array(self.edges))

    @property
    def bounds(self) -> Bounds:
        """What one user can add."""
        return self.buckets.bounds

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return the user's rows by bucket."""
        values, clipped = numbers(rows, self.edges[0], self.edges[-1], self.outside)
        return self.buckets.tally(bucket_of(values, self._ends), clipped, entropy=entropy)

    def answer(self, totals: Totals) -> Counts[Interval]:
        """Return the counts by bucket."""
        labels = tuple(Interval(*ends) for ends in pairwise(self.edges))
        return Counts(labels, totals.values, totals.variance)


@dataclass(frozen=True, slots=True)
class Frequencies:
    """Rows by which of the categories in ``domain`` they are."""

    domain: tuple[Hashable, ...]
    buckets: Buckets
    _index: Mapping[Hashable, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {category: i for i, category in enumerate(self.domain)}
        if len(index) < len(self.domain):
            raise DomainError("domain must not name a category twice")
        _checks.assign(self, _index=index)

    @property
    def bounds(self) -> Bounds:
        """What one user can add."""
        return self.buckets.bounds

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return the user's rows by category, or raise for an unknown one."""
        try:
            indices = np.array([self._index[row] for row in rows], dtype=np.intp)
        except KeyError as error:
            raise DomainError(
                f"unknown category {error.args[0]!r}; name it in the domain, or map it to another"
            ) from error
        return self.buckets.tally(indices, 0, entropy=entropy)

    def answer(self, totals: Totals) -> Counts[Hashable]:
        """Return the counts by category."""
        return Counts(self.domain, totals.values, totals.variance)


def histogram(
    edges: Sequence[float],
    *,
    max_buckets: int = 1,
    max_rows: int = 1,
    outside: Outside | str = Outside.CLIP,
    **options: Unpack[PlanOptions],
) -> Query[Counts[Interval]]:
    """Ask how many rows lie between each two ``edges``.

    Of each user ``max_buckets`` buckets count, with at most ``max_rows`` rows in each.
    """
    ends = increasing(edges)
    buckets = Buckets(len(ends) - 1, max_buckets, max_rows)
    return planned(Histogram(ends, buckets, Outside(outside)), **options)


def frequencies(
    domain: Iterable[Hashable],
    *,
    max_buckets: int = 1,
    max_rows: int = 1,
    **options: Unpack[PlanOptions],
) -> Query[Counts[Hashable]]:
    """Ask how often each category of ``domain`` occurs.

    Of each user ``max_buckets`` categories count, with at most ``max_rows`` rows in each.
    """
    known = tuple(domain)
    return planned(Frequencies(known, Buckets(len(known), max_buckets, max_rows)), **options)


def increasing(edges: Sequence[float]) -> tuple[float, ...]:
    """Return ``edges`` if they are finite and increase."""
    ends = tuple(_checks.number("edges", edge) for edge in edges)
    rising = all(low < high for low, high in pairwise(ends))
    if not (len(ends) > 1 and rising and -math.inf < ends[0] and ends[-1] < math.inf):
        raise DomainError("edges must be two or more finite numbers, each larger than the last")
    return ends


def bucket_of(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the bucket of each value from the first edge to the last."""
    found = np.searchsorted(edges, values, side="right") - 1
    return np.minimum(found, len(edges) - 2)
