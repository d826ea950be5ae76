"""A node's own files: the stages it began, what it spent, and the round in progress.

What Flower keeps for an app dies with the run and can be read by another app of the same series,
and two messages of a lying server may be handled at the same time from the same state. So each
stage of each round begins once, ever; every participation is spent before the masked vector leaves;
and what must outlive a stage lies beside both, readable by the node's owner alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skellam.engines import durable
from skellam.engines.flower.round_config import RoundConfig
from skellam.errors import BudgetError, DataError, DomainError, PhaseError, TamperError

if TYPE_CHECKING:
    from skellam import secagg
    from skellam.accounting import Mechanism
    from skellam.accounting.ledger import Filter, Ledger
    from skellam.engines.flower.node import Limits

_FORMAT = b"skellam/round-in-progress/1"
_READ_ONLY_BY_OWNER = 0o077
_WITHOUT_CHECKSUM = re.compile(rb"[0-9a-f]{64} [a-z_]+")
_TORN = re.compile(rb"[0-9a-f]{0,64}|[0-9a-f]{64} [a-z_]*( [0-9a-f]{0,7})?")
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True, slots=True)
class StageLog:
    """The stages that a node ever began, one line each: round, stage and a checksum of both.

    Lines of version 0.1 have no checksum.
    """

    path: Path

    def enter(self, round_id: bytes, stage: str, *, limits: Limits | None = None) -> None:
        """Note durably that ``stage`` begins; raise `TamperError` if it ever began before.

        With ``limits`` it counts as a training, and raises `BudgetError` if there were too many:
        under the lock, for a server may send two messages at once.
        """
        line = _line(round_id.hex().encode(), stage.encode())
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, durable.SECRET)
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            noted = file.read()
            begun = _begun(self.path, noted)
            if (round_id.hex().encode(), stage.encode()) in begun:
                raise TamperError(f"stage {stage} of this round began before; a replay is refused")
            if limits is not None:
                limits.require_training(_count(begun, stage))
            # A line that a crash cut short was never acted upon; it only must not spoil the next.
            file.write((b"" if noted.endswith(b"\n") or not noted else b"\n") + line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def count(self, stage: str) -> int:
        """Return in how many rounds ``stage`` began."""
        noted = self.path.read_bytes() if self.path.exists() else b""
        return _count(_begun(self.path, noted), stage)


@dataclass(frozen=True, slots=True)
class Spending:
    """A node's ledger, made at first use."""

    path: Path
    limits: Limits

    def require_spendable(self, mechanism: Mechanism) -> None:
        """Raise `BudgetError` unless one more round by ``mechanism`` is within the limits."""
        with self._open() as ledger:
            self.limits.require_turn(len(ledger.account.spends))
            if not ledger.fits(mechanism):
                raise self._exhausted()

    def participations(self, plan: bytes) -> int:
        """Return how many rounds of the plan with this digest were spent."""
        if not is_ledger(self.path):
            return 0
        with self._open() as ledger:
            return sum(spend.note == _note(plan) for spend in ledger.account.spends)

    def spend(self, mechanism: Mechanism, *, key: bytes, plan: bytes, replayable: bool) -> None:
        """Spend one round durably, or raise `BudgetError` and change nothing."""
        with self._open() as ledger:
            self.limits.require_turn(len(ledger.account.spends))
            try:
                ledger.spend(
                    mechanism, adaptive=True, replayable=replayable, key=key, note=_note(plan)
                )
            except BudgetError:
                raise self._exhausted() from None

    @contextmanager
    def _open(self) -> Iterator[Ledger]:
        budget = self.limits.budget
        before = os.umask(_READ_ONLY_BY_OWNER)
        try:
            with open_ledger(
                self.path, epsilon=budget.epsilon, delta=budget.delta, filter_=budget.filter
            ) as ledger:
                if ledger.budget != budget:
                    raise DomainError(
                        "this node's spend file was begun with another total_epsilon or delta; "
                        "these limits cannot change while the file is kept"
                    )
                yield ledger
        finally:
            os.umask(before)

    def _exhausted(self) -> BudgetError:
        return BudgetError(
            f"limit total_epsilon: another round would exceed {self.limits.total_epsilon:g} at "
            f"delta {self.limits.delta:g}, over all runs that this node ever took part in"
        )


def is_ledger(path: Path) -> bool:
    """Return whether anything was ever durable at ``path``.

    Whoever is killed while the first line is written leaves an empty file, and nothing was spent.
    """
    return path.with_name(path.name + ".tail").exists() or (
        path.exists() and path.stat().st_size > 0
    )


def open_ledger(path: Path, *, epsilon: float, delta: float, filter_: Filter | None) -> Ledger:
    """Return the ledger at ``path``, which is made if there is none."""
    from skellam.accounting.ledger import Ledger

    if is_ledger(path):
        return Ledger.open(path)
    return Ledger.open_or_create(path, epsilon=epsilon, delta=delta, filter=filter_)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClientState:
    """A round in progress; ``phase`` is as secret as the keys in it, ``update`` as the data.

    Without an ``update`` zeros are sent, and nothing is spent: none of the data was looked at.
    """

    config: RoundConfig
    content: bytes
    """Digest of all that this node was given to train on."""
    phase: bytes
    update: NDArray[np.floating[Any]] | None

    @property
    def protocol(self) -> secagg.RoundParameters:
        """What all parties to the round agree on."""
        return self.config.protocol(self.content)

    def then(self, phase: bytes, *, keep_update: bool = False) -> ClientState:
        """Return the state for the next stage."""
        return replace(self, phase=phase, update=self.update if keep_update else None)

    def store(self, path: Path) -> None:
        """Write all of it, once, for the owner's eyes."""
        header = {
            "config": self.config.to_json(),
            "content": self.content.hex(),
            "phase": self.phase.hex(),
            "update": None if self.update is None else self.update.dtype.str,
        }
        vector = b"" if self.update is None else self.update.tobytes()
        octets = durable.seal(json.dumps(header).encode() + b"\n" + vector, _FORMAT)
        new = path.with_name(path.name + ".new")
        with os.fdopen(os.open(new, _WRITE, durable.SECRET), "wb") as file:
            file.write(octets)
        # Not synced: what a crash brings back of earlier stages, the stage log keeps from use.
        new.rename(path)

    @classmethod
    def take(cls, path: Path) -> ClientState:
        """Return the round in progress and remove it: whatever happens, it is used once."""
        mine = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            # Of two processes one gets the file; the other finds no round.
            path.rename(mine)
        except FileNotFoundError:
            raise PhaseError("no round is in progress on this node") from None
        octets = durable.unseal(mine.read_bytes(), _FORMAT)
        mine.unlink()
        if octets is None:
            raise DataError(
                f"{path} was changed: its digest does not match; this node takes part again in "
                "the next round"
            )
        header, _, vector = octets.partition(b"\n")
        found = json.loads(header)
        dtype = found["update"]
        return cls(
            RoundConfig.from_json(found["config"]),
            bytes.fromhex(found["content"]),
            bytes.fromhex(found["phase"]),
            None if dtype is None else np.frombuffer(vector, dtype=np.dtype(dtype)),
        )


def wipe(path: Path) -> None:
    """Leave nothing of a round in progress, nor of one that a kill interrupted."""
    for file in (path, *path.parent.glob(f"{escape(path.name)}.*")):
        file.unlink(missing_ok=True)


def _line(round_id: bytes, stage: bytes) -> bytes:
    checksum = zlib.crc32(round_id + b" " + stage)
    return round_id + b" " + stage + b" %08x" % checksum


def _begun(path: Path, noted: bytes) -> list[tuple[bytes, bytes]]:
    """Return round and stage of every line; one that a crash cut short was never acted upon."""
    found = []
    for line in noted.split(b"\n"):
        match line.split(b" "):
            case [round_id, stage] if _WITHOUT_CHECKSUM.fullmatch(line):
                found.append((round_id, stage))
            case [round_id, stage, _] if line == _line(round_id, stage):
                found.append((round_id, stage))
            case _:
                if not _TORN.fullmatch(line):
                    raise DataError(
                        f"{path} was changed: a line is {line[:100]!r}; restore it from a copy"
                    )
    return found


def _count(begun: list[tuple[bytes, bytes]], stage: str) -> int:
    return sum(found == stage.encode() for _, found in begun)


def _note(plan: bytes) -> str:
    return f"plan {plan.hex()}"
