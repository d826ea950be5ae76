"""A phase is a type: it is left by its one step, once, and lives in bytes between two processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from skellam.errors import MessageError, PhaseError
from skellam.secagg import wire
from skellam.secagg.identity import Identity, Roster
from skellam.secagg.round import Round


@dataclass(frozen=True, slots=True)
class Setting:
    """What the server brings into every phase."""

    round: Round
    roster: Roster


@dataclass(frozen=True, slots=True)
class Party:
    """What a client brings into every phase; none of it is in the bytes of a phase."""

    round: Round
    roster: Roster
    identity: Identity


class _Setting(Protocol):
    @property
    def round(self) -> Round: ...


S = TypeVar("S", bound=_Setting)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Phase(Generic[S]):
    """A step of the protocol that can be taken once; abstract.

    A step that raises is spent as well: the party leaves the round, and its bytes must be deleted.
    """

    TAG: ClassVar[int]
    setting: S
    _spent: bool = field(default=False, init=False)

    def to_bytes(self) -> bytes:
        """Return the state for the next process; it is as secret as the keys in it."""
        if self._spent:
            raise PhaseError(f"{type(self).__name__} was left; keep the phase that came after it")
        return wire.head(self.TAG) + self.setting.round.digest + wire.body(self)

    @classmethod
    def from_bytes(cls, data: bytes, setting: S) -> Self:
        """Return the phase; raise `PhaseError` if ``data`` is another phase or another round."""
        reader = wire.Reader(data)
        version, tag = reader.take(2)
        if version != wire.VERSION:
            raise MessageError(f"a state of version {version} is unknown")
        if tag != cls.TAG or reader.take(32) != setting.round.digest:
            raise PhaseError(f"the state is not {cls.__name__} of this round")
        values = wire.read_fields(cls, reader)
        reader.finish()
        return cls(setting, **values)

    def _leave(self) -> None:
        if self._spent:
            raise PhaseError(f"{type(self).__name__} was used already; a phase is used once")
        object.__setattr__(self, "_spent", True)
