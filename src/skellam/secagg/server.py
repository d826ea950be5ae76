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
from skellam.secagg.channel import SEAL_BYTES
from skellam.secagg.inbox import Fault, Faults, accepted, require, sorted_by_sender
from skellam.secagg.messages import (
    Advertisement,
    Agreed,
    Agreement,
    Dealing,
    Delivery,
    Envelope,
    Masked,
    Receipt,
    Roll,
    Survivors,
    authentic,
    extend,
)
from skellam.secagg.participants import Participants, enrolled, senders
from skellam.secagg.phase import Phase, Setting
from skellam.secagg.pledges import Pledge
from skellam.secagg.shamir import SHARE_BYTES
from skellam.secagg.unlock import Dealt, EncodedRoll, Gathered, Unlock
from skellam.secagg.wire import Nested
from skellam.vectors import residue_dtype

__all__ = ["Confirm", "Enrol", "Gather", "Relay", "Unlock"]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Enrol(Phase[Setting]):
    """The beginning; waits for advertisements."""

    TAG = 65

    def step(self, messages: Iterable[bytes]) -> tuple[Relay, bytes]:
        """Return the roll for everybody."""
        self._leave()
        this, roster = self.setting.round, self.setting.roster

        def parse(data: bytes) -> Advertisement:
            return authentic(Advertisement, data, roster, this.digest)

        faults: list[Fault] = []
        found = sorted_by_sender(accepted(parse, messages, roster, faults))
        require(len(found), this.least, "take part")
        roll = Roll.of(message.encode() for message in found).encode()
        return Relay(self.setting, tuple(faults), roll), roll


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Relay(Phase[Setting]):
    """Waits for the shares of those on the roll."""

    TAG = 66
    faults: Faults
    roll: EncodedRoll

    def step(self, messages: Iterable[bytes]) -> tuple[Gather, dict[int, bytes]]:
        """Return a delivery for each who dealt."""
        self._leave()
        peers = enrolled(self.roll, self.setting.round)
        everybody = set(peers.ids.tolist())
        faults: list[Fault] = []
        found = sorted_by_sender(
            accepted(lambda data: self._parse(data, peers), messages, everybody, faults)
        )
        require(len(found), self.setting.round.survivors(len(peers.ids)), "dealt shares")
        dealers = np.searchsorted(peers.ids, senders(found)).astype("<u2")
        pledges = tuple(dealing.pledge for dealing in found)
        context = extend(peers.context, b"dealers", dealers.tobytes())
        dealt = Dealt(self.roll, context, dealers, pledges)
        boxes = {number: Delivery(dealers, box).encode() for number, box in _boxes(found).items()}
        return Gather(self.setting, (*self.faults, *faults), dealt), boxes

    def _parse(self, data: bytes, peers: Participants) -> _Dealt:
        message = authentic(Dealing, data, self.setting.roster, peers.context)
        sender = message.sender
        envelopes = [Envelope.decode(envelope) for envelope in message.envelopes]
        count = 2 + self.setting.round.seed_count(len(peers.ids))
        size = 32 + count * SHARE_BYTES + SEAL_BYTES
        neighbours = peers.ids[peers.graph.neighbours(peers.place(sender))]
        regular = [e.holder for e in envelopes] == neighbours.tolist() and all(
            (e.sender, len(e.commitments), len(e.ciphertext)) == (sender, 32 * count, size)
            for e in envelopes
        )
        if not (regular and (len(message.own), len(message.secrets) + 32) == (32 * count,) * 2):
            raise TamperError("a dealing has not the form of this round", culprit=sender)
        holders = neighbours.tolist()
        return _Dealt(sender, holders, message.envelopes, Pledge.of(message, envelopes))


@dataclass(frozen=True, slots=True)
class _Dealt:
    """A dealing in the server's hands."""

    sender: int
    holders: list[int]
    envelopes: tuple[bytes, ...]
    pledge: Pledge


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
        for given in accepted(self._parse, messages, dealers, faults):
            np.add(total, given.values, out=total)
            receipts.append(given.receipt)
        total &= total.dtype.type((1 << this.bits) - 1)
        receipts.sort(key=lambda receipt: receipt.sender)
        survivors = senders(receipts)
        if not peers.graph.holds_together(np.isin(peers.ids, survivors)):
            raise ThresholdError(
                f"{len(survivors)} of {len(peers.ids)} survived; that is too few, "
                "in all or in one place of the ring"
            )
        replayable = any(receipt.replayable for receipt in receipts)
        gathered = Gathered(self.dealt, survivors, total.tobytes(), replayable)
        following = Confirm(self.setting, (*self.faults, *faults), gathered)
        return following, Survivors.of(r.encode() for r in receipts).encode()

    def _parse(self, data: bytes) -> _Given:
        message, this = Masked.decode(data), self.setting.round
        receipt = authentic(Receipt, message.receipt, self.setting.roster, self.dealt.context)
        dtype = residue_dtype(this.bits).newbyteorder("<")
        if len(message.vector) != this.length * dtype.itemsize:
            raise TamperError("a vector has the wrong length", culprit=receipt.sender)
        if sha256(message.vector).digest() != receipt.vector:
            raise TamperError("a vector is not the one that its sender signed")
        values = np.frombuffer(message.vector, dtype=dtype)
        if int(values.max()) >> this.bits:
            raise TamperError("a vector leaves the modulus", culprit=receipt.sender)
        return _Given(receipt, values)


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """A masked vector in the server's hands."""

    receipt: Receipt
    values: NDArray[Any]

    @property
    def sender(self) -> int:
        return self.receipt.sender


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

        def parse(data: bytes) -> Agreement:
            return authentic(Agreement, data, roster, gathered.context)

        faults: list[Fault] = []
        found = sorted_by_sender(accepted(parse, messages, survivors, faults))
        participants = enrolled(gathered.dealt.roll, self.setting.round).ids
        least = self.setting.round.survivors(len(participants))
        require(len(found), least, "agree on the survivors")
        following = Unlock(self.setting, (*self.faults, *faults), gathered)
        return following, Agreed.of(m.encode() for m in found).encode()


def _boxes(found: tuple[_Dealt, ...]) -> dict[int, tuple[bytes, ...]]:
    boxes: dict[int, list[bytes]] = {dealt.sender: [] for dealt in found}
    for dealt in found:
        for holder, envelope in zip(dealt.holders, dealt.envelopes, strict=True):
            if holder in boxes:
                boxes[holder].append(envelope)
    return {number: tuple(box) for number, box in boxes.items()}
