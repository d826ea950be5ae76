"""The ledger: a durable record of every release, and the budget that they share."""

from __future__ import annotations

from skellam.accounting.ledger.composition import Budget, Filter, GdpFilter, RdpFilter
from skellam.accounting.ledger.file import Head, Signer, Verifier
from skellam.accounting.ledger.ledger import Account, Ledger, Spend, read_ledger

__all__ = [
    "Account",
    "Budget",
    "Filter",
    "GdpFilter",
    "Head",
    "Ledger",
    "RdpFilter",
    "Signer",
    "Spend",
    "Verifier",
    "read_ledger",
]


def __dir__() -> list[str]:
    return sorted(__all__)
