"""The page of a run: one file, no network, nothing but what may be shown; and the operator's.

>>> from skellam import report
>>> report.write("runs/digits")                                              # doctest: +SKIP
PosixPath('runs/digits/report.html')
"""

from __future__ import annotations

from skellam.report.operator import write_operator
from skellam.report.page import LedgerSummary, Run, page, read, write

__all__ = ["LedgerSummary", "Run", "page", "read", "write", "write_operator"]


def __dir__() -> list[str]:
    return sorted(__all__)
