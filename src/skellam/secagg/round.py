"""What all parties to one aggregation must agree on, and what a client remembers of past ones."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

from skellam import _checks
from skellam.errors import KindError, MessageError, ShapeError, TamperError
from skellam.secagg import seeds, wire
from skellam.secagg.graph import Topology, topology
from skellam.secagg.wire import MAX_PARTICIPANTS, Blob, Digest, Fixed, Flag, Many, Uint
from skellam.vectors import Residues

MAX_LENGTH = 1 << 28
MAX_LABEL = 255
_HISTORY = Many(Fixed(32), limit=1 << 24)


@dataclass(frozen=True, slots=True)
class Round:
    """One aggregation; every client builds it from its own plan, and its digest is in every mask.

    ``round_id`` is 32 bytes that never repeat; ``plan`` and ``model`` are SHA-256 digests of what
    the client was given. ``dropouts`` clients may fall silent and ``colluders`` may work for the
    server; no fewer than ``least`` may take part. ``removable`` asks for seeds of removable noise.
    Vectors carry ``label``.
    """

    round_id: Digest
    plan: Digest
    model: Digest
    bits: Annotated[int, Uint(1)]
    length: Annotated[int, Uint(4)]
    dropouts: Annotated[int, Uint(2)]
    colluders: Annotated[int, Uint(2)]
    least: Annotated[int, Uint(2)]
    removable: Annotated[bool, Flag()] = False
    label: Annotated[bytes, Blob(MAX_LABEL)] = b""

    def __post_init__(self) -> None:
        for name in ("round_id", "plan", "model"):
            _checks.octets(name, getattr(self, name), 32)
        _checks.integer("bits", self.bits, 2, 32)
        _checks.integer("length", self.length, 1, MAX_LENGTH)
        _checks.integer("dropouts", self.dropouts, 0, MAX_PARTICIPANTS)
        _checks.integer("colluders", self.colluders, 0, MAX_PARTICIPANTS)
        _checks.integer("least", self.least, 2, MAX_PARTICIPANTS)
        if not isinstance(self.removable, bool):
            raise KindError("removable must be True or False")
        if not len(self.label) <= MAX_LABEL:
            raise ShapeError(f"label must have at most {MAX_LABEL} bytes, got {len(self.label)}")
        self.topology(self.least)

    @property
    def digest(self) -> bytes:
        """SHA-256 over all of it."""
        return sha256(b"skellam/secagg/round" + wire.head(0) + wire.body(self)).digest()

    def topology(self, participants: int) -> Topology:
        """Return the graph's numbers for a cohort, or raise `InfeasibleError`."""
        return topology(participants, dropouts=self.dropouts, colluders=self.colluders)

    def survivors(self, participants: int) -> int:
        """Return the fewest whose sum may be opened, and who must agree on it."""
        return participants - self.dropouts

    def seed_count(self, participants: int) -> int:
        """Return how many removable noise components each participant has."""
        return len(seeds.per_cents(participants, self.dropouts)) if self.removable else 0

    def removed(self, participants: int, survivors: int) -> tuple[int, ...]:
        """Return the indices of the components whose seeds are opened."""
        if not self.removable:
            return ()
        return seeds.removable(participants, self.dropouts, participants - survivors)

    def require(self, vector: Residues) -> None:
        """Raise unless ``vector`` belongs into this round."""
        like = (self.bits, self.length, self.label)
        if (vector.bits, len(vector), vector.label) != like:
            raise ShapeError(
                f"vector must have {self.length} residues of {self.bits} bits and the round's label"
            )


@dataclass(frozen=True, slots=True)
class History:
    """The rounds that a client ever began; keep it for as long as the client's identity."""

    rounds: frozenset[bytes] = frozenset()

    def enter(self, this: Round) -> History:
        """Return the history with ``this`` in it; raise `TamperError` if it was begun before."""
        if this.round_id in self.rounds:
            raise TamperError("this round was begun before; a replayed round is refused")
        return History(self.rounds | {this.round_id})

    def to_bytes(self) -> bytes:
        """Return the only encoding."""
        return bytes([wire.VERSION]) + _HISTORY.write(sorted(self.rounds))

    @classmethod
    def from_bytes(cls, data: bytes) -> History:
        """Return the history that ``data`` encodes, or raise `MessageError`."""
        reader = wire.Reader(data)
        if reader.take(1) != bytes([wire.VERSION]):
            raise MessageError("the history is of an unknown version")
        rounds = _HISTORY.read(reader)
        reader.finish()
        if list(rounds) != sorted(set(rounds)):
            raise MessageError("the history is out of order")
        return cls(frozenset(rounds))
