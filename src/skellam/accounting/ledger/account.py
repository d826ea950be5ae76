"""What a ledger's lines say, as a value: every number is computed from it and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from skellam import _checks
from skellam.accounting.audiences import against_server
from skellam.accounting.guarantee import ZERO_OUT, Audience, Guarantee, Unit
from skellam.accounting.ledger.record import Spend, Terms
from skellam.accounting.mechanisms import Adjacency, Mechanism, noise_of, rate_of
from skellam.accounting.routes import composed_epsilon
from skellam.errors import LedgerError

FIXED = "no mechanism, nor the number of rounds, was chosen from what earlier releases showed"
HIDDEN = "this audience learns neither who took part in a round nor how many"
FILTERED = "mechanisms were chosen from nothing but earlier releases and public knowledge"


@dataclass(frozen=True, slots=True)
class Account:
    """The terms, and every spend under them in order; ``rounds`` puts equal mechanisms together."""

    terms: Terms
    spends: tuple[Spend, ...] = ()
    rounds: Mapping[Mechanism, int] = field(default_factory=dict, repr=False)

    def plus(self, spend: Spend) -> Self:
        """Return the account after ``spend``, which may exceed the budget but must belong here."""
        if spend.adaptive and self.terms.filter is None:
            raise LedgerError(
                "this ledger has no filter, so no mechanism may depend on earlier releases; "
                "create one with filter=GdpFilter() or RdpFilter(order)"
            )
        if self.rounds and noise_of(spend.mechanism).adjacency is not self.adjacency:
            raise LedgerError(
                f"this ledger's neighbours are those of {self.adjacency}; "
                "keep another ledger for others"
            )
        count = self.rounds.get(spend.mechanism, 0) + spend.rounds
        rounds = {**self.rounds, spend.mechanism: count}
        return replace(self, spends=(*self.spends, spend), rounds=rounds)

    def find(self, key: bytes) -> Spend | None:
        """Return the last spend under ``key``, if there is one."""
        return next((spend for spend in reversed(self.spends) if spend.key == key), None)

    def epsilon(self, delta: float | None = None) -> float:
        """Return an upper bound on epsilon at ``delta``, the budget's where none is given.

        A filter vouches for its whole capacity, so that is its epsilon from the first spend on.
        """
        at = self.terms.delta if delta is None else _checks.open_unit("delta", delta)
        if not self.rounds:
            return 0.0
        kept = self.terms.filter
        if kept is None:
            return composed_epsilon(self.rounds.items(), delta=at)
        capacity = kept.capacity(self.terms.epsilon, self.terms.delta).epsilon(at)
        return min(capacity, self.terms.epsilon) if at >= self.terms.delta else capacity

    def remaining(self) -> float:
        """Return the epsilon that is left of the budget, at the budget's delta."""
        kept = self.terms.filter
        if kept is None or not self.rounds:
            return self.terms.epsilon - self.epsilon()
        return self.terms.epsilon - kept.spent(self.rounds).epsilon(self.terms.delta)

    def guarantee(
        self, *, audience: Audience = Audience.PUBLIC, participations: int | None = None
    ) -> Guarantee:
        """Return what holds for all that was spent; raise `LedgerError` where nothing does.

        The server sees who takes part: against it sampling is worth nothing, and the rounds that
        count are ``participations``, the most that any user took part in; all, if it is not given.
        """
        self._require_secret_noise()
        kept = self.terms.filter
        if Audience(audience) is Audience.PUBLIC:
            epsilon = self.epsilon()
            seen = (HIDDEN,) if any(rate_of(mechanism) < 1 for mechanism in self.rounds) else ()
        else:
            most = sum(self.rounds.values()) if participations is None else participations
            epsilon = self._epsilon_against_server(_checks.integer("participations", most, 1))
            seen = (f"a user takes part in at most {most} rounds",)
        return Guarantee(
            epsilon=epsilon,
            delta=self.terms.delta,
            unit=Unit.USER,
            adjacency=self.adjacency,
            audience=Audience(audience),
            accountant="composition" if kept is None else repr(kept),
            assumptions=(*ZERO_OUT, *seen, FIXED if kept is None else FILTERED),
        )

    def _epsilon_against_server(self, participations: int) -> float:
        rounds: Counter[Mechanism] = Counter()
        for mechanism, count in self.rounds.items():
            rounds[noise_of(mechanism)] += min(count, participations)
        if self.terms.filter is not None:
            if any(rate_of(mechanism) < 1 for mechanism in self.rounds):
                raise LedgerError("a filter of sampled mechanisms says nothing against the server")
            return self.epsilon()
        match [*rounds.items()]:
            case [(noise, count)]:
                return against_server(noise, participations=count, delta=self.terms.delta).epsilon
            case several:
                return composed_epsilon(several, delta=self.terms.delta)

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
