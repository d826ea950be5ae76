"""Serialises a tf.train.Example the slow and obvious way."""

import struct


def varint(value):
    value %= 1 << 64
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, octets):
    return varint(number << 3 | 2) + varint(len(octets)) + octets


def feature(values, *, packed=True):
    if all(isinstance(value, bytes) for value in values):
        return field(1, b"".join(field(1, value) for value in values))
    if all(isinstance(value, float) for value in values):
        items = [struct.pack("<f", value) for value in values]
        one_by_one = [varint(1 << 3 | 5) + item for item in items]
        return field(2, field(1, b"".join(items)) if packed else b"".join(one_by_one))
    items = [varint(value) for value in values]
    one_by_one = [varint(1 << 3) + item for item in items]
    return field(3, field(1, b"".join(items)) if packed else b"".join(one_by_one))


def example(features, *, packed=True):
    entries = (
        field(1, field(1, name.encode()) + field(2, feature(values, packed=packed)))
        for name, values in features.items()
    )
    return field(1, b"".join(entries))
