"""Files that are whole or not there, that outlive a kill, and that show damage.

A digest shows damage, not malice: whoever can write a file can write another one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skellam.accounting.ledger import file
from skellam.errors import DataError, SkellamError

SECRET, SECRET_FOLDER = 0o600, 0o700
"""Modes of what the operator keeps for itself."""
PUBLIC = 0o644
_DIGEST = "sha256"


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Make a folder and those above it, or raise `DataError`; it may be there."""
    with explained(path):
        path.mkdir(mode=mode, parents=True, exist_ok=True)


def exists(path: Path) -> bool:
    """Return whether there is something at ``path``, or raise `DataError` if nobody can tell."""
    with explained(path, "read"):
        return path.exists()


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
    """Return a record of JSON with its own digest, first: a gap that takes it takes more."""
    return {_DIGEST: _record_digest(record), **record}


def unseal_record(sealed: Mapping[str, Any], *, optional: bool = False) -> dict[str, Any]:
    """Return what `seal_record` was given, or raise `DataError`.

    A record whose digest is ``optional`` may be one of an earlier version; a changed byte removes
    none, since the changed name is one that no record has.
    """
    record = dict(sealed)
    found = record.pop(_DIGEST, None)
    if found != _record_digest(record) and not (optional and found is None):
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
        return self._split(self._counted())

    def append(self, line: str, *, check: Callable[[list[str]], object] | None = None) -> None:
        """Add a line durably; a kill leaves it out, unless this returned.

        Of two writers one waits. ``check`` may raise when it sees the lines so far.
        """
        with self._locked() as descriptor:
            counted = self._counted()
            if check is not None:
                check(self._split(counted))
            octets = counted + line.encode() + b"\n"
            os.ftruncate(descriptor, len(counted))
            file.write_all(descriptor, octets[len(counted) :])
            file.replace(self._sidecar, _summary(octets), mode=self.mode)

    def cut(self, count: int) -> None:
        """Keep the first ``count`` lines alone."""
        with self._locked() as descriptor:
            lines = self.lines()[:count] if count else []
            kept = "".join(f"{line}\n" for line in lines).encode()
            file.replace(self._sidecar, _summary(kept), mode=self.mode)
            os.ftruncate(descriptor, len(kept))
            os.fsync(descriptor)

    def require_writable(self) -> None:
        """Raise `DataError` unless all lines are there and one could be added."""
        self.cut(len(self.lines()))

    @property
    def _sidecar(self) -> Path:
        return self.path.with_name(self.path.name + ".sha256")

    def _split(self, counted: bytes) -> list[str]:
        try:
            return counted.decode().split("\n")[:-1]
        except UnicodeDecodeError as error:
            raise DataError(f"cannot read {self.path}: {error}; restore it from a copy") from error

    def _counted(self) -> bytes:
        summary = _octets(self._sidecar)  # first: a writer makes the lines durable before it
        while True:
            octets = _octets(self.path) or b""
            if summary is None:
                return octets[: octets.rfind(b"\n") + 1]
            length, _, _ = summary.partition(b" ")
            counted = octets[: int(length)] if length.isdigit() and len(length) < 20 else b""
            if _summary(counted) == summary:
                return counted
            before, summary = summary, _octets(self._sidecar)
            if summary == before:  # else somebody wrote in between
                raise DataError(
                    f"{self.path} was cut off or changed: its digest in {self._sidecar.name} is of "
                    "other lines; restore both from a copy"
                )

    @contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
        with explained(self.path):
            descriptor = os.open(self.path, flags, self.mode)
            try:
                _require_regular(self.path)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield descriptor
            finally:
                os.close(descriptor)


def _summary(octets: bytes) -> bytes:
    return b"%d %s\n" % (len(octets), hashlib.sha256(octets).hexdigest().encode())


def _octets(path: Path) -> bytes | None:
    try:
        _require_regular(path)
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; restore it from a copy") from error


def _require_regular(path: Path) -> None:
    """Raise `DataError` where a directory or a pipe is in place of a file."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(f"{path} is no regular file; move it away")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of ``folder`` that ask for the same, or raise `DataError`."""
    process = os.getpid()
    with explained(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    file.held.add(descriptor)
    try:
        with explained(folder, "lock"):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DataError(
                    f"another process works in {folder}; wait until it ends, or choose another"
                ) from error
        yield
    finally:
        if process == os.getpid():  # a fork has closed its copy already
            file.release_lock(descriptor)


@contextmanager
def explained(path: Path, action: str = "write") -> Iterator[None]:
    """Raise `DataError` in place of an error of the system while something is done to ``path``."""
    try:
        yield
    except SkellamError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = error.strerror if isinstance(error, OSError) else error
        remedy = "make room and allow writing there" if action == "write" else "remove the cause"
        raise DataError(
            f"cannot {action} {path}: {reason}; {remedy}, then try again or resume"
        ) from error
