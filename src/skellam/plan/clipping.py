"""Adaptive clipping: the clip follows a quantile of the update norms (Andrew et al. 2021).

Besides its vector every client sends one integer, the clip count: 1 if its update was within the
clip, -1 if it was not (0 if it encodes zeros), with a share of Skellam noise of its own. A plan
with ``quantile_noise`` accounts for it; the integer domain stays as planned while the clip moves,
since clients scale their updates to the planned clip before they encode them.

**What a round costs.** A user who is zeroed out changes the vector, which alone is eta_v-GDP, and
the clip count by 1, which alone is eta_b-GDP (Result A). The noises are independent and both
changes happen at once, so the pair of joint laws is a product of two pairs, and the tensor product
of G_eta_v and G_eta_b is G_eta with eta^2 = eta_v^2 + eta_b^2 (Dong, Roth, Su 2019, proposition
3.2 and corollary 3.3). The round is therefore dominated by the Gaussian mechanism of multiplier
1/eta; domination survives sampling and composition (`skellam.accounting.Joint`). Each round's
mechanism is the same, whatever the clip is by then, so plain composition covers clips that depend
on earlier rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.codec import Tensors, flatten
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import integers, sizes
from skellam.plan.choices import Accountant

if TYPE_CHECKING:
    from skellam.plan.plan import Plan
    from skellam.plan.planner import Request

MIN_CLIP: Final = 2.0**-64
MAX_CLIP: Final = 2.0**64
"""What float32 holds with its squares, and any vector can be scaled to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveClip:
    """A clip that moves until the share ``target`` of the clients is within it.

    Clients multiply their updates by `factor` before they encode them; the server divides the
    decoded sum by it. The clip stays within 2**-64 and 2**64, so that a quantile of zero ends
    somewhere.
    """

    clip: float
    target: float = 0.5
    learning_rate: float = 0.2

    def __post_init__(self) -> None:
        _checks.assign(
            self,
            clip=_checks.between("clip", self.clip, MIN_CLIP, MAX_CLIP),
            target=_checks.between("target", self.target, 0, 1),
            learning_rate=_checks.positive("learning_rate", self.learning_rate),
        )

    def updated(self, fraction: float) -> Self:
        """Return the next clip after this ``fraction`` of the clients, with noise, was within.

        The geometric update: clip * exp(-learning_rate (fraction - target)).
        """
        share = min(max(_checks.number("fraction", fraction), 0.0), 1.0)
        moved = self.clip * math.exp(-self.learning_rate * (share - self.target))
        return replace(self, clip=min(max(moved, MIN_CLIP), MAX_CLIP))

    def after(self, clip_count: float, plan: Plan) -> Self:
        """Return the next clip after a round of ``plan`` that released ``clip_count``.

        The share is taken of the planned cohort: nothing follows from how many took part.
        """
        return self.updated(unclipped_fraction(clip_count, plan.cohort))

    def factor(self, plan: Plan) -> float:
        """Return what brings an update of norm ``clip`` to the norm that ``plan`` clips at."""
        return plan.clip / self.clip

    def scaled(self, x: Tensors, plan: Plan) -> NDArray[np.floating[Any]]:
        """Return what a client whose update is ``x`` encodes."""
        # In float64: whatever the clip, no finite float32 overflows.
        return flatten(x).astype(np.float64) * self.factor(plan)


def unclipped_fraction(count: float, clients: int) -> float:
    """Return the share within the clip, given how many more were within than not.

    >>> unclipped_fraction(-1, 3)
    0.3333333333333333
    """
    n = _checks.integer("clients", clients, 1)
    return (1 + _checks.number("count", count) / n) / 2


def count_variance(plan: Plan) -> float:
    """Return the guaranteed variance of the noise of the clip count.

    The share is half the count over the cohort, so its deviation is half too.
    """
    return (2 * plan.cohort * (plan.quantile_noise or 0.0)) ** 2


def check_clip(plan: Plan) -> None:
    """Raise unless float32 holds the clip with its square."""
    hint = "choose another unit for the vectors"
    clip = _checks.between("clip", plan.clip, MIN_CLIP, MAX_CLIP, hint=hint)
    _checks.assign(plan, clip=clip)


def check(plan: Plan) -> None:
    """Raise unless a plan with ``quantile_noise`` can carry and account for it."""
    if plan.quantile_noise is None:
        return
    _checks.assign(plan, quantile_noise=_checks.positive("quantile_noise", plan.quantile_noise))
    if plan.noise.continuous or integers.is_integer(plan):
        raise DomainError(
            "quantile_noise needs updates that are rounded into a ring, got "
            f'noise="{plan.noise}", rounding="{plan.rounding}"; leave it out'
        )
    if plan.accountant is not Accountant.BEST:
        raise DomainError(
            f'quantile_noise goes with accountant="best", got "{plan.accountant}"; leave one out'
        )


def require_bits(request: Request) -> None:
    """Raise unless the clip count with its noise can be drawn and fits the modulus."""
    plan = request.plan
    if plan.quantile_noise is None:
        return
    variance = count_variance(plan)
    if not request.min_variance <= variance <= request.max_variance:
        raise InfeasibleError(
            f"the noise of the clip count has variance {variance:.3g}; from "
            f"{request.min_variance:.3g} to {request.max_variance:.3g} can be drawn; "
            "change quantile_noise"
        )
    clients = sizes.max_planned(plan, integers.WRAP)
    needed = integers.bits_for(clients + integers.reach(variance * request.surplus))
    if plan.bits < needed:
        raise InfeasibleError(
            f"{plan.bits} bits cannot carry the count of clients within the clip; "
            f"the fewest that can: {needed}"
        )
