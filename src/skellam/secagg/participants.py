"""Lists that clients signed: who takes part, who survived, who agrees.

A client reads a list as a whole and verifies the signatures that are its to verify: those of its
neighbours, or a sample that nobody foresees (docs/maths/ring.md). A verified signature is
remembered, so that a simulation of many clients in one process verifies each once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from skellam.errors import TamperError
from skellam.secagg.graph import Graph, graph
from skellam.secagg.identity import Roster
from skellam.secagg.messages import Advertisement, Agreement, Receipt, Roll, authentic, extend
from skellam.secagg.round import Round

Entry = TypeVar("Entry", Advertisement, Receipt, Agreement)


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
        return int(find(np.array([number], dtype="<u8"), self.ids, "does not take part")[0])

    def holders(self, place: int) -> NDArray[np.intp]:
        """Return who holds shares of the secrets of ``place``: itself and its neighbours."""
        return np.sort(np.append(self.graph.neighbours(place), place))


@lru_cache(maxsize=4)
def enrolled(roll: bytes, this: Round) -> Participants:
    """Return the participants of a roll, whose signatures are not verified here."""
    return Participants(Roll.decode(roll).senders, extend(this.digest, b"roll", roll), this)


def senders(messages: Sequence[Any]) -> NDArray[np.uint64]:
    """Return who sent each message."""
    return np.array([message.sender for message in messages], dtype="<u8")


def find(numbers: NDArray[np.uint64], among: NDArray[np.uint64], fault: str) -> NDArray[np.intp]:
    """Return where each number is in an ascending list, or raise `TamperError` with ``fault``."""
    at = np.searchsorted(among, numbers)
    missing = np.searchsorted(among, numbers, side="right") == at
    if missing.any():
        culprit = int(numbers[missing][0])
        raise TamperError(f"client {culprit} {fault}", culprit=culprit)
    return at


def points(places: NDArray[Any]) -> NDArray[np.uint16]:
    """Return where the polynomials are evaluated for the holders at ``places``."""
    return (places + 1).astype("<u2")


def attested(
    kind: type[Entry], entries: NDArray[np.void], roster: Roster, context: bytes
) -> tuple[Entry, ...]:
    """Return what the entries say if their senders signed it in ``context``."""
    key = cast(Hashable, kind)
    found = (_attested(key, entry.tobytes(), roster, context) for entry in entries)
    return cast(tuple[Entry, ...], tuple(found))


@lru_cache(maxsize=1 << 15)
def _attested(kind: Any, entry: bytes, roster: Roster, context: bytes) -> object:  # noqa: ANN401
    return authentic(kind, entry, roster, context)
