"""The ledger's file: a chain of lines, each durable before its append returns.

**Chain.** A line is one JSON object in canonical form: the fields of a record, ``line`` (its
number), ``previous`` (the digest of the line before), ``signature`` (over all of these, where there
is a signer) and ``digest`` (SHA-256 over everything else, the signature too). A reader demands the
very bytes that the writer would have written, so no byte can change unseen. Unsigned, that guards
against accidents alone: whoever can write the file can write another chain.

**Crash safety.** Beside the ledger lies its *tail*, ``<ledger>.tail``: the ledger's length before
the last append, and the line that was appended. An append

1. checks that the file at the path is the one that is open, and ends as it did,
2. replaces the tail atomically (new file, fsync, rename, fsync of the directory),
3. writes the line to the end of the ledger and calls fsync,
4. checks again that the path leads to this file.

Whoever releases something does so after 4. Killed before the rename, the ledger is as it was, and
nothing was released. Killed later, the ledger ends with a part of the tail's line, perhaps an empty
one, perhaps with zeros where a block was not written; the next `LedgerFile.open` completes it from
the tail. The line is never guessed, and it counts although perhaps nothing was released. A ledger
that is shorter than its tail says has lost lines that were durable, which no crash can do, and one
that ends otherwise than its tail was changed; both are refused. So every line whose append returned
is read back, or nothing is.

Old copies of both files pass when nobody holds the ledger: only a `Head` that is kept elsewhere can
tell. POSIX only (``flock``, ``fsync`` of a directory).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, final

from skellam.errors import LedgerError

Fields: TypeAlias = Mapping[str, Any]
_DOMAIN = b"skellam/ledger/1\n"
_TAIL_DOMAIN = b"skellam/ledger-tail/1\n"
_GENESIS = "0" * 64
_MAX_READS = 1000
_PUBLIC = 0o644


class Verifier(Protocol):
    """A public key that checks signatures, for instance of Ed25519."""

    @property
    def public_key(self) -> bytes:
        """The key's bytes, as line 1 of the ledger names them."""

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether ``signature`` is this key's for ``message``."""


class Signer(Verifier, Protocol):
    """A private key that signs, and that checks its own signatures."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of ``message``."""


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a chain: the number and the digest of its last line."""

    line: int = 0
    digest: str = _GENESIS


def seal(fields: Fields, head: Head, *, signer: Signer | None) -> tuple[bytes, Head]:
    """Return the line that binds ``fields`` to the chain ending at ``head``, and its new head."""
    line = {**fields, "line": head.line + 1, "previous": head.digest, "signature": None}
    if signer is not None:
        line["signature"] = signer.sign(_DOMAIN + _canonical(line)).hex()
    line["digest"] = _digest(line)
    return _canonical(line) + b"\n", Head(head.line + 1, line["digest"])


def unseal(octets: bytes, *, verifier: Verifier | None) -> Iterator[tuple[dict[str, Any], Head]]:
    """Yield the fields and the head of each line; raise `LedgerError` naming the first bad line."""
    head = Head()
    for raw in octets.splitlines(keepends=True):
        fields, head = _unseal_line(raw, head, verifier)
        yield fields, head


def _unseal_line(raw: bytes, head: Head, verifier: Verifier | None) -> tuple[dict[str, Any], Head]:
    number = head.line + 1
    fields, digest = _parse(raw, number)
    if (fields.pop("line", None), fields.pop("previous", None)) != (number, head.digest):
        raise LedgerError(
            f"line {number} of the ledger does not follow the line before it; "
            "restore the file from a copy"
        )
    signature = fields.pop("signature", None)
    if verifier is not None:
        signed = {**fields, "line": number, "previous": head.digest, "signature": None}
        if not _is_signed(signed, signature, verifier):
            raise LedgerError(
                f"line {number} of the ledger is not signed by the expected key; pass the key that "
                "created the ledger, or restore the file from a copy"
            )
    return fields, Head(number, digest)


def _parse(raw: bytes, number: int) -> tuple[dict[str, Any], str]:
    try:
        fields = json.loads(raw)
        canonical = isinstance(fields, dict) and _canonical(fields) + b"\n" == raw
        digest = str(fields.pop("digest", None)) if canonical else ""
        genuine = canonical and digest == _digest(fields)
    except (ValueError, RecursionError):
        genuine = False
    if not genuine:
        raise LedgerError(
            f"line {number} of the ledger was changed: its digest does not match; "
            "restore the file from a copy"
        )
    return fields, digest


def _is_signed(line: Fields, signature: object, verifier: Verifier) -> bool:
    try:
        octets = bytes.fromhex(signature) if isinstance(signature, str) else b""
    except ValueError:
        return False
    return verifier.verify(_DOMAIN + _canonical(line), octets)


def _digest(line: Fields) -> str:
    return hashlib.sha256(_DOMAIN + _canonical(line)).hexdigest()


def _canonical(line: Fields) -> bytes:
    text = json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


@dataclass(frozen=True, slots=True)
class _Tail:
    """The last append: ``line`` at byte ``offset`` of the ledger."""

    offset: int
    line: bytes

    def to_bytes(self) -> bytes:
        content = b"%d\n%b" % (self.offset, self.line)
        return _tail_digest(content) + content

    @classmethod
    def from_bytes(cls, octets: bytes, path: Path) -> Self:
        digest, content = octets[:65], octets[65:]
        if digest != _tail_digest(content):
            raise LedgerError(
                f"{path} was changed: its digest does not match; restore it together with the "
                "ledger from a copy"
            )
        offset, _, line = content.partition(b"\n")
        return cls(int(offset), line)

    def complete(self, octets: bytes) -> bytes:
        """Return the ledger ``octets`` with their last line whole, or raise `LedgerError`."""
        number = octets.count(b"\n", 0, self.offset) + 1
        if len(octets) < self.offset:
            raise LedgerError(
                f"line {number} of the ledger is lost: {self.offset} bytes were durable and "
                f"{len(octets)} are there; restore the file from a copy, it was cut"
            )
        # JSON in ASCII has no zero byte, so a zero is a block that a crash left unwritten.
        found = octets[self.offset :]
        written = all(byte in (0, due) for byte, due in zip(found, self.line, strict=False))
        if len(found) > len(self.line) or not written:
            raise LedgerError(
                f"line {number} of the ledger differs from the copy in its tail; restore both "
                "files from a copy"
            )
        return octets[: self.offset] + self.line


def read(path: Path) -> bytes:
    """Return the whole lines of the ledger at ``path``, which somebody else may be writing."""
    with _explained(path, "read"):
        for _ in range(_MAX_READS):
            tail = _read_tail(path)
            octets = _read_file(path)
            if tail == _read_tail(path):
                return tail.complete(octets)
    raise LedgerError(f"{path} changes faster than it can be read; read a copy of both files")


def is_ledger(path: Path) -> bool:
    """Return whether anything was ever durable at ``path``.

    Whoever is killed while the first line is written leaves an empty file, and nothing was spent.
    """
    with _explained(path, "read"):
        return _tail_path(path).exists() or (path.exists() and path.stat().st_size > 0)


@final
class LedgerFile:
    """The only writer of the ledger at ``path``; holds a lock until it is closed."""

    def __init__(self, path: Path, *, mode: int = _PUBLIC) -> None:
        """Lock the file at ``path``, made empty if there is none; use `create` or `open`."""
        self.path = path
        self._process = os.getpid()
        self._last = b""
        with _explained(path, "open"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, mode)
        held.add(self._descriptor)
        try:
            with _explained(path, "lock"):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(self._descriptor)
                self._new = not is_ledger(path)
        except BaseException:
            self.close()
            raise
        self._identity = (status.st_dev, status.st_ino)
        self._length = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise LedgerError(f"{path} is no regular file; pass the path of one, or of a new one")

    @classmethod
    def create(cls, path: Path, line: bytes) -> Self:
        """Return the file of a new ledger whose first line is ``line``."""
        file = cls(path)
        if not file._new:
            file.close()
            raise LedgerError(f"{path} is a ledger already; open it, or choose another path")
        file.append(line)
        return file

    @classmethod
    def open(cls, path: Path) -> tuple[Self, bytes]:
        """Return the file of the ledger at ``path`` and its lines, the last one completed."""
        with _explained(path, "open"):
            _read_tail(path)
        file = cls(path)
        return file, file._recovered()

    @classmethod
    def open_or_create(
        cls, path: Path, line: bytes, *, mode: int = _PUBLIC
    ) -> tuple[Self, bytes | None]:
        """Return the file at ``path`` and its lines, none if ``line`` is now the first."""
        file = cls(path, mode=mode)
        if not file._new:
            return file, file._recovered()
        file.append(line)
        return file, None

    def append(self, line: bytes) -> None:
        """Make ``line`` durable; after an error the file is closed, its state unknown."""
        if self._process != os.getpid():
            raise LedgerError(
                f"{self.path} belongs to the process that opened it, not to a fork of it; "
                "spend in that process"
            )
        if self._descriptor < 0:
            raise LedgerError(f"{self.path} is closed; open the ledger again")
        try:
            with _explained(self.path, "append to"):
                self._require_same_end()
                tail = _Tail(self._length, line).to_bytes()
                mode = stat.S_IMODE(os.fstat(self._descriptor).st_mode)
                replace(_tail_path(self.path), tail, mode=mode)
                self._write(line)
                self._require_same_file()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock; in a fork, where the lock is another's, do nothing."""
        if self._descriptor >= 0 and self._process == os.getpid():
            descriptor, self._descriptor = self._descriptor, -1
            release_lock(descriptor)

    def _recovered(self) -> bytes:
        """Return the ledger's lines, the last one completed from the tail, in the file too."""
        try:
            with _explained(self.path, "open"):
                octets = read(self.path)
                self._require_same_file()
                self._complete(octets)
                sync_directory(self.path.parent)
        except BaseException:
            self.close()
            raise
        return octets

    def _complete(self, octets: bytes) -> None:
        found = _read_file(self.path)
        if not octets.startswith(found):
            start = octets.rfind(b"\n", 0, -1) + 1
            os.ftruncate(self._descriptor, start)
            found = found[:start]
        self._length = len(found)
        self._write(octets[len(found) :])
        self._last = octets[octets.rfind(b"\n", 0, -1) + 1 :]

    def _require_same_file(self) -> os.stat_result:
        """Return the status of the file at the path, which must be the one that is open."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._identity:
            raise LedgerError(
                f"{self.path} was moved or replaced while it was open, perhaps by an older copy; "
                "put the file and its tail back, then open the ledger again"
            )
        return status

    def _require_same_end(self) -> None:
        length, last = self._length, self._last
        size = self._require_same_file().st_size
        if size != length or os.pread(self._descriptor, len(last), size - len(last)) != last:
            raise LedgerError(
                f"{self.path} was changed by somebody else while it was open ({length} bytes were "
                f"written, {size} are there); restore the file and its tail from a copy"
            )

    def _write(self, octets: bytes) -> None:
        write_all(self._descriptor, octets)
        self._length += len(octets)
        self._last = octets


def replace(path: Path, octets: bytes, *, mode: int) -> None:
    """Make ``octets`` the durable content of ``path``; a kill leaves the old content or this."""
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.fchmod(descriptor, mode)
        write_all(descriptor, octets)
    finally:
        os.close(descriptor)
    new.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names of the files in ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, octets: bytes) -> None:
    """Write all of ``octets`` and make them durable."""
    rest = memoryview(octets)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _tail_path(path: Path) -> Path:
    return path.with_name(path.name + ".tail")


def _read_tail(path: Path) -> _Tail:
    tail = _tail_path(path)
    if path.is_dir():
        raise LedgerError(f"{path} is a directory; pass the path of the ledger in it")
    if not tail.exists():
        if not path.exists():
            raise LedgerError(
                f"there is no ledger {path}; make one with Ledger.create or skellam ledger new"
            )
        if not path.stat().st_size:
            raise LedgerError(f"{path} is empty: its creation was cut off; create it again")
    return _Tail.from_bytes(_read_file(tail), tail)


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise LedgerError(f"there is no {path}; a ledger is that file and its tail") from error


def _tail_digest(content: bytes) -> bytes:
    return hashlib.sha256(_TAIL_DOMAIN + content).hexdigest().encode() + b"\n"


_HINTS = {
    errno.ENOSPC: "free space on that disk, then open the ledger again",
    errno.EDQUOT: "free space under that quota, then open the ledger again",
    errno.EROFS: "move both files to where they can be written; Ledger.verify only reads",
    errno.EACCES: "allow writing the file and its folder; Ledger.verify only reads",
    errno.EPERM: "allow writing the file and its folder; Ledger.verify only reads",
    errno.EISDIR: "pass the path of a file in that directory",
    errno.ENOENT: "make its folder first",
    errno.ENOTDIR: "pass a path whose folder is a directory",
    errno.EWOULDBLOCK: "it is being written by another process; wait until that one closes it",
}


@contextmanager
def _explained(path: Path, action: str) -> Iterator[None]:
    """Turn errors of the operating system into `LedgerError` that name the file and the remedy."""
    try:
        yield
    except (OSError, ValueError) as error:
        code = error.errno if isinstance(error, OSError) else None
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = _HINTS.get(code or 0, "remove the cause, then open the ledger again")
        if action == "append to":
            reason = f"{reason}; the spend may have been written, but release nothing"
        raise LedgerError(f"cannot {action} the ledger {path}: {reason}; {hint}") from error


held: set[int] = set()
"""Descriptors whose locks this process holds; a fork closes its copies of them."""


def release_lock(descriptor: int) -> None:
    """Give up a lock that this process holds, and close its file."""
    held.discard(descriptor)
    try:  # closing is not enough while a fork that has just begun has the file open too
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _drop_locks() -> None:
    """Close what a fork inherited: the lock would outlive the process that took it."""
    while held:
        os.close(held.pop())


os.register_at_fork(after_in_child=_drop_locks)
