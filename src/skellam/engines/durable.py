"""Files that are whole or not there, that outlive a kill, and that show damage.

A digest shows damage, not malice: whoever can write a file can write another one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skellam.accounting.ledger import file
from skellam.errors import DataError

SECRET, SECRET_FOLDER = 0o600, 0o700
"""Modes of what the operator keeps for itself."""
PUBLIC = 0o644
_DIGEST = "sha256"


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Make a folder and those above it, or raise `DataError`; it may be there."""
    with explained(path):
        path.mkdir(mode=mode, parents=True, exist_ok=True)


def replace(path: Path, octets: bytes, *, mode: int) -> None:
    """Make ``octets`` the durable content of ``path``; a kill leaves the old content or this."""
    with explained(path):
        file.replace(path, octets, mode=mode)


def append(path: Path, line: str, *, mode: int) -> None:
    """Add a line to ``path`` durably; a kill leaves it out, or leaves a torn last line."""
    with explained(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(line + "\n")
            opened.flush()
            os.fsync(opened.fileno())


def seal(octets: bytes, name: bytes) -> bytes:
    """Return ``octets`` with a last line: the format's ``name`` and their SHA-256 digest."""
    return octets + _digest_line(octets, name)


def unseal(sealed: bytes, name: bytes) -> bytes | None:
    """Return what `seal` was given, or None if a byte of it changed."""
    octets = sealed[: -len(_digest_line(b"", name))]
    return octets if sealed == seal(octets, name) else None


def _digest_line(octets: bytes, name: bytes) -> bytes:
    start = b"\n" + name + b" "
    return start + hashlib.sha256(start + octets).hexdigest().encode() + b"\n"


def seal_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of JSON with its own digest."""
    return {**record, _DIGEST: _record_digest(record)}


def unseal_record(sealed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `seal_record` was given, or raise `DataError`.

    A record without a digest is one of an earlier version; a changed byte removes none, since the
    changed name is one that no record has.
    """
    record = dict(sealed)
    if record.pop(_DIGEST, None) not in (None, _record_digest(record)):
        raise DataError("the file was changed: its digest does not match; restore it from a copy")
    return record


def _record_digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise `DataError` in place of an error of the system while ``path`` is written."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; make room and allow writing there, "
            "then try again or resume"
        ) from error
