"""A client opens: it signs who survived, and then gives the shares that this set calls for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, final

import numpy as np
from numpy.typing import NDArray

from skellam.entropy import Entropy
from skellam.errors import TamperError, ThresholdError
from skellam.secagg.bundle import Held, wanted
from skellam.secagg.messages import (
    Agreed,
    Agreement,
    Opening,
    Receipt,
    Survivors,
    extend,
    signed,
)
from skellam.secagg.participants import Participants, attested, find
from skellam.secagg.phase import Party, Phase
from skellam.secagg.wire import Digest, Ids, Indices, Many, Nested, Uint


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
        place = peers.place(party.identity.number)
        message = Survivors.decode(survivors)
        ids = message.senders
        at = find(ids, self.ids, "survived without taking part")
        alive, dealt = (_marked(places, len(self.ids)) for places in (at, self.dealers))
        if (alive & ~dealt).any() or not alive[place]:
            raise TamperError("the survivors are not this client and others who dealt")
        near = np.isin(at, peers.holders(place))
        attested(Receipt, message.entries[near], party.roster, self.context)
        if not peers.graph.holds_together(alive):
            raise ThresholdError("too few survived, in all or in one place of the ring")
        context = extend(self.context, b"survivors", ids.tobytes())
        agreement = signed(Agreement(party.identity.number), party.identity, context)
        sample = peers.graph.topology.sample
        return Unmask(party, context, len(self.ids), sample, ids, self.held), agreement


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unmask(Phase[Party]):
    """Agreed; waits for the others' agreement."""

    TAG = 37
    context: Digest
    participants: Annotated[int, Uint(2)]
    sample: Annotated[int, Uint(2)]
    survivors: Ids
    held: Annotated[tuple[Held, ...], Many(Nested(Held))]

    def step(self, agreed: bytes, *, entropy: Entropy) -> tuple[Done, bytes]:
        """Return the shares that open the sum, if enough others signed the same survivors.

        Their signatures are verified all, or on a ring as many as are drawn from ``entropy``.
        """
        self._leave()
        party = self.setting
        message = Agreed.decode(agreed)
        ids = message.senders
        find(ids, self.survivors, "agreed but did not survive")
        least = party.round.survivors(self.participants)
        if len(ids) < least:
            raise ThresholdError(f"{len(ids)} agree on the survivors; {least} must")
        drawn = message.entries[_drawn(len(ids), self.sample, entropy)]
        attested(Agreement, drawn, party.roster, self.context)
        removed = party.round.removed(self.participants, len(self.survivors))
        dealers = np.array([held.dealer for held in self.held], dtype="<u8")
        shares = tuple(
            held.open(place)
            for held, alive in zip(self.held, np.isin(dealers, self.survivors), strict=True)
            for place in wanted(alive=bool(alive), removed=removed)
        )
        opening = Opening(party.identity.number, shares)
        return Done(party), signed(opening, party.identity, self.context)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Done(Phase[Party]):
    """The end; nothing secret is left."""

    TAG = 38


def _marked(places: NDArray[np.integer[Any]], count: int) -> NDArray[np.bool_]:
    """Return, for each of ``count`` places, whether it is among ``places``."""
    marked = np.zeros(count, dtype=bool)
    marked[places] = True
    return marked


def _drawn(count: int, sample: int, entropy: Entropy) -> NDArray[np.intp]:
    """Return ``sample`` of ``count`` places, drawn with replacement, or all if they are no more."""
    if sample >= count:
        return np.arange(count)
    # 64 bits modulo 16 favour no place by more than 2**-48 of its probability.
    words = np.empty(sample, dtype=np.uint64)
    entropy.fill(words)
    return np.unique(words % np.uint64(count)).astype(np.intp)
