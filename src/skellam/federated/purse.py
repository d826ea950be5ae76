"""What a run pays for its releases, and with which ledger."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol, final

from skellam.accounting.audiences import Audiences
from skellam.accounting.guarantee import Audience, Guarantee
from skellam.accounting.ledger import Account as LedgerAccount
from skellam.accounting.ledger import Ledger
from skellam.errors import DomainError, LedgerError
from skellam.federated.cohort import Population
from skellam.plan import Plan


class Purse(Protocol):
    """Pays for releases before they are made, and knows what they cost."""

    @property
    def spends(self) -> int:
        """How many spends there are."""

    def pay(self, number: int) -> None:
        """Write the release of round ``number`` down, or raise `BudgetError`."""

    def guarantees(self) -> Audiences | None:
        """Return what holds for all releases so far, if anything does."""


@final
class Nothing:
    """Pays nothing: for runs that are not private."""

    spends = 0

    def pay(self, number: int) -> None:
        """Do nothing."""

    def guarantees(self) -> None:
        """Return nothing."""


@final
class Payer:
    """Pays every round of one run from a ledger, under a key that names run and round."""

    def __init__(
        self, ledger: Ledger, population: Population, *, run: bytes, replayable: bool
    ) -> None:
        self._ledger = ledger
        self._population = population
        self._mechanism = population.plan.mechanism
        self._run = run
        self._replayable = replayable

    @property
    def spends(self) -> int:
        """How many spends the ledger has."""
        return len(self._ledger.account.spends)

    def pay(self, number: int) -> None:
        """Write the release of round ``number`` down, or raise `BudgetError`."""
        self._ledger.spend(
            self._mechanism,
            key=sha256(b"skellam/1/run" + self._run + number.to_bytes(8, "big")).digest(),
            replayable=self._replayable,
            note=self._population.statement,
        )

    def guarantees(self) -> Audiences | None:
        """Return what holds for all releases so far; nothing where the noise replays."""
        population = self._population
        return guarantees(self._ledger.account, population.plan, population.statement)


def guarantees(account: LedgerAccount, plan: Plan, population: str) -> Audiences | None:
    """Return what ``account`` guarantees against both audiences; nothing if some noise replays.

    In public all of the ledger counts; against the server, who knows which rounds somebody took
    part in, the rounds of ``plan``.
    """
    rounds = account.rounds.get(plan.mechanism, 0)
    if not rounds or any(spend.replayable for spend in account.spends):
        return None

    def server(participations: int | None) -> Guarantee:
        return plan.privacy(
            audience=Audience.SERVER,
            delta=account.terms.delta,
            rounds=rounds,
            participations=participations,
        )

    found = (account.guarantee(), server(None), server(rounds))
    line = f"accounted for: {population}"
    return Audiences(*(replace(g, assumptions=(*g.assumptions, line)) for g in found))


def open_ledger(given: Ledger | None, path: Path, plan: Plan) -> AbstractContextManager[Ledger]:
    """Return the ledger that was given, or the one at ``path`` with the plan's own budget."""
    if given is not None:
        return nullcontext(given)
    if path.with_name(path.name + ".tail").exists():
        return Ledger.open(path)
    if plan.delta is None:
        raise DomainError("delta must be given: calibrate the plan for one, or pass a ledger")
    budget = plan.privacy().epsilon if plan.epsilon is None else plan.epsilon
    return Ledger.create(path, epsilon=budget, delta=plan.delta)


def require_whole(ledger: Ledger, spends: int) -> None:
    """Raise `LedgerError` if the ledger has fewer spends than the checkpoint saw."""
    if len(ledger.account.spends) < spends:
        raise LedgerError(
            f"the ledger has {len(ledger.account.spends)} spends and the checkpoint saw {spends}: "
            "it is not this run's ledger, or an old copy of it"
        )
