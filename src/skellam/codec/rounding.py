"""From floats to integers: norms in float64, shrinking, and stochastic rounding in chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skellam._kernels import round_stochastic
from skellam.codec.rotation import CHUNK
from skellam.entropy import Entropy
from skellam.errors import DomainError

MOST_TRIES: Final = 128
"""Every try of conditional rounding succeeds with probability at least ``1 - beta``."""


def finite_peak(x: NDArray[np.floating[Any]]) -> float:
    """Return the largest magnitude in ``x``, or raise if an entry is not finite."""
    peak = max(float(x.max()), -float(x.min()))
    if not math.isfinite(peak):
        where = int(np.flatnonzero(~np.isfinite(x))[0])
        raise DomainError(
            f"x must be finite, but x[{where}] is {x[where]}; "
            "a client that must not drop out calls encode_or_zeros"
        )
    return peak


def upper_norm(y: NDArray[np.floating[Any]]) -> float:
    """Return an upper bound, tight to ``2**-30``, on the L2 norm of the very floats in ``y``.

    Adding 2**16 squares in float64 errs by at most 2**-36 of the sum in any order, adding the
    chunks' sums (at most 2**20 of them) by 2**-32, and each is halved by the root.
    """
    scratch = np.empty(min(CHUNK, len(y)), dtype=np.float64)
    total = 0.0
    for start in range(0, len(y), CHUNK):
        part = scratch[: min(CHUNK, len(y) - start)]
        np.copyto(part, y[start : start + CHUNK])
        total += float(np.einsum("i,i->", part, part))
    return math.sqrt(total) * (1 + 2.0**-30)


def shrink(y: NDArray[np.float32], radius: float) -> None:
    """Scale ``y`` in place so that its L2 norm, as a vector of float32, is at most ``radius``.

    The factor and each product round up by at most 2**-24 of themselves (denormal products by
    2**-150, far below ``radius``), which the last factor outweighs.
    """
    norm = upper_norm(y)
    if norm > radius:
        y *= np.float32(radius / norm * (1 - 2.0**-22))


def cut(y: NDArray[np.float32], largest: float) -> None:
    """Cut every coordinate of ``y`` in place to a magnitude of at most ``largest``."""
    bound = np.float32(largest)
    if float(bound) > largest:
        bound = np.nextafter(bound, np.float32(0))
    np.clip(y, -bound, bound, out=y)


def round_unbiased(
    y: NDArray[np.float32], *, entropy: Entropy
) -> Iterator[NDArray[np.signedinteger[Any]]]:
    """Yield ``y`` rounded to integers of the same mean, chunk by chunk, in one reused buffer."""
    coins = np.empty(min(CHUNK, len(y)), dtype=np.uint32)
    whole = np.empty(len(coins), dtype=np.int32)
    for start in range(0, len(y), CHUNK):
        part = y[start : start + CHUNK]
        entropy.fill(coins[: len(part)])
        round_stochastic(part, coins[: len(part)], whole[: len(part)])
        yield whole[: len(part)]


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


def _round(y: NDArray[np.float32], whole: NDArray[np.int32], entropy: Entropy) -> int:
    coins = np.empty(min(CHUNK, len(y)), dtype=np.uint32)
    square = 0
    for start in range(0, len(y), CHUNK):
        part = y[start : start + CHUNK]
        entropy.fill(coins[: len(part)])
        square += round_stochastic(part, coins[: len(part)], whole[start : start + CHUNK])
    return square
