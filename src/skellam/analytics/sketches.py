"""Frequencies of strings that nobody listed before: a count sketch (Charikar, Chen, Farach 2002).

In each of ``depth`` rows an item adds a sign, 1 or -1, to one of ``width`` cells, both chosen by a
public hash. A row's estimate of an item is its cell times its sign: other items in the same cell
have signs of their own, so whatever they add is as likely above as below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import shake_256
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.analytics.contribution import Contribution, Rows, share
from skellam.analytics.estimates import Interval, Table
from skellam.analytics.query import Bounds, PlanOptions, Query, Totals, planned
from skellam.entropy import SEED_BYTES, Entropy
from skellam.errors import DomainError, KindError


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
