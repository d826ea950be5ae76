"""State that outlives a process: canonical bytes with a version, a kind and a checksum.

The checksum shows damage, not malice: whoever can write the bytes can write other ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from skellam.errors import DomainError, MessageError
from skellam.protocol import wire
from skellam.protocol.wire import Numbers
from skellam.twoserver.constants import RunConstants

MAX_CLIENTS: Final = 1 << 27
_CHECKSUM: Final = 32


class Stored:
    """A record with bytes for the next process; abstract. They are as secret as what it holds."""

    __slots__ = ()
    TAG: ClassVar[int]

    def to_bytes(self) -> bytes:
        """Return the only encoding."""
        data = wire.head(self.TAG) + wire.body(self)
        return data + _checksum(data)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the state that ``data`` encodes, or raise `MessageError`."""
        content, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
        if _checksum(content) != checksum:
            raise MessageError("a stored state is damaged: its checksum differs; restore a copy")
        try:
            return wire.decode(cls, cls.TAG, content)
        except DomainError as error:
            raise MessageError(str(error)) from error


def _checksum(data: bytes) -> bytes:
    return sha256(b"skellam/twoserver/state/" + data).digest()


@dataclass(frozen=True, slots=True, eq=False)
class Participations:
    """Who took part how often, and when last: three columns, by ascending client."""

    senders: Annotated[NDArray[np.uint64], Numbers("<u8", MAX_CLIENTS)]
    counts: Annotated[NDArray[np.uint32], Numbers("<u4", MAX_CLIENTS)]
    lasts: Annotated[NDArray[np.uint32], Numbers("<u4", MAX_CLIENTS)]

    def __post_init__(self) -> None:
        if not len(self.senders) == len(self.counts) == len(self.lasts):
            raise DomainError("the columns of a record of participations must be equally long")
        if (self.senders[1:] <= self.senders[:-1]).any():
            raise DomainError("a record of participations must be by ascending client")

    @classmethod
    def empty(cls) -> Participations:
        """Return the record of a run that begins."""
        return cls(np.empty(0, "<u8"), np.empty(0, "<u4"), np.empty(0, "<u4"))

    def objection(self, sender: int, round_: int, constants: RunConstants) -> str | None:
        """Return why ``sender`` may not take part in ``round_``, or None if it may."""
        at = int(np.searchsorted(self.senders, np.uint64(sender)))
        if at == len(self.senders) or self.senders[at] != sender:
            return None
        return objection(int(self.counts[at]), int(self.lasts[at]), round_, constants)

    def added(self, senders: NDArray[np.uint64], round_: int) -> Participations:
        """Return the record after ``senders`` took part in ``round_``."""
        union = np.union1d(self.senders, senders)
        counts, lasts = np.zeros(len(union), "<u4"), np.zeros(len(union), "<u4")
        before = np.searchsorted(union, self.senders)
        counts[before], lasts[before] = self.counts, self.lasts
        now = np.searchsorted(union, senders)
        counts[now] += 1
        lasts[now] = round_
        return Participations(union, counts, lasts)


def objection(count: int, last: int, round_: int, constants: RunConstants) -> str | None:
    """Return why a client with ``count`` rounds, the last one ``last``, may not take part."""
    if count >= constants.participations:
        return f"took part in {count} rounds already, at most {constants.participations} are agreed"
    if round_ - last < constants.separation:
        return (
            f"took part in round {last}, too soon before round {round_}: "
            f"rounds of one client are {constants.separation} apart"
        )
    return None
