"""Ed25519 keys as a ledger sees them: signer and verifier in one."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Identity:
    def __init__(self, seed):
        self._key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.public_key = self._key.public_key().public_bytes_raw()

    def sign(self, message):
        return self._key.sign(message)

    def verify(self, message, signature):
        try:
            self._key.public_key().verify(signature, message)
        except InvalidSignature:
            return False
        return True


ALICE, BOB = Identity(1), Identity(2)
