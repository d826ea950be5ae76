"""Budgets that hold even when each mechanism is chosen from what earlier releases showed.

Composition theorems take the mechanisms as fixed in advance. A filter takes them one by one and
refuses the one that would pass its capacity; all that it let through, however it was chosen, costs
at most the capacity. So a filtered ledger states its capacity from the first spend to the last,
never the lesser sum so far: that sum depends on the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TypeAlias

from skellam.accounting import conversion
from skellam.accounting.curves import ORDERS, GdpCurve, RdpCurve
from skellam.accounting.divergences import dominating_rdp
from skellam.accounting.domination import dominating
from skellam.accounting.mechanisms import Mechanism, Sampled, SampledWithoutReplacement
from skellam.errors import DomainError, InfeasibleError

_SLACK_SHARE = 0.01
"""The part of delta that is set aside for tails and sampler error, a capacity of its own."""

Rounds: TypeAlias = Mapping[Mechanism, int]


@dataclass(frozen=True, slots=True)
class GdpFilter:
    """Lets through while the squares of the GDP parameters sum to at most that of the capacity.

    Smith and Thakurta 2022, "Fully adaptive composition for Gaussian differential privacy".
    """

    def capacity(self, epsilon: float, delta: float) -> GdpCurve:
        """Return a curve that costs at most (epsilon, delta)."""
        sigma = conversion.gaussian_sigma(epsilon, (1 - _SLACK_SHARE) * delta, 1.0)
        return GdpCurve(1 / sigma, _slack(epsilon, delta))

    def spent(self, rounds: Rounds) -> GdpCurve:
        """Return the sum of what was let through."""
        return reduce(add, (_gaussian(mechanism) * count for mechanism, count in rounds.items()))

    def admits(self, rounds: Rounds, *, epsilon: float, delta: float) -> bool:
        """Return whether all of ``rounds`` together stay within the capacity."""
        spent, capacity = self.spent(rounds), self.capacity(epsilon, delta)
        return spent.mu <= capacity.mu and spent.slack <= capacity.slack


@dataclass(frozen=True, slots=True)
class RdpFilter:
    """Lets through while the Rényi divergences of one fixed ``order`` sum to the capacity.

    Feldman and Zrnic 2021, "Individual privacy accounting via a Rényi filter", theorem 3.1.
    """

    order: float

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise DomainError(f"order must be one of accounting.ORDERS, got {self.order!r}")

    def capacity(self, epsilon: float, delta: float) -> RdpCurve:
        """Return a curve that costs at most (epsilon, delta)."""
        least = conversion.rdp_epsilon((self.order,), (0.0,), (1 - _SLACK_SHARE) * delta)
        if not least < epsilon:
            raise InfeasibleError(
                f"a filter of order {self.order:g} has no room below epsilon {least:.3g} at "
                f"delta {delta:g}; take a higher order"
            )
        return RdpCurve((self.order,), (epsilon - least,), _slack(epsilon, delta))

    def spent(self, rounds: Rounds) -> RdpCurve:
        """Return the sum of what was let through."""
        return reduce(add, (self._curve(mechanism) * n for mechanism, n in rounds.items()))

    def admits(self, rounds: Rounds, *, epsilon: float, delta: float) -> bool:
        """Return whether all of ``rounds`` together stay within the capacity."""
        spent, capacity = self.spent(rounds), self.capacity(epsilon, delta)
        return spent.values[0] <= capacity.values[0] and spent.slack <= capacity.slack

    def _curve(self, mechanism: Mechanism) -> RdpCurve:
        curve = dominating_rdp(mechanism)
        value = curve.values[curve.orders.index(self.order)]
        return RdpCurve((self.order,), (value,), curve.slack)


Filter: TypeAlias = GdpFilter | RdpFilter


def _gaussian(mechanism: Mechanism) -> GdpCurve:
    if isinstance(mechanism, Sampled | SampledWithoutReplacement):
        raise DomainError("a GDP filter takes no sampled mechanisms; create an RdpFilter")
    return dominating(mechanism)


def _slack(epsilon: float, delta: float) -> float:
    return _SLACK_SHARE * delta / (1 + math.exp(epsilon)) if epsilon < 700 else 0.0
