"""Client phases: advertise keys, share keys, masked input, consistency check, unmask, done.

Each phase has one method, ``step``, that takes what the server sent and returns the next phase with
the bytes to send. A client opens, for each peer, either shares of its self mask (and of its noise
seed, if the signed survivors are more than needed) or shares of its mask key, never both, and only
for a set of survivors that enough others signed.

::

    share_keys, data, seen = AdvertiseKeys(party).step(seen=seen, entropy=entropy)
    masked_input, data = share_keys.step(participant_list, entropy=entropy)
    vector = ...  # for masked_input.participants, noise from masked_input.noise_seed if any
    check, data = masked_input.step(delivery, vector)
    unmask, data = check.step(survivors)
    done, data = unmask.step(agreements, entropy=entropy)

Where each message meets a new process, keep ``phase.to_bytes()`` *before* ``data`` is sent and go
on with ``MaskedInput.from_bytes(kept, party)``; when a step raises, delete what was kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray

from skellam.entropy import Entropy, random_bytes
from skellam.errors import TamperError, ThresholdError
from skellam.protocol.masks import add_masks
from skellam.protocol.wire import Digest, Fixed, Id, Ids, Indices, Many, Nested, Uint
from skellam.secagg.channel import (
    NONCE_BYTES,
    channel_purpose,
    mask_purpose,
    seal,
    self_mask,
    unseal,
)
from skellam.secagg.messages import (
    MAX_SECRETS,
    Advertisement,
    Agreement,
    Agreements,
    Delivery,
    KeyShares,
    MaskedVector,
    Opening,
    ParticipantList,
    Participants,
    Receipt,
    Survivors,
    attested,
    extend,
    find,
    given_digest,
    participants_of,
    read_list,
)
from skellam.secagg.parameters import Party, Phase, SeenRounds
from skellam.secagg.shares import (
    MASK_KEY,
    NOISE_SEED,
    SELF_MASK,
    Held,
    MerkleTree,
    commit_secret,
    deal,
    envelope_bytes,
    proof_bytes,
    verify_envelope,
    wanted,
)
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
class AdvertiseKeys(Phase[Party]):
    """The beginning; it holds nothing yet."""

    TAG = 33

    def step(self, *, seen: SeenRounds, entropy: Entropy) -> tuple[ShareKeys, bytes, SeenRounds]:
        """Return the next phase, the advertisement, and the seen rounds to keep from now on."""
        self._leave()
        party = self.setting
        round_, me, pair = party.round, party.identity, party.key_pair
        remembered = seen.enter(round_)
        channel, mask, nonce = (random_bytes(32, entropy=entropy) for _ in range(3))
        message = Advertisement(me.number, pair(channel).public, pair(mask).public, nonce)
        sent = message.signed(me, round_.digest)
        return ShareKeys(party, channel, mask, sha256(sent).digest()), sent, remembered


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ShareKeys(Phase[Party]):
    """Advertised its keys; waits for the list of participants."""

    TAG = 34
    channel: Digest
    mask: Digest
    sent: Digest

    def step(self, participant_list: bytes, *, entropy: Entropy) -> tuple[MaskedInput, bytes]:
        """Verify who takes part and return the shares for the neighbours."""
        self._leave()
        party = self.setting
        peers = participants_of(participant_list, party.round)
        party.round.require_participants(len(peers.ids))
        find(peers.ids, party.roster.numbers, "is not on the roster")
        index = peers.index(party.identity.number)
        entries, _ = read_list(ParticipantList, participant_list)
        if sha256(entries[index].tobytes()).digest() != self.sent:
            raise TamperError("the list holds another advertisement of this client than it sent")
        fresh = [random_bytes(32, entropy=entropy) for _ in range(1, party.round.secret_count)]
        secrets = (self.mask, *fresh)
        bundles = deal(secrets, peers, index, entropy=entropy)
        own = bundles.pop(index)
        known = attested(Advertisement, entries[[*bundles]], party.roster, party.round.digest)
        near = self._meet(known, peers.context)
        random = random_bytes(NONCE_BYTES * len(near), entropy=entropy)
        nonces = (random[at : at + NONCE_BYTES] for at in range(0, len(random), NONCE_BYTES))
        envelopes = b"".join(
            self._envelope(to, held, peers.context, nonce)
            for to, held, nonce in zip(near, bundles.values(), nonces, strict=True)
        )
        message = self._key_shares(secrets, own, envelopes, peers.context)
        return MaskedInput(party, peers.context, peers.ids, secrets, near, own), message

    def _meet(self, others: tuple[Advertisement, ...], context: bytes) -> tuple[Neighbour, ...]:
        me, pair = self.setting.identity.number, self.setting.key_pair(self.channel)
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

    def _envelope(self, to: Neighbour, held: Held, context: bytes, nonce: bytes) -> bytes:
        sealed = seal(to.channel, held.dealer, to.number, held.bundle, nonce=nonce)
        return held.commitments(context, to.number) + sealed

    def _key_shares(
        self, secrets: tuple[bytes, ...], own: Held, envelopes: bytes, context: bytes
    ) -> bytes:
        me = self.setting.identity
        committed = b"".join(
            commit_secret(context, me.number, kind, secrets[kind])
            for kind in range(SELF_MASK, len(secrets))
        )
        message = KeyShares(me.number, committed, own.commitments(context, me.number), envelopes)
        tree = MerkleTree(message, envelope_bytes(len(secrets)))
        return replace(message, signature=me.sign(context, tree.statement)).encode()


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MaskedInput(Phase[Party]):
    """Shared its keys; waits for the others' shares and for this client's vector."""

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
    def noise_seed(self) -> bytes | None:
        """The seed that this client must draw its noise from, if noise is removable."""
        return self.secrets[NOISE_SEED] if self.setting.round.has_noise_seed else None

    def step(self, delivery: bytes, vector: Residues) -> tuple[ConsistencyCheck, bytes]:
        """Open the envelopes and return the masked vector."""
        self._leave()
        party, me = self.setting, self.setting.identity
        party.round.require(vector)
        message = Delivery.decode(delivery)
        near = self._dealers(message.dealers)
        envelopes, proofs = self._cut(message.envelopes, len(near))
        held = tuple(map(self._open, envelopes, proofs, near))
        context = extend(self.context, b"dealers", message.dealers.tobytes())
        values = vector.values.copy()
        added, subtracted = self._mask_seeds(near, context)
        add_masks(values, bits=vector.bits, added=added, subtracted=subtracted)
        data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        given = given_digest(sha256(b"".join(envelopes)).digest(), data)
        receipt = Receipt(me.number, given, vector.replayable)
        masked = MaskedVector(receipt.signed(me, context), data)
        kept = (*held, self.own)
        following = ConsistencyCheck(party, self.context, context, self.ids, message.dealers, kept)
        return following, masked.encode()

    def _dealers(self, dealers: NDArray[np.uint16]) -> list[Neighbour]:
        """Return the neighbours who dealt; raise unless enough did, and this client."""
        if (dealers[1:] <= dealers[:-1]).any() or (dealers >= len(self.ids)).any():
            raise TamperError("the list of dealers is out of order or names nobody")
        needed = self.setting.round.tolerance.survivors(len(self.ids))
        if len(dealers) < needed:
            raise ThresholdError(f"{len(dealers)} of {len(self.ids)} shared keys; {needed} must")
        known = [self.setting.identity.number, *(to.number for to in self.near)]
        at = np.searchsorted(self.ids, np.array(known, dtype="<u8"))
        mine, *dealt = _marked(dealers, len(self.ids))[at].tolist()
        if not mine:
            raise TamperError("the list of dealers leaves this client out")
        return [to for to, present in zip(self.near, dealt, strict=True) if present]

    def _cut(self, delivered: bytes, count: int) -> tuple[list[bytes], list[bytes]]:
        """Return the envelopes, and what proves each; raise unless there are ``count``."""
        size = envelope_bytes(len(self.secrets))
        each = size + proof_bytes(len(self.near))
        if len(delivered) != count * each:
            raise TamperError(f"{count} neighbours dealt, but not as many envelopes came")
        starts = range(0, len(delivered), each)
        envelopes = [delivered[at : at + size] for at in starts]
        return envelopes, [delivered[at + size : at + each] for at in starts]

    def _open(self, envelope: bytes, proof: bytes, dealer: Neighbour) -> Held:
        """Return what is inside; verify the dealer's signature only to know whom to blame."""
        me, committed = self.setting.identity.number, 32 * len(self.secrets)
        try:
            bundle = unseal(dealer.channel, dealer.number, me, envelope[committed:])
            held = Held(dealer.number, bundle)
            if held.commitments(self.context, me) == envelope[:committed]:
                return held
        except TamperError:
            pass
        round_, roster = self.setting.round, self.setting.roster
        peers = Participants(self.ids, self.context, round_)
        verify_envelope(
            envelope, proof, dealer=dealer.number, holder=me, peers=peers, roster=roster
        )
        raise TamperError(
            f"client {dealer.number} dealt shares that it did not commit to", culprit=dealer.number
        )

    def _mask_seeds(self, near: list[Neighbour], context: bytes) -> tuple[list[bytes], list[bytes]]:
        me = self.setting.identity.number
        pair = self.setting.key_pair(self.secrets[MASK_KEY])
        added, subtracted = [self_mask(self.secrets[SELF_MASK], context)], list[bytes]()
        for other in near:
            purpose = mask_purpose(context, me, other.number)
            seed = pair.agree(other.mask_key, purpose, culprit=other.number)
            (added if me < other.number else subtracted).append(seed)
        return added, subtracted


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConsistencyCheck(Phase[Party]):
    """Sent its input; waits for the set of survivors. Its own secrets are gone from here on."""

    TAG = 36
    participants: Digest
    context: Digest
    ids: Ids
    dealers: Indices
    held: Annotated[tuple[Held, ...], Many(Nested(Held))]

    def step(self, survivors: bytes) -> tuple[Unmask, bytes]:
        """Check who survived and return this client's signature under that set."""
        self._leave()
        party = self.setting
        peers = Participants(self.ids, self.participants, party.round)
        index = peers.index(party.identity.number)
        entries, ids = read_list(Survivors, survivors)
        at = find(ids, self.ids, "survived without taking part", blame=False)
        alive, dealt = (_marked(indices, len(self.ids)) for indices in (at, self.dealers))
        if (alive & ~dealt).any() or not alive[index]:
            raise TamperError("the survivors are not this client and others who dealt")
        near = np.isin(at, peers.holders(index))
        attested(Receipt, entries[near], party.roster, self.context)
        if not peers.graph.holds_together(alive):
            raise ThresholdError(
                f"{len(ids)} of {len(self.ids)} survived; that is too few, in all "
                "or in one part of the ring"
            )
        context = extend(self.context, b"survivors", ids.tobytes())
        agreement = Agreement(party.identity.number).signed(party.identity, context)
        sample = peers.graph.topology.sample
        return Unmask(party, context, len(self.ids), sample, ids, self.held), agreement


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unmask(Phase[Party]):
    """Signed the survivors; waits for the others' signatures."""

    TAG = 37
    context: Digest
    participants: Annotated[int, Uint(2)]
    sample: Annotated[int, Uint(2)]
    survivors: Ids
    held: Annotated[tuple[Held, ...], Many(Nested(Held))]

    def step(self, agreements: bytes, *, entropy: Entropy) -> tuple[Done, bytes]:
        """Return the shares that open the sum, if enough others signed the same survivors.

        Their signatures are verified all, or on a ring as many as are drawn from ``entropy``.
        """
        self._leave()
        party = self.setting
        entries, ids = read_list(Agreements, agreements)
        find(ids, self.survivors, "agreed but did not survive", blame=False)
        needed = party.round.tolerance.survivors(self.participants)
        if len(ids) < needed:
            raise ThresholdError(f"{len(ids)} agree on the survivors; {needed} must")
        drawn = entries[_drawn(len(ids), self.sample, entropy)]
        attested(Agreement, drawn, party.roster, self.context)
        removed = set(party.round.removed(self.participants, self.survivors.tolist()))
        shares = tuple(
            held.open(kind)
            for held, alive in zip(self.held, self._alive(), strict=True)
            for kind in wanted(alive=alive, removed=held.dealer in removed)
        )
        opening = Opening(party.identity.number, shares)
        return Done(party), opening.signed(party.identity, self.context)

    def _alive(self) -> list[bool]:
        """Return, for each dealer, whether it survived."""
        dealers = np.array([held.dealer for held in self.held], dtype="<u8")
        first, end = (np.searchsorted(self.survivors, dealers, side) for side in ("left", "right"))
        alive: list[bool] = (first < end).tolist()
        return alive


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Done(Phase[Party]):
    """The end; nothing secret is left."""

    TAG = 38


def _marked(indices: NDArray[np.integer[Any]], count: int) -> NDArray[np.bool_]:
    """Return, for each index below ``count``, whether it is among ``indices``."""
    marked = np.zeros(count, dtype=bool)
    marked[indices] = True
    return marked


def _drawn(count: int, sample: int, entropy: Entropy) -> NDArray[np.intp]:
    """Return ``sample`` of ``count`` indices, drawn with replacement, or all if no more."""
    if sample >= count:
        return np.arange(count)
    # 64 bits modulo 16 favour no index by more than 2**-48 of its probability.
    words = np.empty(sample, dtype=np.uint64)
    entropy.fill(words)
    return np.unique(words % np.uint64(count)).astype(np.intp)
