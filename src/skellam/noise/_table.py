"""The cumulative distribution of an integer law to 128 bits, laid out for lazy inversion.

With U uniform on ``0 .. 2**128 - 1`` the draw is ``X = -M + #{j : C[j] <= U}`` for the ``2M`` steps
``C[j] = floor(2**128 P(X <= j - M))`` of the left half and their mirror images ``2**128 - C[j]``.
So X is symmetric to the last bit. The first bits of U mostly decide: ``cells`` holds X for each
prefix of U, or a mark where a step lies within the cell.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam.noise._weights import Weights

_FULL = 1 << 128
_WIDE = 3000
"""Laws that reach further than this (variance 5e4 and more) are worth a 20-bit prefix."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What drawing from a law takes; ``high`` and ``low`` are the halves of its 128-bit steps."""

    bound: int
    prefix_bits: int
    cells: NDArray[Any]
    first: NDArray[np.int32]
    """How many steps lie below each cell."""
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    mass: NDArray[np.float64]
    total_variation: float
    atom_error: float

    @property
    def nbytes(self) -> int:
        """The memory that the arrays take."""
        return sum(
            array.nbytes for array in (self.cells, self.first, self.high, self.low, self.mass)
        )


def build(weights: Weights) -> Table:
    """Return the table of a law.

    A floored step is off by less than 2**-128, so each of the 2M outer probabilities is off by less
    than that, the central one by twice it, and what lies beyond M by less than that a side: all in
    all (M + 2) 2**-128 in total variation, and at most 2**-127 at any integer.
    """
    total = 2 * sum(weights.values) - weights.values[0]
    steps = _left_steps(weights.values[:0:-1], total)
    bound = len(steps)
    high, low = _halves(steps)
    prefix_bits = 20 if bound > _WIDE else 16
    cells, first = _cells(high, prefix_bits, bound)
    distance = weights.total_variation + Fraction(bound + 2, _FULL)
    return Table(
        bound=bound,
        prefix_bits=prefix_bits,
        cells=cells,
        first=first,
        high=high,
        low=low,
        mass=np.fromiter((w / total for w in weights.values), np.float64, bound + 1),
        total_variation=math.nextafter(float(distance), 1),
        atom_error=math.nextafter(float(weights.total_variation + Fraction(2, _FULL)), 1),
    )


def _left_steps(rising: list[int], total: int) -> list[int]:
    """Return floor(2**128 P(X <= -k)) for k = M, ..., 1, without those that are zero."""
    steps = [(tail << 128) // total for tail in accumulate(rising)]
    return steps[bisect_left(steps, 1) :]


def _halves(steps: list[int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    high = np.fromiter((step >> 64 for step in steps), np.uint64, len(steps))
    low = np.fromiter((step & 0xFFFF_FFFF_FFFF_FFFF for step in steps), np.uint64, len(steps))
    # 2**128 - C in two's complement: the carry reaches the high half only when the low one is 0.
    mirrored_low = (~low + np.uint64(1))[::-1]
    mirrored_high = (~high + (low == 0).astype(np.uint64))[::-1]
    return np.concatenate((high, mirrored_high)), np.concatenate((low, mirrored_low))


def _cells(
    high: NDArray[np.uint64], prefix_bits: int, bound: int
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    dtype = np.int16 if bound < 1 << 15 else np.int32
    crossed = (high >> np.uint64(64 - prefix_bits)).astype(np.int64)
    below = np.searchsorted(crossed, np.arange(1 << prefix_bits))
    cells = (below - bound).astype(dtype)
    cells[crossed] = np.iinfo(dtype).min
    return cells, below.astype(np.int32)
