"""Spending: the ledger of a run, and what holds for all that it released."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol, final

from skellam.accounting.guarantee import Audience, Guarantee
from skellam.accounting.ledger import Account as LedgerAccount
from skellam.accounting.ledger import Head, Ledger
from skellam.accounting.ledger.file import is_ledger
from skellam.errors import DomainError, LedgerError
from skellam.federated.sampling import Population
from skellam.plan import AnyGuarantees, CalibratedPlan, Guarantees, Sampling, TwoServerGuarantees

_RUN_BYTES = 16
"""Length of the part of a key that names the run."""


TRAINED_ALONE = (
    "a client's update follows from the model and its own data; of clients that are trained "
    "together (vmap) this is so but for the last bits"
)
"""What all accounting of training assumes; nobody can check it of training code of one's own."""

HIDDEN_FROM_HELPER = (
    "in no other release of this ledger did the helper draw all the noise by itself: a ledger has "
    "what releases cost against the leader"
)
"""What the helper's epsilon assumes where a ledger has more than one plan's releases."""


class Spender(Protocol):
    """Accounts for releases before they are made, and knows what they cost."""

    @property
    def spends(self) -> int:
        """How many spends there are."""

    @property
    def head(self) -> Head | None:
        """The last line of the ledger, if there is one."""

    def spend(self, number: int, participations: int | None = None) -> None:
        """Write the release of round ``number`` down, or raise `BudgetError`.

        With it ``participations`` is the number of releases that one client's data is in, at most.
        """

    def require_latest(self, start: int, participations: int | None) -> None:
        """Raise `LedgerError` if there are spends of which a run that goes on knows nothing.

        It goes on with round ``start``; ``participations`` is as in `spend`.
        """

    def guarantees(self) -> AnyGuarantees | None:
        """Return what holds for all releases so far, if anything does."""


@final
class NoSpending:
    """Spends nothing: for runs that are not private."""

    spends = 0
    head = None

    def spend(self, number: int, participations: int | None = None) -> None:
        """Do nothing."""

    def require_latest(self, start: int, participations: int | None) -> None:
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

    def spend(self, number: int, participations: int | None = None) -> None:
        """Write the release of round ``number`` down, or raise `BudgetError`.

        Where nothing about cohorts is secret, what counts is how often one client's data was in a
        release, at most: the ledger has as many spends of this run as ``participations``.
        """
        if participations is None or self._population.plan.sampling.random:
            self._spend(number)
            return
        for earlier in range(participations):
            if self._ledger.account.find(self._key(earlier)) is None:
                self._spend(earlier)

    def require_latest(self, start: int, participations: int | None) -> None:
        """Raise `LedgerError` if the ledger is newer than the files of the run.

        Rounds after ``start`` were released, or data entered more often than is known: releases
        that are made again with other noise would count once. Noise that replays is the same.
        """
        known = start + 1
        if participations is not None and not self._population.plan.sampling.random:
            known = participations
        prefix = self._key(0)[:_RUN_BYTES]
        keys = (spend.key or b"" for spend in self._ledger.account.spends)
        spent = [int.from_bytes(key[_RUN_BYTES:]) for key in keys if key.startswith(prefix)]
        if not self._replayable and max(spent, default=-1) >= known:
            raise LedgerError(
                "the ledger has releases of this run of which its folder knows nothing: checkpoint "
                "and participations are old copies; restore the latest ones, or begin another run"
            )

    def _spend(self, number: int) -> None:
        self._ledger.spend(
            self._mechanism,
            key=self._key(number),
            replayable=self._replayable,
            note=self._population.statement,
        )

    def _key(self, number: int) -> bytes:
        run = sha256(b"skellam/2/run" + self._run).digest()[:_RUN_BYTES]
        return run + number.to_bytes(8, "big")

    def guarantees(self) -> AnyGuarantees | None:
        """Return what holds for all releases so far; nothing where the noise replays."""
        population = self._population
        return guarantees(self._ledger.account, population.plan, population.statement)


def guarantees(
    account: LedgerAccount, plan: CalibratedPlan, population: str
) -> AnyGuarantees | None:
    """Return what ``account`` guarantees against all audiences; nothing if some noise replays.

    The plan states the guarantees of its own rounds; where the ledger holds more, that counts too.
    """
    spends = account.rounds.get(plan.mechanism, 0)
    if not spends or any(spend.replayable for spend in account.spends):
        return None
    cycles, delta = plan.groups if plan.sampling is Sampling.CYCLIC else 1, account.budget.delta
    rounds, possible = spends * cycles, _participations(account, plan)
    stated = plan.guarantees(rounds=rounds, delta=delta)

    def against(audience: Audience) -> Guarantee:
        return plan.privacy(audience=audience, rounds=rounds, participations=possible, delta=delta)

    line = f"accounted for: {population}"

    others = len(account.rounds) > 1

    def stating(found: Guarantee, spent: float) -> Guarantee:
        hidden = (HIDDEN_FROM_HELPER,) if others and found.audience is Audience.HELPER else ()
        assumptions = (*found.assumptions, *hidden, line, TRAINED_ALONE)
        return replace(found, epsilon=max(found.epsilon, spent), assumptions=assumptions)

    known = account.guarantee(audience=Audience.SERVER).epsilon if others else 0.0
    if isinstance(stated, TwoServerGuarantees):
        return TwoServerGuarantees(
            stating(
                stated.public,
                account.epsilon() if others or possible > plan.participations else 0.0,
            ),
            stating(against(Audience.LEADER), known),
            stating(against(Audience.HELPER), known),
        )
    public = replace(stated.public, epsilon=account.epsilon())
    return Guarantees(
        stating(public, 0.0),
        stating(against(Audience.SERVER), known),
        stating(stated.server_mean, known),
    )


def _participations(account: LedgerAccount, plan: CalibratedPlan) -> int:
    """Return how often one client's data can be in the releases of ``account`` by this plan.

    Every run of it allows the plan's number; keys begin with their run.
    """
    spends = [spend for spend in account.spends if spend.mechanism == plan.mechanism]
    total = sum(spend.rounds for spend in spends)
    if not plan.sampling.random:
        return total
    runs = len({(spend.key or b"")[:_RUN_BYTES] for spend in spends})
    return min(total, runs * plan.participations)


def open_ledger(
    given: Ledger | None, path: Path, plan: CalibratedPlan, *, new: bool
) -> AbstractContextManager[Ledger]:
    """Return the ledger that was given, or the one at ``path`` with the plan's own budget.

    For a ``new`` run it is made if there is none.
    """
    if given is not None:
        return nullcontext(given)
    if is_ledger(path):
        return Ledger.open(path)
    if not new:
        raise LedgerError(f"there is no ledger {path}; pass the ledger that the run began with")
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
