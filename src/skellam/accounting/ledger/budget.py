"""Whether a release fits the budget, without computing epsilon anew every round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from skellam.accounting.ledger.account import Account
from skellam.accounting.mechanisms import Mechanism
from skellam.errors import BudgetError


@dataclass(frozen=True, slots=True)
class Clearance:
    """``mechanism`` fits ``most`` times beside ``others``, and was refused ``refused`` times.

    More rounds never cost less, so what fits ``most`` times fits fewer times.
    """

    others: Mapping[Mechanism, int]
    mechanism: Mechanism
    most: int
    refused: float


def cleared(after: Account, mechanism: Mechanism, known: Clearance | None) -> Clearance:
    """Return a clearance that covers ``after``, or raise `BudgetError`.

    It looks ahead by as many rounds as there were, then by half as many, and so on, so that a long
    run of equal rounds takes a logarithmic number of evaluations.
    """
    others = {m: count for m, count in after.rounds.items() if m != mechanism}
    needed, refused = after.rounds[mechanism], math.inf
    if known is not None and (known.mechanism, known.others) == (mechanism, others):
        if needed <= known.most:
            return known
        refused = known.refused
    for shift in range(needed.bit_length() + 1):
        count = needed + (needed >> shift)
        if count < refused:
            if after.terms.admit({**others, mechanism: count}):
                return Clearance(others, mechanism, count, refused)
            refused = count
    raise BudgetError(
        f"the release would exceed the budget of epsilon {after.terms.epsilon:g} at delta "
        f"{after.terms.delta:g}; nothing was spent and nothing may be released"
    )
