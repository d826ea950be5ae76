"""A client's part: advertise, share, mask, agree, unmask, done.

Each phase has one method, ``step``, that takes what the server sent and returns the next phase with
the bytes to send. A client opens, for each peer, either shares of its self mask or shares of its
mask key, never both, and only for a set of survivors that enough others signed.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, final

import numpy as np
from numpy.typing import NDArray

from skellam.entropy import Entropy, random_bytes
from skellam.errors import TamperError, ThresholdError
from skellam.secagg.bundle import MASK_KEY, NOISE, SELF_MASK, Held, deal, wanted
from skellam.secagg.channel import (
    KeyPair,
    channel_purpose,
    mask_purpose,
    seal,
    self_mask,
    unseal,
)
from skellam.secagg.commitments import commit_secret
from skellam.secagg.masks import add_masks
from skellam.secagg.messages import (
    MAX_SECRETS,
    Advertisement,
    Agreement,
    Dealing,
    Delivery,
    Envelope,
    Masked,
    Opening,
    Receipt,
    authentic,
    extend,
    signed,
)
from skellam.secagg.participants import Participants, enrolled, verified
from skellam.secagg.phase import Party, Phase
from skellam.secagg.round import History
from skellam.secagg.wire import Digest, Fixed, Id, Ids, Indices, Many, Nested, Uint
from skellam.vectors import Residues

_Secrets = Annotated[tuple[bytes, ...], Many(Fixed(32), MAX_SECRETS)]


@dataclass(frozen=True, slots=True, repr=False)
class Neighbour:
    """Another client next to this one: its public mask key, and the key of the common channel."""

    number: Id
    mask_key: Digest
    channel: Digest


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Advertise(Phase[Party]):
    """The beginning; it holds nothing yet."""

    TAG = 33

    def step(self, *, history: History, entropy: Entropy) -> tuple[Share, bytes, History]:
        """Return the next phase, the advertisement, and the history to keep from now on."""
        self._leave()
        this, me = self.setting.round, self.setting.identity
        remembered = history.enter(this)
        channel, mask, nonce = (random_bytes(32, entropy=entropy) for _ in range(3))
        message = Advertisement(me.number, KeyPair(channel).public, KeyPair(mask).public, nonce)
        sent = signed(message, me, this.digest)
        return Share(self.setting, channel, mask, sha256(sent).digest()), sent, remembered


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Share(Phase[Party]):
    """Advertised; waits for the roll."""

    TAG = 34
    channel: Digest
    mask: Digest
    sent: Digest

    def step(self, roll: bytes, *, entropy: Entropy) -> tuple[Mask, bytes]:
        """Verify who takes part and return the shares for the neighbours."""
        self._leave()
        party = self.setting
        entries, _ = verified(Advertisement, roll, party.roster, party.round.digest)
        if len(entries) < party.round.least:
            raise ThresholdError(f"{len(entries)} take part; at least {party.round.least} must")
        peers = enrolled(roll, party.round)
        place = peers.place(party.identity.number)
        if sha256(entries[place].encode()).digest() != self.sent:
            raise TamperError("the roll holds another advertisement of this client than it sent")
        seeds = random_bytes(32 * (1 + party.round.seed_count(len(entries))), entropy=entropy)
        secrets = (self.mask, *(seeds[at : at + 32] for at in range(0, len(seeds), 32)))
        bundles = deal(secrets, peers, place, entropy=entropy)
        own = bundles.pop(place)
        near = self._meet([entries[i] for i in bundles], peers.context)
        envelopes = tuple(
            self._envelope(to, held, peers.context, entropy)
            for to, held in zip(near, bundles.values(), strict=True)
        )
        dealing = self._dealing(secrets, own, envelopes, peers.context)
        return Mask(party, peers.context, peers.ids, secrets, near, own), dealing

    def _meet(self, others: list[Advertisement], context: bytes) -> tuple[Neighbour, ...]:
        me, pair = self.setting.identity.number, KeyPair(self.channel)
        return tuple(
            Neighbour(
                other.sender,
                other.mask_key,
                pair.agree(
                    other.channel_key,
                    channel_purpose(context, me, other.sender),
                    culprit=other.sender,
                ),
            )
            for other in others
        )

    def _envelope(self, to: Neighbour, held: Held, context: bytes, entropy: Entropy) -> bytes:
        me = self.setting.identity
        sealed = seal(to.channel, me.number, to.number, held.bundle, entropy=entropy)
        commitments = held.commitments(context, to.number)
        return signed(Envelope(me.number, to.number, commitments, sealed), me, context)

    def _dealing(
        self, secrets: tuple[bytes, ...], own: Held, envelopes: tuple[bytes, ...], context: bytes
    ) -> bytes:
        me = self.setting.identity
        pledged = tuple(
            commit_secret(context, me.number, place, secrets[place])
            for place in range(SELF_MASK, len(secrets))
        )
        dealing = Dealing(me.number, pledged, own.commitments(context, me.number), envelopes)
        return signed(dealing, me, context)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mask(Phase[Party]):
    """Shared; waits for the others' shares and for this client's vector."""

    TAG = 35
    context: Digest
    ids: Ids
    secrets: _Secrets
    near: Annotated[tuple[Neighbour, ...], Many(Nested(Neighbour))]
    own: Annotated[Held, Nested(Held)]

    @property
    def participants(self) -> int:
        """How many take part, counted in the verified list: the noise is shared among these."""
        return len(self.ids)

    @property
    def noise_seeds(self) -> tuple[bytes, ...]:
        """The seeds of this client's removable noise components, smallest component first."""
        return self.secrets[NOISE:]

    def step(self, delivery: bytes, vector: Residues) -> tuple[Agree, bytes]:
        """Open the envelopes and return the masked vector."""
        self._leave()
        party, me = self.setting, self.setting.identity
        party.round.require(vector)
        peers = Participants(self.ids, self.context, party.round)
        message = Delivery.decode(delivery)
        dealers = _checked_dealers(message.dealers, peers, me.number)
        near = [to for to in self.near if dealers[peers.place(to.number)]]
        held = self._open(message.envelopes, near)
        context = extend(self.context, b"dealers", message.dealers.tobytes())
        values = vector.values.copy()
        added, subtracted = self._mask_seeds(near, context)
        add_masks(values, bits=vector.bits, added=added, subtracted=subtracted)
        data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        receipt = Receipt(me.number, sha256(data).digest(), vector.replayable)
        masked = Masked(signed(receipt, me, context), data)
        following = Agree(party, self.context, context, self.ids, message.dealers, held)
        return following, masked.encode()

    def _open(self, envelopes: tuple[bytes, ...], near: list[Neighbour]) -> tuple[Held, ...]:
        if len(envelopes) != len(near):
            raise TamperError(f"{len(near)} neighbours dealt, but {len(envelopes)} envelopes came")
        opened = (self._open_one(*pair) for pair in zip(envelopes, near, strict=True))
        return (*opened, self.own)

    def _open_one(self, data: bytes, dealer: Neighbour) -> Held:
        """Return what is inside; verify the dealer's signature only to know whom to blame."""
        me, party = self.setting.identity.number, self.setting
        envelope = Envelope.decode(data)
        if (envelope.sender, envelope.holder) != (dealer.number, me):
            raise TamperError("an envelope is not the one from that neighbour to this client")
        try:
            bundle = unseal(dealer.channel, dealer.number, me, envelope.ciphertext)
            held = Held(dealer.number, bundle)
            regular = len(bundle) == len(self.own.bundle)
            if regular and held.commitments(self.context, me) == envelope.commitments:
                return held
        except TamperError:
            pass
        authentic(Envelope, data, party.roster, self.context)
        raise TamperError(
            f"client {dealer.number} dealt shares that it did not commit to", culprit=dealer.number
        )

    def _mask_seeds(self, near: list[Neighbour], context: bytes) -> tuple[list[bytes], list[bytes]]:
        me, pair = self.setting.identity.number, KeyPair(self.secrets[MASK_KEY])
        added, subtracted = [self_mask(self.secrets[SELF_MASK], context)], list[bytes]()
        for other in near:
            purpose = mask_purpose(context, me, other.number)
            seed = pair.agree(other.mask_key, purpose, culprit=other.number)
            (added if me < other.number else subtracted).append(seed)
        return added, subtracted


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Agree(Phase[Party]):
    """Masked; waits for the set of survivors. Its own secrets are gone from here on."""

    TAG = 36
    roll: Digest
    context: Digest
    ids: Ids
    dealers: Indices
    held: Annotated[tuple[Held, ...], Many(Nested(Held))]

    def step(self, survivors: bytes) -> tuple[Unmask, bytes]:
        """Check who survived and return this client's signature under that set."""
        self._leave()
        party = self.setting
        peers = Participants(self.ids, self.roll, party.round)
        _, ids = verified(Receipt, survivors, party.roster, self.context)
        alive = np.isin(self.ids, ids)
        dealt = np.zeros(len(self.ids), dtype=bool)
        dealt[self.dealers] = True
        if int((alive & dealt).sum()) != len(ids) or party.identity.number not in ids:
            raise TamperError("the survivors are not this client and others who dealt")
        if not peers.graph.holds_together(alive):
            raise ThresholdError("too few survived, in all or in one place of the ring")
        context = extend(self.context, b"survivors", ids.tobytes())
        agreement = signed(Agreement(party.identity.number), party.identity, context)
        return Unmask(party, context, len(self.ids), ids, self.held), agreement


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unmask(Phase[Party]):
    """Agreed; waits for the others' agreement."""

    TAG = 37
    context: Digest
    participants: Annotated[int, Uint(2)]
    survivors: Ids
    held: Annotated[tuple[Held, ...], Many(Nested(Held))]

    def step(self, agreed: bytes) -> tuple[Done, bytes]:
        """Return the shares that open the sum, if enough others signed the same survivors."""
        self._leave()
        party = self.setting
        _, ids = verified(Agreement, agreed, party.roster, self.context)
        if not np.isin(ids, self.survivors).all():
            raise TamperError("somebody agreed who did not survive")
        least = party.round.topology(self.participants).survivors
        if len(ids) < least:
            raise ThresholdError(f"{len(ids)} agree on the survivors; {least} must")
        removed = party.round.removed(self.participants, len(self.survivors))
        alive = set(self.survivors.tolist())
        shares = tuple(
            held.open(place)
            for held in self.held
            for place in wanted(alive=held.dealer in alive, removed=removed)
        )
        opening = Opening(party.identity.number, shares)
        return Done(party), signed(opening, party.identity, self.context)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Done(Phase[Party]):
    """The end; nothing secret is left."""

    TAG = 38


def _checked_dealers(
    dealers: NDArray[np.uint16], peers: Participants, me: int
) -> NDArray[np.bool_]:
    """Return, for each place, whether it dealt; raise unless enough did, and this client."""
    indices = dealers.astype(np.intp)
    if (indices[1:] <= indices[:-1]).any() or (indices >= len(peers.ids)).any():
        raise TamperError("the list of dealers is out of order or names nobody")
    if len(indices) < peers.graph.topology.survivors:
        raise ThresholdError("too few dealt shares")
    dealt = np.zeros(len(peers.ids), dtype=bool)
    dealt[indices] = True
    if not dealt[peers.place(me)]:
        raise TamperError("the list of dealers leaves this client out")
    return dealt
