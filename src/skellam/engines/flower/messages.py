"""Messages: the protocol's bytes in Flower's records, and how they are sent and awaited.

Vectors travel as the raw bytes of an array's chunks, whose length is checked; what a node sends is
never given to Flower's array deserialisation. Whoever fails, dies, is late or cannot be read is
simply not among the answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from logging import getLogger
from struct import pack
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from skellam.engines.flower.round_config import RoundConfig
from skellam.errors import DomainError, MessageError
from skellam.secagg import RoundParameters
from skellam.secagg.messages import MaskedVector
from skellam.vectors import pack_residues, packed_size, residue_dtype, unpack_residues

RECORD = "skellam"
"""The key of our record in messages."""
_VECTOR = "skellam.vector"
_RAW = "skellam.raw"
"""How the bytes of a vector are serialised: not at all."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_ATTEMPTS = 15
"""Failures to read a reply, some ten seconds of them, after which it counts as unreadable."""
_LONGEST_REASON = 500
_log = getLogger("skellam.flower")


# Content.


def content_of(data: bytes, round_: RoundParameters) -> RecordDict:
    """Return the content that carries ``data``."""
    return RecordDict({RECORD: ConfigRecord({"round": round_.round_id, "data": data})})


def read_content(content: RecordDict, round_: RoundParameters) -> bytes:
    """Return the bytes that a message of this round carries, or raise `MessageError`."""
    record = content.get(RECORD)
    if isinstance(record, ConfigRecord) and record.get("round") == round_.round_id:
        data = record.get("data")
        if isinstance(data, bytes):
            return data
    raise MessageError("a message is not one of this round")


def masked_vector_content(data: bytes, round_: RoundParameters) -> RecordDict:
    """Return the content that carries a masked vector, exactly ``bits`` bits a coordinate."""
    masked = MaskedVector.decode(data)
    values = np.frombuffer(masked.vector, dtype=_little(round_))
    packed = pack_residues(values, round_.bits)
    content = content_of(masked.receipt, round_)
    content[_VECTOR] = ArrayRecord({"packed": Array("uint8", (len(packed),), _RAW, packed)})
    return content


def read_masked_vector(content: RecordDict, round_: RoundParameters) -> bytes:
    """Return the message that `masked_vector_content` took apart."""
    receipt = read_content(content, round_)
    record = content.get(_VECTOR)
    array = record.get("packed") if isinstance(record, ArrayRecord) else None
    packed = array.data if isinstance(array, Array) and array.stype == _RAW else None
    size = packed_size(round_.length, round_.bits)
    if not (isinstance(packed, bytes) and len(packed) == size):
        raise MessageError(f"a masked vector of {size} bytes is missing or has another length")
    try:
        values = unpack_residues(packed, round_.length, round_.bits)
    except ValueError as error:
        raise MessageError("a masked vector does not end in zero bits") from error
    return MaskedVector(receipt, values.astype(_little(round_), copy=False).tobytes()).encode()


def config_content(config: RoundConfig) -> ConfigRecord:
    """Return the record that asks a node to take part."""
    return ConfigRecord({"config": config.to_json()})


def start_content(config: RoundConfig, offer: bytes, start: bytes) -> ConfigRecord:
    """Return the record that asks a client of two servers for its report."""
    return ConfigRecord({"config": config.to_json(), "offer": offer, "start": start})


def read_start(content: RecordDict) -> tuple[bytes, bytes]:
    """Return offer and start of the round that a client of two servers is asked for."""
    record = content.get(RECORD)
    if isinstance(record, ConfigRecord):
        offer, start = record.get("offer"), record.get("start")
        if isinstance(offer, bytes) and isinstance(start, bytes):
            return offer, start
    raise MessageError("a message without the offer of two servers; the server needs helper=")


def report_content(report: bytes) -> RecordDict:
    """Return the content that carries a client's report."""
    array = Array("uint8", (len(report),), _RAW, report)
    return RecordDict({_VECTOR: ArrayRecord({"report": array})})


def read_report(content: RecordDict) -> bytes:
    """Return the report that `report_content` put there, or raise `MessageError`."""
    record = content.get(_VECTOR)
    array = record.get("report") if isinstance(record, ArrayRecord) else None
    if isinstance(array, Array) and array.stype == _RAW and isinstance(array.data, bytes):
        return array.data
    raise MessageError("an answer without a report")


def read_config(content: RecordDict) -> RoundConfig:
    """Return the configuration of the round that a node is asked to take part in."""
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise MessageError("a message without a round configuration; the server needs SecureGrid")
    return RoundConfig.from_json(record.get("config"))


def payload(content: RecordDict) -> RecordDict:
    """Return ``content`` without skellam's record: what the app's own function is given."""
    return RecordDict({key: record for key, record in content.items() if key != RECORD})


def content_digest(content: RecordDict, known: dict[int, bytes] | None = None) -> bytes:
    """Return SHA-256 over all that a training function can read in ``content``.

    Keys, kinds, names, types, values and their order: a client that was given anything else than
    the others is no party to their round. ``known`` keeps the digests of records by identity.
    """
    seen = {} if known is None else known
    digest = sha256(b"skellam/content/")
    for key, record in content.items():
        if id(record) not in seen:
            seen[id(record)] = _record_digest(record)
        digest.update(_encoded(key) + seen[id(record)])
    return digest.digest()


def common_digest(contents: Iterable[RecordDict]) -> bytes:
    """Return the digest of the contents, which must be the same for every node."""
    known: dict[int, bytes] = {}
    kept = list(contents)  # identities of records hold while these live
    digests = {content_digest(content, known) for content in kept}
    if len(digests) != 1:
        raise DomainError(
            "every node must be given the same records in a round: arrays, configuration and names"
        )
    return digests.pop()


def _record_digest(record: Mapping[str, object]) -> bytes:
    digest = sha256(_encoded(type(record).__name__))
    for name, value in record.items():
        digest.update(_encoded(name))
        if isinstance(value, Array):
            digest.update(_encoded([value.dtype, str(tuple(value.shape)), value.stype]))
            digest.update(_encoded(len(value.data)))
            digest.update(value.data)
        else:
            digest.update(_encoded(value))
    return digest.digest()


def model_digest(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return SHA-256 over the names, types, shapes and numbers of a model's arrays, in order."""
    digest = sha256(b"skellam/1/model")
    for name, array in arrays.items():
        head = f"{name!r} {array.dtype.str} {array.shape}".encode()
        digest.update(len(head).to_bytes(8, "big") + head + array.tobytes())
    return digest.digest()


def model_of(content: RecordDict) -> tuple[str, dict[str, NDArray[Any]]]:
    """Return the key and the arrays of the only record of arrays in a train message."""
    keys = list(content.array_records)
    if len(keys) != 1:
        raise MessageError(f"a train message must hold one record of arrays, got {len(keys)}")
    record = content.array_records[keys[0]]
    return keys[0], {name: array.numpy() for name, array in record.items()}


def metrics_of(content: RecordDict) -> dict[str, object]:
    """Return all metrics by name."""
    records: list[MetricRecord] = list(content.metric_records.values())
    return {name: value for record in records for name, value in record.items()}


def record_of(arrays: dict[str, NDArray[Any]]) -> ArrayRecord:
    """Return ``arrays`` as Flower's record."""
    return ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})


def _encoded(value: object) -> bytes:
    """Return the only encoding of a name or of a value of a record; no two have the same."""
    match value:
        case bool():
            kind, octets = b"?", bytes([value])
        case int():
            kind, octets = b"i", str(value).encode()
        case float():
            kind, octets = b"d", pack(">d", value)
        case str():
            kind, octets = b"s", value.encode()
        case bytes():
            kind, octets = b"b", value
        case list() | tuple():
            kind, octets = b"l", b"".join(map(_encoded, value))
        case _:
            raise MessageError("a record holds a value of an unknown type")
    return kind + len(octets).to_bytes(8, "big") + octets


def _little(round_: RoundParameters) -> np.dtype[Any]:
    return residue_dtype(round_.bits).newbyteorder("<")


# Sending.


@dataclass(frozen=True, slots=True)
class Answers:
    """What came back in time, by node: contents, and the texts of those who refused or failed."""

    contents: dict[int, RecordDict] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)


def exchange(
    grid: Grid, contents: Mapping[int, RecordDict], kind: str, *, group: str, timeout: float
) -> Answers:
    """Send each node its content and return the answers that came in time.

    A dead node's error comes back in the SuperLink's name, so answers are told apart by the message
    that they reply to, never by their source.
    """
    messages = [
        Message(content, node, kind, ttl=timeout, group_id=group)
        for node, content in contents.items()
    ]
    waiting = {
        message_id: node
        for message_id, node in zip(grid.push_messages(messages), contents, strict=False)
        if message_id is not None
    }
    answers = Answers()
    for message_id, reply in _replies(grid, list(waiting), timeout):
        node = waiting.pop(message_id)
        if reply is not None and reply.has_content():
            answers.contents[node] = reply.content
            continue
        reason = "an answer that cannot be read" if reply is None else reply.error.reason
        answers.refusals[node] = _shortened(reason)
        _log.warning("%s: node %d dropped out: %s", kind, node, answers.refusals[node])
    for node in waiting.values():
        _log.warning("%s: node %d did not answer within %g s", kind, node, timeout)
        answers.refusals[node] = f"no answer within {timeout:g} s"
    return answers


def _replies(
    grid: Grid, message_ids: list[str], timeout: float
) -> Iterator[tuple[str, Message | None]]:
    """Yield what comes in reply before the time is over, ``None`` if it cannot be read.

    Replies are pulled one by one: Flower hands each out once, and where one of several cannot be
    read, all of them are lost.
    """
    deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
    attempts = dict.fromkeys(message_ids, _ATTEMPTS)
    while attempts:
        for message_id in list(attempts):
            try:
                found = _pulled(grid, message_id)
            except Exception:  # noqa: BLE001  (whatever Flower raises on the bytes of a node)
                _log.debug("a reply cannot be read", exc_info=True)
                found = None
                attempts[message_id] -= 1
            if found is not None or not attempts[message_id]:
                del attempts[message_id]
                yield message_id, found
        if time.monotonic() >= deadline:
            return
        time.sleep(pause if attempts else 0)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _pulled(grid: Grid, message_id: str) -> Message | None:
    found = grid.pull_messages([message_id])
    return next((m for m in found if m.metadata.reply_to_message_id == message_id), None)


def _shortened(text: object) -> str:
    """Return a node's text as one short line for logs and reports."""
    line = " ".join(str(text).split())
    printable = "".join(c if c.isprintable() else "?" for c in line)
    return printable if len(printable) <= _LONGEST_REASON else printable[:_LONGEST_REASON] + "..."
