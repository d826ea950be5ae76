"""Spends and accounts: what a ledger's lines say, as values.

Every number is computed from the record and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from skellam import _checks
from skellam.accounting.guarantee import ZERO_OUT, Audience, Guarantee, Unit, against_server
from skellam.accounting.ledger.budget import Budget, Filtered, from_hex, take, to_hex
from skellam.accounting.ledger.composition import Admission, epsilon_of
from skellam.accounting.mechanisms import Adjacency, Mechanism, noise_of, rate_of
from skellam.accounting.records import from_record, to_record
from skellam.errors import DomainError, KindError, LedgerError

FIXED = "no mechanism, nor the number of rounds, was chosen from what earlier releases showed"
HIDDEN = "this audience learns neither who took part in a round nor how many"
FILTERED = "mechanisms were chosen from nothing but earlier releases and public knowledge"
_MAX_KEY_BYTES = 64


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
        if not isinstance(self.mechanism, Mechanism):
            raise KindError(f"mechanism must be one, got {type(self.mechanism).__name__}")
        for name in ("adaptive", "replayable"):
            if not isinstance(getattr(self, name), bool):
                raise KindError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if not isinstance(self.note, str):
            raise KindError(f"note must be a string, got {self.note!r}")
        if not (self.key is None or isinstance(self.key, bytes)):
            raise KindError(f"key must be bytes, got {type(self.key).__name__}")
        if self.key is not None and not 0 < len(self.key) <= _MAX_KEY_BYTES:
            raise DomainError(
                f"key must have 1 to {_MAX_KEY_BYTES} bytes, got {len(self.key)}; pass a digest"
            )

    def to_fields(self) -> dict[str, Any]:
        """Return the spend as JSON values."""
        return {
            "kind": "spend",
            "version": 1,
            "mechanism": to_record(self.mechanism),
            "rounds": self.rounds,
            "adaptive": self.adaptive,
            "replayable": self.replayable,
            "key": to_hex(self.key),
            "note": self.note,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the spend that `to_fields` wrote; anything else raises `DomainError`."""
        names = ("mechanism", "rounds", "adaptive", "replayable", "key", "note")
        mechanism, rounds, adaptive, replayable, key, note = take(fields, "spend", *names)
        return cls(from_record(mechanism), rounds, adaptive, replayable, from_hex(key), note)


@dataclass(frozen=True, slots=True)
class Account:
    """A budget and every spend from it in order; ``rounds`` puts equal mechanisms together."""

    budget: Budget
    spends: tuple[Spend, ...] = ()
    rounds: Mapping[Mechanism, int] = field(default_factory=dict, repr=False)

    def plus(self, spend: Spend) -> Self:
        """Return the account after ``spend``, which may exceed the budget but must belong here."""
        rounds = dict(self.rounds)
        count(spend, self.budget, rounds)
        return replace(self, spends=(*self.spends, spend), rounds=rounds)

    def fits(self, mechanism: Mechanism, *, rounds: int = 1) -> bool:
        """Return whether the budget allows ``rounds`` more releases; nothing is spent."""
        more = _checks.integer("rounds", rounds, 1)
        return Admission(self.budget).admits(self.rounds, mechanism, more)

    def find(self, key: bytes) -> Spend | None:
        """Return the last spend under ``key``, if there is one."""
        return next((spend for spend in reversed(self.spends) if spend.key == key), None)

    def epsilon(self, delta: float | None = None) -> float:
        """Return an upper bound on epsilon at ``delta``, the budget's where none is given.

        A filter vouches for its whole capacity, so that is its epsilon from the first spend on.
        """
        budget = self.budget
        at = budget.delta if delta is None else _checks.open_unit("delta", delta)
        if not self.rounds:
            return 0.0
        if budget.filter is None:
            return epsilon_of(self.rounds, at)
        capacity = budget.filter.capacity(budget.epsilon, budget.delta).epsilon(at)
        return min(capacity, budget.epsilon) if at >= budget.delta else capacity

    def remaining(self) -> float:
        """Return the epsilon that is left of the budget, at the budget's delta."""
        budget = self.budget
        if budget.filter is None or not self.rounds:
            return budget.epsilon - self.epsilon()
        spent = Filtered(budget.filter)
        for mechanism, rounds in self.rounds.items():
            spent = spent.plus(mechanism, rounds)
        return budget.epsilon - spent.epsilon(budget.delta)

    def guarantee(
        self, *, audience: Audience = Audience.PUBLIC, participations: int | None = None
    ) -> Guarantee:
        """Return what holds for all that was spent; raise `LedgerError` where nothing does.

        The server sees who takes part: against it sampling is worth nothing, and the rounds that
        count are ``participations``, the largest number that any user took part in; all of them if
        it is not given.
        """
        self._require_secret_noise()
        if Audience(audience) is Audience.PUBLIC:
            epsilon = self.epsilon()
            seen = (HIDDEN,) if any(rate_of(mechanism) < 1 for mechanism in self.rounds) else ()
        else:
            max_rounds = sum(self.rounds.values()) if participations is None else participations
            epsilon = self._epsilon_against_server(_checks.integer("participations", max_rounds, 1))
            seen = (f"a user takes part in at most {max_rounds} rounds",)
        filter_ = self.budget.filter
        return Guarantee(
            epsilon=epsilon,
            delta=self.budget.delta,
            unit=Unit.USER,
            adjacency=self.adjacency,
            audience=Audience(audience),
            accountant="composition" if filter_ is None else repr(filter_),
            assumptions=(*ZERO_OUT, *seen, FIXED if filter_ is None else FILTERED),
        )

    def _epsilon_against_server(self, participations: int) -> float:
        rounds: Counter[Mechanism] = Counter()
        for mechanism, number in self.rounds.items():
            rounds[noise_of(mechanism)] += min(number, participations)
        if self.budget.filter is not None:
            if any(rate_of(mechanism) < 1 for mechanism in self.rounds):
                raise LedgerError("a filter of sampled mechanisms says nothing against the server")
            return self.epsilon()
        match [*rounds.items()]:
            case [(noise, number)]:
                delta = self.budget.delta
                return against_server(noise, participations=number, delta=delta).epsilon
            case _:
                return epsilon_of(rounds, self.budget.delta)

    def _require_secret_noise(self) -> None:
        for number, spend in enumerate(self.spends, start=2):
            if spend.replayable:
                raise LedgerError(
                    f"line {number} was drawn from a seed, which can take its noise off again: "
                    "there is no guarantee; use SystemEntropy"
                )

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets are neighbours; raises `LedgerError` while nothing was spent."""
        if not self.rounds:
            raise LedgerError("nothing was spent, so there is nothing to guarantee")
        return noise_of(next(iter(self.rounds))).adjacency


def count(spend: Spend, budget: Budget, rounds: dict[Mechanism, int]) -> None:
    """Add ``spend`` to ``rounds``, or raise `LedgerError` if it does not belong there."""
    if spend.adaptive and budget.filter is None:
        raise LedgerError(
            "this ledger has no filter, so no mechanism may depend on earlier releases; "
            "create one with filter=GdpFilter() or RdpFilter(order)"
        )
    if rounds:
        adjacency = noise_of(next(iter(rounds))).adjacency
        if noise_of(spend.mechanism).adjacency is not adjacency:
            raise LedgerError(
                f"this ledger's neighbours are those of {adjacency}, got "
                f"{noise_of(spend.mechanism).adjacency}; keep another ledger for others"
            )
    rounds[spend.mechanism] = rounds.get(spend.mechanism, 0) + spend.rounds
