"""Secret shares: a client's secrets cut into bundles, the commitments to them, their opening.

The secrets are, in this order: the mask key, the self mask's seed and, where noise is removable,
the seed of the client's noise. Of one peer either the first or the others are ever opened.

*Sharing* is Shamir's over the prime field of 65537 elements. A secret is 16 limbs of 16 bits, each
shared by a polynomial of its own; so each limb, and hence the secret, is perfectly hidden from
fewer than ``threshold`` holders. Why this field: products are below 2**32, so a matrix product in
float64 is exact up to 2**21 terms; 2**32 - 1 = 65535 * 65537, so 32 random bits give a uniform
element unless they are all ones; and logarithms fit a table.

*Commitments.* A dealer binds itself to its secrets and to each share of them by hashes. A holder
that opens another share than it got, and a dealer whose shares do not combine to the secret it
committed to, are both found out. A commitment hides what it binds: a share is hashed with 32 random
bytes of its own; a secret is 32 uniform bytes, which a hash hides as they are.

*One signature a dealer.* An envelope is the commitments to one holder's shares and the sealed
shares. A dealer signs the top of a tree of hashes over its commitments and all its envelopes. A
holder gets its envelope with the signature and the path to the top: with these it can prove to
anybody what the dealer signed for it, and nobody can prove anything else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from struct import Struct
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.entropy import Entropy, random_bytes
from skellam.errors import (
    DomainError,
    MessageError,
    ProtocolError,
    ShapeError,
    TamperError,
    ThresholdError,
)
from skellam.protocol import wire
from skellam.protocol.identity import Roster
from skellam.protocol.wire import MAX_PARTICIPANTS, SIGNATURE_BYTES, Blob, Id
from skellam.secagg.channel import SEAL_BYTES
from skellam.secagg.messages import (
    MAX_SECRETS,
    SECRET_BYTES,
    SHARE_BYTES,
    KeyShares,
    Opening,
    OpenShare,
    Participants,
    points,
)

PRIME = 65537
LIMBS = SECRET_BYTES // 2
_GENERATOR = 3
_ORDER = PRIME - 1

Field = NDArray[np.uint32]


def split(
    secrets: Sequence[bytes], points: NDArray[np.uint16], threshold: int, *, entropy: Entropy
) -> NDArray[np.uint8]:
    """Return the shares as bytes, indexed by point and secret; any ``threshold`` points combine."""
    _checks.integer("threshold", threshold, 1, len(points))
    _check_points(points)
    limbs = np.stack([_limbs(secret) for secret in secrets])
    coefficients = np.empty((threshold, limbs.size))
    coefficients[0] = limbs.ravel()
    coefficients[1:] = _uniform(coefficients[1:].size, entropy).reshape(-1, limbs.size)
    values = (_powers(points.tobytes(), threshold) @ coefficients) % PRIME
    return pack(values.astype(np.uint32).reshape(len(points), len(secrets), LIMBS))


def combine(points: NDArray[np.uint16], shares: NDArray[np.uint8]) -> tuple[bytes, ...]:
    """Return the secrets from exactly ``threshold`` shares, indexed by point and secret.

    Shares that fewer than ``threshold`` holders gave, or that do not fit together, give a wrong
    secret or raise `TamperError`: callers compare the secret with its commitment.
    """
    _check_points(points)
    values = unpack(shares).reshape(len(points), -1)
    limbs = (weights(points.tobytes()) @ values) % PRIME
    if (limbs >= 1 << 16).any():
        raise TamperError("the shares do not combine to a secret")
    octets = limbs.astype("<u2").reshape(-1, LIMBS)
    return tuple(row.tobytes() for row in octets)


@lru_cache(maxsize=4096)
def weights(points: bytes) -> NDArray[np.float64]:
    """Return the Lagrange weights at zero for points given as little-endian 16-bit numbers."""
    # w_j = prod_{m != j} x_m / (x_m - x_j): a sum of logarithms, without a single inversion.
    logs, powers = _tables()
    x = np.frombuffer(points, dtype="<u2").astype(np.int64)
    differences = (x[None, :] - x[:, None]) % PRIME
    np.fill_diagonal(differences, 1)
    exponents = logs[x].sum() - logs[x] - logs[differences].sum(axis=1)
    result: NDArray[np.float64] = powers.take(exponents % _ORDER)
    return result


def pack(values: Field) -> NDArray[np.uint8]:
    """Return field elements (16 in the last axis) as 34 bytes: low halves, then the top bits."""
    low = (values & 0xFFFF).astype("<u2").view(np.uint8)
    top = np.packbits((values >> 16).astype(np.uint8), axis=-1)
    return np.concatenate([low, top], axis=-1)


def unpack(octets: NDArray[np.uint8]) -> Field:
    """Return the field elements of `pack`; raise `MessageError` for bytes that it never gives."""
    if octets.shape[-1] != SHARE_BYTES:
        raise ShapeError(f"a share has {SHARE_BYTES} bytes, got {octets.shape[-1]}")
    low = np.ascontiguousarray(octets[..., :SECRET_BYTES]).view("<u2").astype(np.uint32)
    top = np.unpackbits(octets[..., SECRET_BYTES:], axis=-1).astype(np.uint32)
    if (top & (low != 0)).any():
        raise MessageError("a share holds a number outside the field")
    return low | top << np.uint32(16)


def _limbs(secret: bytes) -> Field:
    octets = _checks.octets("secret", secret, SECRET_BYTES)
    return np.frombuffer(octets, dtype="<u2").astype(np.uint32)


def _uniform(count: int, entropy: Entropy) -> NDArray[np.uint32]:
    # 2**32 - 1 is a multiple of the prime, so all values but the last fall evenly.
    words = np.empty(count, dtype=np.uint32)
    entropy.fill(words)
    while (rejected := words == 0xFFFFFFFF).any():
        again = np.empty(int(rejected.sum()), dtype=np.uint32)
        entropy.fill(again)
        words[rejected] = again
    return words % PRIME


def _check_points(points: NDArray[np.uint16]) -> None:
    if points.dtype != np.dtype("<u2"):
        raise DomainError("points must be little-endian 16-bit numbers")
    if not (len(points) and points.min() > 0 and len(np.unique(points)) == len(points)):
        raise DomainError("points must be distinct and not zero")


@lru_cache(maxsize=64)
def _powers(points: bytes, threshold: int) -> NDArray[np.float64]:
    logs, powers = _tables()
    x = np.frombuffer(points, dtype="<u2")
    exponents = np.outer(logs[x], np.arange(threshold))
    # The unit group has 2**16 elements: an exponent's low 16 bits are the exponent.
    exponents &= _ORDER - 1
    return powers.take(exponents)


@cache
def _tables() -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return logarithms (index 0 unused) and powers of the generator 3 of the unit group."""
    powers = np.empty(_ORDER, dtype=np.int64)
    powers[0] = 1
    filled = 1
    while filled < _ORDER:
        factor = pow(_GENERATOR, filled, PRIME)
        powers[filled : 2 * filled] = powers[:filled] * factor % PRIME
        filled *= 2
    logs = np.zeros(PRIME, dtype=np.int64)
    logs[powers] = np.arange(_ORDER)
    return logs, powers.astype(np.float64)


MASK_KEY, SELF_MASK, NOISE_SEED = 0, 1, 2


@dataclass(frozen=True, slots=True, repr=False)
class Held:
    """One dealer's shares in the hands of one holder: a blind, then a share of each secret."""

    dealer: Id
    bundle: Annotated[bytes, Blob(32 + MAX_SECRETS * SHARE_BYTES)]

    def commitments(self, context: bytes, holder: int) -> bytes:
        """Return the commitments to all shares, one after another."""
        bundle = self.bundle
        blind_prefix, prefix = _BLIND + bundle[:32], _SHARE + context
        parts = []
        for kind, at in enumerate(range(32, len(bundle), SHARE_BYTES)):
            content = sha256(blind_prefix + _KINDS[kind]).digest() + bundle[at : at + SHARE_BYTES]
            names = _share_names(self.dealer, kind, holder)
            parts.append(sha256(prefix + names + content).digest())
        return b"".join(parts)

    def open(self, kind: int) -> OpenShare:
        """Return the share of the secret of ``kind`` with its own blind."""
        at = 32 + kind * SHARE_BYTES
        share = self.bundle[at : at + SHARE_BYTES]
        return OpenShare(self.dealer, kind, share, blind(self.bundle[:32], kind))


def deal(
    secrets: tuple[bytes, ...], peers: Participants, index: int, *, entropy: Entropy
) -> dict[int, Held]:
    """Return, for the index of each holder, a fresh blind and a share of each secret."""
    holders = peers.holders(index)
    threshold = peers.graph.topology.threshold
    shares = split(secrets, points(holders), threshold, entropy=entropy)
    blinds = random_bytes(32 * len(holders), entropy=entropy)
    dealer = int(peers.ids[index])
    return {
        int(holder): Held(dealer, blinds[32 * row : 32 * row + 32] + shares[row].tobytes())
        for row, holder in enumerate(holders)
    }


def wanted(*, alive: bool, removed: bool) -> tuple[int, ...]:
    """Return which secrets of a peer are opened; those of the living and of the dead never meet.

    Of a survivor the self mask, and the noise seed if it is to be removed; else the mask key.
    """
    if not alive:
        return (MASK_KEY,)
    return (SELF_MASK, NOISE_SEED) if removed else (SELF_MASK,)


def commit_share(context: bytes, dealer: int, holder: int, kind: int, content: bytes) -> bytes:
    """Return the commitment to the share that ``holder`` got: ``content`` is blind and share."""
    names = _share_names(dealer, kind, holder)
    return sha256(_SHARE + context + names + content).digest()


def commit_secret(context: bytes, dealer: int, kind: int, secret: bytes) -> bytes:
    """Return the commitment to a uniformly random secret."""
    names = _secret_names(dealer, kind)
    return sha256(b"skellam/secagg/secret" + context + names + secret).digest()


def blind(root: bytes, kind: int) -> bytes:
    """Return the randomness for the share of one secret; it tells nothing about the others'."""
    return sha256(_BLIND + root + _KINDS[kind]).digest()


_SHARE, _BLIND = b"skellam/secagg/share", b"skellam/secagg/blind"
_KINDS = [bytes([kind]) for kind in range(MAX_SECRETS)]
_secret_names = Struct(">QB").pack
_share_names = Struct(">QBQ").pack


@dataclass(frozen=True, slots=True)
class Commitments:
    """A dealer's commitments: to its secrets but the mask key, and to each holder's shares."""

    dealer: Id
    secrets: Annotated[bytes, Blob(32 * MAX_SECRETS)]
    shares: Annotated[bytes, Blob(32 * MAX_SECRETS * MAX_PARTICIPANTS)]

    def share(self, row: int, kind: int) -> bytes:
        """Return the commitment to the share of secret ``kind`` that holder ``row`` got."""
        at = row * (len(self.secrets) + 32) + 32 * kind
        return self.shares[at : at + 32]

    def secret(self, kind: int) -> bytes:
        """Return the commitment to the secret of ``kind``."""
        return self.secrets[32 * (kind - 1) : 32 * kind]


def envelope_bytes(secrets: int) -> int:
    """Return the size of an envelope: commitments, then a sealed blind and shares."""
    return 32 * secrets + SEAL_BYTES + 32 + SHARE_BYTES * secrets


def proof_bytes(envelopes: int) -> int:
    """Return the size of what proves one of so many envelopes: a signature and a path."""
    return SIGNATURE_BYTES + 32 * envelopes.bit_length()


class MerkleTree:
    """The tree over what one dealer sends: leaf 0 its commitments, then its envelopes in order.

    A leaf hashes its content and a node its two children; a last node without a sibling has zeros
    for one. The dealer signs its number, how many leaves there are, and the top.
    """

    def __init__(self, message: KeyShares, envelope_size: int) -> None:
        octets, size = message.envelopes, envelope_size
        self._dealer = message.sender
        self.envelopes = [octets[at : at + size] for at in range(0, len(octets), size)]
        first = _length(len(message.secrets)) + message.secrets + message.own
        level = [sha256(_COMMITMENTS + first).digest()]
        level += [sha256(_ENVELOPE + envelope).digest() for envelope in self.envelopes]
        self._levels: list[list[bytes]] = []
        while len(level) > 1:
            if len(level) % 2:
                level.append(bytes(32))
            self._levels.append(level)
            level = [
                sha256(_NODE + left + right).digest()
                for left, right in zip(level[::2], level[1::2], strict=True)
            ]
        self._top = level[0]

    @property
    def statement(self) -> bytes:
        """What the dealer signs."""
        return _statement(self._dealer, 1 + len(self.envelopes), self._top)

    def paths(self) -> list[bytes]:
        """Return, for each envelope, the siblings on its way to the top."""
        leaves = np.arange(1, 1 + len(self.envelopes))
        siblings = [
            np.frombuffer(b"".join(level), dtype="V32")[leaves >> height ^ 1]
            for height, level in enumerate(self._levels)
        ]
        size, octets = 32 * len(siblings), np.stack(siblings, axis=1).tobytes()
        return [octets[at : at + size] for at in range(0, len(octets), size)]


def verify_envelope(
    envelope: bytes, proof: bytes, *, dealer: int, holder: int, peers: Participants, roster: Roster
) -> None:
    """Raise `TamperError` unless ``dealer`` signed that this is its envelope for ``holder``."""
    holders = peers.ids[peers.graph.neighbours(peers.index(dealer))].tolist()
    if holder not in holders or len(proof) != proof_bytes(len(holders)):
        raise TamperError("a proof does not fit the dealer and the holder of the envelope")
    at = 1 + holders.index(holder)
    digest = sha256(_ENVELOPE + envelope).digest()
    for height, start in enumerate(range(SIGNATURE_BYTES, len(proof), 32)):
        sibling = proof[start : start + 32]
        pair = sibling + digest if at >> height & 1 else digest + sibling
        digest = sha256(_NODE + pair).digest()
    statement = _statement(dealer, 1 + len(holders), digest)
    roster.verify(dealer, peers.context, statement, proof[:SIGNATURE_BYTES])


def _statement(dealer: int, leaves: int, top: bytes) -> bytes:
    return wire.head(KeyShares.TAG) + _leaves(dealer, leaves) + top


_COMMITMENTS, _ENVELOPE, _NODE = (
    b"skellam/secagg/" + name for name in (b"commitments", b"envelope", b"node")
)
_length = Struct(">I").pack
_leaves = Struct(">QI").pack


class OpenedShares:
    """Which shares each holder must open, those that were opened, and how they combine."""

    def __init__(
        self,
        peers: Participants,
        dealers: tuple[Commitments, ...],
        survivors: Collection[int],
        removed: Collection[int],
    ) -> None:
        self._peers = peers
        self._dealers = {each.dealer: each for each in dealers}
        self._alive = frozenset(survivors)
        self._removed = frozenset(removed)
        holders = {d: peers.ids[peers.holders(peers.index(d))].tolist() for d in self._dealers}
        self._rows = {d: {h: row for row, h in enumerate(held)} for d, held in holders.items()}
        self._opened: dict[int, dict[int, bytes]] = {dealer: {} for dealer in self._dealers}

    def check(self, message: Opening) -> None:
        """Raise `TamperError` unless ``message`` opens exactly what it must, as committed."""
        peers, sender = self._peers, message.sender
        others = peers.ids[peers.graph.neighbours(peers.index(sender))].tolist()
        held = [number for number in (*others, sender) if number in self._dealers]
        order = [(number, kind) for number in held for kind in self._wanted(number)]
        if [(s.dealer, s.secret) for s in message.shares] != order or not all(
            self._committed(share, sender) for share in message.shares
        ):
            raise TamperError(
                f"client {sender} opened other shares than it was dealt", culprit=sender
            )

    def add(self, opening: Opening) -> None:
        """Keep the shares of a checked opening."""
        for share in opening.shares:
            opened = self._opened[share.dealer]
            opened[opening.sender] = opened.get(opening.sender, b"") + share.share

    def combine(self, dealer: int) -> dict[int, bytes]:
        """Return the opened secrets of one dealer by kind."""
        kinds = self._wanted(dealer)
        threshold = self._peers.graph.topology.threshold
        opened = dict(sorted(self._opened[dealer].items())[:threshold])
        if len(opened) < threshold:
            raise ThresholdError(
                f"only {len(opened)} opened their shares of a secret that needs {threshold}"
            )
        at = points(np.searchsorted(self._peers.ids, np.fromiter(opened, dtype=np.uint64)))
        data = np.frombuffer(b"".join(opened.values()), dtype=np.uint8)
        shares = data.reshape(threshold, len(kinds), SHARE_BYTES)
        try:
            secrets = dict(zip(kinds, combine(at, shares), strict=True))
            self._require_committed(dealer, secrets)
        except ProtocolError as error:
            raise TamperError(
                f"the shares of client {dealer} do not give the secret it committed to",
                culprit=dealer,
            ) from error
        return secrets

    def _wanted(self, number: int) -> tuple[int, ...]:
        return wanted(alive=number in self._alive, removed=number in self._removed)

    def _committed(self, share: OpenShare, holder: int) -> bool:
        dealer, kind = share.dealer, share.secret
        content = share.blind + share.share
        commitment = commit_share(self._peers.context, dealer, holder, kind, content)
        return commitment == self._dealers[dealer].share(self._rows[dealer][holder], kind)

    def _require_committed(self, dealer: int, secrets: dict[int, bytes]) -> None:
        for kind, secret in secrets.items():
            found = commit_secret(self._peers.context, dealer, kind, secret)
            if kind != MASK_KEY and found != self._dealers[dealer].secret(kind):
                raise TamperError("a secret is not what its dealer committed to")
