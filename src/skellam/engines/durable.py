"""Files that are whole or not there, and that outlive a kill."""

from __future__ import annotations

import os
from pathlib import Path

from skellam.accounting.ledger.store import sync_directory

SECRET = 0o600
"""Mode of files that the operator keeps for itself."""
PUBLIC = 0o644


def replace(path: Path, octets: bytes, *, mode: int) -> None:
    """Make ``octets`` the durable content of ``path``; a kill leaves the old content or this."""
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)


def append(path: Path, line: str, *, mode: int) -> None:
    """Add a line to ``path`` durably; a kill leaves it out, or leaves a torn last line."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
