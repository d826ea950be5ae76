"""The public random rotation: signs, then an orthogonal transform whose entries are all small.

For a length of ``m 2**k`` (``m`` odd, at most `MOST_BLOCKS`) the transform is the Kronecker product
of the m-point Hartley matrix ``cas(2 pi i j / m)`` and the Hadamard matrix of order ``2**k``: both
are symmetric and, divided by the root of their order, orthogonal, so the transform is its own
inverse. Its entries are at most ``sqrt(2 / d)``, and ``sqrt(1 / d)`` for a power of two: every
coordinate spreads over all of them, which separate blocks would not do.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam._kernels import flip, hadamard
from skellam.entropy import SeededEntropy

MOST_BLOCKS: Final = 63
CHUNK: Final = 1 << 16
"""Coordinates handled at a time, so that the passes over them stay in the cache."""


def padded_length(dimension: int) -> int:
    """Return the least length of at least ``dimension`` that can be rotated, at most 1/32 more."""
    size = _checks.integer("dimension", dimension, 1)
    block = 1 << max(0, (size - 1).bit_length() - 6)
    return -(-size // block) * block


def block_of(length: int) -> int:
    """Return the largest power of two that divides ``length``."""
    return length & -length


class Rotation:
    """The rotation of a round: the same for whoever knows its public seed."""

    __slots__ = ("_root", "_signs", "length")

    def __init__(self, length: int, public_seed: bytes) -> None:
        self.length = length
        self._root = math.sqrt(block_of(length))
        self._signs = np.empty(-(-length // 8), dtype=np.uint8)
        SeededEntropy(public_seed, "codec/signs").fill(self._signs)

    def forward(self, x: NDArray[np.floating[Any]], gain: float) -> NDArray[np.float32]:
        """Return ``gain`` times the rotation of ``x`` padded with zeros."""
        return self.turned(self.flipped(x, gain))

    def flipped(self, x: NDArray[np.floating[Any]], gain: float) -> NDArray[np.float32]:
        """Return a new vector, of which `turned` makes ``gain`` times the rotation of ``x``."""
        out = np.empty(self.length, dtype=np.float32)
        out[len(x) :] = 0
        flip(x, self._signs, gain / self._root, out[: len(x)])
        return out

    def turned(self, flipped: NDArray[np.float32]) -> NDArray[np.float32]:
        """Overwrite a vector that is `flipped` with its rotation, and return it."""
        _transform(flipped)
        return flipped

    def backward(self, y: NDArray[np.float32], gain: float, dimension: int) -> NDArray[np.float32]:
        """Overwrite ``y`` and return ``gain`` times its first coordinates before the rotation."""
        _transform(y)
        x = y[:dimension]
        flip(x, self._signs, gain / self._root, x)
        return x


def coordinate_subset(length: int, kept: int, public_seed: bytes) -> NDArray[np.int64]:
    """Return ``kept`` of the indices below ``length``, in order, uniformly without replacement."""
    keys = np.empty(length, dtype="<u8")
    SeededEntropy(public_seed, "codec/subset").fill(keys)
    threshold = np.partition(keys, kept - 1)[kept - 1]
    # Equal keys (of probability below length**2 / 2**64) must not depend on how NumPy partitions.
    return np.flatnonzero(keys <= threshold)[:kept]


def _transform(y: NDArray[np.float32]) -> None:
    blocks = y.reshape(-1, block_of(len(y)))
    hadamard(blocks)
    if len(blocks) > 1:
        _mix(blocks)


def _mix(blocks: NDArray[np.float32]) -> None:
    count, length = blocks.shape
    # Products of fewer than 2**18 multiplications, for which OpenBLAS starts no threads.
    width = min(length, 1 << ((1 << 18) // count**2).bit_length() - 1)
    tiles = blocks.reshape(count, -1, width).swapaxes(0, 1)
    step = max(1, CHUNK // (count * width))
    for start in range(0, len(tiles), step):
        tiles[start : start + step] = _hartley(count) @ tiles[start : start + step]


@cache
def _hartley(order: int) -> NDArray[np.float32]:
    angle = 2 * np.pi / order * (np.outer(np.arange(order), np.arange(order)) % order)
    matrix: NDArray[np.float32] = ((np.cos(angle) + np.sin(angle)) / math.sqrt(order)).astype(
        np.float32
    )
    return matrix
