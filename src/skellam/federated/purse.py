"""What a run pays for its releases, and with which ledger."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol, final

from skellam.accounting.audiences import Audiences
from skellam.accounting.guarantee import Audience, Guarantee
from skellam.accounting.ledger import Ledger
from skellam.errors import DomainError, LedgerError
from skellam.federated.cohort import Population


class Epsilons(NamedTuple):
    """What was spent so far, against each audience."""

    public: float | None = None
    server: float | None = None
    server_worst: float | None = None


class Purse(Protocol):
    """Pays for releases before they are made, and knows what they cost."""

    @property
    def spends(self) -> int:
        """How many spends there are."""

    def pay(self, number: int) -> None:
        """Write the release of round ``number`` down, or raise `BudgetError`."""

    def epsilons(self) -> Epsilons:
        """Return what was spent so far."""

    def guarantees(self) -> Audiences | None:
        """Return what holds for all releases."""


@final
class Nothing:
    """Pays nothing: for runs that are not private."""

    spends = 0

    def pay(self, number: int) -> None:
        """Do nothing."""

    def epsilons(self) -> Epsilons:
        """Return nothing."""
        return Epsilons()

    def guarantees(self) -> None:
        """Return nothing."""


@final
class Account:
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

    def epsilons(self) -> Epsilons:
        """Return what was spent so far; nothing where the noise replays."""
        if self._replayable or not self._rounds:
            return Epsilons()
        mean, worst = self._server(None), self._server(self._rounds)
        return Epsilons(self._ledger.epsilon(), mean.epsilon, worst.epsilon)

    def guarantees(self) -> Audiences | None:
        """Return what holds: for all of the ledger in public, for this plan's rounds beside it."""
        if self._replayable or not self._rounds:
            return None
        found = (self._ledger.guarantee(), self._server(None), self._server(self._rounds))
        return Audiences(*(self._stating_the_population(g) for g in found))

    @property
    def _rounds(self) -> int:
        return self._ledger.account.rounds.get(self._mechanism, 0)

    def _server(self, participations: int | None) -> Guarantee:
        return self._population.plan.privacy(
            audience=Audience.SERVER,
            delta=self._ledger.account.terms.delta,
            rounds=self._rounds,
            participations=participations,
        )

    def _stating_the_population(self, guarantee: Guarantee) -> Guarantee:
        lines = (*guarantee.assumptions, self._population.statement)
        return replace(guarantee, assumptions=lines)


def open_ledger(
    given: Ledger | None, path: Path, population: Population
) -> AbstractContextManager[Ledger]:
    """Return the ledger that was given, or the one at ``path`` with the plan's own budget."""
    if given is not None:
        return nullcontext(given)
    if path.with_name(path.name + ".tail").exists():
        return Ledger.open(path)
    plan = population.plan
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
