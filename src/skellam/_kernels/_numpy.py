"""The loops in NumPy: the default back end, and the reference for the other."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RADICES = {1: 32, 512: 8}
"""By the length that is transformed already; 16 for all others. Measured, not derived."""
_COLUMNS, _ROWS = 1024, 128
_CACHED = 1 << 16
_BLOCK = 1 << 16
"""Longer calls would leave the cache, and shorter ones hand the interpreter's lock around."""
_SUMMED = 1 << 8
"""Floats whose squares are summed in their own type: in float32 that errs by at most 2**-16."""
_ONE = 2.0**32
_HIGH = -(1 << 16)
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")


def hadamard(x: NDArray[np.float32]) -> None:
    """Transform the rows of ``x`` after Walsh and Hadamard, some bits of the index at a time.

    The transform of length 16 h is that of length 16 across blocks of length h (Sylvester), and a
    product with a matrix of signs is what BLAS does best. The products are kept below the size at
    which OpenBLAS starts threads (2**18 multiplications): those stall beside other work.
    """
    length, flat = x.shape[-1], x.reshape(-1)
    h = min(length, _CACHED)
    scratch = np.empty(min(len(flat), _CACHED), dtype=np.float32)
    for start in range(0, len(flat), _CACHED):
        block = flat[start : start + _CACHED]
        _transform(block, h, scratch[: len(block)])
    while h < length:
        radix = min(16, length // h)
        for rows in flat.reshape(-1, radix, h):
            _transform_across(rows, scratch)
        h *= radix


def flip(
    x: NDArray[Any], bits: NDArray[np.uint8], gain: np.floating[Any], out: NDArray[np.float32]
) -> None:
    """Set ``out`` to ``gain`` times ``x``, negated where its bit is set."""
    factors = np.empty((min(_BLOCK, len(x) + 7) // 8, 8), dtype=x.dtype)
    for start in range(0, len(x), _BLOCK):
        part, octets = x[start : start + _BLOCK], bits[start // 8 : (start + _BLOCK) // 8]
        octets = octets[: -(-len(part) // 8)]
        # mode="clip" writes straight into out; the default mode would buffer. No index is clipped.
        np.take(_factors(gain), octets, axis=0, out=factors[: len(octets)], mode="clip")
        signed = factors.reshape(-1)[: len(part)]
        np.multiply(part, signed, out=out[start : start + _BLOCK], casting="same_kind")


def square_norm(y: NDArray[Any]) -> float:
    """Return the sum of squares: of few floats in their own type, of those sums in float64."""
    rows = y[: len(y) & -_SUMMED].reshape(-1, _SUMMED)
    rest = y[rows.size :]
    return float(np.vecdot(rows, rows).sum(dtype=np.float64)) + float(rest @ rest)


def square_norms(y: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the sum of squares of each row."""
    rows = y[:, : y.shape[1] & -_SUMMED]
    rest = y[:, rows.shape[1] :]
    rows = rows.reshape(len(y), -1, _SUMMED)
    totals: NDArray[np.float64] = np.vecdot(rows, rows).astype(np.float64).sum(axis=1)
    totals += np.vecdot(rest, rest)
    return totals


def shrink(y: NDArray[np.float32], factor: np.float32, bound: np.float32) -> None:
    """Multiply ``y`` by ``factor`` and cut it to ``-bound .. bound``."""
    y *= factor
    np.clip(y, -bound, bound, out=y)


def look_up(cells: NDArray[Any], words: NDArray[Any], out: NDArray[Any]) -> NDArray[np.int64]:
    """Set ``out`` to the cells of the words' first bits; return where the mark was met."""
    shift = 8 * words.itemsize - (len(cells).bit_length() - 1)
    index = np.empty(min(_BLOCK, len(words)), dtype=np.intp)
    for start in range(0, len(words), _BLOCK):
        block = slice(start, start + _BLOCK)
        part = index[: len(words[block])]
        part[:] = words[block]
        if shift:
            part >>= shift
        np.take(cells, part, out=out[block], mode="clip")
    return np.flatnonzero(out == np.iinfo(out.dtype).min)


def round_stochastic(y: NDArray[Any], coins: NDArray[np.uint32], out: NDArray[np.int32]) -> None:
    """Round ``y`` into ``out``."""
    for start in range(0, len(y), _BLOCK):
        block = slice(start, start + _BLOCK)
        fixed = (y[block] * _ONE).astype(np.int64)
        fixed += coins[block]
        fixed >>= 32
        out[block] = fixed


def round_mostly(
    y: NDArray[np.float32],
    scale: np.float32,
    limit: np.float32,
    coins: NDArray[np.uint16],
    out: NDArray[np.int16],
) -> NDArray[np.int64]:
    """Round ``y`` times ``scale / 2**16`` into ``out``; return the places that stay undecided."""
    undecided = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(y), _BLOCK):
        block = slice(start, start + _BLOCK)
        scaled = y[block] * scale
        if not (scaled.max() <= limit and scaled.min() >= -limit):
            np.clip(scaled, -limit, limit, out=scaled)
        fixed = np.floor(scaled, out=scaled).astype(np.int32)
        fixed += coins[block]
        low = np.bitwise_or(fixed, _HIGH, out=scaled.view(np.int32))
        undecided.append(np.flatnonzero(low == -1) + start)
        fixed >>= 16
        np.copyto(out[block], fixed, casting="unsafe")
    return np.concatenate(undecided)


def sum_of_squares(values: NDArray[np.int32]) -> int:
    """Return the exact sum of squares: 2**16 halves of 32 bits fit 63."""
    total = 0
    for start in range(0, len(values), _BLOCK):
        squares = np.square(values[start : start + _BLOCK], dtype=np.int64)
        total += (int((squares >> 32).sum()) << 32) + int((squares & 0xFFFFFFFF).sum())
    return total


def add_wrap(out: NDArray[Any], addend: NDArray[Any], bits: int) -> None:
    """Add ``addend`` to ``out`` modulo ``2**bits``."""
    mask = out.dtype.type((1 << bits) - 1)
    for start in range(0, len(out), _BLOCK):
        part = out[start : start + _BLOCK]
        part += addend[start : start + _BLOCK].astype(out.dtype)
        if bits < 8 * out.itemsize:
            part &= mask


def _transform(x: NDArray[np.float32], length: int, scratch: NDArray[np.float32]) -> None:
    """Transform runs of ``length`` that fit the cache, to and fro between ``x`` and ``scratch``."""
    source, target = x, scratch
    h = 1
    while h < length:
        radix = min(_RADICES.get(h, 16), length // h)
        if h == 1:
            shape = (-1, min(_ROWS, length // radix), radix)
            np.matmul(source.reshape(shape), _signs(radix), out=target.reshape(shape))
        else:
            columns = min(h, _COLUMNS)
            a, b = (y.reshape(-1, radix, h // columns, columns) for y in (source, target))
            np.matmul(_signs(radix), a.swapaxes(1, 2), out=b.swapaxes(1, 2))
        source, target = target, source
        h *= radix
    if source is not x:
        x[:] = source


def _transform_across(rows: NDArray[np.float32], scratch: NDArray[np.float32]) -> None:
    """Transform the columns of ``rows``, as many of them at a time as ``scratch`` holds."""
    radix = len(rows)
    tiles = rows.reshape(radix, -1, _COLUMNS).swapaxes(0, 1)
    held = scratch.reshape(-1, radix, _COLUMNS)
    for start in range(0, len(tiles), len(held)):
        part = tiles[start : start + len(held)]
        part[:] = np.matmul(_signs(radix), part, out=held[: len(part)])


@lru_cache(maxsize=8, typed=True)
def _factors(gain: np.floating[Any]) -> NDArray[Any]:
    """Return, for each octet, ``gain`` or its negative for each of its bits."""
    return np.where(_BITS, -gain, gain)


@cache
def _signs(radix: int) -> NDArray[np.float32]:
    signs = np.ones((1, 1), dtype=np.float32)
    while len(signs) < radix:
        signs = np.block([[signs, signs], [signs, -signs]])
    return signs
