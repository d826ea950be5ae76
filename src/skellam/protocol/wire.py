"""Wire format of frozen dataclasses: one encoding a value, strict parsing, bounded lengths.

A field is on the wire when its annotation carries a codec: ``sender: Annotated[int, Uint(8)]``.
Records are written field by field in order. A `Message` is a record that travels by itself, with a
version and its tag in front.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Sized
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby, starmap
from struct import Struct
from struct import error as struct_error
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeVar, cast, get_type_hints

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DomainError, MessageError
from skellam.protocol.identity import Identity

VERSION = 3
MAX_PARTICIPANTS = 65535
MAX_LENGTH = 1 << 28
"""Coordinates of a vector."""
SIGNATURE_BYTES = 64
UNSIGNED = bytes(SIGNATURE_BYTES)
_LENGTH = Struct(">I")

T = TypeVar("T")


class Reader:
    """Takes bytes off the front; running out raises `MessageError`."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        end = self._at + count
        if end > len(self._data):
            raise MessageError("the message ends too early; it was truncated")
        part = self._data[self._at : end]
        self._at = end
        return part

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Return the next values, which lie as in ``layout``."""
        at, self._at = self._at, self._at + layout.size
        if self._at > len(self._data):
            raise MessageError("the message ends too early; it was truncated")
        return layout.unpack_from(self._data, at)

    def blob(self, limit: int) -> bytes:
        """Return at most ``limit`` bytes, behind their length in four."""
        start = self._at + 4
        count = int.from_bytes(self._data[self._at : start], "big")
        self._at = end = start + (count if count <= limit else _bounded(count, limit))
        if end > len(self._data):
            raise MessageError("the message ends too early; it was truncated")
        return self._data[start:end]

    def length(self, limit: int) -> int:
        """Return the next four bytes as a number of at most ``limit``."""
        (count,) = self.unpack(_LENGTH)
        return count if count <= limit else _bounded(count, limit)

    def finish(self) -> None:
        """Raise unless everything was taken."""
        if self._at != len(self._data):
            raise MessageError(f"{len(self._data) - self._at} bytes trail the message")


class Codec(Protocol):
    """How one field is written and read."""

    def write(self, value: Any) -> bytes:  # noqa: ANN401
        """Return the only encoding of ``value``."""

    def read(self, reader: Reader) -> Any:  # noqa: ANN401
        """Take one value; raise `MessageError` unless it is what `write` gives."""


@dataclass(frozen=True, slots=True)
class Uint:
    """An unsigned integer of ``size`` bytes, big-endian."""

    size: int

    def write(self, value: int) -> bytes:
        """Return ``size`` bytes."""
        try:
            return value.to_bytes(self.size, "big")
        except OverflowError:
            return _bounded(value, (1 << 8 * self.size) - 1).to_bytes(self.size, "big")

    def read(self, reader: Reader) -> int:
        """Take ``size`` bytes."""
        return int.from_bytes(reader.take(self.size), "big")


@dataclass(frozen=True, slots=True)
class Flag:
    """A truth value: one byte, 0 or 1."""

    def write(self, value: bool) -> bytes:
        """Return one byte."""
        return bytes([bool(value)])

    def read(self, reader: Reader) -> bool:
        """Take one byte."""
        return bool(_bounded(reader.take(1)[0], 1))


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly ``size`` bytes."""

    size: int

    def write(self, value: bytes) -> bytes:
        """Return ``value`` itself."""
        if len(value) != self.size:
            raise MessageError(f"a field of {self.size} bytes got {len(value)}")
        return value

    def read(self, reader: Reader) -> bytes:
        """Take ``size`` bytes."""
        return reader.take(self.size)


@dataclass(frozen=True, slots=True)
class Blob:
    """At most ``limit`` bytes behind their length."""

    limit: int

    def write(self, value: bytes) -> bytes:
        """Return length and bytes."""
        return _length(value, self.limit) + value

    def read(self, reader: Reader) -> bytes:
        """Take length and bytes."""
        return reader.blob(self.limit)


@dataclass(frozen=True, slots=True)
class Text:
    """At most ``limit`` bytes of UTF-8; what is longer is cut."""

    limit: int

    def write(self, value: str) -> bytes:
        """Return length and bytes."""
        cut = value.encode()[: self.limit].decode(errors="ignore")
        return Blob(self.limit).write(cut.encode())

    def read(self, reader: Reader) -> str:
        """Take length and bytes."""
        try:
            return Blob(self.limit).read(reader).decode()
        except UnicodeDecodeError as error:
            raise MessageError("a text on the wire is not UTF-8") from error


@dataclass(frozen=True, slots=True)
class Maybe:
    """A value or None."""

    item: Codec

    def write(self, value: Any) -> bytes:  # noqa: ANN401
        """Return a flag and the value, if there is one."""
        return Flag().write(value is not None) + (b"" if value is None else self.item.write(value))

    def read(self, reader: Reader) -> Any:  # noqa: ANN401
        """Take a flag and the value, if there is one."""
        return self.item.read(reader) if Flag().read(reader) else None


@dataclass(frozen=True, slots=True)
class Many:
    """A tuple of at most ``limit`` items behind their number."""

    item: Codec
    limit: int = MAX_PARTICIPANTS

    def write(self, value: Sequence[Any]) -> bytes:
        """Return number and items."""
        item, write = self.item, self.item.write
        if isinstance(item, Nested) and (row := _layout(cast(Hashable, item.kind)).fixed):
            write = partial(_write_row, row, _layout(cast(Hashable, item.kind)).names)
        return _length(value, self.limit) + b"".join(map(write, value))

    def read(self, reader: Reader) -> tuple[Any, ...]:
        """Take number and items."""
        count, item = reader.length(self.limit), self.item
        if isinstance(item, Nested) and (row := _layout(cast(Hashable, item.kind)).fixed):
            rows = row.iter_unpack(reader.take(count * row.size))
            return tuple(starmap(item.kind, rows))
        return tuple([item.read(reader) for _ in range(count)])


@dataclass(frozen=True, slots=True)
class Numbers:
    """An array of at most ``limit`` numbers, or records of them, behind their number."""

    dtype: str | np.dtype[np.void]
    limit: int = MAX_PARTICIPANTS

    def write(self, value: NDArray[Any]) -> bytes:
        """Return number and numbers."""
        return _length(value, self.limit) + value.astype(self.dtype).tobytes()

    def read(self, reader: Reader) -> NDArray[Any]:
        """Take number and numbers."""
        size = reader.length(self.limit) * np.dtype(self.dtype).itemsize
        return np.frombuffer(reader.take(size), dtype=self.dtype)


@dataclass(frozen=True, slots=True)
class Nested:
    """A record inside a record."""

    kind: type[Any]

    def write(self, value: Any) -> bytes:  # noqa: ANN401
        """Return its fields."""
        return body(value)

    def read(self, reader: Reader) -> Any:  # noqa: ANN401
        """Take its fields."""
        return self.kind(**read_fields(self.kind, reader))


def _write_row(row: Struct, names: tuple[str, ...], record: object) -> bytes:
    """Return the fields of ``record`` at once; what does not fit ``row`` is refused by `body`."""
    values = tuple([getattr(record, name) for name in names])
    try:
        data = row.pack(*values)
    except struct_error:
        return body(record)
    return data if row.unpack(data) == values else body(record)


def _bounded(value: int, limit: int) -> int:
    if not 0 <= value <= limit:
        raise MessageError(f"a number on the wire must lie in [0, {limit}], got {value}")
    return value


def _length(value: Sized, limit: int) -> bytes:
    return _bounded(len(value), limit).to_bytes(4, "big")


Id = Annotated[int, Uint(8)]
Digest = Annotated[bytes, Fixed(32)]
Signature = Annotated[bytes, Fixed(SIGNATURE_BYTES)]
Ids = Annotated[NDArray[np.uint64], Numbers("<u8")]
Indices = Annotated[NDArray[np.uint16], Numbers("<u2")]


@cache
def fields(kind: Hashable) -> tuple[tuple[str, Codec], ...]:
    """Return the names and codecs of the fields of ``kind`` that are on the wire."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        (name, hint.__metadata__[0])
        for name, hint in hints.items()
        if hasattr(hint, "__metadata__")
    )


def body(record: object) -> bytes:
    """Return the fields of ``record`` without a head."""
    return b"".join(
        [codec.write(getattr(record, name)) for name, codec in fields(cast(Hashable, type(record)))]
    )


def read_fields(kind: type[Any], reader: Reader) -> dict[str, Any]:
    """Take the fields of ``kind``."""
    layout = _layout(cast(Hashable, kind))
    return dict(zip(layout.names, read_values(layout, reader), strict=True))


def read_values(layout: _Layout, reader: Reader) -> list[Any]:
    """Take the fields of a record in their order."""
    values: list[Any] = []
    for run in layout.runs:
        if isinstance(run, Struct):
            values += reader.unpack(run)
        else:
            values.append(run.read(reader))
    return values


@dataclass(frozen=True, slots=True)
class _Layout:
    """The fields of a record as they are read: successive ones of fixed size at once."""

    names: tuple[str, ...]
    runs: tuple[Struct | Codec, ...]

    @property
    def fixed(self) -> Struct | None:
        """How all fields lie, if all are of fixed size."""
        return self.runs[0] if len(self.runs) == 1 and isinstance(self.runs[0], Struct) else None


@cache
def _layout(kind: Hashable) -> _Layout:
    codecs = [codec for _, codec in fields(kind)]
    runs: list[Struct | Codec] = []
    for fixed, run in groupby(codecs, lambda codec: isinstance(codec, (Uint, Fixed))):
        if fixed:
            runs.append(Struct(">" + "".join(map(_format, run))))
        else:
            runs.extend(run)
    return _Layout(tuple(name for name, _ in fields(kind)), tuple(runs))


def _format(codec: Any) -> str:  # noqa: ANN401
    return (
        {1: "B", 2: "H", 4: "I", 8: "Q"}[codec.size]
        if isinstance(codec, Uint)
        else f"{codec.size}s"
    )


def head(tag: int) -> bytes:
    """Return the two bytes that begin every encoding: version and tag."""
    return bytes([VERSION, tag])


def read_head(reader: Reader, tag: int) -> None:
    """Take the two bytes that begin every encoding, or raise `MessageError`."""
    version, found = reader.take(2)
    if version != VERSION:
        raise MessageError(
            f"got version {version} of the protocol, need version {VERSION}; "
            "update whichever side is older"
        )
    if found != tag:
        raise MessageError(f"a message of kind {found} came where kind {tag} belongs")


def decode(kind: type[T], tag: int, data: bytes) -> T:
    """Return the record that ``data`` encodes, or raise `MessageError`."""
    reader = Reader(data)
    read_head(reader, tag)
    try:
        found = read_fields(kind, reader)
        reader.finish()
        return kind(**found)
    except DomainError as error:
        raise MessageError(str(error)) from error


class Message:
    """A record that travels by itself; abstract."""

    __slots__ = ()
    TAG: ClassVar[int]

    def encode(self) -> bytes:
        """Return the only encoding: version, kind, fields."""
        return head(self.TAG) + body(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the message that ``data`` encodes, or raise `MessageError`."""
        return decode(cls, cls.TAG, data)

    def signed(self, identity: Identity, context: bytes) -> bytes:
        """Return the encoding with the signature of ``identity`` in its last field."""
        payload, _ = split_signature(self.encode())
        return payload + identity.sign(context, payload)


def split_signature(data: bytes) -> tuple[bytes, bytes]:
    """Return what a message's last field signs, and that field."""
    return data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
