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
from skellam.analytics.query import Bounds, Query, Terms, Totals, planned
from skellam.entropy import Entropy
from skellam.errors import DomainError, InfeasibleError

FINEST_DEVIATION = 1e4
"""Noise of so many units drowns the rounding of a hundred million users; finer is of no use."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows the users hold, at most ``most_rows`` each."""

    most_rows: int

    @property
    def bounds(self) -> Bounds:
        """One number of at most ``most_rows``."""
        return Bounds(1, self.most_rows, self.most_rows, float(self.most_rows))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:  # noqa: ARG002
        """Return the number of rows."""
        count = min(len(rows), self.most_rows)
        return Contribution(np.array([count], dtype=np.int32), left_out=len(rows) - count)

    def answer(self, totals: Totals) -> Estimate:
        """Return the number of all rows."""
        return Estimate(float(totals.values[0]), totals.variance)


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of rows in [``low``, ``high``], at most ``most_rows`` a user, in steps of ``unit``.

    A user's sum is at most ``largest`` steps. It is whole in steps of 1 where ``exact``.
    """

    low: float
    high: float
    most_rows: int
    largest: int
    unit: float
    exact: bool
    outside: Outside

    @property
    def bounds(self) -> Bounds:
        """One number of at most ``largest``."""
        return Bounds(1, self.largest, self.largest, float(self.largest))

    def contribution(self, rows: Rows, *, entropy: Entropy) -> Contribution:
        """Return the sum of a random choice of the user's rows, in steps."""
        values, clipped = numbers(rows, self.low, self.high, self.outside)
        if self.exact and not (values == np.round(values)).all():
            raise DomainError("rows must be whole numbers; or ask for the sum of reals")
        chosen = values[share(len(values), self.most_rows, entropy=entropy)]
        steps = rounded(math.fsum(chosen) / self.unit, self.largest, entropy=entropy)
        vector = np.array([steps], dtype=np.int32)
        return Contribution(vector, clipped, len(values) - len(chosen))

    def answer(self, totals: Totals) -> Estimate:
        """Return the sum of all users' rows."""
        rounding = 0.0 if self.exact else totals.clients / 4
        return Estimate(
            self.unit * float(totals.values[0]), totals.variance + rounding, unit=self.unit
        )


def count(*, most_rows: int = 1, **terms: Unpack[Terms]) -> Query[Estimate]:
    """Ask how many rows the users hold; of each user at most ``most_rows`` count."""
    return planned(Count(_checks.integer("most_rows", most_rows, 1)), **terms)


def sum(  # noqa: A001  (the statistic's name)
    low: float,
    high: float,
    *,
    whole: bool = False,
    most_rows: int = 1,
    outside: Outside | str = Outside.CLIP,
    **terms: Unpack[Terms],
) -> Query[Estimate]:
    """Ask for the sum of numbers in [``low``, ``high``], at most ``most_rows`` of each user.

    ``whole`` numbers are added as they are. Of reals each user rounds its sum at random, without
    bias, to steps as fine as the bits allow.
    """
    least, most = interval(low, high)
    rows = _checks.integer("most_rows", most_rows, 1)
    reach = rows * max(abs(least), abs(most))
    if whole and not reach.is_integer():
        raise DomainError(f"low and high must be whole numbers too, got {low!r} and {high!r}")
    steps = int(reach) if whole else finest(terms)
    unit = reach / steps
    return planned(Sum(least, most, rows, steps, unit, whole, Outside(outside)), **terms)


def interval(low: float, high: float) -> tuple[float, float]:
    """Return ``low`` and ``high`` if they bound an interval."""
    least, most = _checks.number("low", low), _checks.number("high", high)
    if not -math.inf < least < most < math.inf:
        raise DomainError(f"low must be below high and both finite, got {low!r} and {high!r}")
    return least, most


def finest(terms: Terms) -> int:
    """Return how many steps a user's largest number may have, for the bits and the noise.

    For many steps the noise is that of the Gaussian mechanism, z steps for each of the user's, and
    ten deviations of it more than cover the room that a plan keeps.
    """
    bits = _checks.integer("bits", terms.get("bits", 32), 2, 32)
    clients = _checks.integer("clients", terms["clients"], 1)
    z = max(1.0, gaussian_sigma(terms["epsilon"], terms["delta"], 1.0))
    room = 2.0 ** (bits - 1) / (clients + 10 * 2 * z)
    steps = min(math.floor(room), math.ceil(FINEST_DEVIATION / z))
    if steps < 1:
        raise InfeasibleError(f"{bits} bits cannot carry a sum over {clients} clients")
    return steps
