"""Running a query over many users, in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from skellam import _checks
from skellam.accounting.ledger import Ledger
from skellam.analytics.contribution import Contribution, Rows
from skellam.analytics.query import Query
from skellam.codec import Tensors
from skellam.engines import local, sampling
from skellam.entropy import Entropy
from skellam.errors import ShapeError

AnswerT = TypeVar("AnswerT")


def run(
    query: Query[AnswerT],
    users: Sequence[Rows],
    *,
    entropy: Entropy,
    aggregate: local.Aggregate = local.unmasked,
    round_: int = 0,
    dropouts: Collection[int] = (),
    ledger: Ledger | None = None,
    key: bytes | None = None,
    watch: Callable[[Contribution], object] | None = None,
) -> AnswerT:
    """Return the answer of ``users``, each of whom holds some rows.

    ``aggregate`` is `skellam.engines.local.unmasked` or ``secure``, or
    `skellam.engines.two_servers.two_servers`; ``dropouts`` do not send. A
    cyclic query asks the group of round ``round_`` alone. The release is spent from ``ledger``
    under ``key`` when all messages are in and before they are summed, so that `BudgetError` means
    that nothing was released, and bad rows cost nothing. (A device in the field sends zeros with
    its noise for bad rows.) ``watch`` is given what each user adds: how many values were clipped or
    left out is no public number.
    """
    if not len(users):
        raise ShapeError("users must hold at least one user")
    plan = query.plan
    _checks.integer("users", len(users), 1, plan.population_size, hint="plan for more clients")
    numbers = range(len(users))
    members = sampling.sample(
        plan, numbers, round_=round_, group_seed=query.digest, entropy=entropy
    )
    asked = local.Round(round_, query.digest, tuple(members), dropouts)

    def update(number: int) -> Tensors:
        added = query.contribution(users[number], entropy=entropy)
        if watch is not None:
            watch(added)
        return added.vector

    def spend() -> None:
        if ledger is not None:
            ledger.spend(
                plan.mechanism,
                key=key,
                replayable=entropy.replayable,
                note=type(query.statistic).__name__,
            )

    result = aggregate(plan, asked, update, entropy=lambda _: entropy, spend=spend)
    return query.answer(result.total, survivors=len(result.survivors))
