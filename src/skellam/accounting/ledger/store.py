"""Lines that survive a kill: every line is durable, twice, before its append returns.

Beside the ledger lies its *tail*, ``<ledger>.tail``: the ledger's length before the last append,
and the line that was appended. An append

1. replaces the tail atomically (new file, fsync, rename, fsync of the directory), then
2. writes the line to the end of the ledger and calls fsync.

Whoever releases something does so after 2. Killed before 1, the ledger is as it was, and nothing
was released. Killed later, the ledger ends with a prefix of the tail's line, perhaps an empty one,
and the next `Store.open` completes it from the tail: the line is never guessed, and it counts
although perhaps nothing was released. A ledger that is shorter than its tail says has lost lines
that were durable, which no crash can do, and one that ends otherwise than its tail was changed;
both are refused. So every line whose append returned is read back, or nothing is.

Old copies of both files pass: only somebody who keeps a later digest elsewhere can notice. POSIX
only (``flock``, ``fsync`` of a directory).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self, final

from skellam.errors import LedgerError

_MOST_READS = 1000


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last append: ``line`` at byte ``offset`` of the ledger."""

    offset: int
    line: bytes

    def to_bytes(self) -> bytes:
        content = b"%d\n%b" % (self.offset, self.line)
        return _digest(content) + content

    @classmethod
    def from_bytes(cls, octets: bytes) -> Self:
        digest, content = octets[:65], octets[65:]
        if digest != _digest(content):
            raise LedgerError("the ledger's tail was changed: its digest does not match")
        offset, _, line = content.partition(b"\n")
        return cls(int(offset), line)

    def complete(self, ledger: bytes) -> bytes:
        """Return ``ledger`` with its last line whole, or raise `LedgerError`."""
        number = ledger.count(b"\n", 0, self.offset) + 1
        if len(ledger) < self.offset:
            raise LedgerError(
                f"line {number} of the ledger is lost: {self.offset} bytes were durable and "
                f"{len(ledger)} are there; restore the file, it was cut"
            )
        if not self.line.startswith(ledger[self.offset :]):
            raise LedgerError(f"line {number} of the ledger differs from the copy in its tail")
        return ledger[: self.offset] + self.line


def read(path: Path) -> bytes:
    """Return the whole lines of the ledger at ``path``, which somebody else may be writing."""
    for _ in range(_MOST_READS):
        tail = _read_tail(path)
        ledger = _read_file(path)
        if tail == _read_tail(path):
            return tail.complete(ledger)
    raise LedgerError(f"{path} changes faster than it can be read; read a copy of both files")


@final
class Store:
    """The only writer of the ledger at ``path``; holds a lock until it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._process = os.getpid()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise LedgerError(f"{path} is being written by another process") from error
        self._length = os.fstat(self._descriptor).st_size

    @classmethod
    def create(cls, path: Path, line: bytes) -> Self:
        """Return the store of a new ledger whose first line is ``line``."""
        store = cls(path)
        if store._length or _tail_path(path).exists():
            store.close()
            raise LedgerError(f"{path} is a ledger already; open it, or choose another path")
        store.append(line)
        return store

    @classmethod
    def open(cls, path: Path) -> tuple[Self, bytes]:
        """Return the store of the ledger at ``path`` and its lines, the last one completed."""
        _read_tail(path)
        store = cls(path)
        try:
            octets = read(path)
            store._write(octets[store._length :])
            sync_directory(path.parent)
        except BaseException:
            store.close()
            raise
        return store, octets

    def append(self, line: bytes) -> None:
        """Make ``line`` durable; after an error the store is closed, for who knows what is."""
        self._require_usable()
        try:
            _replace(_tail_path(self.path), _Tail(self._length, line).to_bytes())
            self._write(line)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _require_usable(self) -> None:
        if self._descriptor < 0:
            raise LedgerError(f"{self.path} is closed; open the ledger again")
        if self._process != os.getpid():
            raise LedgerError(f"{self.path} belongs to the process that opened it, not to its fork")

    def _write(self, octets: bytes) -> None:
        _write_all(self._descriptor, octets)
        self._length += len(octets)


def _replace(path: Path, octets: bytes) -> None:
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_all(descriptor, octets)
    finally:
        os.close(descriptor)
    new.replace(path)
    sync_directory(path.parent)


def _write_all(descriptor: int, octets: bytes) -> None:
    rest = memoryview(octets)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names of the files in ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _tail_path(path: Path) -> Path:
    return path.with_name(path.name + ".tail")


def _read_tail(path: Path) -> _Tail:
    tail = _tail_path(path)
    if not (path.exists() or tail.exists()):
        raise LedgerError(f"there is no ledger {path}; Ledger.create makes one")
    return _Tail.from_bytes(_read_file(tail))


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise LedgerError(f"there is no {path}; a ledger is that file and its tail") from error


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(b"skellam/ledger-tail/1\n" + content).hexdigest().encode() + b"\n"
