"""Files that are whole or not there, that outlive a kill, and that show damage.

A digest shows damage, not malice: whoever can write a file can write another one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Log:
    """Lines that are added one by one, with their length and digest in ``<path>.sha256``.

    A line counts when both files are durable. What follows the counted lines is what a kill left
    of a line that nobody relied on: it is not read, and the next append cuts it off. So a log that
    lost a counted byte, or has another one, is refused. One without a digest was written by an
    earlier version; its whole lines count.
    """

    path: Path
    mode: int

    def lines(self) -> list[str]:
        """Return the lines that count, or raise `DataError`."""
        try:
            return self._counted().decode().split("\n")[:-1]
        except UnicodeDecodeError as error:
            raise DataError(f"cannot read {self.path}: {error}; restore it from a copy") from error

    def append(self, line: str) -> None:
        """Add a line durably; a kill leaves it out, unless this returned."""
        octets = line.encode() + b"\n"
        with explained(self.path):
            counted = self._counted()
            self._write(octets, at=len(counted))
            file.replace(self._sidecar, _summary(counted + octets), mode=self.mode)

    def cut(self, count: int) -> None:
        """Keep the first ``count`` lines alone."""
        with explained(self.path):
            lines = self.lines()[:count] if count else []
            kept = "".join(f"{line}\n" for line in lines).encode()
            file.replace(self._sidecar, _summary(kept), mode=self.mode)
            self._write(b"", at=len(kept))

    @property
    def _sidecar(self) -> Path:
        return self.path.with_name(self.path.name + ".sha256")

    def _counted(self) -> bytes:
        summary = _octets(self._sidecar)  # first: a writer makes the lines durable before it
        octets = _octets(self.path) or b""
        if summary is None:
            return octets[: octets.rfind(b"\n") + 1]
        length, _, _ = summary.partition(b" ")
        counted = octets[: int(length)] if length.isdigit() and len(length) < 20 else b""
        if _summary(counted) != summary:
            raise DataError(
                f"{self.path} was cut off or changed: its digest in {self._sidecar.name} is of "
                "other lines; restore both from a copy"
            )
        return counted

    def _write(self, octets: bytes, *, at: int) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self.mode)
        try:
            os.ftruncate(descriptor, at)
            file.write_all(descriptor, octets)
        finally:
            os.close(descriptor)


def _summary(octets: bytes) -> bytes:
    return b"%d %s\n" % (len(octets), hashlib.sha256(octets).hexdigest().encode())


def _octets(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; restore it from a copy") from error


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
