"""Masks: AES-256-CTR key streams added to residues, uniform over the full range of the modulus.

The key stream is read as little-endian numbers of the residues' own width, and the sum is cut to
``bits`` at the end: the low bits of a uniform number are uniform.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from skellam.errors import KindError
from skellam.vectors import residue_dtype

_CHUNK = 1 << 17
"""Bytes a chunk: accumulator, key stream and zeros stay in the second-level cache together."""
_STREAMS = 256
"""Ciphers alive at a time."""
_PARALLEL = 1 << 22
"""Bytes of key stream above which a second thread earns more than it costs."""
_SHORT = 1 << 14
"""Bytes of a vector below which threads wait for each other more than they work."""
_ZEROS = memoryview(bytes(_CHUNK))


def add_masks(
    values: NDArray[Any],
    *,
    bits: int,
    added: Sequence[bytes],
    subtracted: Sequence[bytes] = (),
    workers: int | None = None,
) -> None:
    """Add and subtract, in place and modulo ``2**bits``, the masks that 32-byte seeds expand to.

    Much work is shared among ``workers`` threads, by default two, or one on a single core: each
    takes a part of a long vector, or some of the masks of one that is a single chunk.
    """
    if values.dtype != residue_dtype(bits):
        raise KindError(f"residues of {bits} bits are {residue_dtype(bits)}, got {values.dtype}")
    seeds = [(seed, np.add) for seed in added] + [(seed, np.subtract) for seed in subtracted]
    threads = workers or min(os.cpu_count() or 1, 2)
    if threads == 1 or values.nbytes < _SHORT or values.nbytes * len(seeds) < _PARALLEL:
        _add_part(values, 0, bits, seeds)
        return
    parts = _parts(values, threads)
    with ThreadPoolExecutor(threads) as pool:
        if len(parts) > 1:
            list(pool.map(lambda part: _add_part(values[part], part.start, bits, seeds), parts))
            return
        sums = np.zeros((threads, len(values)), dtype=values.dtype)
        list(pool.map(lambda n: _add_part(sums[n], 0, bits, seeds[n::threads]), range(threads)))
    for each in sums:
        values += each
    _cut(values, bits)


def _parts(values: NDArray[Any], count: int) -> list[slice]:
    """Return at most ``count`` parts, cut at chunks: each begins at a block of the cipher."""
    step = _CHUNK // values.itemsize
    each = -(-len(values) // (count * step)) * step or step
    return [slice(at, at + each) for at in range(0, len(values), each)]


def _add_part(
    values: NDArray[Any], start: int, bits: int, seeds: Sequence[tuple[bytes, np.ufunc]]
) -> None:
    for first in range(0, len(seeds), _STREAMS):
        group = seeds[first : first + _STREAMS]
        block = start * values.itemsize // 16
        _add_group(values, [(_stream(seed, block), add) for seed, add in group])
    _cut(values, bits)


def _cut(values: NDArray[Any], bits: int) -> None:
    if bits != 8 * values.itemsize:
        values &= values.dtype.type((1 << bits) - 1)


def _add_group(values: NDArray[Any], streams: Sequence[tuple[CipherContext, np.ufunc]]) -> None:
    buffer = np.empty(min(_CHUNK, values.nbytes), dtype=np.uint8)
    stride = _CHUNK // values.itemsize
    little = values.dtype.newbyteorder("<")
    for at in range(0, len(values), stride):
        chunk = values[at : at + stride]
        octets = buffer[: chunk.nbytes]
        mask = octets.view(little)
        for stream, add in streams:
            stream.update_into(_ZEROS[: len(octets)], octets.data)
            add(chunk, mask, out=chunk)


def _stream(seed: bytes, block: int) -> CipherContext:
    return Cipher(AES(seed), _counter(block)).encryptor()


@lru_cache(maxsize=64)
def _counter(block: int) -> CTR:
    return CTR(block.to_bytes(16, "big"))
