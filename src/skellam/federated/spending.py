"""Spending: the ledger of a run, and what holds for all that it released."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol, final

from skellam.accounting.guarantee import Audience
from skellam.accounting.ledger import Account as LedgerAccount
from skellam.accounting.ledger import Head, Ledger
from skellam.errors import DomainError, LedgerError
from skellam.federated.sampling import Population
from skellam.plan import CalibratedPlan, Guarantees, Sampling


class Spender(Protocol):
    """Accounts for releases before they are made, and knows what they cost."""

    @property
    def spends(self) -> int:
        """How many spends there are."""

    @property
    def head(self) -> Head | None:
        """The last line of the ledger, if there is one."""

    def spend(self, number: int) -> None:
        """Write the release of round ``number`` down, or raise `BudgetError`."""

    def guarantees(self) -> Guarantees | None:
        """Return what holds for all releases so far, if anything does."""


@final
class NoSpending:
    """Spends nothing: for runs that are not private."""

    spends = 0
    head = None

    def spend(self, number: int) -> None:
        """Do nothing."""

    def guarantees(self) -> None:
        """Return nothing."""


@final
class LedgerSpender:
    """Spends every round of one run from a ledger, under a key that names run and round."""

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

    @property
    def head(self) -> Head:
        """The last line of the ledger."""
        return self._ledger.head

    def spend(self, number: int) -> None:
        """Write the release of round ``number`` down, or raise `BudgetError`.

        Where nothing about cohorts is secret, a client's data enters one round of a cycle and at
        most as many as the plan allows, which the loop holds: a cycle is spent once.
        """
        plan = self._population.plan
        if plan.sampling in {Sampling.CYCLIC, Sampling.ALL}:
            number //= plan.groups
        key = sha256(b"skellam/1/run" + self._run + number.to_bytes(8, "big")).digest()
        if plan.sampling in {Sampling.CYCLIC, Sampling.ALL} and number >= plan.participations:
            return
        if plan.sampling is Sampling.CYCLIC and self._ledger.account.find(key) is not None:
            return
        self._ledger.spend(
            self._mechanism,
            key=key,
            replayable=self._replayable,
            note=self._population.statement,
        )

    def guarantees(self) -> Guarantees | None:
        """Return what holds for all releases so far; nothing where the noise replays."""
        population = self._population
        return guarantees(self._ledger.account, population.plan, population.statement)


def guarantees(account: LedgerAccount, plan: CalibratedPlan, population: str) -> Guarantees | None:
    """Return what ``account`` guarantees against both audiences; nothing if some noise replays.

    The plan states the guarantees of its own rounds; where the ledger holds more, that counts too.
    """
    spends = account.rounds.get(plan.mechanism, 0)
    if not spends or any(spend.replayable for spend in account.spends):
        return None
    cycles = plan.groups if plan.sampling is Sampling.CYCLIC else 1
    stated = plan.guarantees(rounds=spends * cycles, delta=account.budget.delta)
    others = len(account.rounds) > 1
    epsilons = [account.epsilon(), stated.server.epsilon, stated.server_mean.epsilon]
    if others:
        known = account.guarantee(audience=Audience.SERVER).epsilon
        epsilons[1:] = [max(epsilon, known) for epsilon in epsilons[1:]]
    line = f"accounted for: {population}"
    return Guarantees(
        *(
            replace(found, epsilon=epsilon, assumptions=(*found.assumptions, line))
            for found, epsilon in zip(stated, epsilons, strict=True)
        )
    )


def open_ledger(
    given: Ledger | None, path: Path, plan: CalibratedPlan
) -> AbstractContextManager[Ledger]:
    """Return the ledger that was given, or the one at ``path`` with the plan's own budget."""
    if given is not None:
        return nullcontext(given)
    if path.with_name(path.name + ".tail").exists():
        return Ledger.open(path)
    if plan.target_delta is None:
        raise DomainError("delta must be given: calibrate the plan for one, or pass a ledger")
    budget = plan.target_epsilon or plan.privacy().epsilon
    return Ledger.create(path, epsilon=budget, delta=plan.target_delta)


def require_same_ledger(ledger: Ledger, head: Head | None) -> None:
    """Raise `LedgerError` unless the ledger has the line that the checkpoint saw last."""
    if head is None or not ledger.contains(head):
        seen = "no ledger" if head is None else f"line {head.line}, {head.digest[:16]}..., as last"
        raise LedgerError(
            f"the checkpoint saw {seen}, and the ledger ends at line {ledger.head.line} without "
            "it: it is not this run's ledger, or an old copy of it; pass the run's own ledger"
        )
