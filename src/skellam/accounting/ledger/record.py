"""What a ledger's lines say: the terms on the first, one spend on each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from skellam import _checks
from skellam.accounting.ledger.filters import Filter, GdpFilter, RdpFilter
from skellam.accounting.mechanisms import Mechanism
from skellam.accounting.records import from_record, to_record
from skellam.accounting.routes import composed_epsilon
from skellam.errors import DomainError, KindError

_MOST_KEY_BYTES = 64


@dataclass(frozen=True, slots=True)
class Terms:
    """The budget, and how it is kept.

    Without a ``filter`` no mechanism may be chosen from what earlier releases showed.
    """

    epsilon: float
    delta: float
    filter: Filter | None = None
    public_key: bytes | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _checks.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", _checks.open_unit("delta", self.delta))
        if self.filter is not None:
            self.filter.capacity(self.epsilon, self.delta)

    def admit(self, rounds: Mapping[Mechanism, int]) -> bool:
        """Return whether all of ``rounds`` together cost at most the budget."""
        if self.filter is None:
            return composed_epsilon(rounds.items(), delta=self.delta) <= self.epsilon
        return self.filter.admits(rounds, epsilon=self.epsilon, delta=self.delta)

    def to_fields(self) -> dict[str, Any]:
        """Return the terms as JSON values."""
        return {
            "kind": "terms",
            "version": 1,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "filter": _filter_fields(self.filter),
            "public_key": _hex(self.public_key),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the terms that `to_fields` wrote; anything else raises `DomainError`."""
        epsilon, delta, kept, key = _take(
            fields, "terms", "epsilon", "delta", "filter", "public_key"
        )
        return cls(epsilon, delta, _filter(kept), _octets(key))


@dataclass(frozen=True, slots=True)
class Spend:
    """``rounds`` releases by ``mechanism``.

    ``adaptive`` says that the mechanism was chosen from what earlier releases showed,
    ``replayable`` that somebody who knows a seed can take the noise off. ``key`` names the release.
    """

    mechanism: Mechanism
    rounds: int = 1
    adaptive: bool = False
    replayable: bool = False
    key: bytes | None = None
    note: str = ""

    def __post_init__(self) -> None:
        _checks.integer("rounds", self.rounds, 1)
        for name in ("adaptive", "replayable"):
            if not isinstance(getattr(self, name), bool):
                raise KindError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if not isinstance(self.note, str):
            raise KindError(f"note must be a string, got {self.note!r}")
        if not (self.key is None or isinstance(self.key, bytes)):
            raise KindError(f"key must be bytes, got {type(self.key).__name__}")
        if self.key is not None and not 0 < len(self.key) <= _MOST_KEY_BYTES:
            raise DomainError(f"key must have 1 to {_MOST_KEY_BYTES} bytes; pass a digest")

    def to_fields(self) -> dict[str, Any]:
        """Return the spend as JSON values."""
        return {
            "kind": "spend",
            "version": 1,
            "mechanism": to_record(self.mechanism),
            "rounds": self.rounds,
            "adaptive": self.adaptive,
            "replayable": self.replayable,
            "key": _hex(self.key),
            "note": self.note,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the spend that `to_fields` wrote; anything else raises `DomainError`."""
        names = ("mechanism", "rounds", "adaptive", "replayable", "key", "note")
        mechanism, rounds, adaptive, replayable, key, note = _take(fields, "spend", *names)
        return cls(from_record(mechanism), rounds, adaptive, replayable, _octets(key), note)


def _take(fields: Mapping[str, Any], kind: str, *names: str) -> list[Any]:
    if fields.get("kind") != kind or fields.get("version") != 1:
        raise DomainError(f"expected a record of kind {kind!r}, version 1")
    if set(fields) != {"kind", "version", *names}:
        raise DomainError(f"a record of kind {kind!r} has the fields {', '.join(names)}")
    return [fields[name] for name in names]


def _filter_fields(kept: Filter | None) -> dict[str, Any] | None:
    match kept:
        case None:
            return None
        case GdpFilter():
            return {"kind": "gdp"}
        case RdpFilter(order):
            return {"kind": "rdp", "order": order}


def _filter(fields: Mapping[str, Any] | None) -> Filter | None:
    if fields is None:
        return None
    if fields == {"kind": "gdp"}:
        return GdpFilter()
    if fields.keys() == {"kind", "order"} and fields["kind"] == "rdp":
        return RdpFilter(fields["order"])
    raise DomainError(f"no filter is written as {fields!r}")


def _hex(octets: bytes | None) -> str | None:
    return None if octets is None else octets.hex()


def _octets(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
