"""Messages: frozen records with one encoding each, and the signed lists of who takes part.

::

    client                       server
    Advertisement  ->                          keys for this round
                   <-  ParticipantList         everybody's advertisement
    KeyShares      ->                          encrypted shares of the secrets, commitments
                   <-  Delivery                the shares that are for this client
    MaskedVector   ->                          the masked vector and a signed receipt
                   <-  Survivors               the receipts of all who are in the sum
    Agreement      ->                          "I was shown this set of survivors"
                   <-  Agreements              everybody's agreement
    Opening        ->                          shares of self masks and noise seeds, or of mask keys

What clients send is signed; the signature is the last field. What the server sends is, byte for
byte, what clients signed, so it signs nothing itself. A chain of digests (`extend`) ties each stage
to all before it. Lists are tables of rows of one length, so that a client reads thousands at once.

A client reads a list as a whole and verifies the signatures that are its to verify: those of its
neighbours, or a sample that nobody foresees (docs/maths/ring.md). A process remembers the last
lists and the signatures that it verified, so that a simulation of many clients reads and verifies
each once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from skellam.errors import MessageError, TamperError
from skellam.protocol import wire
from skellam.protocol.identity import Roster
from skellam.protocol.wire import (
    MAX_LENGTH,
    MAX_PARTICIPANTS,
    SIGNATURE_BYTES,
    UNSIGNED,
    Blob,
    Digest,
    Fixed,
    Flag,
    Id,
    Indices,
    Many,
    Message,
    Nested,
    Numbers,
    Signature,
    Uint,
    split_signature,
)
from skellam.secagg.channel import SEAL_BYTES
from skellam.secagg.graph import Graph, graph
from skellam.secagg.parameters import RoundParameters

SECRET_BYTES = 32
SHARE_BYTES = SECRET_BYTES + 2
"""16 elements of the field of 65537: the low 16 bits of each, then the top bits of all."""
MAX_SECRETS = 3
MAX_ENTRY = 256 + MAX_SECRETS * (32 + SHARE_BYTES)
MAX_ENVELOPE = MAX_SECRETS * (32 + SHARE_BYTES) + 32 + SEAL_BYTES
MAX_PROOF = SIGNATURE_BYTES + 32 * MAX_PARTICIPANTS.bit_length()
_Digests = Annotated[bytes, Blob(32 * MAX_SECRETS)]
_Table = NDArray[np.void]


def _rows(size: int) -> np.dtype[np.void]:
    """Return the layout of signed messages with ``size`` bytes after their sender."""
    return np.dtype([("head", ">u2"), ("sender", ">u8"), ("rest", f"V{size}")])


class Listing(Message):
    """What many clients signed, one row each, in ascending order; abstract."""

    __slots__ = ()
    OF: ClassVar[type[Message]]
    LAYOUT: ClassVar[np.dtype[np.void]]
    entries: _Table

    @classmethod
    def of(cls, entries: Iterable[bytes]) -> Self:
        """Return the list of these encoded messages."""
        return cls(np.frombuffer(b"".join(entries), dtype=cls.LAYOUT))  # type: ignore[call-arg]

    @property
    def rows(self) -> tuple[bytes, ...]:
        """The encoded messages."""
        return tuple(entry.tobytes() for entry in self.entries)

    @property
    def senders(self) -> NDArray[np.uint64]:
        """Who sent each entry; raise unless they ascend and all are of the one kind."""
        if (self.entries["head"] != int.from_bytes(wire.head(self.OF.TAG), "big")).any():
            raise MessageError("a list holds a message of another kind or version")
        ids: NDArray[np.uint64] = self.entries["sender"].astype("<u8")
        if (ids[1:] <= ids[:-1]).any():
            raise TamperError("a list is out of order or names a client twice")
        ids.flags.writeable = False  # shared by all who read the same list
        return ids


@dataclass(frozen=True, slots=True)
class Advertisement(Message):
    """The sender's public keys for this round, and its nonce for the ring."""

    TAG = 1
    sender: Id
    channel_key: Digest
    mask_key: Digest
    nonce: Digest
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True, eq=False)
class ParticipantList(Listing):
    """The participants."""

    TAG = 2
    OF = Advertisement
    LAYOUT = _rows(3 * 32 + SIGNATURE_BYTES)
    entries: Annotated[_Table, Numbers(LAYOUT)]


@dataclass(frozen=True, slots=True)
class KeyShares(Message):
    """One dealer's commitments and its envelopes, by ascending holder, under one signature.

    What is signed is not this encoding but the top of a tree over it (`shares.MerkleTree`), so that
    each holder can prove what its own envelope was.
    """

    TAG = 4
    sender: Id
    secrets: _Digests
    own: _Digests
    envelopes: Annotated[bytes, Blob(MAX_ENVELOPE * MAX_PARTICIPANTS)]
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Delivery(Message):
    """Who shared keys (indices into the list), and the envelopes for one holder, both ascending.

    Behind each envelope stands what proves that its dealer signed it: a signature and a path.
    """

    TAG = 5
    dealers: Indices
    envelopes: Annotated[bytes, Blob((MAX_ENVELOPE + MAX_PROOF) * MAX_PARTICIPANTS)]


@dataclass(frozen=True, slots=True)
class Receipt(Message):
    """The sender's word which envelopes it opened and which vector it gave: `given_digest`."""

    TAG = 6
    sender: Id
    given: Digest
    replayable: Annotated[bool, Flag()]
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class MaskedVector(Message):
    """A masked vector: little-endian residues."""

    TAG = 7
    receipt: Annotated[bytes, Blob(MAX_ENTRY)]
    vector: Annotated[bytes, Blob(4 * MAX_LENGTH)]


@dataclass(frozen=True, slots=True, eq=False)
class Survivors(Listing):
    """The receipts of all whose vectors are in the sum."""

    TAG = 8
    OF = Receipt
    LAYOUT = _rows(32 + 1 + SIGNATURE_BYTES)
    entries: Annotated[_Table, Numbers(LAYOUT)]


@dataclass(frozen=True, slots=True)
class Agreement(Message):
    """The sender's signature under the set of survivors that it was shown."""

    TAG = 9
    sender: Id
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True, eq=False)
class Agreements(Listing):
    """The agreements of the survivors who answered."""

    TAG = 10
    OF = Agreement
    LAYOUT = _rows(SIGNATURE_BYTES)
    entries: Annotated[_Table, Numbers(LAYOUT)]


class OpenShare(NamedTuple):
    """One share with the randomness that opens its commitment."""

    dealer: Id
    secret: Annotated[int, Uint(1)]
    share: Annotated[bytes, Fixed(SHARE_BYTES)]
    blind: Digest


@dataclass(frozen=True, slots=True)
class Opening(Message):
    """The shares that the signed set of survivors calls for."""

    TAG = 11
    sender: Id
    shares: Annotated[
        tuple[OpenShare, ...], Many(Nested(OpenShare), MAX_PARTICIPANTS * MAX_SECRETS)
    ]
    signature: Signature = UNSIGNED


Kind = TypeVar("Kind", Advertisement, Receipt, Agreement, Opening)


def authentic(kind: type[Kind], data: bytes, roster: Roster, context: bytes) -> Kind:
    """Return the message if its sender signed it in ``context``, or raise `TamperError`."""
    message = kind.decode(data)
    roster.verify(message.sender, context, *split_signature(data))
    return message


def given_digest(envelopes: bytes, vector: bytes) -> bytes:
    """Return what a receipt says; ``envelopes`` is the digest of all that its sender opened.

    The server knows what it delivered. So whoever was given another envelope on the way, be it by
    the dealer itself, is found out before anything is opened, and is not taken for a liar then.
    """
    digest = sha256(b"skellam/secagg/given" + envelopes)
    digest.update(vector)
    return digest.digest()


def extend(context: bytes, stage: bytes, data: bytes) -> bytes:
    """Return the digest of ``context`` and of what ``stage`` added to it."""
    return sha256(b"skellam/secagg/" + stage + b"/" + context + sha256(data).digest()).digest()


Entry = TypeVar("Entry", Advertisement, Receipt, Agreement)
"""What all clients verify, or a sample of them, after the server has."""


@dataclass(frozen=True, slots=True, eq=False)
class Participants:
    """Numbers in ascending order, their graph, and the context that binds the signed list."""

    ids: NDArray[np.uint64]
    context: bytes
    round: RoundParameters

    @property
    def graph(self) -> Graph:
        """Who is whose neighbour; the signed nonces in the context decide."""
        return graph(self.round.topology(len(self.ids)), self.context)

    def index(self, number: int) -> int:
        """Return the index of client ``number`` in the list."""
        return int(find(np.array([number], dtype="<u8"), self.ids, "does not take part")[0])

    def holders(self, index: int) -> NDArray[np.intp]:
        """Return who holds shares of the secrets of ``index``: itself and its neighbours."""
        return np.sort(np.append(self.graph.neighbours(index), index))


List = TypeVar("List", ParticipantList, Survivors, Agreements)


def read_list(kind: type[List], data: bytes) -> tuple[_Table, NDArray[np.uint64]]:
    """Return the rows of an encoded list and their senders; no signature is verified here."""
    return _read_list(cast(Hashable, kind), bytes(data))


@lru_cache(maxsize=4)
def _read_list(kind: Any, data: bytes) -> tuple[_Table, NDArray[np.uint64]]:  # noqa: ANN401
    message = kind.decode(data)
    return message.entries, message.senders


@lru_cache(maxsize=4)
def participants_of(data: bytes, round_: RoundParameters) -> Participants:
    """Return the participants of an encoded list, whose signatures are not verified here."""
    _, ids = read_list(ParticipantList, data)
    return Participants(ids, extend(round_.digest, b"participants", data), round_)


def senders(messages: Sequence[Any]) -> NDArray[np.uint64]:
    """Return who sent each message."""
    return np.array([message.sender for message in messages], dtype="<u8")


def find(
    numbers: NDArray[np.uint64], among: NDArray[np.uint64], fault: str, *, blame: bool = True
) -> NDArray[np.intp]:
    """Return where each number is in an ascending list, or raise `TamperError` with ``fault``.

    Where the numbers stand in a list whose signatures are not verified yet, anybody can have put
    them there: ``blame`` is false and nobody is named.
    """
    if np.array_equal(numbers, among):
        return np.arange(len(numbers))
    at = np.searchsorted(among, numbers)
    missing = np.searchsorted(among, numbers, side="right") == at
    if missing.any():
        first = int(numbers[missing][0])
        raise TamperError(f"client {first} {fault}", culprit=first if blame else None)
    return at


def points(indices: NDArray[Any]) -> NDArray[np.uint16]:
    """Return where the polynomials are evaluated for the holders at ``indices``."""
    return (indices + 1).astype("<u2")


def attested(
    kind: type[Entry], entries: NDArray[np.void], roster: Roster, context: bytes
) -> tuple[Entry, ...]:
    """Return what the entries say if their senders signed it in ``context``."""
    octets, size = entries.tobytes(), entries.itemsize
    rows = [octets[at : at + size] for at in range(0, len(octets), size)]
    verified = _verified(cast(Hashable, kind), roster, context)
    return tuple([verified.get(row) or attested_once(kind, row, roster, context) for row in rows])


def attested_once(kind: type[Entry], entry: bytes, roster: Roster, context: bytes) -> Entry:
    """Return what ``entry`` says as `authentic` does; this process remembers what it verified."""
    verified = _verified(cast(Hashable, kind), roster, context)
    if entry not in verified:
        verified[entry] = authentic(kind, entry, roster, context)
    return cast(Entry, verified[entry])


@lru_cache(maxsize=8)
def _verified(kind: Hashable, roster: Roster, context: bytes) -> dict[bytes, Any]:  # noqa: ARG001
    """Return the messages of one stage that this process verified, by their bytes."""
    return {}
