"""Packing: residues as bytes, exactly ``bits`` bits a coordinate, the lowest bits first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skellam.codec.arithmetic import CHUNK
from skellam.errors import DomainError, ShapeError
from skellam.vectors import residue_dtype


def packed_size(length: int, bits: int) -> int:
    """Return how many bytes ``length`` residues of ``bits`` bits take."""
    return -(-length * bits // 8)


def pack(values: NDArray[np.unsignedinteger[Any]], bits: int) -> bytes:
    """Return ``values``, all below ``2**bits``, in `packed_size` bytes."""
    if bits == 8 * values.itemsize:
        return values.astype(_little(bits), copy=False).tobytes()
    parts = (_pack(values[i : i + CHUNK], bits) for i in range(0, len(values), CHUNK))
    return b"".join(parts)


def unpack(data: bytes, length: int, bits: int) -> NDArray[np.unsignedinteger[Any]]:
    """Return the ``length`` residues that `pack` put into ``data``, or raise."""
    if len(data) != packed_size(length, bits):
        raise ShapeError(
            f"{length} residues of {bits} bits are {packed_size(length, bits)} bytes, "
            f"got {len(data)}"
        )
    if bits == 8 * residue_dtype(bits).itemsize:
        return np.frombuffer(data, dtype=_little(bits)).astype(residue_dtype(bits))
    octets = np.frombuffer(data, dtype=np.uint8)
    if length * bits % 8 and octets[-1] >> length * bits % 8:
        raise DomainError("data must end in zero bits after the last residue")
    out = np.empty(length, dtype=residue_dtype(bits))
    step = CHUNK * bits // 8
    for i, start in enumerate(range(0, length, CHUNK)):
        part = out[start : start + CHUNK]
        part[:] = _unpack(octets[i * step : (i + 1) * step], len(part), bits)
    return out


def _little(bits: int) -> np.dtype[Any]:
    return residue_dtype(bits).newbyteorder("<")


def _pack(values: NDArray[np.unsignedinteger[Any]], bits: int) -> bytes:
    lanes = np.zeros((-(-len(values) // 8), 8), dtype=np.uint32)
    lanes.reshape(-1)[: len(values)] = values
    out = np.zeros((len(lanes), bits), dtype=np.uint8)
    for lane, column, shift in _overlaps(bits):
        word = lanes[:, lane]
        out[:, column] |= (word >> shift if shift >= 0 else word << -shift).astype(np.uint8)
    return out.tobytes()[: packed_size(len(values), bits)]


def _unpack(octets: NDArray[np.uint8], length: int, bits: int) -> NDArray[np.uint32]:
    columns = np.zeros((-(-length // 8), bits), dtype=np.uint32)
    columns.reshape(-1)[: len(octets)] = octets
    lanes = np.zeros((len(columns), 8), dtype=np.uint32)
    for lane, column, shift in _overlaps(bits):
        octet = columns[:, column]
        lanes[:, lane] |= octet << shift if shift >= 0 else octet >> -shift
    lanes &= np.uint32((1 << bits) - 1)
    return lanes.reshape(-1)[:length]


def _overlaps(bits: int) -> Iterator[tuple[int, int, int]]:
    """Yield which of 8 lanes of ``bits`` bits share bits with which byte, and the shift between."""
    for lane in range(8):
        start = lane * bits
        for column in range(start // 8, -(-(start + bits) // 8)):
            yield lane, column, 8 * column - start
