"""Lists that clients signed: who takes part, who survived, who agrees.

Verifying a list is a pure function of public bytes and is remembered, so that a simulation of many
clients in one process verifies each list once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from skellam.errors import TamperError
from skellam.secagg.graph import Graph, graph
from skellam.secagg.identity import Roster
from skellam.secagg.messages import (
    Advertisement,
    Agreed,
    Agreement,
    Receipt,
    Roll,
    Survivors,
    authentic,
    extend,
)
from skellam.secagg.round import Round

Entry = TypeVar("Entry", Advertisement, Receipt, Agreement)
_KINDS: dict[int, tuple[type[Roll | Survivors | Agreed], Any]] = {
    Advertisement.TAG: (Roll, Advertisement),
    Receipt.TAG: (Survivors, Receipt),
    Agreement.TAG: (Agreed, Agreement),
}


@dataclass(frozen=True, slots=True, eq=False)
class Participants:
    """Numbers in ascending order, their graph, and the context that binds the signed list."""

    ids: NDArray[np.uint64]
    context: bytes
    round: Round

    @property
    def graph(self) -> Graph:
        """Who is whose neighbour; the signed nonces in the context decide."""
        return graph(self.round.topology(len(self.ids)), self.context)

    def place(self, number: int) -> int:
        """Return the place of client ``number`` in the list."""
        at = int(np.searchsorted(self.ids, np.uint64(number)))
        if at == len(self.ids) or int(self.ids[at]) != number:
            raise TamperError(f"client {number} does not take part", culprit=number)
        return at

    def holders(self, place: int) -> NDArray[np.intp]:
        """Return who holds shares of the secrets of ``place``: itself and its neighbours."""
        return np.sort(np.append(self.graph.neighbours(place), place))


@lru_cache(maxsize=4)
def enrolled(roll: bytes, this: Round) -> Participants:
    """Return the participants of a roll that was verified."""
    context = extend(this.digest, b"roll", roll)
    entries = [Advertisement.decode(entry) for entry in Roll.decode(roll).entries]
    return Participants(senders(entries), context, this)


def senders(entries: Sequence[Any]) -> NDArray[np.uint64]:
    """Return who sent each entry; read-only, because lists that were verified are shared."""
    ids = np.array([entry.sender for entry in entries], dtype="<u8")
    ids.flags.writeable = False
    return ids


def points(places: NDArray[Any]) -> NDArray[np.uint16]:
    """Return where the polynomials are evaluated for the holders at ``places``."""
    return (places + 1).astype("<u2")


def verified(
    kind: type[Entry], data: bytes, roster: Roster, context: bytes
) -> tuple[tuple[Entry, ...], NDArray[np.uint64]]:
    """Return the entries of a list and their senders, strictly ascending, all signed."""
    entries, ids = _verified(kind.TAG, data, roster, context)
    return cast(tuple[Entry, ...], entries), ids


@lru_cache(maxsize=8)
def _verified(
    tag: int, data: bytes, roster: Roster, context: bytes
) -> tuple[tuple[Any, ...], NDArray[np.uint64]]:
    listing, kind = _KINDS[tag]
    found = listing.decode(data).entries
    entries = tuple(authentic(kind, entry, roster, context) for entry in found)
    ids = senders(entries)
    if (ids[1:] <= ids[:-1]).any():
        raise TamperError("a list is out of order or names a client twice")
    return entries, ids
