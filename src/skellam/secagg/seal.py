"""Signatures under documents that outlive a round, such as a ledger's records."""

from __future__ import annotations

from dataclasses import dataclass

from skellam import _checks
from skellam.errors import TamperError
from skellam.secagg.identity import Identity, Roster

_CONTEXT = b"skellam/seal/"


@dataclass(frozen=True, slots=True)
class Seal:
    """An identity that signs messages outside of any round."""

    identity: Identity

    @property
    def public_key(self) -> bytes:
        """The 32 bytes that others verify with."""
        return self.identity.public

    def sign(self, message: bytes) -> bytes:
        """Return the signature of ``message``."""
        return self.identity.sign(_CONTEXT, message)


@dataclass(frozen=True, slots=True)
class SealVerifier:
    """Whoever knows a public key and checks seals."""

    public_key: bytes

    def __post_init__(self) -> None:
        _checks.octets("public_key", self.public_key, 32)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether ``signature`` is the key's seal under ``message``."""
        try:
            Roster({0: self.public_key}).verify(0, _CONTEXT, message, signature)
        except TamperError:
            return False
        return True
