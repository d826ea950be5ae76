"""Counts and sums: one number from each user."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from skellam import _checks
from skellam.accounting import gaussian_sigma
from skellam.analytics.contribution import (
    Contribution,
    Outside,
    Rows,
    numbers,
    rounded,
    share,
)
from skellam.analytics.estimates import Estimate
from skellam.analytics.query import Bounds, PlanOptions, Query, Totals, planned
from skellam.entropy import Entropy
from skellam.errors import DomainError, InfeasibleError

FINEST_DEVIATION = 1e4
"""Noise of so many units drowns the rounding of a hundred million users; finer is of no use."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows the users hold, at most ``max_rows`` each."""

    max_rows: int

    @property
    def bounds(self) -> Bounds:
        """One number of at most ``max_rows``."""
        return Bounds(1, self.max_rows, self.max_rows, float(self.max_rows))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:  # noqa: ARG002
        """Return the number of rows."""
        count = min(len(rows), self.max_rows)
        return Contribution(np.array([count], dtype=np.int32), left_out=len(rows) - count)

    def answer(self, totals: Totals) -> Estimate:
        """Return the number of all rows."""
        return Estimate(float(totals.values[0]), totals.variance)


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of rows in [``low``, ``high``], at most ``max_rows`` a user, in steps of ``unit``.

    A user's sum is at most ``coordinate_bound`` steps. Where ``exact``, ``unit`` is 1.
    """

    low: float
    high: float
    max_rows: int
    coordinate_bound: int
    unit: float
    exact: bool
    outside: Outside

    @property
    def bounds(self) -> Bounds:
        """One number of at most ``coordinate_bound``."""
        return Bounds(1, self.coordinate_bound, self.coordinate_bound, float(self.coordinate_bound))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return the sum of a random choice of the user's rows, in steps."""
        values, clipped = numbers(rows, self.low, self.high, self.outside)
        if self.exact and not (values == np.round(values)).all():
            raise DomainError("rows must be integers; or ask for the sum of reals")
        chosen = values[share(len(values), self.max_rows, entropy=entropy)]
        steps = rounded(math.fsum(chosen) / self.unit, self.coordinate_bound, entropy=entropy)
        vector = np.array([steps], dtype=np.int32)
        return Contribution(vector, clipped, len(values) - len(chosen))

    def answer(self, totals: Totals) -> Estimate:
        """Return the sum of all users' rows."""
        rounding = 0.0 if self.exact else totals.clients / 4
        return Estimate(
            self.unit * float(totals.values[0]), totals.variance + rounding, unit=self.unit
        )


def count(*, max_rows: int = 1, **options: Unpack[PlanOptions]) -> Query[Estimate]:
    """Ask how many rows the users hold; of each user at most ``max_rows`` count."""
    return planned(Count(_checks.integer("max_rows", max_rows, 1)), **options)


def sum(  # noqa: A001  (the statistic's name)
    low: float,
    high: float,
    *,
    integer: bool = False,
    max_rows: int = 1,
    outside: Outside | str = Outside.CLIP,
    **options: Unpack[PlanOptions],
) -> Query[Estimate]:
    """Ask for the sum of numbers in [``low``, ``high``], at most ``max_rows`` of each user.

    If they are ``integer``, they are added as they are. Of reals each user rounds its sum at
    random, without bias, to steps as fine as the bits allow.
    """
    lowest, highest = interval(low, high)
    rows = _checks.integer("max_rows", max_rows, 1)
    reach = rows * max(abs(lowest), abs(highest))
    if integer and not reach.is_integer():
        raise DomainError(f"low and high must be integers too, got {low!r} and {high!r}")
    steps = int(reach) if integer else finest(options)
    unit = reach / steps
    return planned(Sum(lowest, highest, rows, steps, unit, integer, Outside(outside)), **options)


def interval(low: float, high: float) -> tuple[float, float]:
    """Return ``low`` and ``high`` if they bound an interval."""
    lowest, highest = _checks.number("low", low), _checks.number("high", high)
    if not -math.inf < lowest < highest < math.inf:
        raise DomainError(f"low must be below high and both finite, got {low!r} and {high!r}")
    return lowest, highest


def finest(options: PlanOptions) -> int:
    """Return how many steps a user's largest number may have, for the bits and the noise.

    For many steps the noise is that of the Gaussian mechanism, z steps for each of the user's, and
    ten deviations of it more than cover the headroom that a plan keeps.
    """
    bits = _checks.integer("bits", options.get("bits", 32), 2, 32)
    clients = _checks.integer("clients", options["clients"], 1)
    z = max(1.0, gaussian_sigma(options["epsilon"], options["delta"], 1.0))
    max_steps = 2.0 ** (bits - 1) / (clients + 10 * 2 * z)
    steps = min(math.floor(max_steps), math.ceil(FINEST_DEVIATION / z))
    if steps < 1:
        raise InfeasibleError(f"{bits} bits cannot carry a sum over {clients} clients")
    return steps
