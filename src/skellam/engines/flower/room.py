"""Whether one more round fits a ledger, asked before anybody works for it."""

from __future__ import annotations

from skellam.accounting import Mechanism
from skellam.accounting.ledger import Account


def has_room(account: Account, mechanism: Mechanism) -> bool:
    """Return whether the budget allows ``mechanism`` once more; nothing is spent."""
    count = account.rounds.get(mechanism, 0) + 1
    return account.terms.admit({**account.rounds, mechanism: count})
