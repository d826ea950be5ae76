"""Round parameters: what all parties to one aggregation agree on, and the phases they go through.

A phase is a type: it is left by its one step, once, and lives in bytes between two processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, ClassVar, Generic, Protocol, Self, TypeVar

from skellam import _checks
from skellam.cohorts import Tolerance
from skellam.errors import (
    DomainError,
    InfeasibleError,
    KindError,
    MessageError,
    PhaseError,
    ShapeError,
    TamperError,
    ThresholdError,
)
from skellam.protocol import wire
from skellam.protocol.identity import Identity, Roster
from skellam.protocol.wire import (
    MAX_LENGTH,
    MAX_PARTICIPANTS,
    Blob,
    Digest,
    Fixed,
    Flag,
    Many,
    Uint,
)
from skellam.secagg.channel import KeyPair, PairCache
from skellam.secagg.graph import Topology, topology
from skellam.vectors import Residues

MAX_LABEL = 255
_SEEN_VERSION = 2
_SEEN = Many(Fixed(32), limit=1 << 24)


@dataclass(frozen=True, slots=True)
class ToleranceField:
    """A `Tolerance` on the wire: two fractions in lowest terms, population (0: none), tail bits."""

    def write(self, value: Tolerance) -> bytes:
        """Return 38 bytes."""
        number, shares = Uint(8), (value.dropout, value.colluding)
        parts = [number.write(s.numerator) + number.write(s.denominator) for s in shares]
        return (
            b"".join(parts) + Uint(4).write(value.population or 0) + Uint(2).write(value.tail_bits)
        )

    def read(self, reader: wire.Reader) -> Tolerance:
        """Take 38 bytes; raise `MessageError` unless they are what `write` gives."""
        data = reader.take(38)
        a, b, c, d = (int.from_bytes(data[at : at + 8], "big") for at in range(0, 32, 8))
        population, tail_bits = int.from_bytes(data[32:36], "big"), int.from_bytes(data[36:], "big")
        try:
            value = Tolerance(Fraction(a, b), Fraction(c, d), population or None, tail_bits)
        except (DomainError, ZeroDivisionError) as error:
            raise MessageError(f"a tolerance on the wire is none: {error}") from error
        if self.write(value) != data:
            raise MessageError("a tolerance on the wire is not in lowest terms")
        return value


def require_countable(clients: int) -> None:
    """Raise `InfeasibleError` if the protocol cannot number so many clients."""
    if clients > MAX_PARTICIPANTS:
        raise InfeasibleError(
            f"{clients} clients were asked; the secure-aggregation protocol takes at most "
            f"{MAX_PARTICIPANTS} in a round, for it numbers them in two bytes: plan a smaller "
            "cohort, or sum without this protocol, which has no such limit"
        )


@dataclass(frozen=True, slots=True)
class RoundParameters:
    """One aggregation; every client builds it from its own plan, and its digest is in every mask.

    ``round_id`` is 32 bytes that never repeat; ``plan`` and ``model`` are SHA-256 digests of what
    the client was given. ``tolerance`` says how many of n participants may drop out and how many
    may work for the server; a list of fewer than ``min_participants`` is refused. ``removable``
    asks for a noise seed a client, of which those of surplus survivors are opened. Vectors carry
    ``label``.
    """

    round_id: Digest
    plan: Digest
    model: Digest
    bits: Annotated[int, Uint(1)]
    length: Annotated[int, Uint(4)]
    tolerance: Annotated[Tolerance, ToleranceField()]
    min_participants: Annotated[int, Uint(2)]
    removable: Annotated[bool, Flag()] = False
    label: Annotated[bytes, Blob(MAX_LABEL)] = b""

    def __post_init__(self) -> None:
        for name in ("round_id", "plan", "model"):
            _checks.octets(name, getattr(self, name), 32)
        _checks.integer("bits", self.bits, 2, 32)
        _checks.integer("length", self.length, 1, MAX_LENGTH)
        _checks.integer("min_participants", self.min_participants, 2)
        require_countable(self.min_participants)
        _checks.boolean("removable", self.removable)
        if not len(self.label) <= MAX_LABEL:
            raise ShapeError(f"label must have at most {MAX_LABEL} bytes, got {len(self.label)}")
        if not isinstance(self.tolerance, Tolerance):
            raise KindError(f"tolerance must be a Tolerance, got {self.tolerance!r}")
        try:
            ToleranceField().write(self.tolerance)
        except MessageError as error:
            raise DomainError(f"tolerance must fit its 38 bytes on the wire: {error}") from error
        self.topology(self.min_participants)

    @property
    def digest(self) -> bytes:
        """SHA-256 over all of it."""
        return _digest(self)

    @property
    def has_noise_seed(self) -> bool:
        """Whether each client shares the seed of its noise: only then can there be a surplus."""
        return self.removable and self.tolerance.dropout > 0

    @property
    def secret_count(self) -> int:
        """How many secrets each participant shares: mask key, self mask, perhaps a noise seed."""
        return 3 if self.has_noise_seed else 2

    def topology(self, participants: int) -> Topology:
        """Return the graph's numbers for a cohort, or raise `InfeasibleError`."""
        return topology(participants, self.tolerance)

    def require_participants(self, participants: int) -> None:
        """Raise `ThresholdError` unless that many may be summed."""
        if participants < self.min_participants:
            raise ThresholdError(f"{participants} take part; at least {self.min_participants} must")
        if not self.tolerance.feasible(participants):
            raise ThresholdError(
                f"{participants} participants cannot bear {self.tolerance.dropouts(participants)} "
                f"dropouts and {self.tolerance.colluders(participants)} colluders"
            )

    def removed(self, participants: int, survivors: Sequence[int]) -> tuple[int, ...]:
        """Return whose noise seeds are opened, given the numbers of the survivors."""
        return self.tolerance.surplus(survivors, participants) if self.has_noise_seed else ()

    def require(self, vector: Residues) -> None:
        """Raise unless ``vector`` belongs into this round."""
        found = (vector.bits, len(vector), vector.label, vector.messages)
        if found != (self.bits, self.length, self.label, 1):
            raise ShapeError(
                f"vector must be one message of {self.length} residues of {self.bits} bits with "
                f"the round's label, got {vector.messages} of {len(vector)} of {vector.bits} bits"
            )


@lru_cache(maxsize=8)
def _digest(round_: RoundParameters) -> bytes:
    return sha256(b"skellam/secagg/round" + wire.head(0) + wire.body(round_)).digest()


@dataclass(frozen=True, slots=True)
class SeenRounds:
    """The rounds that a client ever began; keep it for as long as the client's identity."""

    rounds: frozenset[bytes] = frozenset()

    def enter(self, round_: RoundParameters) -> SeenRounds:
        """Return these and ``round_``; raise `TamperError` if it was begun before."""
        if round_.round_id in self.rounds:
            raise TamperError("this round was begun before; a replayed round is refused")
        return SeenRounds(self.rounds | {round_.round_id})

    def to_bytes(self) -> bytes:
        """Return the only encoding."""
        return bytes([_SEEN_VERSION]) + _SEEN.write(sorted(self.rounds))

    @classmethod
    def from_bytes(cls, data: bytes) -> SeenRounds:
        """Return the rounds that ``data`` encodes, or raise `MessageError`."""
        reader = wire.Reader(data)
        if reader.take(1) != bytes([_SEEN_VERSION]):
            raise MessageError("the list of seen rounds is of an unknown version")
        rounds = _SEEN.read(reader)
        reader.finish()
        if list(rounds) != sorted(set(rounds)):
            raise MessageError("the list of seen rounds is out of order")
        return cls(frozenset(rounds))


@dataclass(frozen=True, slots=True)
class Setting:
    """What the server brings into every phase."""

    round: RoundParameters
    roster: Roster
    cache: PairCache | None = field(default=None, repr=False, compare=False, kw_only=True)
    """What all parties of one simulation share, and no others."""

    def key_pair(self, secret: bytes) -> KeyPair:
        """Return the key pair of ``secret``."""
        return KeyPair(secret) if self.cache is None else self.cache.pair(secret)


@dataclass(frozen=True, slots=True)
class Party(Setting):
    """What a client brings into every phase; none of it is in the bytes of a phase."""

    identity: Identity


class _Setting(Protocol):
    @property
    def round(self) -> RoundParameters: ...


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
            raise MessageError(
                f"got a state of version {version}, need version {wire.VERSION}; "
                "a round ends with the program that began it"
            )
        if tag != cls.TAG or reader.take(32) != setting.round.digest:
            raise PhaseError(f"the state is not {cls.__name__} of this round")
        values = wire.read_fields(cls, reader)
        reader.finish()
        return cls(setting, **values)

    def _leave(self) -> None:
        if self._spent:
            raise PhaseError(f"{type(self).__name__} was used already; a phase is used once")
        _checks.assign(self, _spent=True)
