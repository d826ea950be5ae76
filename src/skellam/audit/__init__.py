"""Attack what was built, and compare with what is claimed: an empirical lower bound on epsilon.

>>> from skellam import audit
>>> print(audit.codec(plan, trials=2000, confidence=0.999, entropy=sk.SystemEntropy()))
... # doctest: +SKIP
"""

from __future__ import annotations

from skellam.audit.releases import codec
from skellam.audit.runs import training
from skellam.audit.verdict import Audit, Verdict

__all__ = ["Audit", "Verdict", "codec", "training"]


def __dir__() -> list[str]:
    return sorted(__all__)
