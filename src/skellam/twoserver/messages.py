"""Messages of the two-server protocol: frozen records with one encoding each.

::

    leader            helper            client
    Proposal    ->                               constants of a run
                <-    Grant                      ... with the helper's key: the run is open
    RunOffer    ---------------------->          the grant, signed by the leader as well
    RoundStart  ---------------------->          one round
                <----------------------  Report  sealed to the leader: masked vector, sealed seed
    Job         ->                               the sealed seeds
                <-    Answer                     sum of masks with noise
                <-    Refusal                    or: which entries fail; nothing was spent
    Forget      ->                               which rounds of the band still count
                <-    Forgotten

The helper knows a client's seed, hence its mask. Whatever it is sent must therefore be no function
of the masked vector: one signature or hash of it would let the helper test guesses at the vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from skellam.bands import MAX_BAND
from skellam.protocol.identity import Identity, Roster
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
    Many,
    Maybe,
    Message,
    Nested,
    Numbers,
    Signature,
    Text,
    Uint,
    split_signature,
)
from skellam.twoserver.chain import ChainHead, Links
from skellam.twoserver.constants import RunConstants, digest, number
from skellam.twoserver.keys import PUBLIC_BYTES, SEAL_BYTES, ServerSecrets, require_signature

SEED_BYTES: Final = 32
SEALED_SEED_BYTES: Final = SEED_BYTES + SEAL_BYTES
MAX_LABEL: Final = 255
ENTRY: Final = np.dtype(
    [
        ("sender", ">u8"),
        ("sealed", f"V{SEALED_SEED_BYTES}"),
        ("signature", f"V{SIGNATURE_BYTES}"),
    ]
)
"""One client's part of a job."""
_MAX_PACKED: Final = 4 * MAX_LENGTH
Constants = Annotated[RunConstants, Nested(RunConstants)]
Secrets = Annotated[ServerSecrets, Nested(ServerSecrets)]
RoundNumber = Annotated[int, Uint(4)]
SealingPublic = Annotated[bytes, Fixed(PUBLIC_BYTES)]
Packed = Annotated[bytes, Blob(_MAX_PACKED)]
Replayable = Annotated[bool, Flag()]
Label = Annotated[bytes, Blob(MAX_LABEL)]
Rounds = Annotated[tuple[int, ...], Many(Uint(4), MAX_BAND)]
Kind = TypeVar("Kind", bound=Message)
Entries = Annotated[NDArray[np.void], Numbers(ENTRY)]


@dataclass(frozen=True, slots=True)
class Proposal(Message):
    """The leader asks the helper for a run; ``helper_key`` of the constants is still zero."""

    TAG = 65
    constants: Constants
    leader_public: SealingPublic
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Grant(Message):
    """The helper opens the run; the signature is that under the empty chain of ``constants``."""

    TAG = 66
    constants: Constants
    leader_public: SealingPublic
    helper_public: SealingPublic
    signature: Signature


@dataclass(frozen=True, slots=True)
class RunOffer(Message):
    """What a client needs to know of a run, signed by both servers."""

    TAG = 67
    grant: Annotated[bytes, Blob(1 << 16)]
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class RoundStart(Message):
    """The leader asks clients for round ``round_``; with the helper's chain as far as it is known.

    ``head_signature`` is the helper's, under the head after ``base`` and ``links``.
    """

    TAG = 68
    run: Digest
    round_: RoundNumber
    round_input: Digest
    label: Label
    base: Annotated[ChainHead, Nested(ChainHead)]
    links: Links
    head_signature: Signature
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Contribution(Message):
    """What only the leader reads of a client: its masked vector, and its entry in the job."""

    TAG = 69
    sender: Id
    sealed: Annotated[bytes, Fixed(SEALED_SEED_BYTES)]
    entry_signature: Signature
    replayable: Replayable
    masked: Packed
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Report(Message):
    """A client's one message: a `Contribution`, sealed to the leader."""

    TAG = 70
    sender: Id
    sealed: Annotated[bytes, Blob(_MAX_PACKED + (1 << 12))]


@dataclass(frozen=True, slots=True, eq=False)
class Job(Message):
    """The leader asks the helper for the masks of round ``round_``.

    ``head`` is the helper's chain as the leader knows it: a helper that was set back recognises it.
    """

    TAG = 71
    run: Digest
    round_: RoundNumber
    round_input: Digest
    head: Annotated[ChainHead, Nested(ChainHead)]
    entries: Entries
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Answer(Message):
    """The sum of the masks over the band with the helper's noise; signed through the chain.

    ``previous`` is the chain's head before this answer; ``signature`` is under the head after it.
    """

    TAG = 72
    run: Digest
    round_: RoundNumber
    job: Digest
    previous: Annotated[ChainHead, Nested(ChainHead)]
    replayable: Replayable
    vector: Packed
    signature: Signature


@dataclass(frozen=True, slots=True)
class Rejection:
    """A message or an entry that does not count: whose, and why."""

    sender: Annotated[int | None, Maybe(Uint(8))]
    """None where the bytes do not even say who sent them."""
    reason: Annotated[str, Text(300)]


Rejections = Annotated[tuple[Rejection, ...], Many(Nested(Rejection), MAX_PARTICIPANTS)]


@dataclass(frozen=True, slots=True)
class Refusal(Message):
    """The entries for which the helper refuses a job; nothing was spent."""

    TAG = 73
    run: Digest
    round_: RoundNumber
    job: Digest
    rejections: Rejections
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Forget(Message):
    """Of the band's window only the rounds ``kept_rounds`` count from now on; others are empty.

    Rounds before ``next_round`` are closed. The leader knows the helper's chain up to ``head``.
    """

    TAG = 74
    run: Digest
    next_round: RoundNumber
    kept_rounds: Rounds
    head: Annotated[ChainHead, Nested(ChainHead)]
    signature: Signature = UNSIGNED


@dataclass(frozen=True, slots=True)
class Forgotten(Message):
    """What the helper kept, and its links after the head that the leader knew."""

    TAG = 75
    run: Digest
    next_round: RoundNumber
    kept_rounds: Rounds
    links: Links
    signature: Signature


def from_server(kind: type[Kind], data: bytes, who: str, public: bytes, context: bytes) -> Kind:
    """Return the message if the server ``who`` signed it in ``context``, or raise."""
    message = kind.decode(data)
    require_signature(who, public, context, *split_signature(data))
    return message


def leader_context(constants: RunConstants) -> bytes:
    """Return the context of what the leader signs in a run."""
    return digest(b"leader", constants.digest)


def helper_context(constants: RunConstants) -> bytes:
    """Return the context of what the helper signs in a run, but for heads of its chain."""
    return digest(b"helper", constants.digest)


def proposal_context() -> bytes:
    """Return the context of a proposal, whose constants lack the helper's key."""
    return digest(b"proposal")


def contribution_context(round_digest: bytes) -> bytes:
    """Return the context of the signature that only the leader sees."""
    return digest(b"contribution", round_digest)


def report_info(round_digest: bytes, sender: int) -> bytes:
    """Return what a seal to the leader is bound to."""
    return digest(b"seal to leader", round_digest, number(sender))


def seed_info(round_digest: bytes, sender: int) -> bytes:
    """Return what a seal to the helper is bound to."""
    return digest(b"seal to helper", round_digest, number(sender))


def sign_entry(identity: Identity, round_digest: bytes, sealed: bytes) -> bytes:
    """Return the signature that the helper sees: over the sealed seed and nothing else."""
    return identity.sign(_entry_context(round_digest), number(identity.number) + sealed)


def require_entry(
    roster: Roster, round_digest: bytes, sender: int, sealed: bytes, signature: bytes
) -> None:
    """Raise `TamperError` unless ``sender`` signed its entry for this round."""
    roster.verify(sender, _entry_context(round_digest), number(sender) + sealed, signature)


def _entry_context(round_digest: bytes) -> bytes:
    return digest(b"entry", round_digest)


def message_digest(data: bytes) -> bytes:
    """Return SHA-256 of a message."""
    return sha256(data).digest()
