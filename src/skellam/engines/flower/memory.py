"""What a client remembers between two stages of a round, in Flower's state of the node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from numpy.typing import NDArray

from skellam import secagg
from skellam.engines.flower.invitation import RECORD, Invitation
from skellam.engines.flower.letters import arrays_of
from skellam.errors import PhaseError

_UPDATE = "skellam.update"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Memory:
    """One round in progress; ``phase`` is as secret as the keys in it, ``update`` as the data."""

    invitation: Invitation
    model: bytes
    phase: bytes
    update: NDArray[np.floating[Any]] | None

    @property
    def protocol(self) -> secagg.Round:
        """What all parties to the round agree on."""
        return self.invitation.protocol(self.model)

    def store(self, context: Context) -> None:
        """Write all of it, once."""
        record = self.invitation.to_record()
        record["model"], record["phase"] = self.model, self.phase
        if self.update is not None:
            context.state[_UPDATE] = ArrayRecord({"update": Array(self.update)})
        context.state[RECORD] = record

    @classmethod
    def take(cls, context: Context) -> Memory:
        """Return the round in progress and wipe it: whatever happens, it is used once."""
        record = context.state.get(RECORD)
        if not isinstance(record, ConfigRecord):
            raise PhaseError("no round is in progress on this node")
        held = arrays_of(context.state, _UPDATE) if _UPDATE in context.state else {}
        wipe(context)
        found: dict[str, Any] = dict(record)
        return cls(
            Invitation.from_record(found), found["model"], found["phase"], held.get("update")
        )

    def then(self, phase: bytes, *, keep_update: bool = False) -> Memory:
        """Return the memory for the next stage."""
        return replace(self, phase=phase, update=self.update if keep_update else None)


def wipe(context: Context) -> None:
    """Leave nothing of a round in the state."""
    for key in (RECORD, _UPDATE):
        if key in context.state:
            del context.state[key]
