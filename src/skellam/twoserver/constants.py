"""Constants of a run: what leader, helper and every client agree on, and limits on them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Final, Literal, TypeAlias, cast

from skellam import _checks
from skellam.bands import MAX_BAND, require_band, squared_sensitivity
from skellam.errors import DomainError, KindError, MessageError, ProtocolError, ShapeError
from skellam.protocol import wire
from skellam.protocol.wire import MAX_LENGTH, MAX_PARTICIPANTS, Digest, Many, Uint
from skellam.vectors import Residues

PROTOCOL_VERSION: Final = 1
MAX_ROUNDS: Final = 1 << 20
NoiseBy: TypeAlias = Literal["both", "helper"]
_NOISE_BY: Final[tuple[NoiseBy, ...]] = ("both", "helper")
_LABEL: Final = b"skellam/twoserver/"


@dataclass(frozen=True, slots=True)
class _Double:
    """A finite number of at least zero: IEEE 754 binary64, big-endian."""

    def write(self, value: float) -> bytes:
        return struct.pack(">d", value)

    def read(self, reader: wire.Reader) -> float:
        data = reader.take(8)
        (value,) = struct.unpack(">d", data)
        if data[0] >> 7 or not math.isfinite(value):
            raise MessageError(f"a number on the wire must be finite and not negative, got {value}")
        return cast(float, value)


@dataclass(frozen=True, slots=True)
class _NoiseBy:
    """Who adds noise: one byte, 0 for both servers and 1 for the helper alone."""

    def write(self, value: NoiseBy) -> bytes:
        return bytes([_NOISE_BY.index(value)])

    def read(self, reader: wire.Reader) -> NoiseBy:
        (index,) = reader.take(1)
        if index >= len(_NOISE_BY):
            raise MessageError(f"noise_by on the wire must be 0 or 1, got {index}")
        return _NOISE_BY[index]


def digest(label: bytes, *parts: bytes) -> bytes:
    """Return SHA-256 of ``label`` and ``parts``, which must be of fixed lengths, or the last."""
    return sha256(_LABEL + label + b"/" + b"".join(parts)).digest()


def number(value: int) -> bytes:
    """Return eight bytes, as they stand in every digest."""
    return value.to_bytes(8, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConstants:
    """What does not change in a run; its digest is in every mask, seal and signature.

    In every round each server adds ``Sk(variance)`` (the helper alone with ``noise_by="helper"``)
    to ``sum_j band[j] X_{t-j}``, where ``X_t`` is the sum of the vectors of round ``t``, each of
    norm at most ``norm_bound``. A client takes part in at most ``participations`` rounds, any two
    at least ``separation`` apart in round numbers ``0 <= t < rounds``.
    """

    run_id: Digest
    version: Annotated[int, Uint(2)] = PROTOCOL_VERSION
    variance: Annotated[float, _Double()]
    norm_bound: Annotated[float, _Double()]
    noise_by: Annotated[NoiseBy, _NoiseBy()] = "both"
    band: Annotated[tuple[int, ...], Many(Uint(2), MAX_BAND)] = (1,)
    participations: Annotated[int, Uint(4)]
    separation: Annotated[int, Uint(4)] = 1
    bits: Annotated[int, Uint(1)]
    length: Annotated[int, Uint(4)]
    rounds: Annotated[int, Uint(4)]
    min_cohort: Annotated[int, Uint(2)]
    plan: Digest
    leader_key: Digest = bytes(32)
    """Digest of the leader's public sealing key; the leader sets it when it proposes the run."""
    helper_key: Digest = bytes(32)
    """Digest of the helper's public sealing key; the helper sets it when it grants the run."""

    def __post_init__(self) -> None:
        for name in ("run_id", "plan", "leader_key", "helper_key"):
            _checks.octets(name, getattr(self, name), 32)
        if self.version != PROTOCOL_VERSION:
            raise DomainError(
                f"version must be {PROTOCOL_VERSION}, which this program speaks, got {self.version}"
            )
        for name in ("variance", "norm_bound"):
            value = _checks.non_negative(name, getattr(self, name))
            _checks.assign(self, **{name: value + 0.0})  # minus zero has another encoding
        if self.noise_by not in _NOISE_BY:
            raise DomainError(f'noise_by must be "both" or "helper", got {self.noise_by!r}')
        _checks.assign(self, band=require_band(self.band))
        _checks.integer("bits", self.bits, 2, 32)
        _checks.integer("length", self.length, 1, MAX_LENGTH)
        _checks.integer("rounds", self.rounds, 1, MAX_ROUNDS)
        _checks.integer("participations", self.participations, 1, self.rounds)
        _checks.integer("separation", self.separation, 1, MAX_ROUNDS)
        _checks.integer("min_cohort", self.min_cohort, 1, MAX_PARTICIPANTS)

    @property
    def digest(self) -> bytes:
        """SHA-256 over all of it."""
        return digest(b"run", wire.body(self))

    def round_digest(self, round_: int, round_input: bytes) -> bytes:
        """Return what binds a message to round ``round_`` of this run.

        ``round_input`` is the digest of all that clients are told to compute on.
        """
        self.require_round(round_)
        _checks.octets("round_input", round_input, 32)
        return digest(b"round", self.digest, number(round_), round_input)

    def require_round(self, round_: int) -> None:
        """Raise unless the run has a round ``round_``."""
        if not 0 <= round_ < self.rounds:
            raise ProtocolError(
                f"the run has rounds 0 to {self.rounds - 1}, got {round_}; begin another run"
            )

    def require_vector(self, vector: Residues) -> None:
        """Raise unless ``vector`` has this run's width and length."""
        if not isinstance(vector, Residues):
            raise KindError(f"vector must be Residues, got {type(vector).__name__}")
        if (vector.bits, len(vector)) != (self.bits, self.length):
            raise ShapeError(
                f"vector must have {self.length} residues of {self.bits} bits, "
                f"got {len(vector)} of {vector.bits}"
            )

    @property
    def sensitivity(self) -> float:
        """The norm of all that one client can change in the opened sums, at most."""
        squared = squared_sensitivity(
            self.band,
            participations=self.participations,
            separation=self.separation,
            rounds=self.rounds,
        )
        return self.norm_bound * math.sqrt(squared)

    @property
    def noise_multiplier(self) -> float:
        """Deviation of one server's noise over `sensitivity`."""
        if self.sensitivity == 0:
            return math.inf
        return math.sqrt(self.variance) / self.sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """What a client or a helper demands of a run, whatever the leader proposes.

    ``min_noise_multiplier`` bounds `RunConstants.noise_multiplier` from below: the privacy of a
    client against one server depends on it alone. With ``helper_noise_alone`` runs are accepted in
    which nothing hides the sums from a helper that sees what is released.
    """

    min_noise_multiplier: float
    max_participations: int
    min_separation: int = 1
    min_cohort: int = 2
    helper_noise_alone: bool = False
    max_length: int = MAX_LENGTH
    max_rounds: int = MAX_ROUNDS
    max_band: int = MAX_BAND

    def __post_init__(self) -> None:
        _checks.non_negative("min_noise_multiplier", self.min_noise_multiplier)
        for name in ("max_participations", "min_separation", "min_cohort"):
            _checks.integer(name, getattr(self, name), 1)
        _checks.integer("max_length", self.max_length, 1, MAX_LENGTH)
        _checks.integer("max_rounds", self.max_rounds, 1, MAX_ROUNDS)
        _checks.integer("max_band", self.max_band, 1, MAX_BAND)

    def require(self, constants: RunConstants) -> None:
        """Raise `ProtocolError` that names the first limit that ``constants`` break."""
        c = constants
        if not c.noise_multiplier >= self.min_noise_multiplier:
            raise _broken("min_noise_multiplier", c.noise_multiplier, self.min_noise_multiplier)
        if c.noise_by == "helper" and not self.helper_noise_alone:
            raise _broken("helper_noise_alone", "noise by the helper alone", "noise by both")
        for name in ("participations", "length", "rounds"):
            got, need = getattr(c, name), getattr(self, f"max_{name}")
            if got > need:
                raise _broken(f"max_{name}", got, need)
        if len(c.band) > self.max_band:
            raise _broken("max_band", len(c.band), self.max_band)
        for name in ("separation", "min_cohort"):
            limit = f"min_{name.removeprefix('min_')}"
            got, need = getattr(c, name), getattr(self, limit)
            if got < need:
                raise _broken(limit, got, need)


def _broken(limit: str, got: object, need: object) -> ProtocolError:
    return ProtocolError(
        f"limit {limit}: the run has {got}, {need} is demanded; change the plan, or the limit"
    )
