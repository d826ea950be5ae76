"""The loops in NumPy: the default back end, and the reference for the other."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RADIX = 16
_COLUMNS = 1024
_CACHED = 1 << 16
_BLOCK = 1 << 15
_SUMMED = 1 << 13
"""Below the length from which OpenBLAS starts threads for one product."""
_ONE = 2.0**32
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")


def hadamard(x: NDArray[np.float32]) -> None:
    """Transform the rows of ``x`` after Walsh and Hadamard, one radix-16 level after another.

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
        radix = min(_RADIX, length // h)
        for rows in flat.reshape(-1, radix, h):
            _transform_across(rows, scratch)
        h *= radix


def flip(
    x: NDArray[Any], bits: NDArray[np.uint8], gain: np.floating[Any], out: NDArray[np.float32]
) -> None:
    """Set ``out`` to ``gain`` times ``x``, negated where its bit is set."""
    factors = np.where(_BITS, -gain, gain)
    for start in range(0, len(x), _BLOCK):
        block = slice(start, start + _BLOCK)
        octets = bits[start // 8 : (start + _BLOCK) // 8]
        flat = factors.take(octets, axis=0, mode="clip").reshape(-1)[: len(x[block])]
        np.multiply(x[block], flat, out=out[block], casting="same_kind")


def square_norm(y: NDArray[Any]) -> float:
    """Return the sum of squares in float64."""
    total = 0.0
    for start in range(0, len(y), _BLOCK):
        part = y[start : start + _BLOCK].astype(np.float64)
        rows = part[: len(part) & -_SUMMED].reshape(-1, _SUMMED)
        rest = part[rows.size :]
        total = sum(np.vecdot(rows, rows).tolist(), total) + float(rest @ rest)
    return total


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
        # mode="clip" writes straight into out; the default mode would buffer. No index is clipped.
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


def sum_of_squares(whole: NDArray[np.int32]) -> int:
    """Return the exact sum of squares: 2**15 halves of 32 bits fit 63."""
    total = 0
    for start in range(0, len(whole), _BLOCK):
        squares = np.square(whole[start : start + _BLOCK], dtype=np.int64)
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
        radix = min(_RADIX, length // h)
        if h == 1:
            shape = (-1, min(_COLUMNS, length // radix), radix)
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


@cache
def _signs(radix: int) -> NDArray[np.float32]:
    signs = np.ones((1, 1), dtype=np.float32)
    while len(signs) < radix:
        signs = np.block([[signs, signs], [signs, -signs]])
    return signs
