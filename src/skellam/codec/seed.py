"""The public seed of a round: what its rotation and coordinate subset are derived from."""

from __future__ import annotations

from hashlib import sha256

from skellam import _checks
from skellam.errors import KindError


def public_seed(*, participants: bytes, plan: bytes, model: bytes, round: int) -> bytes:  # noqa: A002
    """Return the seed that the digests of participants, plan and model fix for ``round``.

    Nobody can choose it after seeing the updates; privacy would hold even then, accuracy might not.
    """
    digest = sha256(b"skellam/1/public-seed")
    for name, value in (("participants", participants), ("plan", plan), ("model", model)):
        if not isinstance(value, bytes):
            raise KindError(f"{name} must be a digest in bytes, got {type(value).__name__}")
        digest.update(len(value).to_bytes(8, "big") + value)
    digest.update(_checks.integer("round", round, 0, (1 << 63) - 1).to_bytes(8, "big"))
    return digest.digest()
