"""A client's secrets, cut into bundles of shares, one for each holder.

The secrets are, in this order: the mask key, the self mask's seed, the noise seeds. Of one peer
either the first or the others are ever opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from skellam.entropy import Entropy, random_bytes
from skellam.secagg import shamir
from skellam.secagg.commitments import blind, commit_share
from skellam.secagg.messages import MAX_SECRETS, OpenShare
from skellam.secagg.participants import Participants, points
from skellam.secagg.shamir import SHARE_BYTES
from skellam.secagg.wire import Blob, Id

MASK_KEY, SELF_MASK, NOISE = 0, 1, 2


@dataclass(frozen=True, slots=True, repr=False)
class Held:
    """One dealer's shares in the hands of one holder: a blind, then a share of each secret."""

    dealer: Id
    bundle: Annotated[bytes, Blob(32 + MAX_SECRETS * SHARE_BYTES)]

    def commitments(self, context: bytes, holder: int) -> bytes:
        """Return the commitments to all shares, one after another."""
        count = (len(self.bundle) - 32) // SHARE_BYTES
        return b"".join([commit_share(context, holder, self.open(place)) for place in range(count)])

    def open(self, place: int) -> OpenShare:
        """Return the share of the secret at ``place`` with its own blind."""
        at = 32 + place * SHARE_BYTES
        share = self.bundle[at : at + SHARE_BYTES]
        return OpenShare(self.dealer, place, share, blind(self.bundle[:32], place))


def deal(
    secrets: tuple[bytes, ...], peers: Participants, place: int, *, entropy: Entropy
) -> dict[int, Held]:
    """Return, for the place of each holder, a fresh blind and a share of each secret."""
    holders = peers.holders(place)
    threshold = peers.graph.topology.threshold
    shares = shamir.split(secrets, points(holders), threshold, entropy=entropy)
    blinds = random_bytes(32 * len(holders), entropy=entropy)
    dealer = int(peers.ids[place])
    return {
        int(holder): Held(dealer, blinds[32 * row : 32 * row + 32] + shares[row].tobytes())
        for row, holder in enumerate(holders)
    }


def wanted(*, alive: bool, removed: tuple[int, ...]) -> tuple[int, ...]:
    """Return which secrets of a peer are opened; those of the living and of the dead never meet.

    A living peer's self mask and removed noise seeds, or a dead one's mask key.
    """
    return (SELF_MASK, *(NOISE + j for j in removed)) if alive else (MASK_KEY,)
