"""A durable record of every release, and the budget that they share."""

from __future__ import annotations

from skellam.accounting.ledger.account import Account
from skellam.accounting.ledger.book import Ledger
from skellam.accounting.ledger.chain import Signer, Verifier
from skellam.accounting.ledger.filters import Filter, GdpFilter, RdpFilter
from skellam.accounting.ledger.record import Spend, Terms

__all__ = [
    "Account",
    "Filter",
    "GdpFilter",
    "Ledger",
    "RdpFilter",
    "Signer",
    "Spend",
    "Terms",
    "Verifier",
]
