"""The part of protocol buffers that ``tf.train.Example`` needs, read without TensorFlow.

An Example holds Features (field 1), a map (field 1) of entries: a name (field 1) and a Feature
(field 2), which is a list of bytes (field 1), of floats (field 2) or of integers (field 3), each
with its values in field 1, packed or one by one.
https://protobuf.dev/programming-guides/encoding/ describes the wire format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DataError

Feature: TypeAlias = tuple[bytes, ...] | NDArray[np.float32] | NDArray[np.int64]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def parse_example(octets: bytes) -> dict[str, Feature]:
    """Return the features of a serialised Example; raise `DataError` on anything malformed."""
    features: dict[str, Feature] = {}
    for part in _messages(octets, 1):
        for entry in _messages(part, 1):
            names, values = list(_messages(entry, 1)), list(_messages(entry, 2))
            if len(names) != 1 or len(values) > 1:
                raise DataError("an Example has a feature without a name")
            features[_text(names[0])] = _feature(values[0] if values else b"")
    return features


def _feature(octets: bytes) -> Feature:
    for kind, _, value in _fields(octets):
        if not isinstance(value, bytes):
            raise DataError("a feature of an Example is not a list")
        match kind:
            case 1:
                return tuple(_messages(value, 1))
            case 2:
                return _floats(value)
            case 3:
                return _integers(value)
            case _:
                raise DataError(f"a feature of an Example is of the unknown kind {kind}")
    return ()


def _floats(octets: bytes) -> NDArray[np.float32]:
    parts = [value for number, _, value in _fields(octets) if number == 1]
    joined = b"".join(part for part in parts if isinstance(part, bytes))
    if len(joined) % 4 or not all(isinstance(part, bytes) for part in parts):
        raise DataError("a list of floats in an Example has a wrong length")
    return np.frombuffer(joined, dtype="<f4").astype(np.float32)


def _integers(octets: bytes) -> NDArray[np.int64]:
    values: list[int] = []
    for number, _, value in _fields(octets):
        if number != 1:
            continue
        if isinstance(value, int):
            values.append(value)
        else:
            offset = 0
            while offset < len(value):
                item, offset = _varint(value, offset)
                values.append(item)
    return np.array(values, dtype=np.uint64).astype(np.int64)


def _messages(octets: bytes, number: int) -> Iterator[bytes]:
    for found, wire, value in _fields(octets):
        if found == number:
            if wire != _BYTES or not isinstance(value, bytes):
                raise DataError(f"field {number} of an Example has a wrong type")
            yield value


def _fields(octets: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield (number, wire type, value); fixed-width values as their bytes."""
    offset = 0
    while offset < len(octets):
        tag, offset = _varint(octets, offset)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, offset = _varint(octets, offset)
            yield number, wire, value
            continue
        if wire == _BYTES:
            length, offset = _varint(octets, offset)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise DataError(f"an Example has the unknown wire type {wire}")
        if offset + length > len(octets):
            raise DataError("an Example ends in the middle of a field")
        yield number, wire, octets[offset : offset + length]
        offset += length


def _varint(octets: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for count in range(10):
        if offset + count >= len(octets):
            raise DataError("an Example ends in the middle of a number")
        byte = octets[offset + count]
        value |= (byte & 127) << (7 * count)
        if byte < 128:
            return value & (2**64 - 1), offset + count + 1
    raise DataError("an Example has a number of more than ten bytes")


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise DataError("an Example has a name that is not UTF-8") from error
