"""Files that are whole or not there, and that outlive a kill."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skellam.accounting.ledger import file
from skellam.errors import DataError

SECRET = 0o600
"""Mode of files that the operator keeps for itself."""
PUBLIC = 0o644


def replace(path: Path, octets: bytes, *, mode: int) -> None:
    """Make ``octets`` the durable content of ``path``; a kill leaves the old content or this."""
    with _explained(path):
        file.replace(path, octets, mode=mode)


def append(path: Path, line: str, *, mode: int) -> None:
    """Add a line to ``path`` durably; a kill leaves it out, or leaves a torn last line."""
    with _explained(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(line + "\n")
            opened.flush()
            os.fsync(opened.fileno())


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; make room and allow writing there, then resume"
        ) from error
