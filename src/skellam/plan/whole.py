"""Plans for vectors that are whole already: only the noise is to be found, and the bits counted.

A plan with ``rounding="whole"`` states exact bounds on every vector: ``clip`` on its L2 norm,
``l1`` on its L1 norm, ``largest`` on its entries.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from skellam import _checks
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import cohorts
from skellam.plan.choices import Rounding, Sampling
from skellam.plan.solution import Solution

if TYPE_CHECKING:
    from skellam.plan.plan import Plan

_PlanT = TypeVar("_PlanT", bound="Plan")

WRAP = 1e-15
"""Chance, at most, that the noise of a coordinate leaves the room that is kept for it."""


def is_whole(plan: Plan) -> bool:
    """Tell whether the plan's vectors are whole numbers."""
    return plan.rounding is Rounding.WHOLE


def check(plan: Plan) -> None:
    """Raise unless the bounds of a whole plan are given and consistent, and only there."""
    if not is_whole(plan):
        if plan.l1 is not None:
            raise DomainError('l1 goes with rounding="whole" and only with it')
        return
    if plan.l1 is None or plan.largest is None:
        raise DomainError('rounding="whole" needs the bounds l1 and largest of every vector')
    l1 = _checks.integer("l1", plan.l1, 1, 1 << 40)
    object.__setattr__(plan, "l1", l1)
    largest = _checks.number("largest", plan.largest)
    if not (largest.is_integer() and 1 <= largest <= l1):
        raise DomainError(f"largest must be a whole number in [1, l1], got {largest!r}")
    if not largest <= plan.clip * (1 + 1e-12) <= l1 * (1 + 2e-12):
        raise DomainError(f"clip, the L2 bound, must lie between largest and l1, got {plan.clip!r}")
    if plan.scale is not None or plan.compression is not None:
        raise DomainError("whole numbers travel as they are, with no scale and no compression")


def solved(plan: _PlanT, multiplier: float) -> _PlanT:
    """Return ``plan`` with noise of exactly ``multiplier`` times its L2 bound."""
    variance = (multiplier * plan.clip) ** 2
    spread = math.sqrt(variance * cohorts.surplus(plan, plan.invited))
    solution = Solution(
        scale=1.0,
        variance=variance,
        rounding=Rounding.WHOLE,
        block=1,
        tail=WRAP,
        largest=plan.largest,
        signal_multiple=reach(spread**2) / spread if spread else math.inf,
        rotated=plan.dimension,
        kept=plan.dimension,
    )
    return replace(plan, solution=solution)


def require_room(plan: _PlanT) -> _PlanT:
    """Return ``plan`` if its sums fit the modulus, or raise and name the fewest bits."""
    if plan.bits < (least := fewest_bits(plan)):
        raise InfeasibleError(
            f"{plan.bits} bits cannot carry the sum of {plan.cohort} vectors with their noise; "
            f"the fewest that can: {least}"
        )
    return plan


def fewest_bits(plan: Plan) -> int:
    """Return the fewest bits that hold ``largest`` of every client and, but for `WRAP`, noise."""
    clients = most_clients(plan)
    noise = plan.solved.variance * cohorts.surplus(plan, plan.invited)
    most = clients * int(plan.largest or 1) + reach(noise)
    bits = bits_for(most)
    if bits > 32:
        raise InfeasibleError(
            f"not even 32 bits carry the sum of {clients} vectors with entries up to "
            f"{plan.largest:g}; lower the bounds"
        )
    return bits


def bits_for(most: float) -> int:
    """Return the fewest bits that hold whole numbers from ``-most`` to ``most``."""
    return math.ceil(most).bit_length() + 1


def most_clients(plan: Plan) -> int:
    """Return a size that a cohort exceeds with a chance of at most `WRAP`, by Bernstein's bound."""
    if plan.sampling in {Sampling.ALL, Sampling.FIXED}:
        return plan.cohort
    third = -math.log(WRAP) / 3
    return min(
        plan.people, math.ceil(plan.cohort + third + math.sqrt(third**2 + 6 * third * plan.cohort))
    )


def reach(variance: float) -> float:
    """Return a magnitude that Skellam noise exceeds with a chance of at most `WRAP`.

    Chernoff: log P(X >= k) <= hypot(k, v) - v - k asinh(k / v). Discrete Gaussian noise of the same
    variance reaches no further: its moment generating function is at most the Gaussian one.
    """
    if variance == 0:
        return 0.0
    wanted = math.log(WRAP / 2)
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
