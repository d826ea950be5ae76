"""What dealers pledged, and the shares that were opened against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from skellam.errors import ProtocolError, TamperError, ThresholdError
from skellam.secagg import shamir
from skellam.secagg.bundle import MASK_KEY, wanted
from skellam.secagg.commitments import commit_secret, commit_share
from skellam.secagg.messages import MAX_SECRETS, Dealing, Envelope, Opening, OpenShare
from skellam.secagg.participants import Participants, points
from skellam.secagg.shamir import SHARE_BYTES
from skellam.secagg.wire import MAX_PARTICIPANTS, Blob, Id


@dataclass(frozen=True, slots=True)
class Pledge:
    """A dealer's commitments: to its secrets but the mask key, and to each holder's shares."""

    dealer: Id
    secrets: Annotated[bytes, Blob(32 * MAX_SECRETS)]
    shares: Annotated[bytes, Blob(32 * MAX_SECRETS * MAX_PARTICIPANTS)]

    @classmethod
    def of(cls, dealing: Dealing, envelopes: list[Envelope]) -> Pledge:
        """Return the commitments in ``dealing``, holders ascending."""
        rows = [(e.holder, e.commitments) for e in envelopes]
        rows.append((dealing.sender, dealing.own))
        return cls(dealing.sender, dealing.secrets, b"".join(row for _, row in sorted(rows)))

    def share(self, row: int, place: int) -> bytes:
        """Return the commitment to the share of secret ``place`` that holder ``row`` got."""
        at = row * (len(self.secrets) + 32) + 32 * place
        return self.shares[at : at + 32]

    def secret(self, place: int) -> bytes:
        """Return the commitment to the secret at ``place``."""
        return self.secrets[32 * (place - 1) : 32 * place]


class Shares:
    """Which shares each holder must open, those that were opened, and how they combine."""

    def __init__(
        self,
        peers: Participants,
        pledges: tuple[Pledge, ...],
        survivors: tuple[int, ...],
        removed: tuple[int, ...],
    ) -> None:
        self._peers = peers
        self._pledges = {pledge.dealer: pledge for pledge in pledges}
        self._alive = frozenset(survivors)
        self._removed = removed
        holders = {p: peers.ids[peers.holders(peers.place(p))].tolist() for p in self._pledges}
        self._rows = {p: {h: row for row, h in enumerate(held)} for p, held in holders.items()}
        self._opened: dict[int, dict[int, bytes]] = {dealer: {} for dealer in self._pledges}

    def check(self, message: Opening) -> None:
        """Raise `TamperError` unless ``message`` opens exactly what it must, as committed."""
        peers, sender = self._peers, message.sender
        others = peers.ids[peers.graph.neighbours(peers.place(sender))].tolist()
        held = [number for number in (*others, sender) if number in self._pledges]
        order = [(number, secret) for number in held for secret in self._wanted(number)]
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

    def combine(self, pledge: Pledge) -> dict[int, bytes]:
        """Return the opened secrets of one dealer by place."""
        places = self._wanted(pledge.dealer)
        threshold = self._peers.graph.topology.threshold
        opened = dict(sorted(self._opened[pledge.dealer].items())[:threshold])
        if len(opened) < threshold:
            raise ThresholdError(
                f"only {len(opened)} opened their shares of a secret that needs {threshold}"
            )
        at = points(np.searchsorted(self._peers.ids, np.fromiter(opened, dtype=np.uint64)))
        data = np.frombuffer(b"".join(opened.values()), dtype=np.uint8)
        shares = data.reshape(threshold, len(places), SHARE_BYTES)
        try:
            secrets = dict(zip(places, shamir.combine(at, shares), strict=True))
            self._require_pledged(pledge, secrets)
        except ProtocolError as error:
            raise TamperError(
                f"the shares of client {pledge.dealer} do not give the secret it committed to",
                culprit=pledge.dealer,
            ) from error
        return secrets

    def _wanted(self, number: int) -> tuple[int, ...]:
        return wanted(alive=number in self._alive, removed=self._removed)

    def _committed(self, share: OpenShare, holder: int) -> bool:
        commitment = commit_share(self._peers.context, holder, share)
        row = self._rows[share.dealer][holder]
        return commitment == self._pledges[share.dealer].share(row, share.secret)

    def _require_pledged(self, pledge: Pledge, secrets: dict[int, bytes]) -> None:
        for place, secret in secrets.items():
            found = commit_secret(self._peers.context, pledge.dealer, place, secret)
            if place != MASK_KEY and found != pledge.secret(place):
                raise TamperError("a secret is not what its dealer committed to")
