"""Where data files are, and what they really are: by their first bytes, not by their names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from skellam.errors import DataError

VARIABLE = "SKELLAM_DATA"
Location: TypeAlias = str | PathLike[str] | None


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


@dataclass(frozen=True, slots=True)
class Source:
    """A data set that users fetch themselves: the names of its files, and where they come from."""

    name: str
    files: tuple[str, ...]
    origin: str


def locate(source: Source, path: Location) -> Path:
    """Return the file of ``source``: at ``path`` (a file, or a folder that holds it), or in the
    folder that the variable SKELLAM_DATA names; raise `DataError` that says how to get it.
    """
    start = path if path is not None else os.environ.get(VARIABLE)
    if start is not None:
        candidates = [Path(start), *(Path(start, name) for name in source.files)]
        for candidate in candidates:
            if candidate.is_file():
                return candidate
    looked = "no path was given" if start is None else f"it is not at {os.fspath(start)}"
    raise DataError(
        f"the data set {source.name!r} is not here ({looked}): get {' or '.join(source.files)} "
        f"from {source.origin}, and pass its path, or put it into a folder and set "
        f"{VARIABLE} to that folder"
    )


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
