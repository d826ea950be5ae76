"""Counts by bucket: histograms of numbers, frequencies over a known domain, and sketches.

A sketch counts strings that nobody listed before (count sketch: Charikar, Chen, Farach 2002). In
each of ``depth`` rows an item adds a sign, 1 or -1, to one of ``width`` cells, both chosen by a
public hash. A row's estimate of an item is its cell times its sign: other items in the same cell
have signs of their own, so whatever they add is as likely above as below.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import shake_256
from itertools import pairwise
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.analytics.query import (
    Bounds,
    Contribution,
    Counts,
    Interval,
    Outside,
    PlanOptions,
    Query,
    Rows,
    Table,
    Totals,
    numbers,
    planned,
    share,
    tally,
)
from skellam.entropy import SEED_BYTES, Entropy
from skellam.errors import DomainError, KindError


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


@dataclass(frozen=True, slots=True)
class SketchEstimate:
    """How many users hold an item, by every row of a sketch, in order."""

    rows: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median of the rows."""
        return float(np.median(self.rows))

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return two of the rows that have the truth between them with this probability or more.

        Each row errs upwards with probability at most 1/2, and downwards, independently of the
        others, whatever the noise and the other items are (but for users who hold two items of one
        cell). So the r-th least row exceeds the truth
        with probability at most P(Binomial(depth, 1/2) < r), and likewise the r-th largest.
        """
        miss = 1 - _checks.open_unit("confidence", confidence)
        n, chance, r = len(self.rows), 0.0, 0
        while 2 * (chance := chance + math.comb(n, r) / 2**n) <= miss:
            r += 1
        if r == 0:
            raise DomainError(
                f"{n} rows support a confidence of at most {1 - 2.0 ** (1 - n):g}; "
                "take a deeper sketch"
            )
        return Interval(self.rows[r - 1], self.rows[n - r])


@dataclass(frozen=True, slots=True, eq=False)
class SketchedCounts:
    """A released sketch: it can be asked about any item, at no further cost."""

    sketch: Sketch
    cells: Table

    def __getitem__(self, item: str) -> SketchEstimate:
        cells, signs = self.sketch.cells_of(item)
        return SketchEstimate(tuple(sorted((self.cells[cells] * signs).tolist())))

    def top(self, items: Iterable[str], count: int) -> tuple[str, ...]:
        """Return those ``count`` of ``items`` with the largest estimates, largest first."""
        ranked = sorted(set(items), key=lambda item: (-self[item].value, item))
        return tuple(ranked[: _checks.integer("count", count, 1)])


@dataclass(frozen=True, slots=True)
class Sketch:
    """Which strings users hold, hashed; ``max_items`` different ones of each user count."""

    width: int
    depth: int
    max_items: int
    public_seed: bytes

    @property
    def bounds(self) -> Bounds:
        """Every item changes a cell in every row, by no more than 1 with all of them together."""
        ones = self.depth * min(self.max_items, self.width)
        return Bounds(self.width * self.depth, 1, ones, math.sqrt(ones))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return a sketch of the user's items; two of them in one cell count as one."""
        items = sorted(set(map(_text, rows)))
        vector = np.zeros(self.width * self.depth, dtype=np.int32)
        chosen = share(len(items), self.max_items, entropy=entropy)
        for i in chosen.tolist():
            cells, signs = self.cells_of(items[i])
            vector[cells] += signs
        return Contribution(np.clip(vector, -1, 1), left_out=len(items) - len(chosen))

    def answer(self, totals: Totals) -> SketchedCounts:
        """Return the sketch of all users."""
        return SketchedCounts(self, totals.values)

    def cells_of(self, item: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the item's cell in every row, and its sign there."""
        octets = shake_256(self.public_seed + _text(item).encode()).digest(5 * self.depth)
        digits = np.frombuffer(octets, dtype=np.uint8).reshape(self.depth, 5)
        words = digits[:, :4].copy().view("<u4")[:, 0].astype(np.int64)
        cells = (words * self.width >> 32) + self.width * np.arange(self.depth)
        return cells, 1 - 2 * (digits[:, 4] & 1).astype(np.int32)


def hashed_frequencies(
    width: int,
    *,
    public_seed: bytes,
    depth: int = 9,
    max_items: int = 1,
    **options: Unpack[PlanOptions],
) -> Query[SketchedCounts]:
    """Ask which strings how many users hold, where no list of them is known.

    ``public_seed`` is drawn for this query, after the users' data is what it is. Of each user
    ``max_items`` different strings count.
    """
    sketch = Sketch(
        _checks.integer("width", width, 1, 1 << 26),
        _checks.integer("depth", depth, 1, 64),
        _checks.integer("max_items", max_items, 1),
        _checks.octets("public_seed", public_seed, SEED_BYTES),
    )
    return planned(sketch, **options)


def _text(item: object) -> str:
    if not isinstance(item, str):
        raise KindError(f"items must be strings, got {type(item).__name__}")
    return item
