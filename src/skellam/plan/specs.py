"""From a plan to the arithmetic of a round."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

from skellam import _checks, codec
from skellam.errors import DomainError
from skellam.plan import clipping, cohorts, whole
from skellam.plan.choices import Noise, Rounding
from skellam.plan.load import Load
from skellam.plan.solution import Solution

if TYPE_CHECKING:
    from skellam.plan.plan import Plan


def padded(dimension: int) -> int:
    """Return the rotated length: a power of two unless that wastes more than a tenth.

    >>> padded(1_018_174), padded(2**22 + 1)
    (1048576, 4325376)
    """
    power = 1 << (dimension - 1).bit_length()
    return power if power <= 1.1 * dimension else codec.padded_length(dimension)


def load(plan: Plan) -> Load:
    """Return what the ring must carry."""
    rotated = plan.dimension if whole.is_whole(plan) else padded(plan.dimension)
    kept = plan.solution.kept if plan.solution else rotated
    return Load(
        dimension=rotated,
        kept=kept,
        cohort=plan.cohort,
        clip=plan.clip,
        bits=plan.bits,
        mean_norm_ratio=plan.mean_norm_ratio,
        surplus=cohorts.surplus(plan, plan.invited),
    )


def spec(
    plan: Plan, *, shares: int | None = None, tolerated: cohorts.Tolerance | None = None
) -> codec.CodecSpec:
    """Return the arithmetic of a round in which ``shares`` clients add noise."""
    solution = plan.solved
    clients = plan.invited if shares is None else _checks.integer("shares", shares, 1)
    return codec.CodecSpec(
        dimension=plan.dimension,
        clip=plan.clip,
        scale=solution.scale,
        bits=plan.bits,
        rounding=_rounding(plan, solution),
        noise=_noise(plan, solution.variance, clients, tolerated),
        padded=solution.rotated,
        kept=None if solution.kept == solution.rotated else solution.kept,
        within=None
        if plan.quantile_noise is None
        else _noise(plan, clipping.balance_variance(plan), clients, tolerated),
    )


def _rounding(plan: Plan, solution: Solution) -> codec.Rounding:
    match solution.rounding:
        case Rounding.UNBIASED:
            return codec.Unbiased(solution.largest)
        case Rounding.CONDITIONAL:
            return codec.Conditional(plan.beta)
        case Rounding.WHOLE:
            return codec.Whole(largest=int(plan.largest or 1), l1=plan.l1 or 1)
        case _ as never:
            assert_never(never)


def _noise(
    plan: Plan, guaranteed: float, shares: int, tolerated: cohorts.Tolerance | None
) -> codec.Noise:
    total = guaranteed * cohorts.surplus(plan, shares, tolerated)
    match plan.noise:
        case Noise.SKELLAM:
            return codec.SkellamShares(total, shares, cohorts.components(plan, shares, tolerated))
        case Noise.CENTRAL_SKELLAM:
            return codec.CentralSkellam(total)
        case Noise.DISCRETE_GAUSSIAN:
            # Shares thinner than planned would lose variance: the lattice swallows them. More of
            # the planned ones are noise on top of what is accounted.
            planned = guaranteed * cohorts.surplus(plan, plan.invited) / plan.invited
            return codec.DiscreteGaussianShares(math.sqrt(max(total / shares, planned)))
        case Noise.CENTRAL_DISCRETE_GAUSSIAN:
            return codec.CentralDiscreteGaussian(math.sqrt(total))
        case Noise.NONE:
            return codec.NoNoise()
        case Noise.GAUSSIAN:
            raise DomainError("continuous Gaussian noise goes through no ring and has no codec")
        case _ as never:
            assert_never(never)
