"""Contributions of one user to a query: bounded first, since the user is the unit of privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam._kernels import round_stochastic
from skellam.entropy import Entropy
from skellam.errors import DomainError, KindError, ShapeError

Rows: TypeAlias = Sequence[Any] | NDArray[Any]
"""What one user holds."""


class Outside(StrEnum):
    """What happens to a value outside its range."""

    CLIP = "clip"
    """It moves to the nearest end, and is counted on the device."""
    REFUSE = "refuse"
    """It raises."""


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """A user's whole numbers, and what was cut to get them; the vector alone leaves the device."""

    vector: NDArray[np.int32]
    clipped: int = 0
    """Values that were moved to an end of their range."""
    left_out: int = 0
    """Rows that were too many for one user."""


class Numbers(NamedTuple):
    """A user's numbers within their range, and how many were moved there."""

    values: NDArray[np.float64]
    clipped: int


def numbers(rows: Rows, low: float, high: float, outside: Outside) -> Numbers:
    """Return ``rows`` as numbers from ``low`` to ``high``; NaN is refused."""
    values = np.asarray(rows)
    if values.size == 0:
        values = np.empty(0)
    if values.dtype.kind not in "iufb":
        raise KindError(f"rows must be numbers, got {values.dtype}")
    if values.ndim != 1:
        raise ShapeError(f"rows must have one dimension, got shape {values.shape}")
    values = values.astype(np.float64)
    if np.isnan(values).any():
        raise DomainError(f"rows must not be NaN, but row {int(np.isnan(values).argmax())} is")
    beyond = (values < low) | (values > high)
    if outside is Outside.REFUSE and beyond.any():
        raise DomainError(
            f"rows must lie in [{low:g}, {high:g}], got {values[beyond][0]:g}; "
            'or let outside="clip" move them there'
        )
    return Numbers(np.clip(values, low, high), int(beyond.sum()))


def share(count: int, limit: int, *, entropy: Entropy) -> NDArray[np.intp]:
    """Return ``limit`` of the indices below ``count``, at random, or all if there are no more."""
    if count <= limit:
        return np.arange(count)
    keys = np.empty(count, dtype=np.uint64)
    entropy.fill(keys)
    return np.argpartition(keys, limit)[:limit]


def tally(
    buckets: NDArray[np.intp],
    length: int,
    *,
    max_buckets: int,
    max_rows: int,
    entropy: Entropy,
) -> tuple[NDArray[np.int32], int]:
    """Count rows by bucket, in at most ``max_buckets`` with at most ``max_rows`` each.

    Where a user has more buckets, a random choice of them counts. Also return how many rows do not.
    """
    kinds, counts = np.unique(buckets, return_counts=True)
    chosen = share(len(kinds), max_buckets, entropy=entropy)
    vector = np.zeros(length, dtype=np.int32)
    vector[kinds[chosen]] = np.minimum(counts[chosen], max_rows)
    return vector, len(buckets) - int(np.minimum(counts[chosen], max_rows).sum())


def rounded(value: float, bound: int, *, entropy: Entropy) -> int:
    """Return ``value`` rounded at random to an integer of the same mean, within ``bound``.

    Integer bounds stay bounds: a number of at most ``bound`` has no neighbour beyond it, so the
    coins cost nothing in the accounting.
    """
    coins, out = np.empty(1, dtype=np.uint32), np.empty(1, dtype=np.int32)
    entropy.fill(coins)
    round_stochastic(np.array([min(max(value, -bound), bound)]), coins, out)
    return int(out[0])
