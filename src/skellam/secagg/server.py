"""Server phases: collect keys, shares, inputs and signatures, then unmask the sum.

Each phase has one method, ``step``, that takes the messages that arrived and returns the next phase
with the bytes to send. What is malformed, false or sent twice counts as not sent and is noted among
the ``faults``, with the culprit where it is known. Too few messages raise `ThresholdError`; what is
raised has the faults too.
"""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from skellam.errors import ProtocolError, TamperError, ThresholdError
from skellam.protocol.masks import add_masks
from skellam.protocol.wire import (
    MAX_LENGTH,
    MAX_PARTICIPANTS,
    Blob,
    Digest,
    Fixed,
    Flag,
    Ids,
    Indices,
    Many,
    Maybe,
    Nested,
    Text,
    Uint,
)
from skellam.secagg.channel import low_order, mask_purpose, self_mask
from skellam.secagg.messages import (
    MAX_ENTRY,
    Advertisement,
    Agreement,
    Agreements,
    Delivery,
    KeyShares,
    MaskedVector,
    Opening,
    ParticipantList,
    Participants,
    Receipt,
    Survivors,
    attested_once,
    authentic,
    extend,
    given_digest,
    participants_of,
    read_list,
    senders,
)
from skellam.secagg.parameters import Phase, Setting
from skellam.secagg.shares import (
    MASK_KEY,
    NOISE_SEED,
    SELF_MASK,
    Commitments,
    MerkleTree,
    OpenedShares,
    envelope_bytes,
)
from skellam.vectors import Residues, residue_dtype

EncodedList = Annotated[bytes, Blob(MAX_ENTRY * MAX_PARTICIPANTS)]


@dataclass(frozen=True, slots=True)
class Fault:
    """A message that counts as not sent: why, and who is to blame where that is known."""

    reason: Annotated[str, Text(500)]
    culprit: Annotated[int | None, Maybe(Uint(8))]
    index: Annotated[int, Uint(4)]
    """Which of the messages of its step it is."""


Faults = Annotated[tuple[Fault, ...], Many(Nested(Fault), 16 * MAX_PARTICIPANTS)]


@dataclass(frozen=True, slots=True, eq=False)
class SharedKeys:
    """What is settled once all keys are shared."""

    participant_list: EncodedList
    context: Digest
    dealers: Indices
    commitments: Annotated[tuple[Commitments, ...], Many(Nested(Commitments))]
    delivered: Annotated[tuple[bytes, ...], Many(Fixed(32))]
    """Digests of the envelopes for each dealer."""


@dataclass(frozen=True, slots=True, eq=False)
class SummedInputs:
    """What is settled once all vectors are in."""

    shared: Annotated[SharedKeys, Nested(SharedKeys)]
    survivors: Ids
    total: Annotated[bytes, Blob(4 * MAX_LENGTH)]
    replayable: Annotated[bool, Flag()]

    @property
    def context(self) -> bytes:
        """The context that binds the set of survivors."""
        return extend(self.shared.context, b"survivors", self.survivors.tobytes())


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The sum, who is in it, and the opened noise seeds by client."""

    total: Residues
    participants: int
    survivors: tuple[int, ...]
    noise_seeds: Mapping[int, bytes]
    faults: tuple[Fault, ...]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CollectKeys(Phase[Setting]):
    """The beginning; waits for advertisements."""

    TAG = 65

    def step(self, messages: Iterable[bytes]) -> tuple[CollectShares, bytes]:
        """Return the list of participants for everybody."""
        self._leave()
        round_, roster = self.setting.round, self.setting.roster

        def parse(data: bytes) -> Advertisement:
            found = attested_once(Advertisement, data, roster, round_.digest)
            if low_order(found.channel_key) or low_order(found.mask_key):
                raise TamperError("a public key is of low order", culprit=found.sender)
            return found

        faults: list[Fault] = []
        with attached((), faults):
            found = sorted_by_sender(accepted(parse, messages, roster, faults))
            round_.require_participants(len(found))
        listed = ParticipantList.of(message.encode() for message in found).encode()
        return CollectShares(self.setting, tuple(faults), listed), listed


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CollectShares(Phase[Setting]):
    """Waits for the key shares of the participants."""

    TAG = 66
    faults: Faults
    participant_list: EncodedList

    def step(self, messages: Iterable[bytes]) -> tuple[CollectInputs, dict[int, bytes]]:
        """Return a delivery for each who shared keys."""
        self._leave()
        peers = participants_of(self.participant_list, self.setting.round)
        everybody = set(peers.ids.tolist())
        needed = self.setting.round.tolerance.survivors(len(peers.ids))
        faults: list[Fault] = []
        with attached(self.faults, faults):
            found = sorted_by_sender(
                accepted(lambda data: self._parse(data, peers), messages, everybody, faults)
            )
            require(len(found), needed, "shared keys")
        dealers = np.searchsorted(peers.ids, senders(found)).astype("<u2")
        commitments = tuple(parsed.commitments for parsed in found)
        context = extend(peers.context, b"dealers", dealers.tobytes())
        boxes = _boxes(found)
        delivered = tuple(sha256(b"".join(box[::2])).digest() for box in boxes.values())
        shared = SharedKeys(self.participant_list, context, dealers, commitments, delivered)
        sent = {number: Delivery(dealers, b"".join(box)).encode() for number, box in boxes.items()}
        return CollectInputs(self.setting, (*self.faults, *faults), shared), sent

    def _parse(self, data: bytes, peers: Participants) -> _Parsed:
        message = KeyShares.decode(data)
        sender, count = message.sender, self.setting.round.secret_count
        size = envelope_bytes(count)
        tree = MerkleTree(message, size)
        roster = self.setting.roster
        roster.verify(sender, peers.context, tree.statement, message.signature)
        holders = peers.ids[peers.graph.neighbours(peers.index(sender))].tolist()
        found = len(message.envelopes), len(message.own), len(message.secrets) + 32
        if found != (size * len(holders), 32 * count, 32 * count):
            raise TamperError("key shares have not the form of this round", culprit=sender)
        shares = [envelope[: 32 * count] for envelope in tree.envelopes]
        shares.insert(bisect(holders, sender), message.own)
        commitments = Commitments(sender, message.secrets, b"".join(shares))
        return _Parsed(sender, holders, tree, message.signature, commitments)


@dataclass(frozen=True, slots=True)
class _Parsed:
    """Key shares in the server's hands."""

    sender: int
    holders: list[int]
    tree: MerkleTree
    signature: bytes
    commitments: Commitments


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CollectInputs(Phase[Setting]):
    """Waits for the masked vectors of those who shared keys."""

    TAG = 67
    faults: Faults
    shared: Annotated[SharedKeys, Nested(SharedKeys)]

    def step(self, messages: Iterable[bytes]) -> tuple[CollectSignatures, bytes]:
        """Add the vectors up and return the receipts of all that are in the sum."""
        self._leave()
        round_ = self.setting.round
        peers = participants_of(self.shared.participant_list, round_)
        dealers = peers.ids[self.shared.dealers].tolist()
        delivered = dict(zip(dealers, self.shared.delivered, strict=True))
        faults: list[Fault] = []
        receipts = []
        total = np.zeros(round_.length, dtype=residue_dtype(round_.bits))
        parse = partial(self._parse, delivered=delivered)
        for given in accepted(parse, messages, delivered, faults):
            np.add(total, given.values, out=total)
            receipts.append(given.receipt)
        total &= total.dtype.type((1 << round_.bits) - 1)
        receipts.sort(key=lambda receipt: receipt.sender)
        survivors = senders(receipts)
        with attached(self.faults, faults):
            if not peers.graph.holds_together(np.isin(peers.ids, survivors)):
                raise ThresholdError(
                    f"{len(survivors)} of {len(peers.ids)} survived; that is too few, "
                    "in all or in one part of the ring"
                )
        replayable = any(receipt.replayable for receipt in receipts)
        summed = SummedInputs(self.shared, survivors, total.tobytes(), replayable)
        following = CollectSignatures(self.setting, (*self.faults, *faults), summed)
        return following, Survivors.of(r.encode() for r in receipts).encode()

    def _parse(self, data: bytes, *, delivered: Mapping[int, bytes]) -> _Given:
        message, round_ = MaskedVector.decode(data), self.setting.round
        receipt = attested_once(Receipt, message.receipt, self.setting.roster, self.shared.context)
        dtype = residue_dtype(round_.bits).newbyteorder("<")
        if len(message.vector) != round_.length * dtype.itemsize:
            raise TamperError("a vector has the wrong length", culprit=receipt.sender)
        envelopes = delivered.get(receipt.sender, b"")
        if envelopes and given_digest(envelopes, message.vector) != receipt.given:
            raise TamperError(
                "a vector is not the one that its sender signed, "
                "or the sender got other envelopes than were sent"
            )
        values = np.frombuffer(message.vector, dtype=dtype)
        if int(values.max()) >> round_.bits:
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
class CollectSignatures(Phase[Setting]):
    """Waits for the survivors' signatures under their set."""

    TAG = 68
    faults: Faults
    summed: Annotated[SummedInputs, Nested(SummedInputs)]

    def step(self, messages: Iterable[bytes]) -> tuple[UnmaskSum, bytes]:
        """Return the agreements for everybody."""
        self._leave()
        summed, roster = self.summed, self.setting.roster
        survivors = set(summed.survivors.tolist())

        def parse(data: bytes) -> Agreement:
            return attested_once(Agreement, data, roster, summed.context)

        participants = participants_of(summed.shared.participant_list, self.setting.round).ids
        needed = self.setting.round.tolerance.survivors(len(participants))
        faults: list[Fault] = []
        with attached(self.faults, faults):
            found = sorted_by_sender(accepted(parse, messages, survivors, faults))
            require(len(found), needed, "agree on the survivors")
        following = UnmaskSum(self.setting, (*self.faults, *faults), summed)
        return following, Agreements.of(m.encode() for m in found).encode()


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UnmaskSum(Phase[Setting]):
    """Waits for the shares that open the sum."""

    TAG = 69
    faults: Faults
    summed: Annotated[SummedInputs, Nested(SummedInputs)]

    def step(self, messages: Iterable[bytes]) -> Outcome:
        """Return the sum; raise `TamperError` if a dealer's shares do not give its secret."""
        self._leave()
        round_, summed = self.setting.round, self.summed
        peers = participants_of(summed.shared.participant_list, round_)
        survivors = tuple(summed.survivors.tolist())
        removed = round_.removed(len(peers.ids), survivors)
        shares = OpenedShares(peers, summed.shared.commitments, survivors, removed)
        dealers = [each.dealer for each in summed.shared.commitments]
        faults: list[Fault] = []
        with attached(self.faults, faults):
            for opening in accepted(self._parse(shares), messages, set(survivors), faults):
                shares.add(opening)
            secrets = {dealer: shares.combine(dealer) for dealer in dealers}
            total = self._sum(peers, secrets)
        noise = {number: secrets[number][NOISE_SEED] for number in removed}
        return Outcome(total, len(peers.ids), survivors, noise, (*self.faults, *faults))

    def _parse(self, shares: OpenedShares) -> Callable[[bytes], Opening]:
        def parse(data: bytes) -> Opening:
            message = authentic(Opening, data, self.setting.roster, self.summed.context)
            shares.check(message)
            return message

        return parse

    def _sum(self, peers: Participants, secrets: dict[int, dict[int, bytes]]) -> Residues:
        round_, shared = self.setting.round, self.summed.shared
        entries, _ = read_list(ParticipantList, shared.participant_list)
        public = [Advertisement.decode(row.tobytes()).mask_key for row in entries]
        dtype = residue_dtype(round_.bits)
        total = np.frombuffer(self.summed.total, dtype=dtype).copy()
        added: list[bytes] = []
        subtracted: list[bytes] = []
        for number, opened in secrets.items():
            if SELF_MASK in opened:
                subtracted.append(self_mask(opened[SELF_MASK], shared.context))
                continue
            for other, seed in self._pair_masks(peers, public, number, opened[MASK_KEY]):
                (subtracted if other < number else added).append(seed)
        cores = os.cpu_count()
        add_masks(total, bits=round_.bits, added=added, subtracted=subtracted, workers=cores)
        count = len(self.summed.survivors)
        return Residues(total, round_.bits, round_.label, self.summed.replayable, count)

    def _pair_masks(
        self, peers: Participants, public: list[bytes], dead: int, key: bytes
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the living neighbours of ``dead`` and the seeds of their masks with it."""
        context, pair = self.summed.shared.context, self.setting.key_pair(key)
        index = peers.index(dead)
        if pair.public != public[index]:
            raise TamperError("a dealer shared another mask key than it advertised", culprit=dead)
        alive = np.isin(peers.ids, self.summed.survivors)
        for neighbour in peers.graph.neighbours(index):
            if alive[neighbour]:
                other = int(peers.ids[neighbour])
                purpose = mask_purpose(context, dead, other)
                yield other, pair.agree(public[neighbour], purpose, culprit=other)


class Sent(Protocol):
    """Whatever has a sender."""

    @property
    def sender(self) -> int:
        """Who sent it."""


M = TypeVar("M", bound=Sent)


def accepted(
    parse: Callable[[bytes], M],
    messages: Iterable[bytes],
    senders: Container[int],
    faults: list[Fault],
) -> Iterator[M]:
    """Yield what ``parse`` accepts, the first of each sender; note what is wrong with the rest."""
    seen: set[int] = set()
    for index, data in enumerate(messages):
        try:
            message = parse(data)
            _require_turn(message.sender, senders, seen)
        except ProtocolError as error:
            faults.append(Fault(str(error), getattr(error, "culprit", None), index))
        else:
            seen.add(message.sender)
            yield message


@contextmanager
def attached(earlier: tuple[Fault, ...], faults: list[Fault]) -> Iterator[None]:
    """Give whatever is raised the faults of the round so far: who caused it is among them."""
    try:
        yield
    except ProtocolError as error:
        error.faults = (*earlier, *faults)
        raise


def sorted_by_sender(messages: Iterable[M]) -> tuple[M, ...]:
    """Return the messages by ascending sender."""
    return tuple(sorted(messages, key=lambda message: message.sender))


def require(found: int, needed: int, what: str) -> None:
    """Raise `ThresholdError` unless ``found`` is enough."""
    if found < needed:
        raise ThresholdError(f"only {found} clients {what}; at least {needed} must")


def _require_turn(sender: int, senders: Container[int], seen: set[int]) -> None:
    if sender not in senders:
        raise TamperError("a message came out of turn", culprit=sender)
    if sender in seen:
        raise TamperError("a client sent twice", culprit=sender)


def _boxes(found: tuple[_Parsed, ...]) -> dict[int, list[bytes]]:
    """Return, for each who dealt, the others' envelopes for it, each followed by its proof."""
    boxes: dict[int, list[bytes]] = {parsed.sender: [] for parsed in found}
    for parsed in found:
        tree, signature = parsed.tree, parsed.signature
        for holder, *dealt in zip(parsed.holders, tree.envelopes, tree.paths(), strict=True):
            if holder in boxes:
                boxes[holder] += (dealt[0], signature + dealt[1])
    return boxes
