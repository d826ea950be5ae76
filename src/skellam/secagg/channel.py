"""Channels between two clients: X25519 agreement, sealed shares, mask seeds.

Each key is derived for one context and one purpose. A channel carries one envelope in each
direction, which the sealed names tell apart; the nonces are random, so that a client that was
killed and shares again does not spend one twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from skellam.entropy import derive_key
from skellam.errors import TamperError

NONCE_BYTES = 12
SEAL_BYTES = NONCE_BYTES + 16
"""By how much a seal lengthens what it seals."""
_FIELD = (1 << 255) - 19
_ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
_LOW_ORDER = frozenset(
    n.to_bytes(32, "little") for n in (0, 1, *_ORDER_8, _FIELD - 1, _FIELD, _FIELD + 1)
)
"""Bernstein's list (https://cr.yp.to/ecdh.html#validate), whose top bit X25519 does not read."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PairCache:
    """Key pairs and agreements of clients that are all simulated in one process.

    Both ends of a pair derive the same bytes from the same two public keys, so the second end takes
    what the first left here: once, so that little is kept. The second end of a client that dropped
    out is the server, with the opened key. No real client or server has such a cache.
    """

    pairs: dict[bytes, KeyPair] = field(default_factory=dict)
    public: dict[bytes, X25519PublicKey] = field(default_factory=dict)
    agreed: dict[tuple[bytes, bytes, bytes], bytes] = field(default_factory=dict)

    def pair(self, secret: bytes) -> KeyPair:
        """Return the key pair of ``secret``."""
        if secret not in self.pairs:
            self.pairs[secret] = KeyPair(secret, self)
        return self.pairs[secret]

    def public_key(self, public: bytes) -> X25519PublicKey:
        """Return the key of the bytes ``public``, which all neighbours of its owner read."""
        if public not in self.public:
            self.public[public] = X25519PublicKey.from_public_bytes(public)
        return self.public[public]


class KeyPair:
    """An X25519 key pair of 32 secret bytes; ``cache`` is for simulation."""

    __slots__ = ("_cache", "_key", "public")

    def __init__(self, secret: bytes, cache: PairCache | None = None) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self._cache = cache
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes, purpose: bytes, *, culprit: int) -> bytes:
        """Return 32 bytes for ``purpose`` that only the two owners can derive."""
        if self._cache is None:
            return self._derive(public, purpose, culprit)
        agreed = self._cache.agreed
        ends = (min(public, self.public), max(public, self.public), purpose)
        if (known := agreed.pop(ends, None)) is not None:
            return known
        agreed[ends] = self._derive(public, purpose, culprit)
        return agreed[ends]

    def _derive(self, public: bytes, purpose: bytes, culprit: int) -> bytes:
        read = self._cache.public_key if self._cache else X25519PublicKey.from_public_bytes
        try:
            shared = self._key.exchange(read(public))
        except ValueError as error:
            raise TamperError("a public key is of low order", culprit=culprit) from error
        return derive_key(shared, purpose)


def low_order(public: bytes) -> bool:
    """Return whether every secret key gives zero with ``public``, so that nobody can use it."""
    return public[:31] + bytes([public[31] & 127]) in _LOW_ORDER


def channel_purpose(context: bytes, one: int, other: int) -> bytes:
    """Return what two clients' channel is for; the order of the two does not matter."""
    return b"secagg/channel" + context + _pair(min(one, other), max(one, other))


def mask_purpose(context: bytes, one: int, other: int) -> bytes:
    """Return what the seed of a pairwise mask is for; the order of the two does not matter."""
    return b"secagg/mask" + context + _pair(min(one, other), max(one, other))


def self_mask(seed: bytes, context: bytes) -> bytes:
    """Return the seed of the mask that a client puts on alone."""
    return derive_key(seed, b"secagg/self" + context)


def seal(channel: bytes, dealer: int, holder: int, plaintext: bytes, *, nonce: bytes) -> bytes:
    """Encrypt and authenticate (AES-256-GCM) what ``dealer`` sends to ``holder``.

    ``nonce`` is `NONCE_BYTES` fresh random bytes.
    """
    return nonce + AESGCM(channel).encrypt(nonce, plaintext, _pair(dealer, holder))


def unseal(channel: bytes, dealer: int, holder: int, sealed: bytes) -> bytes:
    """Return the plaintext, or raise `TamperError`."""
    nonce, ciphertext = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return AESGCM(channel).decrypt(nonce, ciphertext, _pair(dealer, holder))
    except (InvalidTag, ValueError) as error:
        raise TamperError("an envelope was not sealed for this holder in this round") from error


_pair = Struct(">QQ").pack
