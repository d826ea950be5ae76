"""Privacy as a value: curves that add under composition and give epsilon for delta.

Every curve carries `Slack`: what lies outside of it (uncertified tails, the error of the sampler).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

from skellam import _checks
from skellam.accounting import conversion
from skellam.accounting.slack import NO_SLACK, Slack
from skellam.errors import DomainError

ORDERS: tuple[float, ...] = (
    1.05,
    *(1 + x / 10 for x in range(1, 30)),
    *(float(a) for a in (*range(4, 65), 72, 80, 96, 112, 128, 160, 192, 256, 384, 512, 1024)),
)
"""Orders for tight RDP, fractional and whole."""

PAPER_ORDERS: tuple[float, ...] = (*(float(a) for a in range(2, 129)), 256.0)
"""The paper's orders: 2..128 and 256."""


class Curve(Protocol):
    """A privacy guarantee as a function; composition is ``+`` and ``* rounds``."""

    @property
    def slack(self) -> Slack:
        """What the curve leaves out."""

    def epsilon(self, delta: float) -> float:
        """Return an epsilon at which the total delta is at most ``delta``, or infinity."""

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on the total delta at ``epsilon``."""

    def __add__(self, other: Self) -> Self: ...

    def __mul__(self, rounds: int) -> Self: ...


@dataclass(frozen=True, slots=True)
class GdpCurve:
    """mu-Gaussian differential privacy (Dong, Roth, Su 2019)."""

    mu: float
    slack: Slack = NO_SLACK

    def __post_init__(self) -> None:
        _checks.positive("mu", self.mu)

    def __add__(self, other: GdpCurve) -> GdpCurve:
        return GdpCurve(_up(math.hypot(self.mu, other.mu)), self.slack + other.slack)

    def __mul__(self, rounds: int) -> GdpCurve:
        n = _checks.integer("rounds", rounds, 1)
        return GdpCurve(self.mu if n == 1 else _up(self.mu * math.sqrt(n)), self.slack * n)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at ``delta``, or infinity where the slack takes it all."""
        return self.slack.epsilon(lambda left: conversion.gaussian_epsilon(self.mu, left), delta)

    def delta(self, epsilon: float) -> float:
        """Return the total delta at ``epsilon``."""
        return self.slack.delta(lambda e: conversion.gaussian_delta(self.mu, e), epsilon)

    def zcdp(self) -> float:
        """Return rho of the zero-concentrated DP that mu-GDP implies (slack stays outside)."""
        return _up(self.mu * self.mu / 2)

    def rdp(self, orders: tuple[float, ...] = ORDERS) -> RdpCurve:
        """Return the Rényi curve that mu-GDP implies: that of the Gaussian mechanism."""
        return RdpCurve.from_zcdp(self.zcdp(), orders=orders, slack=self.slack)


@dataclass(frozen=True, slots=True)
class RdpCurve:
    """Rényi differential privacy: a bound on the divergence at each of ``orders``."""

    orders: tuple[float, ...]
    values: tuple[float, ...]
    slack: Slack = NO_SLACK

    def __post_init__(self) -> None:
        if not (len(self.orders) == len(self.values) > 0):
            raise DomainError("orders and values must have the same length, at least one")
        if not all(1 < a < math.inf for a in self.orders):
            raise DomainError(f"orders must be finite and above 1, got {self.orders}")
        # Infinite is honest at a single order; NaN and negative values are not.
        if not all(value >= 0 for value in self.values):
            raise DomainError(f"values must not be negative, got {self.values}")

    @classmethod
    def from_zcdp(
        cls, rho: float, *, orders: tuple[float, ...] = ORDERS, slack: Slack = NO_SLACK
    ) -> RdpCurve:
        """Return the curve order * rho (Bun and Steinke 2016, definition 1.1)."""
        _checks.non_negative("rho", rho)
        return cls(orders, tuple(a * rho for a in orders), slack)

    def __add__(self, other: RdpCurve) -> RdpCurve:
        if self.orders != other.orders:
            raise DomainError("only Rényi curves over the same orders can be added")
        values = tuple(x + y for x, y in zip(self.values, other.values, strict=True))
        return RdpCurve(self.orders, values, self.slack + other.slack)

    def __mul__(self, rounds: int) -> RdpCurve:
        n = _checks.integer("rounds", rounds, 1)
        return RdpCurve(self.orders, tuple(n * x for x in self.values), self.slack * n)

    def minimum(self, other: RdpCurve) -> RdpCurve:
        """Return the better of two bounds on the same release, order by order."""
        if (self.orders, self.slack) != (other.orders, other.slack):
            raise DomainError("only Rényi curves of the same orders and slack can be compared")
        return RdpCurve(self.orders, tuple(map(min, self.values, other.values)), self.slack)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at ``delta``, or infinity where the slack takes it all."""
        return self.slack.epsilon(
            lambda left: conversion.rdp_epsilon(self.orders, self.values, left), delta
        )

    def delta(self, epsilon: float) -> float:
        """Return the total delta at ``epsilon``."""
        return self.slack.delta(
            lambda e: conversion.rdp_delta(self.orders, self.values, e), epsilon
        )


def _up(x: float) -> float:
    """Round up past what a few float64 operations lose."""
    return x * (1 + 1e-15)
