"""From floats to integers: norms in float64, shrinking, and stochastic rounding in chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skellam import _kernels
from skellam.codec.rotation import CHUNK
from skellam.entropy import Entropy
from skellam.errors import DomainError

MOST_TRIES: Final = 128
"""Every try of conditional rounding succeeds with probability at least ``1 - beta``."""


def peak_of(x: NDArray[np.floating[Any]]) -> float:
    """Return the largest magnitude in ``x``; not a number if one is none."""
    return max(float(x.max()), -float(x.min()))


def finite_peak(x: NDArray[np.floating[Any]]) -> float:
    """Return the largest magnitude in ``x``, or raise if an entry is not finite."""
    peak = peak_of(x)
    if not math.isfinite(peak):
        where = int(np.flatnonzero(~np.isfinite(x))[0])
        raise DomainError(
            f"x must be finite, but x[{where}] is {x[where]}; "
            "a client that must not drop out calls encode_or_zeros"
        )
    return peak


def upper_norm(y: NDArray[np.floating[Any]]) -> float:
    """Return an upper bound on the L2 norm of the very floats in ``y``.

    Tight to ``2**-30`` for float64 and ``2**-15`` for float32, but for an absolute ``2**-40``.
    """
    with np.errstate(over="ignore"):
        square = _kernels.square_norm(y)
    if y.dtype == np.float64:
        return math.sqrt(square) * (1 + 2.0**-30)
    if math.isinf(square):
        return upper_norm(y.astype(np.float64))
    return math.sqrt(square * (1 + 2.0**-15) + len(y) * 2.0**-124)


def shrink(
    y: NDArray[np.float32], norm: float, radius: float, largest: float | None = None
) -> Iterator[NDArray[np.float32]]:
    """Yield the chunks of ``y``, scaled in place to a norm of ``radius`` and cut to ``largest``.

    ``norm`` is the `upper_norm` of ``y``; what has a smaller one than ``radius`` is not scaled.
    """
    factor, bound = _shrinkage(norm, radius, largest)
    for part in _chunks(y):
        _kernels.shrink(part, factor, bound)
        yield part


def round_unbiased(
    y: NDArray[np.float32],
    norm: float,
    radius: float,
    largest: float | None = None,
    *,
    entropy: Entropy,
) -> Iterator[NDArray[np.signedinteger[Any]]]:
    """Yield, in chunks of one reused buffer, ``y`` shrunk and rounded to integers of that mean.

    Where ``largest`` is small, 16 random bits a coordinate are almost always enough.
    """
    if largest is not None and largest <= _kernels.LARGEST_MOSTLY:
        return _round_short(y, *_shrinkage(norm, radius, largest), entropy=entropy)
    return _round_long(shrink(y, norm, radius, largest), entropy=entropy)


def round_conditional(
    y: NDArray[np.float32], most_square: float, *, entropy: Entropy
) -> Iterator[NDArray[np.signedinteger[Any]]]:
    """Yield, chunk by chunk, ``y`` rounded to integers of squared norm at most ``most_square``.

    After `MOST_TRIES` failures it is zeros: dropping the client would leak that it failed.
    """
    whole = np.empty(len(y), dtype=np.int32)
    if not any(_round(y, whole, entropy) <= most_square for _ in range(MOST_TRIES)):
        whole[:] = 0
    for start in range(0, len(y), CHUNK):
        yield whole[start : start + CHUNK]


def _chunks(y: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    return (y[start : start + CHUNK] for start in range(0, len(y), CHUNK))


def _shrinkage(norm: float, radius: float, largest: float | None) -> tuple[np.float32, np.float32]:
    """Return what to multiply by, and the bound to cut to.

    The factor and each product round up by at most 2**-24 of themselves (denormal products by
    2**-150, far below ``radius``), which the last factor outweighs.
    """
    factor = np.float32(radius / norm * (1 - 2.0**-22) if norm > radius else 1)
    return factor, np.float32(np.inf) if largest is None else _float32_below(largest)


def _float32_below(bound: float) -> np.float32:
    nearest = np.float32(bound)
    return nearest if float(nearest) <= bound else np.nextafter(nearest, np.float32(0))


def _round_short(
    y: NDArray[np.float32], factor: np.float32, bound: np.float32, *, entropy: Entropy
) -> Iterator[NDArray[np.int16]]:
    coins = np.empty(CHUNK, dtype=np.uint16)
    whole = np.empty(CHUNK, dtype=np.int16)
    for part in _chunks(y):
        drawn, rounded = coins[: len(part)], whole[: len(part)]
        entropy.fill(drawn)
        at = _kernels.round_mostly(part, factor, bound, drawn, rounded)
        if at.size:
            left = part[at]
            _kernels.shrink(left, factor, bound)
            rounded[at] = _decide(left, drawn[at], entropy)
        yield rounded


def _decide(y: NDArray[np.float32], coins: NDArray[np.uint16], entropy: Entropy) -> NDArray[Any]:
    """Return ``y`` rounded with 48 random bits, of which ``coins`` are the first."""
    more = np.empty(len(y), dtype=np.uint32)
    entropy.fill(more)
    fixed = (y.astype(np.float64) * 2.0**48).astype(np.int64)
    fixed += (coins.astype(np.int64) << 32) + more
    return fixed >> 48


def _round_long(
    chunks: Iterator[NDArray[np.float32]], *, entropy: Entropy
) -> Iterator[NDArray[np.int32]]:
    coins = np.empty(CHUNK, dtype=np.uint32)
    whole = np.empty(CHUNK, dtype=np.int32)
    for part in chunks:
        entropy.fill(coins[: len(part)])
        _kernels.round_stochastic(part, coins[: len(part)], whole[: len(part)])
        yield whole[: len(part)]


def _round(y: NDArray[np.float32], whole: NDArray[np.int32], entropy: Entropy) -> int:
    coins = np.empty(min(CHUNK, len(y)), dtype=np.uint32)
    for start in range(0, len(y), CHUNK):
        part = y[start : start + CHUNK]
        entropy.fill(coins[: len(part)])
        _kernels.round_stochastic(part, coins[: len(part)], whole[start : start + CHUNK])
    return _kernels.sum_of_squares(whole)
