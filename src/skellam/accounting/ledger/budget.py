"""Budgets and filters.

A budget is an epsilon at a delta, fixed when the ledger is created. Composition theorems take the
mechanisms as fixed in advance; a filter holds even when each mechanism is chosen from what earlier
releases showed. It takes them one by one and refuses the one that would pass its capacity; all that
it let through, however it was chosen, costs at most the capacity. So a filtered ledger states its
capacity from the first spend to the last, never the smaller sum so far: that sum depends on the
data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, assert_never

from skellam import _checks
from skellam.accounting.curves import (
    NO_SLACK,
    ORDERS,
    GdpCurve,
    RdpCurve,
    Slack,
    gaussian_sigma,
    rdp_epsilon,
)
from skellam.accounting.gdp import dominating, outside_by_atoms, outside_by_distance
from skellam.accounting.mechanisms import Mechanism, noise_of, rate_of
from skellam.accounting.rdp import dominating_rdp
from skellam.errors import DomainError, InfeasibleError, KindError

_SLACK_SHARE = 0.01
"""The part of delta, and of epsilon, that is set aside for tails and sampler error."""


@dataclass(frozen=True, slots=True)
class GdpFilter:
    """Lets through while the squares of the GDP parameters sum to at most that of the capacity.

    Smith and Thakurta 2022, "Fully adaptive composition for Gaussian differential privacy".
    """

    def capacity(self, epsilon: float, delta: float) -> GdpCurve:
        """Return the curve of all that can be let through; its slack is the largest that may be."""
        share = 1 - _SLACK_SHARE
        sigma = gaussian_sigma(share * epsilon, share * delta, 1.0)
        return GdpCurve(1 / sigma, _reserved(epsilon, delta))

    def curve(self, mechanism: Mechanism) -> GdpCurve:
        """Return what one release by ``mechanism`` takes of the capacity."""
        if rate_of(mechanism) < 1:
            raise DomainError("a GDP filter takes no sampled mechanisms; create an RdpFilter")
        return dominating(noise_of(mechanism))


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
        """Return the curve of all that can be let through; its slack is the largest that may be."""
        share = 1 - _SLACK_SHARE
        min_epsilon = rdp_epsilon((self.order,), (0.0,), share * delta)
        if not min_epsilon < share * epsilon:
            raise InfeasibleError(
                f"a filter of order {self.order:g} needs an epsilon above {min_epsilon:.3g} at "
                f"delta {delta:g}, got {epsilon:g}; take a higher order"
            )
        return RdpCurve((self.order,), (share * epsilon - min_epsilon,), _reserved(epsilon, delta))

    def curve(self, mechanism: Mechanism) -> RdpCurve:
        """Return what one release by ``mechanism`` takes of the capacity."""
        curve = dominating_rdp(mechanism)
        value = curve.values[curve.orders.index(self.order)]
        return RdpCurve((self.order,), (value,), curve.slack)


Filter: TypeAlias = GdpFilter | RdpFilter


@dataclass(frozen=True, slots=True)
class Budget:
    """An epsilon at a delta, and how it is kept.

    Without a ``filter`` no mechanism may be chosen from what earlier releases showed.
    ``public_key`` is that of the signer, if there is one.
    """

    epsilon: float
    delta: float
    filter: Filter | None = None
    public_key: bytes | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _checks.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", _checks.open_unit("delta", self.delta))
        if self.filter is not None:
            if not isinstance(self.filter, Filter):
                raise KindError(f"filter must be a GdpFilter or RdpFilter, got {self.filter!r}")
            self.filter.capacity(self.epsilon, self.delta)

    def to_fields(self) -> dict[str, Any]:
        """Return the budget as JSON values."""
        return {
            "kind": "terms",
            "version": 1,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "filter": _filter_fields(self.filter),
            "public_key": to_hex(self.public_key),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the budget that `to_fields` wrote; anything else raises `DomainError`."""
        names = ("epsilon", "delta", "filter", "public_key")
        epsilon, delta, filter_, key = take(fields, "terms", *names)
        return cls(epsilon, delta, _filter(filter_), from_hex(key))

    def __str__(self) -> str:
        under = "" if self.filter is None else f" under {self.filter}"
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}{under}"


@dataclass(frozen=True, slots=True)
class Filtered:
    """The sum of what a filter let through, with either way to charge for the sampler."""

    filter: Filter
    curve: GdpCurve | RdpCurve | None = None
    by_distance: Slack = NO_SLACK
    by_atoms: Slack = NO_SLACK

    def plus(self, mechanism: Mechanism, rounds: int) -> Filtered:
        """Return the sum with ``rounds`` more releases by ``mechanism``."""
        curve = self.filter.curve(mechanism) * rounds
        return Filtered(
            self.filter,
            curve if self.curve is None else self.curve + curve,  # type: ignore[operator]
            self.by_distance + outside_by_distance(mechanism) * rounds,
            self.by_atoms + outside_by_atoms(mechanism) * rounds,
        )

    def epsilon(self, delta: float) -> float:
        """Return what the sum would cost at ``delta`` if its mechanisms had been fixed."""
        return 0.0 if self.curve is None else self.curve.epsilon(delta)

    def fits(self, budget: Budget) -> bool:
        """Return whether the sum stays within the filter's capacity for ``budget``."""
        match self.curve, self.filter.capacity(budget.epsilon, budget.delta):
            case None, _:
                return True
            case GdpCurve() as spent, GdpCurve() as capacity:
                fits = spent.mu <= capacity.mu
            case RdpCurve() as spent, RdpCurve() as capacity:
                fits = spent.values[0] <= capacity.values[0]
            case _:
                raise AssertionError("a filter's curves are of one kind")
        return fits and any(
            slack.charge(budget.epsilon) <= _SLACK_SHARE * budget.delta
            and slack.stretch <= _SLACK_SHARE * budget.epsilon
            for slack in (spent.slack + self.by_distance, spent.slack + self.by_atoms)
        )


def _reserved(epsilon: float, delta: float) -> Slack:
    """Return a bound on every slack that `Filtered.fits` lets through, part by part."""
    share = _SLACK_SHARE * delta
    distance = share / (1 + math.exp(min(epsilon, 700.0)))
    return Slack(share, distance, _SLACK_SHARE * epsilon)


def _filter_fields(filter_: Filter | None) -> dict[str, Any] | None:
    match filter_:
        case None:
            return None
        case GdpFilter():
            return {"kind": "gdp"}
        case RdpFilter(order):
            return {"kind": "rdp", "order": order}
        case _:
            assert_never(filter_)


def _filter(fields: object) -> Filter | None:
    match fields:
        case None:
            return None
        case {"kind": "gdp", **rest} if not rest:
            return GdpFilter()
        case {"kind": "rdp", "order": order, **rest} if not rest:
            return RdpFilter(order)
        case _:
            raise DomainError(f"no filter is written as {fields!r}")


def take(fields: Mapping[str, Any], kind: str, *names: str) -> list[Any]:
    """Return the values of ``names`` from a record of ``kind``, or raise `DomainError`."""
    if fields.get("kind") != kind or fields.get("version") != 1:
        raise DomainError(
            f"got a record of kind {fields.get('kind')!r}, version {fields.get('version')!r}, need "
            f"{kind!r}, version 1; a later version of skellam may read it"
        )
    if set(fields) != {"kind", "version", *names}:
        raise DomainError(f"a record of kind {kind!r} has the fields {', '.join(names)}")
    return [fields[name] for name in names]


def to_hex(octets: bytes | None) -> str | None:
    """Return ``octets`` as JSON writes them."""
    return None if octets is None else octets.hex()


def from_hex(text: str | None) -> bytes | None:
    """Return the bytes that `to_hex` wrote."""
    return None if text is None else bytes.fromhex(text)
