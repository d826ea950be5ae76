"""Keys of the two servers: sealing to them (HPKE) and checking their signatures.

HPKE (RFC 9180) in base mode with the hybrid KEM of X25519 and ML-KEM-768, HKDF-SHA256 and
AES-256-GCM. The library's single-shot call has no associated data, so everything that a seal must
be bound to goes into ``info``. It draws its coins from the operating system.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from skellam import _checks
from skellam.entropy import Entropy, random_bytes
from skellam.errors import MessageError, TamperError
from skellam.protocol.identity import Roster
from skellam.protocol.wire import Digest, Fixed, Flag
from skellam.twoserver.constants import digest

_MLKEM_SEED: Final = 64
_MLKEM_PUBLIC: Final = 1184
SECRET_BYTES: Final = _MLKEM_SEED + 32
PUBLIC_BYTES: Final = _MLKEM_PUBLIC + 32
SEAL_BYTES: Final = 1088 + 32 + 16
"""By how much a seal lengthens what it seals: both encapsulations and the tag."""
_SUITE: Final = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


@dataclass(frozen=True, slots=True)
class SealingKey:
    """A server's private key for what clients seal to it in one run; erase it after the run."""

    secret: bytes = field(repr=False)
    public: bytes = field(init=False, repr=False)
    """The 1216 bytes for clients: ML-KEM-768, then X25519."""
    _private: MLKEM768X25519PrivateKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        secret = _checks.octets("secret", self.secret, SECRET_BYTES)
        mlkem = MLKEM768PrivateKey.from_seed_bytes(secret[:_MLKEM_SEED])
        x25519 = X25519PrivateKey.from_private_bytes(secret[_MLKEM_SEED:])
        public = mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()
        _checks.assign(self, public=public, _private=MLKEM768X25519PrivateKey(mlkem, x25519))

    @property
    def key_id(self) -> bytes:
        """The digest of the public key that stands in the constants of the run."""
        return key_id(self.public)

    def unseal(self, sealed: bytes, info: bytes) -> bytes:
        """Return what was sealed to this key with ``info``, or raise `TamperError`."""
        try:
            return _SUITE.decrypt(sealed, self._private, info=info)
        except (InvalidTag, ValueError) as error:
            raise TamperError("a seal is not for this key, round and client") from error


@dataclass(frozen=True, slots=True, repr=False)
class ServerSecrets:
    """What a server keeps secret in one run: its sealing key and the key of its noise."""

    sealing: Annotated[bytes, Fixed(SECRET_BYTES)]
    noise: Digest
    replayable: Annotated[bool, Flag()]
    """Whether they came from entropy that can be replayed."""

    @classmethod
    def generate(cls, *, entropy: Entropy) -> ServerSecrets:
        """Return fresh secrets."""
        sealing = random_bytes(SECRET_BYTES, entropy=entropy)
        return cls(sealing, random_bytes(32, entropy=entropy), entropy.replayable)

    def erased(self) -> ServerSecrets:
        """Return what is left after the run."""
        return replace(self, sealing=bytes(SECRET_BYTES), noise=bytes(32))

    @property
    def key(self) -> SealingKey:
        """The sealing key."""
        return SealingKey(self.sealing)


def key_id(public: bytes) -> bytes:
    """Return the digest of a public sealing key."""
    return digest(b"sealing key", public)


def seal(public: bytes, info: bytes, plaintext: bytes) -> bytes:
    """Return ``plaintext``, readable only by the owner of ``public`` and only with ``info``."""
    return _SUITE.encrypt(plaintext, _parsed(public), info=info)


def require_signature(
    who: str, public: bytes, context: bytes, payload: bytes, signature: bytes
) -> None:
    """Raise `TamperError` unless the server ``who`` signed ``payload`` in ``context``."""
    try:
        Roster({0: public}).verify(0, context, payload, signature)
    except TamperError as error:
        raise TamperError(f"the signature in the name of the {who} is false") from error


@lru_cache(maxsize=16)
def _parsed(public: bytes) -> MLKEM768X25519PublicKey:
    _checks.octets("public", public, PUBLIC_BYTES)
    try:
        mlkem = MLKEM768PublicKey.from_public_bytes(public[:_MLKEM_PUBLIC])
        x25519 = X25519PublicKey.from_public_bytes(public[_MLKEM_PUBLIC:])
    except ValueError as error:
        raise MessageError("a sealing key is not a public key of ML-KEM-768 and X25519") from error
    return MLKEM768X25519PublicKey(mlkem, x25519)
