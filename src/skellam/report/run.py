"""The run that a page shows: its public files, and nothing else of its folder.

``operator.jsonl`` and ``checkpoint.npz`` are the operator's and are never opened here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Self

from skellam import _checks
from skellam.accounting.ledger import Account, read_ledger
from skellam.errors import DataError
from skellam.federated.history import Header, Record, read_records
from skellam.federated.spending import guarantees
from skellam.plan import AnyGuarantees


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """A ledger that was read: what it says, and the digest of its last line."""

    account: Account
    digest: str

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the ledger at ``path``, every line checked; nothing is written."""
        account, head = read_ledger(path)
        return cls(account, head.digest)


@dataclass(frozen=True, slots=True)
class Run:
    """A run's header, a record a round, and the ledger that it was spent from."""

    header: Header
    records: tuple[Record, ...]
    ledger: LedgerSummary | None = None
    guarantees: AnyGuarantees | None = field(init=False)
    """What holds for all that was released; none without a ledger of secret noise."""

    def __post_init__(self) -> None:
        _checks.assign(self, guarantees=self._guarantees())

    @property
    def measured(self) -> tuple[Record, ...]:
        """The rounds after which the model was measured."""
        return tuple(r for r in self.records if r.evaluated)

    def _guarantees(self) -> AnyGuarantees | None:
        if self.ledger is None or self.header.replayable or not self.header.private:
            return None
        return guarantees(self.ledger.account, self.header.plan, self.header.population)


def read(folder: str | PathLike[str], *, ledger: str | PathLike[str] | None = None) -> Run:
    """Return the run in ``folder``; ``ledger`` says where its ledger is, if not there."""
    files = Path(folder)
    path = Path(ledger or files / "ledger")
    try:
        header = Header.from_json((files / "run.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{files} holds no run: {error}") from error
    records = tuple(read_records(files / "history.jsonl"))
    kept_here = ledger is not None or path.exists()
    return Run(header, records, LedgerSummary.open(path) if kept_here else None)
