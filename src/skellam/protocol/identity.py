"""Identities: Ed25519 keys, the roster of those who may take part, and their signatures.

A signature covers a context (the digest of all that was agreed before) and the message itself,
whose encoding begins with its version and kind; so it can serve neither in another round nor as
another message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import NDArray

from skellam import _checks
from skellam.entropy import Entropy, random_bytes
from skellam.errors import TamperError

_PREFIX = b"skellam/secagg/signature/"
_SEAL = b"skellam/seal/"


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's number and its long-lived signing key (32 bytes)."""

    number: int
    key: bytes = field(repr=False)
    _signer: Ed25519PrivateKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _checks.integer("number", self.number, 0, (1 << 64) - 1)
        key = _checks.octets("key", self.key, 32)
        _checks.assign(self, _signer=Ed25519PrivateKey.from_private_bytes(key))

    @classmethod
    def generate(cls, number: int, *, entropy: Entropy) -> Identity:
        """Return an identity with a fresh key."""
        return cls(number, random_bytes(32, entropy=entropy))

    @property
    def public(self) -> bytes:
        """The 32 bytes that others need to verify signatures."""
        return self._signer.public_key().public_bytes_raw()

    def sign(self, context: bytes, payload: bytes) -> bytes:
        """Return the signature of ``payload`` in ``context``."""
        return self._signer.sign(_PREFIX + context + payload)


@dataclass(frozen=True, slots=True, eq=False)
class Roster:
    """The public keys, by number, of all who may ever take part."""

    keys: Mapping[int, bytes]
    numbers: NDArray[np.uint64] = field(init=False, repr=False)
    """Whose keys these are, ascending."""

    def __post_init__(self) -> None:
        for number, key in self.keys.items():
            _checks.octets(f"the key of {number}", key, 32)
        numbers = np.sort(np.array([*self.keys], dtype="<u8"))
        _checks.assign(self, keys=dict(self.keys), numbers=numbers)

    def __contains__(self, number: object) -> bool:
        return number in self.keys

    def verify(self, number: int, context: bytes, payload: bytes, signature: bytes) -> None:
        """Raise `TamperError` unless ``number`` signed ``payload`` in ``context``."""
        if number not in self.keys:
            raise TamperError(f"client {number} is not on the roster", culprit=number)
        try:
            key = Ed25519PublicKey.from_public_bytes(self.keys[number])
            key.verify(signature, _PREFIX + context + payload)
        except (InvalidSignature, ValueError) as error:
            raise TamperError(f"the signature in the name of client {number} is false") from error


@dataclass(frozen=True, slots=True)
class Seal:
    """An identity that signs documents that outlive a round, such as a ledger's records."""

    identity: Identity

    @property
    def public_key(self) -> bytes:
        """The 32 bytes that others verify with."""
        return self.identity.public

    def sign(self, message: bytes) -> bytes:
        """Return the signature of ``message``."""
        return self.identity.sign(_SEAL, message)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether ``signature`` is this identity's seal under ``message``."""
        return SealVerifier(self.public_key).verify(message, signature)


@dataclass(frozen=True, slots=True)
class SealVerifier:
    """Whoever knows a public key and checks seals."""

    public_key: bytes

    def __post_init__(self) -> None:
        _checks.octets("public_key", self.public_key, 32)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether ``signature`` is the key's seal under ``message``."""
        try:
            Roster({0: self.public_key}).verify(0, _SEAL, message, signature)
        except TamperError:
            return False
        return True
