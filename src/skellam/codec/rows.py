"""Short vectors of several clients at once: what the codec does to one, in one call for all rows.

Each row has its own entropy, so the sum is that of messages encoded one by one, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, assert_never

import numpy as np
from numpy.typing import NDArray

from skellam import _kernels
from skellam.codec.arithmetic import (
    MAX_TRIES,
    Rotation,
    Sampler,
    decide,
    float32_cut,
    round_into,
    upper_norm,
)
from skellam.codec.spec import CodecSpec, Conditional, Integer, Unbiased, rounded_norm_square
from skellam.entropy import Entropy
from skellam.errors import ShapeError
from skellam.vectors import Tensors, residue_dtype

COORDINATES: Final = 1 << 17
"""Coordinates that are encoded at once: they and their noise stay in the cache."""


def exactly(count: int, xs: Iterable[Tensors | None]) -> Iterator[Tensors | None]:
    """Yield ``xs``, and raise `ShapeError` unless there are ``count``."""
    found = 0
    for found, x in enumerate(xs, start=1):
        if found <= count:
            yield x
    if found != count:
        raise ShapeError(f"xs must hold a vector for each of {count} entropies, got {found}")


def lattice_rows(
    spec: CodecSpec,
    read: NDArray[Any],
    rotation: Rotation,
    subset: NDArray[np.int64] | None,
    *,
    entropies: Sequence[Entropy],
) -> NDArray[np.signedinteger[Any]]:
    """Return the rows of ``read``, whose signs are flipped, rotated, clipped and rounded."""
    if isinstance(spec.rounding, Integer):
        return read
    y = rotation.turned(read)
    norms = _upper_norms(y)
    if subset is not None:
        y, radius = y[:, subset], spec.scale * spec.clip
        beyond = norms > radius
        y[beyond] *= (radius / norms[beyond]).astype(np.float32)[:, None]
        norms = _upper_norms(y)
    match spec.rounding:
        case Unbiased(bound):
            return _round_unbiased(y, norms, spec.radius, bound, entropies=entropies)
        case Conditional(beta):
            square = rounded_norm_square(spec.radius, spec.sent_dim, beta)
            return _round_conditional(y, norms, spec.radius, square, entropies=entropies)
        case _ as never:
            assert_never(never)


def draw_rows(
    sampler: Sampler, count: int, *, entropies: Sequence[Entropy]
) -> NDArray[np.signedinteger[Any]]:
    """Return a row of ``count`` draws, a span at most, from each entropy."""
    rows = np.empty((len(entropies), count), dtype=sampler.dtype)
    if _is_one(entropies):
        sampler.draw_into(rows.reshape(-1), entropy=entropies[0])
    else:
        for row, entropy in zip(rows, entropies, strict=True):
            sampler.draw_into(row, entropy=entropy)
    return rows


def sum_of_rows(
    rows: NDArray[np.signedinteger[Any]], bits: int
) -> NDArray[np.unsignedinteger[Any]]:
    """Return the sum of the rows modulo ``2**bits``."""
    dtype = residue_dtype(bits)
    total: NDArray[np.unsignedinteger[Any]] = np.add.reduce(rows.astype(dtype), axis=0, dtype=dtype)
    total &= dtype.type((1 << bits) - 1)
    return total


def _upper_norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the `upper_norm` of each row."""
    with np.errstate(over="ignore"):
        squares = _kernels.square_norms(rows)
    norms: NDArray[np.float64] = np.sqrt(squares * (1 + 2.0**-15) + rows.shape[1] * 2.0**-124)
    for at in np.flatnonzero(np.isinf(squares)):
        norms[at] = upper_norm(rows[at])
    return norms


def _round_unbiased(
    y: NDArray[np.float32],
    norms: NDArray[np.float64],
    radius: float,
    bound: float | None,
    *,
    entropies: Sequence[Entropy],
) -> NDArray[np.signedinteger[Any]]:
    """Return the rows of ``y``, short ones, as `round_unbiased` rounds each by its own entropy."""
    factors = _row_factors(norms, radius)
    if bound is None or bound > _kernels.MAX_MOSTLY:
        y *= factors[:, None]
        _kernels.shrink(y.reshape(-1), np.float32(1), float32_cut(bound))
        return _round_rows(y, entropies)
    coins, integers = np.empty(y.shape, dtype=np.uint16), np.empty(y.shape, dtype=np.int16)
    _fill_rows(coins, entropies)
    # `round_mostly` multiplies by 2**16: here the factors have done so, for each row its own.
    scaled = y * (factors * np.float32(2.0**16))[:, None]
    at = _kernels.round_mostly(
        scaled.reshape(-1),
        np.float32(2.0**-16),
        float32_cut(bound),
        coins.reshape(-1),
        integers.reshape(-1),
    )
    rows, columns = np.divmod(at, y.shape[1])
    for row in np.unique(rows).tolist():
        where = columns[rows == row]
        left = y[row, where]
        _kernels.shrink(left, factors[row], float32_cut(bound))
        integers[row, where] = decide(left, coins[row, where], entropies[row])
    return integers


def _round_conditional(
    y: NDArray[np.float32],
    norms: NDArray[np.float64],
    radius: float,
    max_square: float,
    *,
    entropies: Sequence[Entropy],
) -> NDArray[np.int32]:
    """Return the rows of ``y``, shrunk, as `round_conditional` rounds each by its own entropy."""
    y *= _row_factors(norms, radius)[:, None]
    integers = _round_rows(y, entropies)
    # In float64 a sum of squares errs by less than 2**-30 of itself: few are near enough to count.
    squares = np.square(integers, dtype=np.float64).sum(axis=1)
    for row in np.flatnonzero(squares * (1 + 2.0**-30) > max_square).tolist():
        rounded = integers[row]
        if _kernels.sum_of_squares(rounded) > max_square and not any(
            round_into(y[row], rounded, entropies[row]) <= max_square for _ in range(MAX_TRIES - 1)
        ):
            rounded[:] = 0
    return integers


def _round_rows(y: NDArray[np.float32], entropies: Sequence[Entropy]) -> NDArray[np.int32]:
    coins, integers = np.empty(y.shape, dtype=np.uint32), np.empty(y.shape, dtype=np.int32)
    _fill_rows(coins, entropies)
    _kernels.round_stochastic(y.reshape(-1), coins.reshape(-1), integers.reshape(-1))
    return integers


def _row_factors(norms: NDArray[np.float64], radius: float) -> NDArray[np.float32]:
    """Return what `_shrinkage` multiplies each row by."""
    factors = np.ones(len(norms), dtype=np.float32)
    beyond = norms > radius
    factors[beyond] = radius / norms[beyond] * (1 - 2.0**-22)
    return factors


def _fill_rows(rows: NDArray[Any], entropies: Sequence[Entropy]) -> None:
    """Overwrite each row with random bits of its own entropy."""
    if _is_one(entropies):
        entropies[0].fill(rows)
    else:
        for row, entropy in zip(rows, entropies, strict=True):
            entropy.fill(row)


def _is_one(entropies: Sequence[Entropy]) -> bool:
    return all(each is entropies[0] for each in entropies)
