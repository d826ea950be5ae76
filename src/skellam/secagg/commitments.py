"""Hash commitments: a dealer binds itself to its secrets and to each share of them.

A holder that opens another share than it got, and a dealer whose shares do not combine to the
secret it committed to, are both found out. A commitment hides what it binds: a share is hashed with
32 random bytes of its own; a secret is 32 uniform bytes, which a hash hides as they are.
"""

from __future__ import annotations

from hashlib import sha256

from skellam.secagg.messages import OpenShare


def commit_share(context: bytes, holder: int, opened: OpenShare) -> bytes:
    """Return the commitment to the share that ``holder`` got."""
    names = _names(opened.dealer, opened.secret) + holder.to_bytes(8, "big")
    content = opened.blind + opened.share
    return sha256(b"skellam/secagg/share" + context + names + content).digest()


def commit_secret(context: bytes, dealer: int, place: int, secret: bytes) -> bytes:
    """Return the commitment to a uniformly random secret."""
    return sha256(b"skellam/secagg/secret" + context + _names(dealer, place) + secret).digest()


def blind(root: bytes, place: int) -> bytes:
    """Return the randomness for the share at ``place``; it tells nothing about the others'."""
    return sha256(b"skellam/secagg/blind" + root + bytes([place])).digest()


def _names(dealer: int, place: int) -> bytes:
    return dealer.to_bytes(8, "big") + bytes([place])
