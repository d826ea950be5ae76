"""The ledger: what was released, what it cost, and what the budget still allows.

A spend is durable before `Ledger.spend` returns, and only then may anything be released
(`skellam.accounting.ledger.store` has the crash model). There is no record of what became of a
release: what was written down counts, whether or not anybody saw it.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Self, final

from skellam.accounting.guarantee import Audience, Guarantee
from skellam.accounting.ledger.account import Account
from skellam.accounting.ledger.budget import Clearance, cleared
from skellam.accounting.ledger.chain import Head, Signer, Verifier, seal, unseal
from skellam.accounting.ledger.filters import Filter
from skellam.accounting.ledger.record import Spend, Terms
from skellam.accounting.ledger.store import Store, read
from skellam.accounting.mechanisms import Mechanism
from skellam.errors import LedgerError


@final
class Ledger:
    """An append-only record of releases and the budget they share; one process may hold it.

    >>> with Ledger.create("run.ledger", epsilon=4, delta=1e-5) as ledger:  # doctest: +SKIP
    ...     ledger.spend(mechanism, key=b"round-1")  # raises BudgetError, or is durable
    ...     release()
    """

    def __init__(self, store: Store, account: Account, head: Head, signer: Signer | None) -> None:
        """Use `create` or `open`."""
        self._store = store
        self._account = account
        self._head = head
        self._signer = signer
        self._clearance: Clearance | None = None
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        *,
        epsilon: float,
        delta: float,
        filter: Filter | None = None,  # noqa: A002  (the theorems' word)
        signer: Signer | None = None,
    ) -> Self:
        """Return a new ledger with a budget.

        Only with a ``filter`` may mechanisms depend on what earlier releases showed.
        """
        terms = Terms(epsilon, delta, filter, None if signer is None else signer.public_key)
        line, head = seal(terms.to_fields(), Head(), signer=signer)
        return cls(Store.create(Path(path), line), Account(terms), head, signer)

    @classmethod
    def open(cls, path: str | PathLike[str], *, signer: Signer | None = None) -> Self:
        """Return the ledger at ``path``, every line checked, a torn last line completed."""
        store, octets = Store.open(Path(path))
        try:
            account, head = _read(octets, None)
            _require_signer(account.terms, signer)
        except BaseException:
            store.close()
            raise
        return cls(store, account, head, signer)

    @staticmethod
    def verify(path: str | PathLike[str], *, verifier: Verifier | None = None) -> Account:
        """Return the account at ``path``, or raise `LedgerError` naming the first line that fails.

        Changes nothing; somebody may be writing. Signatures are checked if ``verifier`` is given.
        """
        return _read(read(Path(path)), verifier)[0]

    @property
    def account(self) -> Account:
        """Everything that was spent so far, as a value."""
        return self._account

    def spend(
        self,
        mechanism: Mechanism,
        *,
        rounds: int = 1,
        adaptive: bool = False,
        replayable: bool = False,
        key: bytes | None = None,
        note: str = "",
    ) -> Spend:
        """Write a release down before it is made, or raise `BudgetError` and change nothing.

        ``key`` names the release. Noise that replays gives the same bits under the same key, so a
        second spend costs nothing. Secret noise is drawn anew, and the first release may have been
        seen: a second spend costs again. Whoever still holds the first release asks
        ``ledger.account.find(key)`` instead. Another mechanism under the same key is refused.
        """
        spend = Spend(mechanism, rounds, adaptive, replayable, key, note)
        with self._lock:
            if key is not None and (known := self._account.find(key)) is not None:
                if replace(known, note=note) != spend:
                    raise LedgerError(f"the key {key!r} stands for another release: {known}")
                if known.replayable:
                    return known
            after = self._account.plus(spend)
            clearance = cleared(after, mechanism, self._clearance)
            line, head = seal(spend.to_fields(), self._head, signer=self._signer)
            self._store.append(line)
            self._account, self._head, self._clearance = after, head, clearance
        return spend

    def epsilon(self, delta: float | None = None) -> float:
        """Return an upper bound on epsilon at ``delta``, the budget's where none is given."""
        return self._account.epsilon(delta)

    def remaining(self) -> float:
        """Return the epsilon that is left of the budget, at the budget's delta."""
        return self._account.remaining()

    def guarantee(
        self, *, audience: Audience = Audience.PUBLIC, participations: int | None = None
    ) -> Guarantee:
        """Return what holds for everything that was spent; `Account.guarantee` says more."""
        return self._account.guarantee(audience=audience, participations=participations)

    def close(self) -> None:
        """Let others write the ledger."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_signer(terms: Terms, signer: Signer | None) -> None:
    if terms.public_key != (None if signer is None else signer.public_key):
        raise LedgerError("line 1 of the ledger names another signer, or none; pass that one")


def _read(octets: bytes, verifier: Verifier | None) -> tuple[Account, Head]:
    account, head = None, Head()
    for fields, head in unseal(octets, verifier=verifier):
        try:
            if account is None:
                account = Account(Terms.from_fields(fields))
            else:
                account = account.plus(Spend.from_fields(fields))
        except (ValueError, TypeError, LedgerError) as error:
            raise LedgerError(f"line {head.line} of the ledger makes no sense: {error}") from error
    if account is None:
        raise LedgerError("the ledger is empty")
    if verifier is not None and account.terms.public_key != verifier.public_key:
        raise LedgerError("line 1 of the ledger names another signer")
    return account, head
