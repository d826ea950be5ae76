"""A client joins: it advertises its keys, learns who takes part, and shares its secrets."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import final

from skellam.entropy import Entropy, random_bytes
from skellam.errors import TamperError, ThresholdError
from skellam.secagg.bundle import SELF_MASK, Held, deal
from skellam.secagg.channel import KeyPair, channel_purpose, seal
from skellam.secagg.commitments import commit_secret
from skellam.secagg.masking import Mask, Neighbour
from skellam.secagg.messages import Advertisement, Dealing, Envelope, Roll, signed
from skellam.secagg.participants import attested, enrolled, find
from skellam.secagg.phase import Party, Phase
from skellam.secagg.round import History
from skellam.secagg.wire import Digest


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
        peers = enrolled(roll, party.round)
        count = len(peers.ids)
        if count < party.round.least:
            raise ThresholdError(f"{count} take part; at least {party.round.least} must")
        find(peers.ids, party.roster.numbers, "is not on the roster")
        place = peers.place(party.identity.number)
        entries = Roll.decode(roll).entries
        if sha256(entries[place].tobytes()).digest() != self.sent:
            raise TamperError("the roll holds another advertisement of this client than it sent")
        seeds = random_bytes(32 * (1 + party.round.seed_count(count)), entropy=entropy)
        secrets = (self.mask, *(seeds[at : at + 32] for at in range(0, len(seeds), 32)))
        bundles = deal(secrets, peers, place, entropy=entropy)
        own = bundles.pop(place)
        known = attested(Advertisement, entries[[*bundles]], party.roster, party.round.digest)
        near = self._meet(known, peers.context)
        envelopes = tuple(
            self._envelope(to, held, peers.context, entropy)
            for to, held in zip(near, bundles.values(), strict=True)
        )
        dealing = self._dealing(secrets, own, envelopes, peers.context)
        return Mask(party, peers.context, peers.ids, secrets, near, own), dealing

    def _meet(self, others: tuple[Advertisement, ...], context: bytes) -> tuple[Neighbour, ...]:
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
        pledged = b"".join(
            commit_secret(context, me.number, place, secrets[place])
            for place in range(SELF_MASK, len(secrets))
        )
        dealing = Dealing(me.number, pledged, own.commitments(context, me.number), envelopes)
        return signed(dealing, me, context)
