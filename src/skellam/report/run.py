"""What a page shows: a run's public files, and nothing else of its folder.

``operator.jsonl`` and ``checkpoint.npz`` are the operator's and are never opened here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Self

from skellam.accounting.audiences import Audiences
from skellam.accounting.ledger import Account, Ledger
from skellam.accounting.ledger.chain import unseal
from skellam.accounting.ledger.store import read as read_lines
from skellam.errors import DataError
from skellam.federated.history import Header, Record, read_records
from skellam.federated.purse import guarantees


@dataclass(frozen=True, slots=True)
class Book:
    """A ledger that was read: what it says, and the digest of its last line."""

    account: Account
    digest: str

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the ledger at ``path``, every line checked; nothing is written."""
        account = Ledger.verify(path)
        heads = (head for _, head in unseal(read_lines(path), verifier=None))
        # Somebody may have written on since: the digest is that of the last line that is shown.
        return cls(account, next(h.digest for h in heads if h.line == 1 + len(account.spends)))


@dataclass(frozen=True, slots=True)
class Run:
    """A run's header, a record a round, and the ledger that paid for it."""

    header: Header
    records: tuple[Record, ...]
    book: Book | None = None
    guarantees: Audiences | None = field(init=False)
    """What holds for all that was released; none without a ledger of secret noise."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "guarantees", self._guarantees())

    @property
    def measured(self) -> tuple[Record, ...]:
        """The rounds after which the model was measured."""
        return tuple(r for r in self.records if r.test_accuracy is not None)

    def _guarantees(self) -> Audiences | None:
        if self.book is None or self.header.replayable or not self.header.private:
            return None
        return guarantees(self.book.account, self.header.plan, self.header.population)


def read(folder: str | PathLike[str], *, ledger: str | PathLike[str] | None = None) -> Run:
    """Return the run in ``folder``; ``ledger`` says where its ledger is, if not there."""
    place = Path(folder)
    book = Path(ledger or place / "ledger")
    try:
        header = Header.from_json((place / "run.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{place} holds no run: {error}") from error
    records = tuple(read_records(place / "history.jsonl"))
    kept_here = ledger is not None or book.exists()
    return Run(header, records, Book.open(book) if kept_here else None)
