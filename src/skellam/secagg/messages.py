"""The messages: frozen records with one encoding each.

::

    client                       server
    Advertisement  ->                          keys for this round
                   <-  Roll                    everybody's advertisement
    Dealing        ->                          encrypted shares of the secrets, commitments
                   <-  Delivery                the shares that are for this client
    Masked         ->                          the masked vector and a signed receipt
                   <-  Survivors               the receipts of all who are in the sum
    Agreement      ->                          "I was shown this set of survivors"
                   <-  Agreed                  everybody's agreement
    Opening        ->                          shares: of self masks, or of mask keys; never both

What clients send is signed; the signature is the last field. What the server sends is, byte for
byte, what clients signed, so it signs nothing itself. A chain of digests (`extend`) ties each stage
to all before it. Lists are tables of rows of one length, so that a client reads thousands at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from skellam.errors import MessageError, TamperError
from skellam.secagg import wire
from skellam.secagg.identity import Identity, Roster
from skellam.secagg.round import MAX_LENGTH
from skellam.secagg.shamir import SHARE_BYTES
from skellam.secagg.wire import (
    MAX_PARTICIPANTS,
    Blob,
    Digest,
    Fixed,
    Flag,
    Id,
    Indices,
    Many,
    Nested,
    Numbers,
    Signature,
    Uint,
)

SIGNATURE_BYTES = 64
UNSIGNED = bytes(SIGNATURE_BYTES)
MAX_SECRETS = 64
MAX_ENTRY = 256 + MAX_SECRETS * (32 + SHARE_BYTES)
Encoded = Annotated[tuple[bytes, ...], Many(Blob(MAX_ENTRY))]
_Digests = Annotated[bytes, Blob(32 * MAX_SECRETS)]
_Table = NDArray[np.void]


def _rows(size: int) -> np.dtype[np.void]:
    """Return the layout of signed messages with ``size`` bytes after their sender."""
    return np.dtype([("head", ">u2"), ("sender", ">u8"), ("rest", f"V{size}")])


class Message:
    """A record that travels by itself; abstract."""

    __slots__ = ()
    TAG: ClassVar[int]

    def encode(self) -> bytes:
        """Return the only encoding: version, kind, fields."""
        return wire.head(self.TAG) + wire.body(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the message that ``data`` encodes, or raise `MessageError`."""
        return wire.decode(cls, cls.TAG, data)


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
class Roll(Listing):
    """The participants."""

    TAG = 2
    OF = Advertisement
    LAYOUT = _rows(3 * 32 + SIGNATURE_BYTES)
    entries: Annotated[_Table, Numbers(LAYOUT)]


@dataclass(frozen=True, slots=True)
class Envelope(Message):
    """The shares of one dealer's secrets for one holder, encrypted, and a commitment to each."""

    TAG = 3
    sender: Id
    holder: Id
    commitments: _Digests
    ciphertext: Annotated[bytes, Blob(60 + MAX_SECRETS * SHARE_BYTES)]
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Dealing(Message):
    """All envelopes of one dealer, its own shares' commitments, and those to its secrets."""

    TAG = 4
    sender: Id
    secrets: _Digests
    own: _Digests
    envelopes: Encoded
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Delivery(Message):
    """Who dealt (places in the roll), and the envelopes for one holder, both ascending."""

    TAG = 5
    dealers: Indices
    envelopes: Encoded


@dataclass(frozen=True, slots=True)
class Receipt(Message):
    """The sender's word that it gave a vector with this digest."""

    TAG = 6
    sender: Id
    vector: Digest
    replayable: Annotated[bool, Flag()]
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Masked(Message):
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
class Agreed(Listing):
    """The agreements of the survivors who answered."""

    TAG = 10
    OF = Agreement
    LAYOUT = _rows(SIGNATURE_BYTES)
    entries: Annotated[_Table, Numbers(LAYOUT)]


@dataclass(frozen=True, slots=True)
class OpenShare:
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


class Signed(Protocol):
    """A message with a sender whose last field is the sender's signature."""

    @property
    def sender(self) -> int:
        """Who sent it."""

    def encode(self) -> bytes:
        """Return the only encoding."""


Kind = TypeVar("Kind", Advertisement, Envelope, Dealing, Receipt, Agreement, Opening)


def signed(message: Signed, identity: Identity, context: bytes) -> bytes:
    """Return the encoding of ``message`` with its sender's signature in ``context``."""
    payload = message.encode()[:-SIGNATURE_BYTES]
    return payload + identity.sign(context, payload)


def authentic(kind: type[Kind], data: bytes, roster: Roster, context: bytes) -> Kind:
    """Return the message if its sender signed it in ``context``, or raise `TamperError`."""
    message = kind.decode(data)
    payload, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    roster.verify(message.sender, context, payload, signature)
    return message


def extend(context: bytes, stage: bytes, data: bytes) -> bytes:
    """Return the digest of ``context`` and of what ``stage`` added to it."""
    return sha256(b"skellam/secagg/" + stage + b"/" + context + sha256(data).digest()).digest()
