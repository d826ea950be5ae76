"""A query over many users, in this process."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from skellam import _checks
from skellam.accounting.ledger import Ledger
from skellam.analytics.contribution import Rows
from skellam.analytics.query import Query
from skellam.codec.layout import Tensors
from skellam.engines import local
from skellam.entropy import Entropy
from skellam.errors import ShapeError

AnswerT = TypeVar("AnswerT")


def run(
    query: Query[AnswerT],
    users: Sequence[Rows],
    *,
    entropy: Entropy,
    aggregate: local.Aggregate = local.clear,
    silent: Collection[int] = (),
    ledger: Ledger | None = None,
    key: bytes | None = None,
) -> AnswerT:
    """Return the answer of ``users``, each of whom holds some rows.

    ``aggregate`` is `skellam.engines.local.clear` or ``secure``; ``silent`` users vanish before
    they send. The release is written into ``ledger`` under ``key`` before it is made, so that
    `BudgetError` means that nothing was released. Bad rows raise and release nothing; a device in
    the field sends zeros with its noise instead.
    """
    if not len(users):
        raise ShapeError("users must hold at least one user")
    _checks.integer("users", len(users), 1, query.plan.cohort, way_out="plan for more clients")
    this = local.Round(0, query.digest, tuple(range(len(users))), silent)
    local.require_cohort(query.plan, this)
    if ledger is not None:
        ledger.spend(
            query.plan.mechanism,
            key=key,
            replayable=entropy.replayable,
            note=type(query.statistic).__name__,
        )

    def update(number: int) -> Tensors:
        return query.contribution(users[number], entropy=entropy).vector

    outcome = aggregate(query.plan, this, update, entropy=lambda _: entropy)
    return query.answer(outcome.total, invited=len(this.members), survivors=len(outcome.survivors))
