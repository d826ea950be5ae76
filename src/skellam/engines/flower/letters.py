"""The protocol's bytes in Flower's records: vectors as arrays, keys and shares as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from skellam.codec import wire
from skellam.engines.flower.invitation import RECORD
from skellam.errors import MessageError
from skellam.secagg import Round
from skellam.secagg.messages import Masked
from skellam.vectors import residue_dtype

_VECTOR = "skellam.vector"


def letter(data: bytes, this: Round) -> RecordDict:
    """Return the content that carries ``data``."""
    return RecordDict({RECORD: ConfigRecord({"round": this.round_id, "data": data})})


def opened(content: RecordDict, this: Round) -> bytes:
    """Return the bytes that a letter of this round carries, or raise `MessageError`."""
    record = content.get(RECORD)
    if isinstance(record, ConfigRecord) and record.get("round") == this.round_id:
        data = record.get("data")
        if isinstance(data, bytes):
            return data
    raise MessageError("a message is not a letter of this round")


def masked_letter(data: bytes, this: Round) -> RecordDict:
    """Return the content that carries a masked vector, exactly ``bits`` bits a coordinate."""
    masked = Masked.decode(data)
    values = np.frombuffer(masked.vector, dtype=_little(this))
    packed = np.frombuffer(wire.pack(values, this.bits), dtype=np.uint8)
    content = letter(masked.receipt, this)
    content[_VECTOR] = ArrayRecord({"packed": Array(packed)})
    return content


def opened_masked(content: RecordDict, this: Round) -> bytes:
    """Return the message that `masked_letter` took apart."""
    receipt = opened(content, this)
    try:
        packed = arrays_of(content, _VECTOR)["packed"].tobytes()
        values = wire.unpack(packed, this.length, this.bits)
    except (KeyError, TypeError, ValueError) as error:
        raise MessageError("a masked vector is missing or has another length") from error
    return Masked(receipt, values.astype(_little(this), copy=False).tobytes()).encode()


def arrays_of(content: RecordDict, key: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of one record by name."""
    record = content[key]
    if not isinstance(record, ArrayRecord):
        raise MessageError(f"{key!r} holds no arrays")
    return {name: array.numpy() for name, array in record.items()}


def model_of(content: RecordDict) -> tuple[str, dict[str, NDArray[Any]]]:
    """Return the key and the arrays of the only record of arrays in a train message."""
    keys = list(content.array_records)
    if len(keys) != 1:
        raise MessageError(f"a train message must hold one record of arrays, got {len(keys)}")
    return keys[0], arrays_of(content, keys[0])


def record_of(arrays: dict[str, NDArray[Any]]) -> ArrayRecord:
    """Return ``arrays`` as Flower's record."""
    return ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})


def _little(this: Round) -> np.dtype[Any]:
    return residue_dtype(this.bits).newbyteorder("<")
