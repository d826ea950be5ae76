"""Plans for vectors of integers: only the noise is to be found, and the bits to be counted.

A plan with ``rounding="integer"`` states exact bounds on every vector: ``clip`` on its L2 norm,
``l1`` on its L1 norm, ``coordinate_bound`` on its entries.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skellam import _checks
from skellam.codec import MAX_INTEGER
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import sizes
from skellam.plan.choices import Rounding

if TYPE_CHECKING:
    from skellam.plan.plan import CalibratedPlan, Plan

WRAP = 1e-15
"""Chance, at most, that the noise of a coordinate exceeds what the modulus leaves for it."""


def is_integer(plan: Plan) -> bool:
    """Return whether the plan's vectors are integers."""
    return plan.rounding is Rounding.INTEGER


def check(plan: Plan) -> None:
    """Raise unless the bounds of integer vectors are given and consistent, and only there."""
    if not is_integer(plan):
        if plan.l1 is not None:
            raise DomainError(
                f'l1 goes with rounding="integer" and only with it, got l1={plan.l1!r} with '
                f'rounding="{plan.rounding}"; leave one out'
            )
        return
    if plan.l1 is None or plan.coordinate_bound is None:
        raise DomainError(
            'rounding="integer" needs l1 and coordinate_bound, the bounds of every vector'
        )
    l1 = _checks.integer("l1", plan.l1, 1, 1 << 40)
    _checks.assign(plan, l1=l1)
    bound = _checks.number("coordinate_bound", plan.coordinate_bound)
    if not (bound.is_integer() and 1 <= bound <= min(l1, MAX_INTEGER)):
        raise DomainError(
            f"coordinate_bound must be an integer from 1 to l1 and {MAX_INTEGER}, got {bound!r}"
        )
    if not bound <= plan.clip * (1 + 1e-12) <= l1 * (1 + 2e-12):
        raise DomainError(
            f"clip, the L2 bound, must lie between coordinate_bound and l1, got {plan.clip!r}"
        )
    if plan.scale not in (None, 1.0) or plan.compression is not None:
        raise DomainError("integers are sent as they are: scale and compression must be None")


def require_bits(plan: CalibratedPlan) -> CalibratedPlan:
    """Return ``plan`` if its sums fit the modulus, or raise and name the fewest bits."""
    if plan.bits < (needed := min_bits(plan)):
        raise InfeasibleError(
            f"{plan.bits} bits cannot carry the sum of {plan.cohort} vectors with their noise; "
            f"the fewest that can: {needed}"
        )
    return plan


def min_bits(plan: CalibratedPlan) -> int:
    """Return the fewest bits that hold the entries of all clients and, but for `WRAP`, noise."""
    clients = sizes.max_planned(plan, WRAP)
    bits = bits_for(clients * int(plan.coordinate_bound or 1) + reach(plan.total_variance))
    if bits > 32:
        raise InfeasibleError(
            f"not even 32 bits carry the sum of {clients} vectors with entries up to "
            f"{plan.coordinate_bound:g}; lower the bounds"
        )
    return bits


def bits_for(bound: float) -> int:
    """Return the fewest bits that hold integers from ``-bound`` to ``bound``."""
    return math.ceil(bound).bit_length() + 1


def reach(variance: float, chance: float = WRAP) -> float:
    """Return a magnitude that Skellam noise exceeds with at most this ``chance``.

    Chernoff: log P(X >= k) <= hypot(k, v) - v - k asinh(k / v). Discrete Gaussian noise of the same
    variance reaches no further: its moment generating function is at most the Gaussian one.
    """
    if variance == 0:
        return 0.0
    wanted = math.log(chance / 2)
    low, high = 0.0, 1.0
    while _log_chernoff(variance, high) > wanted:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _log_chernoff(variance, middle) > wanted else (low, middle)
    return high


def _log_chernoff(variance: float, k: float) -> float:
    # hypot(k, v) - v without cancellation.
    return k * k / (math.hypot(k, variance) + variance) - k * math.asinh(k / variance)
