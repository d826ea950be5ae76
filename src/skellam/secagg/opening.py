"""A client opens: it signs who survived, and then gives the shares that this set calls for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, final

import numpy as np

from skellam.errors import TamperError, ThresholdError
from skellam.secagg.bundle import Held, wanted
from skellam.secagg.messages import Agreement, Opening, Receipt, extend, signed
from skellam.secagg.participants import Participants, verified
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
