"""The server's last phase: from opened shares to secrets, from secrets to the sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, final

import numpy as np

from skellam.errors import ProtocolError, TamperError, ThresholdError
from skellam.secagg import shamir
from skellam.secagg.bundle import MASK_KEY, NOISE, SELF_MASK, wanted
from skellam.secagg.channel import KeyPair, mask_purpose, self_mask
from skellam.secagg.commitments import commit_secret, commit_share
from skellam.secagg.inbox import Fault, Faults, accepted
from skellam.secagg.masks import add_masks
from skellam.secagg.messages import (
    MAX_ENTRY,
    MAX_SECRETS,
    Advertisement,
    Dealing,
    Envelope,
    Opening,
    OpenShare,
    Roll,
    authentic,
    extend,
)
from skellam.secagg.participants import Participants, enrolled, points
from skellam.secagg.phase import Phase, Setting
from skellam.secagg.round import MAX_LENGTH
from skellam.secagg.shamir import SHARE_BYTES
from skellam.secagg.wire import (
    MAX_PARTICIPANTS,
    Blob,
    Digest,
    Fixed,
    Flag,
    Id,
    Ids,
    Indices,
    Many,
    Nested,
)
from skellam.vectors import Residues, residue_dtype

EncodedRoll = Annotated[bytes, Blob(MAX_ENTRY * MAX_PARTICIPANTS)]


@dataclass(frozen=True, slots=True)
class Pledge:
    """A dealer's commitments: to its secrets but the mask key, and to each holder's shares."""

    dealer: Id
    secrets: Annotated[tuple[bytes, ...], Many(Fixed(32), MAX_SECRETS)]
    shares: Annotated[bytes, Blob(32 * MAX_SECRETS * MAX_PARTICIPANTS)]

    @classmethod
    def of(cls, dealing: Dealing, envelopes: list[Envelope]) -> Pledge:
        """Return the commitments in ``dealing``, holders ascending."""
        rows = [(e.holder, b"".join(e.commitments)) for e in envelopes]
        rows.append((dealing.sender, b"".join(dealing.own)))
        return cls(dealing.sender, dealing.secrets, b"".join(row for _, row in sorted(rows)))

    def share(self, row: int, place: int) -> bytes:
        """Return the commitment to the share of secret ``place`` that holder ``row`` got."""
        at = 32 * (row * (len(self.secrets) + 1) + place)
        return self.shares[at : at + 32]


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """What is settled once all shares are dealt."""

    roll: EncodedRoll
    context: Digest
    dealers: Indices
    pledges: Annotated[tuple[Pledge, ...], Many(Nested(Pledge))]


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """What is settled once all vectors are in."""

    dealt: Annotated[Dealt, Nested(Dealt)]
    survivors: Ids
    total: Annotated[bytes, Blob(4 * MAX_LENGTH)]
    replayable: Annotated[bool, Flag()]

    @property
    def context(self) -> bytes:
        """The context that binds the set of survivors."""
        return extend(self.dealt.context, b"survivors", self.survivors.tobytes())


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The sum, who is in it, and the opened noise seeds by component and client."""

    total: Residues
    participants: int
    survivors: tuple[int, ...]
    noise_seeds: Mapping[int, Mapping[int, bytes]]
    faults: tuple[Fault, ...]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unlock(Phase[Setting]):
    """Waits for the shares that open the sum."""

    TAG = 69
    faults: Faults
    gathered: Annotated[Gathered, Nested(Gathered)]

    def step(self, messages: Iterable[bytes]) -> Outcome:
        """Return the sum; raise `TamperError` if a dealer's shares do not give its secret."""
        self._leave()
        this, gathered = self.setting.round, self.gathered
        peers = enrolled(gathered.dealt.roll, this)
        survivors = tuple(gathered.survivors.tolist())
        shares = _Shares(peers, gathered, this.removed(len(peers.ids), len(survivors)))
        faults: list[Fault] = []
        for opening in accepted(self._parse(shares), messages, set(survivors), faults):
            shares.add(opening)
        secrets = {pledge.dealer: shares.combine(pledge) for pledge in gathered.dealt.pledges}
        noise = {
            j: {number: secrets[number][NOISE + j] for number in survivors} for j in shares.removed
        }
        total = self._sum(peers, secrets)
        return Outcome(total, len(peers.ids), survivors, noise, (*self.faults, *faults))

    def _parse(self, shares: _Shares) -> Callable[[bytes], Opening]:
        def parse(data: bytes) -> Opening:
            message = authentic(Opening, data, self.setting.roster, self.gathered.context)
            shares.check(message)
            return message

        return parse

    def _sum(self, peers: Participants, secrets: dict[int, dict[int, bytes]]) -> Residues:
        this, dealt = self.setting.round, self.gathered.dealt
        public = [Advertisement.decode(e).mask_key for e in Roll.decode(dealt.roll).entries]
        dtype = residue_dtype(this.bits)
        total = np.frombuffer(self.gathered.total, dtype=dtype).copy()
        added: list[bytes] = []
        subtracted: list[bytes] = []
        for number, opened in secrets.items():
            if SELF_MASK in opened:
                subtracted.append(self_mask(opened[SELF_MASK], dealt.context))
                continue
            for other, seed in self._pair_masks(peers, public, number, opened[MASK_KEY]):
                (subtracted if other < number else added).append(seed)
        add_masks(total, bits=this.bits, added=added, subtracted=subtracted)
        return Residues(total, this.bits, this.label, self.gathered.replayable)

    def _pair_masks(
        self, peers: Participants, public: list[bytes], dead: int, key: bytes
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the living neighbours of ``dead`` and the seeds of their masks with it."""
        context, pair = self.gathered.dealt.context, KeyPair(key)
        place = peers.place(dead)
        if pair.public != public[place]:
            raise TamperError("a dealer shared another mask key than it advertised", culprit=dead)
        alive = np.isin(peers.ids, self.gathered.survivors)
        for neighbour in peers.graph.neighbours(place):
            if alive[neighbour]:
                other = int(peers.ids[neighbour])
                purpose = mask_purpose(context, dead, other)
                yield other, pair.agree(public[neighbour], purpose, culprit=other)


class _Shares:
    """Which shares each holder must open, those that were opened, and how they combine."""

    def __init__(self, peers: Participants, gathered: Gathered, removed: tuple[int, ...]) -> None:
        self.removed = removed
        self._peers = peers
        self._alive = set(gathered.survivors.tolist())
        self._pledges = {pledge.dealer: pledge for pledge in gathered.dealt.pledges}
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
        return wanted(alive=number in self._alive, removed=self.removed)

    def _committed(self, share: OpenShare, holder: int) -> bool:
        commitment = commit_share(self._peers.context, holder, share)
        row = self._rows[share.dealer][holder]
        return commitment == self._pledges[share.dealer].share(row, share.secret)

    def _require_pledged(self, pledge: Pledge, secrets: dict[int, bytes]) -> None:
        for place, secret in secrets.items():
            found = commit_secret(self._peers.context, pledge.dealer, place, secret)
            if place != MASK_KEY and found != pledge.secrets[place - 1]:
                raise TamperError("a secret is not what its dealer committed to")
