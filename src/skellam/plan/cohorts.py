"""How many shares of noise count, and how often a user takes part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from skellam.errors import InfeasibleError

if TYPE_CHECKING:
    from skellam.plan.plan import Plan

REMOVABLE_UNIT = 0.01
"""Add-then-remove noise comes in steps of one per cent of a client's share."""


def rate(plan: Plan) -> float:
    """Return the probability that a user's data enters a round."""
    return plan.cohort / plan.people


def invitation_rate(plan: Plan) -> float:
    """Return the probability that a user is asked for a message in a round."""
    return rate(plan) / (plan.coin or 1.0)


class Tolerance(NamedTuple):
    """How many clients of a round may vanish, and how many may work for the server."""

    dropouts: int
    colluders: int


def tolerance(plan: Plan, invited: int) -> Tolerance:
    """Return what the plan tolerates among ``invited`` clients."""
    return Tolerance(math.floor(plan.dropout * invited), math.floor(plan.colluding * invited))


def surplus(plan: Plan, shares: int, tolerated: Tolerance | None = None) -> float:
    """Return the variance that all ``shares`` clients add, over the variance that is guaranteed.

    What counts is the noise of survivors who do not collude. Removable noise makes up for
    dropouts by itself; otherwise the others' shares are larger from the start.
    """
    if not plan.noise.distributed:
        return 1.0
    gone, known = tolerated or tolerance(plan, shares)
    survivors = shares - gone
    if not survivors - known >= 1:
        raise InfeasibleError(
            f"of {shares} clients none may be honest and alive; lower dropout or colluding"
        )
    return (survivors if plan.removable else shares) / (survivors - known)


def components(plan: Plan, shares: int, tolerated: Tolerance | None = None) -> int:
    """Return how many binary components of removable noise make up for the tolerated dropouts."""
    if not plan.removable:
        return 0
    gone, _ = tolerated or tolerance(plan, shares)
    return math.ceil(gone / (shares - gone) / REMOVABLE_UNIT).bit_length()
