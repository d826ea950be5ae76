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
from skellam.accounting.domination import dominating, sampler_by_atoms, sampler_by_distance
from skellam.accounting.mechanisms import (
    Mechanism,
    Sampled,
    SampledWithoutReplacement,
    noise_of,
)
from skellam.accounting.slack import Slack
from skellam.errors import DomainError, InfeasibleError

_SLACK_SHARE = 0.01
"""The part of delta, and of epsilon, that is set aside for tails and sampler error."""

Rounds: TypeAlias = Mapping[Mechanism, int]


@dataclass(frozen=True, slots=True)
class GdpFilter:
    """Lets through while the squares of the GDP parameters sum to at most that of the capacity.

    Smith and Thakurta 2022, "Fully adaptive composition for Gaussian differential privacy".
    """

    def capacity(self, epsilon: float, delta: float) -> GdpCurve:
        """Return the curve of all that can be let through; its slack is the most that may be."""
        kept = 1 - _SLACK_SHARE
        sigma = conversion.gaussian_sigma(kept * epsilon, kept * delta, 1.0)
        return GdpCurve(1 / sigma, _reserved(epsilon, delta))

    def spent(self, rounds: Rounds) -> GdpCurve:
        """Return the sum of what was let through."""
        return reduce(add, (_gaussian(mechanism) * count for mechanism, count in rounds.items()))

    def admits(self, rounds: Rounds, *, epsilon: float, delta: float) -> bool:
        """Return whether all of ``rounds`` together stay within the capacity."""
        spent, capacity = self.spent(rounds), self.capacity(epsilon, delta)
        return spent.mu <= capacity.mu and _bearable(spent.slack, rounds, epsilon, delta)


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
        """Return the curve of all that can be let through; its slack is the most that may be."""
        kept = 1 - _SLACK_SHARE
        least = conversion.rdp_epsilon((self.order,), (0.0,), kept * delta)
        if not least < kept * epsilon:
            raise InfeasibleError(
                f"a filter of order {self.order:g} has no room below epsilon {least:.3g} at "
                f"delta {delta:g}; take a higher order"
            )
        return RdpCurve((self.order,), (kept * epsilon - least,), _reserved(epsilon, delta))

    def spent(self, rounds: Rounds) -> RdpCurve:
        """Return the sum of what was let through."""
        return reduce(add, (self._curve(mechanism) * n for mechanism, n in rounds.items()))

    def admits(self, rounds: Rounds, *, epsilon: float, delta: float) -> bool:
        """Return whether all of ``rounds`` together stay within the capacity."""
        spent, capacity = self.spent(rounds), self.capacity(epsilon, delta)
        within = spent.values[0] <= capacity.values[0]
        return within and _bearable(spent.slack, rounds, epsilon, delta)

    def _curve(self, mechanism: Mechanism) -> RdpCurve:
        curve = dominating_rdp(mechanism)
        value = curve.values[curve.orders.index(self.order)]
        return RdpCurve((self.order,), (value,), curve.slack)


Filter: TypeAlias = GdpFilter | RdpFilter


def _gaussian(mechanism: Mechanism) -> GdpCurve:
    if isinstance(mechanism, Sampled | SampledWithoutReplacement):
        raise DomainError("a GDP filter takes no sampled mechanisms; create an RdpFilter")
    return dominating(mechanism)


def _reserved(epsilon: float, delta: float) -> Slack:
    """Return a bound on every slack that is `_bearable`, part by part."""
    share = _SLACK_SHARE * delta
    distance = share / (1 + math.exp(min(epsilon, 700.0)))
    return Slack(share, distance, _SLACK_SHARE * epsilon)


def _bearable(certified: Slack, rounds: Rounds, epsilon: float, delta: float) -> bool:
    """Return whether what the curves leave out fits into what was set aside for it."""
    for way in (sampler_by_distance, sampler_by_atoms):
        parts = (way(noise_of(mechanism)) * n for mechanism, n in rounds.items())
        slack = reduce(add, parts, certified)
        if (
            slack.charge(epsilon) <= _SLACK_SHARE * delta
            and slack.stretch <= _SLACK_SHARE * epsilon
        ):
            return True
    return False
