"""A client masks: it opens what others dealt to it and hides its vector among theirs."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, final

import numpy as np
from numpy.typing import NDArray

from skellam.errors import TamperError, ThresholdError
from skellam.secagg.bundle import MASK_KEY, NOISE, SELF_MASK, Held
from skellam.secagg.channel import KeyPair, mask_purpose, self_mask, unseal
from skellam.secagg.masks import add_masks
from skellam.secagg.messages import (
    MAX_SECRETS,
    Delivery,
    Envelope,
    Masked,
    Receipt,
    authentic,
    extend,
    signed,
)
from skellam.secagg.opening import Agree
from skellam.secagg.phase import Party, Phase
from skellam.secagg.wire import Digest, Fixed, Id, Ids, Many, Nested
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
        message = Delivery.decode(delivery)
        near = self._dealers(message.dealers)
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

    def _dealers(self, dealers: NDArray[np.uint16]) -> list[Neighbour]:
        """Return the neighbours who dealt; raise unless enough in all did, and this client."""
        if (dealers[1:] <= dealers[:-1]).any() or (dealers >= len(self.ids)).any():
            raise TamperError("the list of dealers is out of order or names nobody")
        if len(dealers) < self.setting.round.survivors(len(self.ids)):
            raise ThresholdError("too few dealt shares")
        known = [self.setting.identity.number, *(to.number for to in self.near)]
        mine, *dealt = np.isin(np.array(known, dtype="<u8"), self.ids[dealers])
        if not mine:
            raise TamperError("the list of dealers leaves this client out")
        return [to for to, present in zip(self.near, dealt, strict=True) if present]

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
