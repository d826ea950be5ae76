"""The loops compiled by Numba (extra ``fast``); bit-identical to NumPy's where integers come out.

Importing this module imports Numba; the machine code is cached beside it, or in the user's cache
directory, or not at all where neither can be written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

_P = ParamSpec("_P")
_T = TypeVar("_T")
_ONE = np.float64(2.0**32)
_SHIFT, _HIGH = np.int32(16), np.int32(-(1 << 16))
_RUN = 1 << 11
_TILE = 4096
"""A tile and its scratch copy, 32 KiB together, stay in the first-level cache."""
_BLOCK = 1 << 18
"""A block of 1 MiB stays in the second-level cache, or nearly."""
_SUMMED = 1 << 13
"""Floats that are summed in any order, which lets the sum be SIMD."""


def _compiled(loop: Callable[_P, _T], fastmath: set[str] | bool = False) -> Callable[_P, _T]:
    try:
        compiled: Callable[_P, _T] = numba.njit(nogil=True, cache=True, fastmath=fastmath)(loop)
    except RuntimeError:  # no directory for the cache can be written
        compiled = numba.njit(nogil=True, fastmath=fastmath)(loop)
    return compiled


def hadamard(x: NDArray[np.float32]) -> None:
    """Replace the rows of ``x`` by their Walsh-Hadamard transforms."""
    length = x.shape[-1]
    block = min(length, _BLOCK)
    _hadamard(x.reshape(-1), length, block, np.empty(min(length, _TILE), dtype=np.float32))


def flip(
    x: NDArray[Any], bits: NDArray[np.uint8], gain: np.floating[Any], out: NDArray[np.float32]
) -> None:
    """Set ``out`` to ``gain`` times ``x``, negated where its bit is set."""
    _flip(x, bits, gain, out)


def square_norm(y: NDArray[Any]) -> float:
    """Return the sum of squares in float64."""
    return float(_square_norm(y))


def square_norms(y: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the sum of squares of each row in float64."""
    out = np.empty(len(y))
    _square_norms(y, out)
    return out


def shrink(y: NDArray[np.float32], factor: np.float32, bound: np.float32) -> None:
    """Multiply ``y`` by ``factor`` and cut it to ``-bound .. bound``."""
    _shrink(y, factor, bound)


def look_up(cells: NDArray[Any], words: NDArray[Any], out: NDArray[Any]) -> NDArray[np.int64]:
    """Set ``out`` to the cells of the words' first bits; return where the mark was met."""
    shift = 8 * words.itemsize - (len(cells).bit_length() - 1)
    undecided = np.empty(len(out), dtype=np.int64)
    count = _look_up(cells, words, words.dtype.type(shift), out, undecided)
    return undecided[:count]


def round_stochastic(y: NDArray[Any], coins: NDArray[np.uint32], out: NDArray[np.int32]) -> None:
    """Round ``y`` into ``out``."""
    _round(y, coins, out)


def sum_of_squares(values: NDArray[np.int32]) -> int:
    """Return the exact sum of squares."""
    high, low = _sum_of_squares(values)
    return (int(high) << 32) + int(low)


def add_wrap(out: NDArray[Any], addend: NDArray[Any], bits: int) -> None:
    """Add ``addend`` to ``out`` modulo ``2**bits``."""
    _add_wrap(out, addend, out.dtype.type((1 << bits) - 1))


@_compiled
def _look_up(
    cells: NDArray[Any],
    words: NDArray[Any],
    shift: np.unsignedinteger[Any],
    out: NDArray[Any],
    undecided: NDArray[np.int64],
) -> int:
    mark = np.iinfo(cells.dtype).min
    count = 0
    for i in range(len(words)):
        cell = cells[words[i] >> shift]
        out[i] = cell
        if cell == mark:
            undecided[count] = i
            count += 1
    return count


@_compiled
def _flip(
    x: NDArray[Any], bits: NDArray[np.uint8], gain: np.floating[Any], out: NDArray[np.float32]
) -> None:
    """Octet by octet: a loop over single bits would not become SIMD."""
    for j in range(len(x) >> 3):
        octet = bits[j]
        for k in range(8):
            product = x[8 * j + k] * gain
            out[8 * j + k] = -product if octet >> k & 1 else product
    for i in range(len(x) & ~7, len(x)):
        product = x[i] * gain
        out[i] = -product if bits[i >> 3] >> (i & 7) & 1 else product


@_compiled
def _square_norm(y: NDArray[Any]) -> float:
    total = 0.0
    for start in range(0, len(y), _SUMMED):
        total += _sum_in_any_order(y[start : start + _SUMMED])
    return total


@_compiled
def _square_norms(y: NDArray[Any], out: NDArray[np.float64]) -> None:
    for i in range(len(y)):
        out[i] = _square_norm(y[i])


@partial(_compiled, fastmath={"reassoc"})
def _sum_in_any_order(y: NDArray[Any]) -> float:
    total = 0.0
    for i in range(len(y)):
        total += np.float64(y[i]) * np.float64(y[i])
    return total


@_compiled
def _shrink(y: NDArray[np.float32], factor: np.float32, bound: np.float32) -> None:
    for i in range(len(y)):
        y[i] = min(max(y[i] * factor, -bound), bound)


@_compiled
def _round(y: NDArray[Any], coins: NDArray[np.uint32], out: NDArray[np.int32]) -> None:
    for i in range(len(y)):
        out[i] = (np.int64(y[i] * _ONE) + np.int64(coins[i])) >> 32


@_compiled
def round_mostly(
    y: NDArray[np.float32],
    scale: np.float32,
    limit: np.float32,
    coins: NDArray[np.uint16],
    out: NDArray[np.int16],
) -> NDArray[np.int64]:
    """Round ``y`` times ``scale / 2**16`` into ``out``; return the places that stay undecided.

    Short loops one after another, each of which becomes SIMD; the search seldom runs.
    """
    fixed, undecided = np.empty(_RUN, dtype=np.int32), np.empty(len(y), dtype=np.int64)
    count = 0
    for start in range(0, len(y), _RUN):
        stop = start + _RUN
        part, drawn, rounded = y[start:stop], coins[start:stop], out[start:stop]
        for i in range(len(part)):
            fixed[i] = np.int32(np.floor(min(max(part[i] * scale, -limit), limit)))
        for i in range(len(part)):
            fixed[i] += drawn[i]
        met = False
        for i in range(len(part)):
            rounded[i] = fixed[i] >> _SHIFT
            met |= (fixed[i] | _HIGH) == -1
        if met:
            for i in range(len(part)):
                if (fixed[i] | _HIGH) == -1:
                    undecided[count] = start + i
                    count += 1
    return undecided[:count]


@_compiled
def _sum_of_squares(values: NDArray[np.int32]) -> tuple[np.uint64, np.uint64]:
    high, low = np.uint64(0), np.uint64(0)
    for i in range(len(values)):
        square = np.uint64(np.int64(values[i]) * np.int64(values[i]))
        high += square >> np.uint64(32)
        low += square & np.uint64(0xFFFFFFFF)
    return high, low


@_compiled
def _add_wrap(out: NDArray[Any], addend: NDArray[Any], mask: np.unsignedinteger[Any]) -> None:
    for i in range(len(out)):
        out[i] = (out[i] + addend[i]) & mask


@_compiled
def _hadamard(
    x: NDArray[np.float32], length: int, block: int, scratch: NDArray[np.float32]
) -> None:
    for start in range(0, len(x), block):
        _transform_tiles(x[start : start + block], len(scratch), scratch)
        _transform_across(x[start : start + block], len(scratch))
    for start in range(0, len(x), length):
        _transform_across(x[start : start + length], block)


@_compiled
def _transform_tiles(x: NDArray[np.float32], tile: int, scratch: NDArray[np.float32]) -> None:
    """Transform every tile by constant-geometry levels (Pease): each reads with unit stride.

    A level of radix 4 transforms the two highest bits of the index and makes them the lowest, so
    after all bits had their turn they are where they were. In place, the low bits defeat SIMD.
    """
    for start in range(0, len(x), tile):
        part = x[start : start + tile]
        source, target = part, scratch
        left, swapped = tile, False
        while left > 1:
            if left == 2:
                _level_2(source, target)
            else:
                _level_4(source, target)
            source, target, swapped = target, source, not swapped
            left >>= 2
        if swapped:
            for i in range(tile):
                part[i] = scratch[i]


@_compiled
def _level_4(source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
    q = len(source) >> 2
    for i in range(q):
        a, b, c, d = source[i], source[i + q], source[i + 2 * q], source[i + 3 * q]
        a, c = a + c, a - c
        b, d = b + d, b - d
        target[4 * i] = a + b
        target[4 * i + 1] = a - b
        target[4 * i + 2] = c + d
        target[4 * i + 3] = c - d


@_compiled
def _level_2(source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
    q = len(source) >> 1
    for i in range(q):
        a, b = source[i], source[i + q]
        target[2 * i] = a + b
        target[2 * i + 1] = a - b


@_compiled
def _transform_across(x: NDArray[np.float32], h: int) -> None:
    """Transform across blocks of length ``h``, in place, three bits of the index at a time."""
    while 8 * h <= len(x):
        for start in range(0, len(x), 8 * h):
            _across_8(x[start : start + 8 * h], h)
        h *= 8
    if 4 * h == len(x):
        _across_4(x, h)
    elif 2 * h == len(x):
        _across_2(x, h)


@_compiled
def _across_8(x: NDArray[np.float32], h: int) -> None:
    x0, x1, x2, x3 = x[:h], x[h : 2 * h], x[2 * h : 3 * h], x[3 * h : 4 * h]
    x4, x5, x6, x7 = x[4 * h : 5 * h], x[5 * h : 6 * h], x[6 * h : 7 * h], x[7 * h :]
    for j in range(h):
        a, b = x0[j] + x1[j], x0[j] - x1[j]
        c, d = x2[j] + x3[j], x2[j] - x3[j]
        e, f = x4[j] + x5[j], x4[j] - x5[j]
        g, k = x6[j] + x7[j], x6[j] - x7[j]
        a, c = a + c, a - c
        b, d = b + d, b - d
        e, g = e + g, e - g
        f, k = f + k, f - k
        x0[j], x4[j] = a + e, a - e
        x1[j], x5[j] = b + f, b - f
        x2[j], x6[j] = c + g, c - g
        x3[j], x7[j] = d + k, d - k


@_compiled
def _across_4(x: NDArray[np.float32], h: int) -> None:
    x0, x1, x2, x3 = x[:h], x[h : 2 * h], x[2 * h : 3 * h], x[3 * h :]
    for j in range(h):
        a, b = x0[j] + x1[j], x0[j] - x1[j]
        c, d = x2[j] + x3[j], x2[j] - x3[j]
        x0[j], x2[j] = a + c, a - c
        x1[j], x3[j] = b + d, b - d


@_compiled
def _across_2(x: NDArray[np.float32], h: int) -> None:
    x0, x1 = x[:h], x[h:]
    for j in range(h):
        x0[j], x1[j] = x0[j] + x1[j], x0[j] - x1[j]
