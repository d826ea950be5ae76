"""Reports at the leader: opening what clients sealed to it, and adding up masked vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DomainError, MessageError, ProtocolError, TamperError
from skellam.protocol.identity import Roster
from skellam.protocol.wire import (
    MAX_LENGTH,
    MAX_PARTICIPANTS,
    SIGNATURE_BYTES,
    Blob,
    Digest,
    Numbers,
    split_signature,
)
from skellam.twoserver import ring
from skellam.twoserver.constants import RunConstants, number
from skellam.twoserver.keys import SealingKey
from skellam.twoserver.messages import (
    ENTRY,
    SEALED_SEED_BYTES,
    Contribution,
    Label,
    Rejection,
    Rejections,
    Replayable,
    Report,
    RoundNumber,
    contribution_context,
    message_digest,
    report_info,
)
from skellam.twoserver.state import Participations
from skellam.vectors import residue_dtype

_ROW: Final = np.dtype(
    [
        ("sender", ">u8"),
        ("sealed", f"V{SEALED_SEED_BYTES}"),
        ("signature", f"V{SIGNATURE_BYTES}"),
        ("report", "V32"),
    ]
)
"""One client's part of the round: its entry in the job, and the digest of its report."""


@dataclass(frozen=True, slots=True, eq=False)
class Opener:
    """What it takes to read reports."""

    constants: RunConstants
    key: SealingKey
    participations: Participations
    roster: Roster

    def open(self, report: Report, round_: int, bound: bytes) -> tuple[Contribution, ring.Ring]:
        """Return what the client sealed and signed, and its masked vector; raise `TamperError`."""
        try:
            self._require_turn(report.sender, round_)
            return self._contribution(report, bound)
        except ProtocolError as error:
            text = f"client {report.sender}: {error}"
            raise TamperError(text, culprit=report.sender) from error

    def _require_turn(self, sender: int, round_: int) -> None:
        if sender not in self.roster:
            raise TamperError("is not on the roster")
        objection = self.participations.objection(sender, round_, self.constants)
        if objection is not None:
            raise TamperError(objection)

    def _contribution(self, report: Report, bound: bytes) -> tuple[Contribution, ring.Ring]:
        inner = self.key.unseal(report.sealed, report_info(bound, report.sender))
        part = Contribution.decode(inner)
        if part.sender != report.sender:
            raise MessageError("the sealed part is of another client")
        self.roster.verify(part.sender, contribution_context(bound), *split_signature(inner))
        return part, ring.from_wire(part.masked, self.constants)


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """What clients sent in one round: the sum of their vectors, and their entries for the job.

    A client's vector is in the sum alone; to take it out again its report must be at hand.
    """

    round_: RoundNumber
    round_input: Digest
    label: Label
    total: Annotated[bytes, Blob(4 * MAX_LENGTH)]
    rows: Annotated[NDArray[np.void], Numbers(_ROW)]
    replayable: Replayable
    rejections: Rejections

    @classmethod
    def empty(
        cls, round_: int, round_input: bytes, label: bytes, constants: RunConstants
    ) -> Gathered:
        """Return a round in which nothing was sent."""
        total = ring.zeros(constants).tobytes()
        return cls(round_, round_input, label, total, np.empty(0, dtype=_ROW), False, ())

    @property
    def senders(self) -> NDArray[np.uint64]:
        """Who is in the sum, ascending."""
        return self.rows["sender"].astype(np.uint64)

    @property
    def entries(self) -> NDArray[np.void]:
        """The entries of the job."""
        entries = np.empty(len(self.rows), dtype=ENTRY)
        for name in ENTRY.names or ():
            entries[name] = self.rows[name]
        return entries

    def values(self, constants: RunConstants) -> ring.Ring:
        """Return a copy of the sum."""
        kind = residue_dtype(constants.bits)
        return ring.from_slot(ring.Slot(self.round_, self.total), kind, constants).astype(kind)

    def round_digest(self, constants: RunConstants) -> bytes:
        """Return what binds messages to this round."""
        return constants.round_digest(self.round_, self.round_input)

    def added(self, reports: Iterable[bytes], opener: Opener) -> Gathered:
        """Return the round with ``reports``; those that do not verify are named and dropped."""
        total, bound = self.values(opener.constants), self.round_digest(opener.constants)
        rows = {int(row["sender"]): row.tobytes() for row in self.rows}
        rejections, replayable = list(self.rejections), self.replayable
        for data in reports:
            seen = message_digest(data)
            try:
                report = Report.decode(data)
                if _is_retry(report.sender, seen, rows):
                    continue
                part, values = opener.open(report, self.round_, bound)
            except ProtocolError as error:
                rejections.append(Rejection(getattr(error, "culprit", None), str(error)))
                continue
            rows[report.sender] = number(report.sender) + part.sealed + part.entry_signature + seen
            total += values
            replayable |= part.replayable
        ordered = b"".join(rows[sender] for sender in sorted(rows))
        return replace(
            self,
            total=_finished(total, opener.constants),
            rows=np.frombuffer(ordered, dtype=_ROW),
            replayable=replayable,
            rejections=tuple(rejections[:MAX_PARTICIPANTS]),
        )

    def without(
        self, rejections: tuple[Rejection, ...], reports: Mapping[int, bytes], opener: Opener
    ) -> Gathered:
        """Return the round without the clients of ``rejections``, whose reports must be given."""
        named = {rejection.sender for rejection in rejections}
        out = np.array([int(sender) in named for sender in self.rows["sender"]], dtype=bool)
        if not out.any():
            raise TamperError("the helper refuses a job and names nobody who is in it")
        total, bound = self.values(opener.constants), self.round_digest(opener.constants)
        for row in self.rows[out]:
            sender = int(row["sender"])
            data = reports.get(sender, b"")
            if message_digest(data) != row["report"].tobytes():
                raise DomainError(
                    f"reports must hold the report of client {sender} that was accepted; without "
                    "it abandon the round"
                )
            total -= opener.open(Report.decode(data), self.round_, bound)[1]
        return replace(
            self,
            total=_finished(total, opener.constants),
            rows=self.rows[~out],
            rejections=(*self.rejections, *rejections)[:MAX_PARTICIPANTS],
        )


def _is_retry(sender: int, seen: bytes, rows: Mapping[int, bytes]) -> bool:
    """Return whether this report counts already; raise if its sender sent another one."""
    if sender not in rows:
        return False
    if rows[sender][-32:] != seen:
        text = f"client {sender}: sent another report in this round before"
        raise TamperError(text, culprit=sender)
    return True


def _finished(total: ring.Ring, constants: RunConstants) -> bytes:
    total &= total.dtype.type((1 << constants.bits) - 1)
    return ring.to_slot(0, total).values
