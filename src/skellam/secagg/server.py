"""The server's part: enrol, relay, gather, confirm, unlock (the last in `unlock`).

Each phase has one method, ``step``, that takes the messages that arrived and returns the next phase
with the bytes to send. What is malformed, false or sent twice counts as not sent and is noted among
the ``faults``, with the culprit where it is known. Too few messages raise `ThresholdError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray

from skellam.errors import TamperError, ThresholdError
from skellam.secagg.inbox import Fault, Faults, accepted, require, sorted_by_sender
from skellam.secagg.messages import (
    Advertisement,
    Agreed,
    Agreement,
    Dealing,
    Delivery,
    Envelope,
    Masked,
    Roll,
    Survivors,
    extend,
    verify,
)
from skellam.secagg.participants import Participants, enrolled, senders
from skellam.secagg.phase import Phase, Setting
from skellam.secagg.shamir import SHARE_BYTES
from skellam.secagg.unlock import Dealt, Gathered, Pledge, Unlock
from skellam.secagg.wire import Nested
from skellam.vectors import residue_dtype


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Enrol(Phase[Setting]):
    """The beginning; waits for advertisements."""

    TAG = 65

    def step(self, messages: Iterable[bytes]) -> tuple[Relay, bytes]:
        """Return the roll for everybody."""
        self._leave()
        this, roster = self.setting.round, self.setting.roster

        def check(message: Advertisement) -> None:
            verify(message, roster, this.digest)

        faults: list[Fault] = []
        found = sorted_by_sender(accepted(Advertisement, messages, roster, check, faults))
        require(len(found), this.least, "take part")
        roll = Roll(found)
        return Relay(self.setting, tuple(faults), roll), roll.encode()


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Relay(Phase[Setting]):
    """Waits for the shares of those on the roll."""

    TAG = 66
    faults: Faults
    roll: Annotated[Roll, Nested(Roll)]

    def step(self, messages: Iterable[bytes]) -> tuple[Gather, dict[int, bytes]]:
        """Return a delivery for each who dealt."""
        self._leave()
        peers = enrolled(self.roll, self.setting.round)
        everybody = set(peers.ids.tolist())
        faults: list[Fault] = []
        found = sorted_by_sender(
            accepted(Dealing, messages, everybody, lambda m: self._check(m, peers), faults)
        )
        require(len(found), peers.graph.topology.survivors, "dealt shares")
        dealers = np.searchsorted(peers.ids, senders(found)).astype("<u2")
        pledges = tuple(Pledge.of(dealing) for dealing in found)
        context = extend(peers.context, b"dealers", dealers.tobytes())
        dealt = Dealt(self.roll, context, dealers, pledges)
        boxes = {
            number: Delivery(dealers, tuple(envelopes)).encode()
            for number, envelopes in _sorted_by_holder(found).items()
        }
        return Gather(self.setting, (*self.faults, *faults), dealt), boxes

    def _check(self, message: Dealing, peers: Participants) -> None:
        verify(message, self.setting.roster, peers.context)
        count = 2 + self.setting.round.seed_count(len(peers.ids))
        size = 32 + count * SHARE_BYTES + 16
        neighbours = peers.ids[peers.graph.neighbours(peers.place(message.sender))]
        regular = [e.holder for e in message.envelopes] == neighbours.tolist() and all(
            (e.sender, len(e.commitments), len(e.ciphertext)) == (message.sender, count, size)
            for e in message.envelopes
        )
        if not (regular and (len(message.own), len(message.secrets)) == (count, count - 1)):
            raise TamperError("a dealing has not the form of this round", culprit=message.sender)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gather(Phase[Setting]):
    """Waits for the masked vectors of those who dealt."""

    TAG = 67
    faults: Faults
    dealt: Annotated[Dealt, Nested(Dealt)]

    def step(self, messages: Iterable[bytes]) -> tuple[Confirm, bytes]:
        """Add the vectors up and return the receipts of all that are in the sum."""
        self._leave()
        this = self.setting.round
        peers = enrolled(self.dealt.roll, this)
        dealers = set(peers.ids[self.dealt.dealers].tolist())
        faults: list[Fault] = []
        receipts = []
        total = np.zeros(this.length, dtype=residue_dtype(this.bits))
        for message in accepted(Masked, messages, dealers, self._check, faults):
            np.add(total, self._values(message), out=total)
            receipts.append(message.receipt)
        total &= total.dtype.type((1 << this.bits) - 1)
        entries = tuple(sorted(receipts, key=lambda receipt: receipt.sender))
        if not peers.graph.holds_together(np.isin(peers.ids, senders(entries))):
            raise ThresholdError(
                f"{len(entries)} of {len(peers.ids)} survived; that is too few, "
                "in all or in one place of the ring"
            )
        replayable = any(entry.replayable for entry in entries)
        gathered = Gathered(self.dealt, senders(entries), total.tobytes(), replayable)
        following = Confirm(self.setting, (*self.faults, *faults), gathered)
        return following, Survivors(entries).encode()

    def _check(self, message: Masked) -> None:
        verify(message.receipt, self.setting.roster, self.dealt.context)
        this, dtype = self.setting.round, residue_dtype(self.setting.round.bits)
        if len(message.vector) != this.length * dtype.itemsize:
            raise TamperError("a vector has the wrong length", culprit=message.sender)
        if sha256(message.vector).digest() != message.receipt.vector:
            raise TamperError("a vector is not the one that its sender signed")
        if int(self._values(message).max()) >> this.bits:
            raise TamperError("a vector leaves the modulus", culprit=message.sender)

    def _values(self, message: Masked) -> NDArray[Any]:
        dtype = residue_dtype(self.setting.round.bits).newbyteorder("<")
        return np.frombuffer(message.vector, dtype=dtype)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Confirm(Phase[Setting]):
    """Waits for the survivors' signatures under their set."""

    TAG = 68
    faults: Faults
    gathered: Annotated[Gathered, Nested(Gathered)]

    def step(self, messages: Iterable[bytes]) -> tuple[Unlock, bytes]:
        """Return the agreements for everybody."""
        self._leave()
        gathered, roster = self.gathered, self.setting.roster
        survivors = set(gathered.survivors.tolist())

        def check(message: Agreement) -> None:
            verify(message, roster, gathered.context)

        faults: list[Fault] = []
        found = sorted_by_sender(accepted(Agreement, messages, survivors, check, faults))
        least = self.setting.round.topology(len(gathered.dealt.roll.entries)).survivors
        require(len(found), least, "agree on the survivors")
        following = Unlock(self.setting, (*self.faults, *faults), gathered)
        return following, Agreed(found).encode()


def _sorted_by_holder(found: tuple[Dealing, ...]) -> dict[int, list[Envelope]]:
    boxes: dict[int, list[Envelope]] = {dealing.sender: [] for dealing in found}
    for dealing in found:
        for envelope in dealing.envelopes:
            if envelope.holder in boxes:
                boxes[envelope.holder].append(envelope)
    return boxes
