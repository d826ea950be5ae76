"""Files of federated data: LEAF's JSON, and TensorFlow Federated's HDF5 and SQLite.

What a file really is, its first bytes say, not its name.

SQLite files hold ``tf.train.Example`` messages, which are read without TensorFlow. An Example holds
Features (field 1), a map (field 1) of entries: a name (field 1) and a Feature (field 2), which is a
list of bytes (field 1), of floats (field 2) or of integers (field 3), each with its values in
field 1, packed or one by one. https://protobuf.dev/programming-guides/encoding/ describes the wire
format.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DataError, MissingExtraError
from skellam.federated.data.examples import ClientData, Clients, Examples

Features: TypeAlias = tuple[Any, ...]
"""A client's features, each an array or a list of bytes, one entry an example."""
_Folder: TypeAlias = str | PathLike[str]


UNREADABLE_NPZ = (
    *(KeyError, ValueError, OSError, EOFError, RuntimeError, SyntaxError, OverflowError),
    *(MemoryError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What `numpy.load` raises for an archive that is damaged, or that holds other arrays."""


class Format(Enum):
    """What the first bytes of a file say."""

    HDF5 = b"\x89HDF\r\n\x1a\n"
    SQLITE = b"SQLite format 3\x00"
    PARQUET = b"PAR1"
    NPZ = b"PK\x03\x04"
    GZIP = b"\x1f\x8b"
    XZ = b"\xfd7zXZ\x00"
    LZMA = b"\x5d\x00\x00"
    JSON = b"{"
    TEXT = b""


def format_of(path: Path) -> Format:
    """Return what the file's first bytes say; raise `DataError` if it is missing or empty."""
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if not start:
        raise DataError(f"{path} is empty")
    return next(kind for kind in Format if start.startswith(kind.value))


def require_format(path: Path, *formats: Format) -> Format:
    """Return the file's format if it is one of ``formats``."""
    found = format_of(path)
    if found in (Format.XZ, Format.LZMA):
        raise DataError(f"{path} is compressed; unpack it first (xz --decompress)")
    if found not in formats:
        wanted = " or ".join(kind.name for kind in formats)
        raise DataError(f"{path} is not {wanted}: its first bytes are those of {found.name}")
    return found


# LEAF.


def leaf(
    path: _Folder, *, convert: Callable[[list[Any], list[Any], str], Any] | None = None
) -> Clients[Any]:
    """Return LEAF's users: one JSON file, or a folder of them such as ``all_data_0.json``.

    A file is ``{"users": [..], "num_samples": [..], "user_data": {user: {"x": .., "y": ..}}}``.
    ``convert(x, y, where)`` makes of a user's lists what the client holds; without it they are
    numbers.
    """
    made = convert or _leaf_numbers
    held: dict[str, Any] = {}
    for file in _leaf_files(Path(path)):
        content = _leaf_content(file)
        for user, stated in zip(content["users"], content["num_samples"], strict=True):
            where = f"{file}, user {user}"
            if user in held:
                raise DataError(f"{where}: the user is there twice")
            held[user] = made(*_leaf_user(content["user_data"].get(user), stated, where), where)
    return Clients(held, held.__getitem__)


def _leaf_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if files := sorted(path.glob("*.json")):
        return files
    raise DataError(f"{path} holds no .json file; LEAF's are named like all_data_0.json")


def _leaf_numbers(x: list[Any], y: list[Any], where: str) -> Examples:
    try:
        return Examples(np.asarray(x), np.asarray(y))
    except (ValueError, DataError) as error:
        raise DataError(f"{where}: {error}; pass convert= for text") from error


def _leaf_user(data: Any, stated: int, where: str) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
    match data:
        case {"x": list(x), "y": list(y)} if len(x) == len(y) == stated:
            return x, y
        case _:
            raise DataError(f"{where}: user_data must hold lists x and y of {stated} samples")


def _leaf_content(path: Path) -> dict[str, Any]:
    require_format(path, Format.JSON)
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error
    match content:
        case {"users": list(users), "num_samples": list(counts), "user_data": dict()} if len(
            users
        ) == len(counts):
            return content
        case _:
            raise DataError(f"{path} must hold users, as many num_samples, and user_data, as LEAF")


# TensorFlow Federated.


def tff(path: _Folder, *, inputs: str, target: str, split: str | None = None) -> ClientData:
    """Return the clients of a file of TensorFlow Federated's (HDF5, or SQLite with a ``split``)."""
    features = tff_features(path, inputs, target, split=split)
    return features.map(lambda held: Examples(held[0], held[1]))


def tff_features(path: _Folder, *names: str, split: str | None = None) -> Clients[Features]:
    """Return the named features of every client, as the file has them."""
    file = Path(path)
    if require_format(file, Format.HDF5, Format.SQLITE) is Format.HDF5:
        return Clients(_hdf5_clients(file), lambda client: _hdf5_features(file, client, names))
    found = _sqlite_split(file, split)
    return Clients(
        _sqlite_clients(file, found), lambda client: _sqlite_features(file, found, client, names)
    )


def _hdf5_clients(path: Path) -> list[str]:
    with _hdf5(path) as file:
        if "examples" not in file:
            raise DataError(f"{path} has no group 'examples'; it is not a file of TFF's")
        return sorted(file["examples"])


def _hdf5_features(path: Path, client: str, names: tuple[str, ...]) -> Features:
    with _hdf5(path) as file:
        group = file["examples"][client]
        for name in names:
            _require_feature(group, name, path, client)
        return tuple(np.asarray(group[name][()]) for name in names)


@contextmanager
def _hdf5(path: Path) -> Iterator[Any]:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("HDF5 needs h5py: pip install 'skellam[data]'") from error
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError) as error:
        raise DataError(f"{path} is damaged or truncated: {error}") from error


def _sqlite_split(path: Path, split: str | None) -> str:
    with _sqlite(path) as database:
        rows = database.execute("SELECT DISTINCT split_name FROM client_metadata").fetchall()
    splits = sorted(str(row[0]) for row in rows)
    if split is None and len(splits) == 1:
        return str(splits[0])
    if split not in splits:
        raise DataError(f"{path} has no split {split!r}, only {', '.join(map(repr, splits))}")
    return str(split)


def _sqlite_clients(path: Path, split: str) -> list[str]:
    query = "SELECT client_id FROM client_metadata WHERE split_name = ? ORDER BY client_id"
    with _sqlite(path) as database:
        return [str(row[0]) for row in database.execute(query, (split,))]


def _sqlite_features(path: Path, split: str, client: str, names: tuple[str, ...]) -> Features:
    chosen = "WHERE split_name = ? AND client_id = ?"
    with _sqlite(path) as database:
        query = f"SELECT serialized_example_proto FROM examples {chosen}"  # noqa: S608
        rows = database.execute(query, (split, client)).fetchall()
        query = f"SELECT num_examples FROM client_metadata {chosen}"  # noqa: S608
        (stated,) = database.execute(query, (split, client)).fetchone()
        examples = [parse_example(row[0]) for row in rows]
    if len(rows) != stated:
        raise DataError(
            f"{path}, client {client}: {stated} examples are stated, {len(rows)} are there"
        )
    for example in examples:
        for name in names:
            _require_feature(example, name, path, client)
    where = f"{path}, client {client}"
    return tuple(_joined([example[name] for example in examples], where) for name in names)


def _joined(values: list[Feature], where: str) -> Any:  # noqa: ANN401
    """Return one array with a row an example, or a list of bytes."""
    if any(isinstance(value, tuple) for value in values):
        return [piece for value in values for piece in value]
    numbers: list[NDArray[Any]] = [np.asarray(value) for value in values]
    try:
        rows = np.stack(numbers)
    except ValueError as error:
        raise DataError(f"{where}: the examples differ in length: {error}") from error
    return rows[:, 0] if rows.shape[1:] == (1,) else rows


def _require_feature(features: Any, name: str, path: Path, client: str) -> None:  # noqa: ANN401
    if name not in features:
        raise DataError(f"{path}, client {client}: no feature {name!r}, only {[*features]}")


def _require_all_pages(path: Path) -> None:
    """SQLite reads zeros where a last page is cut; its header says how long the file must be."""
    with path.open("rb") as file:
        header = file.read(100)
    page, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    if path.stat().st_size < (65536 if page == 1 else page) * pages:
        raise DataError(f"{path} is damaged or truncated: it is shorter than its header says")


@contextmanager
def _sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    _require_all_pages(path)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            yield database
    except (sqlite3.Error, UnicodeDecodeError, TypeError) as error:
        raise DataError(f"{path} is damaged, truncated or not a file of TFF's: {error}") from error


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
