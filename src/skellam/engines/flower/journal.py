"""What a node did, in files of its own: the stages it entered, and what it spent.

The state that Flower keeps for an app dies with the run, and two messages of a lying server may be
handled at the same time from the same state. So each stage of each round is entered once, ever, and
every participation is paid for before the masked vector leaves; both are on disk first.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from skellam.engines.flower.limits import Limits
from skellam.errors import BudgetError, DomainError, TamperError

if TYPE_CHECKING:
    from skellam.accounting import Noise
    from skellam.accounting.ledger import Account, Ledger


def enter(path: Path, round_id: bytes, stage: str) -> None:
    """Note durably that ``stage`` begins; raise `TamperError` if it ever began before."""
    line = f"{round_id.hex()} {stage}".encode()
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        noted = file.read()
        if line in noted.splitlines():
            raise TamperError(f"stage {stage} of this round began before; a replay is refused")
        # A line that a crash cut short was never acted upon; it only must not spoil the next.
        file.write((b"" if noted.endswith(b"\n") or not noted else b"\n") + line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def require_room(path: Path, limits: Limits, mechanism: Noise) -> None:
    """Raise `BudgetError` unless one more round by ``mechanism`` is within the limits."""
    from skellam.accounting.ledger import Account, Ledger
    from skellam.engines.flower.room import has_room

    account = Ledger.verify(path) if path.exists() else Account(limits.terms)
    _require_same_terms(account, limits)
    limits.require_turn(len(account.spends))
    if not has_room(account, mechanism):
        raise _exhausted(limits)


def spend(path: Path, limits: Limits, mechanism: Noise, *, key: bytes, replayable: bool) -> None:
    """Pay for one round durably, or raise `BudgetError` and change nothing."""
    with _ledger(path, limits) as ledger:
        _require_same_terms(ledger.account, limits)
        limits.require_turn(len(ledger.account.spends))
        try:
            ledger.spend(mechanism, adaptive=True, replayable=replayable, key=key)
        except BudgetError:
            raise _exhausted(limits) from None


def _exhausted(limits: Limits) -> BudgetError:
    return BudgetError(
        f"limit total_epsilon: another round would exceed {limits.total_epsilon:g} at delta "
        f"{limits.delta:g}, over all runs that this node ever took part in"
    )


def _ledger(path: Path, limits: Limits) -> Ledger:
    from skellam.accounting.ledger import Ledger

    if path.exists():
        return Ledger.open(path)
    terms = limits.terms
    return Ledger.create(path, epsilon=terms.epsilon, delta=terms.delta, filter=terms.filter)


def _require_same_terms(account: Account, limits: Limits) -> None:
    if account.terms != limits.terms:
        raise DomainError(
            "this node's spend file was begun with another total_epsilon or delta; "
            "these limits cannot change while the file is kept"
        )
