"""Every exception that skellam raises on purpose.

::

    SkellamError
    ├── DomainError (ValueError)        an argument outside its domain; names it and what to do
    │   ├── ShapeError                  a wrong length, shape or number of items
    │   └── KindError (TypeError)       a wrong type or dtype
    ├── InfeasibleError                 no parameters meet the targets; says what would
    ├── CertificateError                a numerical proof obligation failed, so nothing is claimed
    ├── WrapError                       the modulus was too small for the sum
    ├── BudgetError                     the release would cost more than the budget allows
    ├── LedgerError                     a ledger that was damaged, tampered with or misused
    ├── ProtocolError                   secure aggregation: the round cannot go on safely
    │   ├── MessageError                bytes that are not a message of this version
    │   ├── PhaseError                  a phase used twice or out of order
    │   ├── TamperError                 somebody lied; `culprit` names who, where that is known
    │   ├── ThresholdError              too few participants or survivors
    │   └── HelperUnreachableError      the second of two servers did not answer in time
    ├── TrainingError                   training cannot go on, or released nothing
    ├── WorkerError                     a process that encodes for this one has ended
    ├── DataError                       a data file that is missing, truncated or mislabelled
    └── MissingExtraError (ImportError) an optional dependency is not installed
"""

from __future__ import annotations

from typing import Any


class SkellamError(Exception):
    """The root: ``except SkellamError`` catches all that skellam raises on purpose."""


class DomainError(SkellamError, ValueError):
    """An argument is outside its domain."""


class ShapeError(DomainError):
    """An argument has a wrong length, shape or number of items."""


class KindError(DomainError, TypeError):
    """An argument has a wrong type or dtype."""


class InfeasibleError(SkellamError):
    """No parameters meet the targets."""


class CertificateError(SkellamError):
    """A numerical proof obligation failed, so nothing is claimed."""


class WrapError(SkellamError):
    """The modulus was too small for the sum that went through it."""


class BudgetError(SkellamError):
    """The release would cost more than the budget allows; nothing was released."""


class LedgerError(SkellamError):
    """A ledger was damaged, tampered with or misused."""


class ProtocolError(SkellamError):
    """The secure-aggregation round cannot go on safely.

    ``faults`` (of `skellam.secagg.Fault`) are the messages that counted as not sent until then.
    """

    faults: tuple[Any, ...] = ()


class MessageError(ProtocolError):
    """Bytes that are not a message of this version of the protocol."""


class PhaseError(ProtocolError):
    """A phase was used twice or out of order."""


class TamperError(ProtocolError):
    """Somebody lied; ``culprit`` names who, where that is known."""

    def __init__(self, message: str, *, culprit: int | None = None) -> None:
        super().__init__(message)
        self.culprit = culprit


class ThresholdError(ProtocolError):
    """Too few participants or survivors for the sum to stay private."""


class HelperUnreachableError(ProtocolError):
    """The second of two servers did not answer in time; the same request may be sent again."""


class TrainingError(SkellamError):
    """Training cannot go on: too many clients failed, or no round released anything."""


class WorkerError(SkellamError):
    """A process that encodes for this one has ended; nothing was released."""


class DataError(SkellamError):
    """A data file is missing, truncated or mislabelled."""


class MissingExtraError(SkellamError, ImportError):
    """An optional dependency is not installed; the message has the command that installs it."""
