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
_INDICES = 1 << 14
_ONE = 2.0**32


def hadamard(x: NDArray[np.float32]) -> None:
    """Replace ``x`` by its Walsh-Hadamard transform, one radix-16 level after another.

    The transform of length 16 h is that of length 16 across blocks of length h (Sylvester), and a
    product with a matrix of signs is what BLAS does best. The products are kept below the size at
    which OpenBLAS starts threads (2**18 multiplications): those stall beside other work.
    """
    h = min(len(x), _CACHED)
    scratch = np.empty(h, dtype=np.float32)
    for block in x.reshape(-1, h):
        _transform(block, scratch)
    while h < len(x):
        radix = min(_RADIX, len(x) // h)
        for rows in x.reshape(-1, radix, h):
            _transform_across(rows, scratch)
        h *= radix


def look_up(cells: NDArray[Any], words: NDArray[Any], out: NDArray[Any]) -> NDArray[np.int64]:
    """Set ``out`` to the cells of the words' first bits; return where the mark was met."""
    shift = 8 * words.itemsize - (len(cells).bit_length() - 1)
    index = np.empty(min(_INDICES, len(words)), dtype=np.intp)
    for start in range(0, len(words), _INDICES):
        block = slice(start, start + _INDICES)
        part = index[: len(words[block])]
        part[:] = words[block]
        if shift:
            part >>= shift
        # mode="clip" writes straight into out; the default mode would buffer. No index is clipped.
        np.take(cells, part, out=out[block], mode="clip")
    return np.flatnonzero(out == np.iinfo(out.dtype).min)


def round_stochastic(y: NDArray[Any], coins: NDArray[np.uint32], out: NDArray[np.int32]) -> int:
    """Round ``y`` into ``out`` and return the sum of squares."""
    squares_fit = max(y.max(initial=0), -y.min(initial=0)) < 2**23
    total = 0
    for start in range(0, len(y), _BLOCK):
        block = slice(start, start + _BLOCK)
        fixed = (y[block] * np.float64(_ONE)).astype(np.int64)
        fixed += coins[block]
        fixed >>= 32
        out[block] = fixed
        total += _sum_of_squares(fixed, squares_fit)
    return total


def add_wrap(out: NDArray[Any], addend: NDArray[Any], bits: int) -> None:
    """Add ``addend`` to ``out`` modulo ``2**bits``."""
    mask = out.dtype.type((1 << bits) - 1)
    for start in range(0, len(out), _BLOCK):
        part = out[start : start + _BLOCK]
        part += addend[start : start + _BLOCK].astype(out.dtype)
        if bits < 8 * out.itemsize:
            part &= mask


def _sum_of_squares(values: NDArray[np.int64], fits: bool) -> int:
    """Return the exact sum; ``fits`` says that 2**15 squares of at most 2**46 fit 63 bits."""
    if fits:
        return int(np.einsum("i,i->", values, values))
    squares = values * values
    return (int((squares >> 32).sum()) << 32) + int((squares & 0xFFFFFFFF).sum())


def _transform(x: NDArray[np.float32], scratch: NDArray[np.float32]) -> None:
    """Transform what fits the cache, to and fro between ``x`` and ``scratch``."""
    source, target = x, scratch
    h = 1
    while h < len(x):
        radix = min(_RADIX, len(x) // h)
        if h == 1:
            shape = (-1, min(_COLUMNS, len(x) // radix), radix)
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
