"""From a plan to what it costs: the mechanism of a round, and guarantees for both audiences.

The sensitivity is the one that the codec states for the very arithmetic it will do, and the
variance is the one that the noise is drawn with: neither is written down twice.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from skellam import _checks, accounting, codec
from skellam.accounting.guarantee import ZERO_OUT, Audience, Guarantee, Unit
from skellam.errors import DomainError, InfeasibleError
from skellam.noise import ATOM_ERROR, DRAW_DISTANCE
from skellam.plan import clipping, cohorts
from skellam.plan.choices import Noise, Sampling

if TYPE_CHECKING:
    from skellam.plan.plan import Plan


def round_mechanism(plan: Plan) -> accounting.Noise:
    """Return one round, for somebody who knows that the user took part."""
    solution = plan.solved
    if plan.noise is Noise.GAUSSIAN:
        return accounting.Gaussian(sigma=plan.noise_multiplier * plan.clip, l2=plan.clip)
    bound = codec.sensitivity(plan.spec())
    vector = (
        _rounded(plan, bound)
        if isinstance(bound, codec.RealSensitivity)
        else _integer(plan, bound, solution.variance)
    )
    if plan.quantile_noise is None:
        return _as_drawn(plan, vector, solution.kept)
    one = codec.IntegerSensitivity(l2=1.0, l1=1.0, dimension=1)
    beside = _integer(plan, one, clipping.balance_variance(plan))
    return accounting.Joint((_as_drawn(plan, vector, solution.kept), _as_drawn(plan, beside, 1)))


def _as_drawn(plan: Plan, mechanism: accounting.Noise, coordinates: int) -> accounting.Noise:
    """Return ``mechanism`` with what its sampler owes to everybody's draws."""
    skellam = plan.noise in {Noise.SKELLAM, Noise.CENTRAL_SKELLAM}
    draws = plan.people * (1 + cohorts.components(plan, plan.invited))
    return replace(
        mechanism,
        sampler_distance=min(1.0, coordinates * draws * DRAW_DISTANCE),
        atom_error=min(1.0, draws * ATOM_ERROR) if skellam else 0.0,
    )


def _rounded(plan: Plan, bound: codec.RealSensitivity) -> accounting.Noise:
    solution = plan.solved
    if plan.noise not in {Noise.SKELLAM, Noise.CENTRAL_SKELLAM}:
        raise DomainError(
            f'unbiased rounding is accounted for Skellam noise; take rounding="conditional" '
            f'with noise="{plan.noise}"'
        )
    return accounting.RoundedSkellam(
        variance=solution.variance,
        l2=bound.l2,
        dimension=bound.dimension,
        tail=solution.tail,
        block=solution.block,
        largest=bound.largest,
    )


def _integer(plan: Plan, bound: codec.IntegerSensitivity, variance: float) -> accounting.Noise:
    l2, l1, dimension = bound.l2, bound.l1, bound.dimension
    match plan.noise:
        case Noise.SKELLAM | Noise.CENTRAL_SKELLAM:
            return accounting.Skellam(variance, l2, l1, dimension)
        case Noise.CENTRAL_DISCRETE_GAUSSIAN:
            return accounting.DiscreteGaussian(math.sqrt(variance), l2, l1, dimension)
        case Noise.DISCRETE_GAUSSIAN:
            shares = round(plan.invited / cohorts.surplus(plan, plan.invited))
            local = math.sqrt(variance / shares)
            return accounting.DistributedDiscreteGaussian(local, shares, l2, l1, dimension)
        case Noise.GAUSSIAN | Noise.NONE:
            raise InfeasibleError("a plan without noise in the ring has no guarantee")
        case _ as never:
            assert_never(never)


def public_mechanism(plan: Plan) -> accounting.Mechanism:
    """Return one round as whoever does not know its members sees it."""
    mechanism = round_mechanism(plan)
    match plan.sampling:
        case Sampling.POISSON | Sampling.SELF:
            return accounting.Sampled(mechanism, cohorts.rate(plan))
        case Sampling.FIXED:
            return accounting.SampledWithoutReplacement(mechanism, plan.cohort, plan.people)
        case Sampling.ALL:
            return mechanism
        case _ as never:
            assert_never(never)


def server_mechanism(plan: Plan) -> accounting.Mechanism:
    """Return one round in which the server knows that the user sent a message."""
    mechanism = round_mechanism(plan)
    return mechanism if plan.coin is None else accounting.Sampled(mechanism, plan.coin)


def mean_participations(plan: Plan, rounds: int) -> int:
    """Return the expected number of messages that a user sends, rounded up."""
    return max(1, math.ceil(rounds * cohorts.invitation_rate(plan)))


def guarantee(
    plan: Plan,
    *,
    audience: Audience,
    delta: float | None,
    rounds: int | None,
    participations: int | None,
) -> Guarantee:
    """Return what ``rounds`` rounds cost against ``audience``."""
    chosen = plan.delta if delta is None else delta
    if chosen is None:
        raise DomainError("delta must be given: the plan was not calibrated for one")
    total = plan.rounds if rounds is None else _checks.integer("rounds", rounds, 1)
    match audience:
        case Audience.PUBLIC:
            if participations is not None:
                raise DomainError('participations go with audience="server"')
            mechanism, count = public_mechanism(plan), total
        case Audience.SERVER:
            mechanism = server_mechanism(plan)
            count = (
                mean_participations(plan, total)
                if participations is None
                else _checks.integer("participations", participations, 1, total)
            )
        case _ as never:
            assert_never(never)
    return Guarantee(
        epsilon=epsilon(plan, mechanism, rounds=count, delta=chosen),
        delta=chosen,
        unit=Unit.USER,
        adjacency=accounting.noise_of(mechanism).adjacency,
        audience=audience,
        accountant=str(plan.accountant),
        assumptions=(*ZERO_OUT, *_assumptions(plan, audience, count)),
    )


def epsilon(plan: Plan, mechanism: accounting.Mechanism, *, rounds: int, delta: float) -> float:
    """Return epsilon by the plan's accountant."""
    return accounting.epsilon(mechanism, rounds=rounds, delta=delta, method=plan.accountant.value)


def effective_multiplier(plan: Plan) -> float:
    """Return the noise multiplier of the Gaussian mechanism that dominates one round."""
    return 1 / accounting.gdp_parameter(round_mechanism(plan))


def _assumptions(plan: Plan, audience: Audience, count: int) -> tuple[str, ...]:
    lines: list[str] = []
    if audience is Audience.SERVER:
        lines.append(
            f"the user sends a message in at most {count} rounds, and the server knows which"
        )
    elif plan.sampling in {Sampling.POISSON, Sampling.SELF}:
        lines.append(
            "cohorts are Poisson samples; their members and sizes stay secret, and also whether "
            "one was too small to be summed"
        )
    elif plan.sampling is Sampling.FIXED:
        lines.append("cohorts are uniform samples of fixed size whose members stay secret")
    if plan.coin is not None:
        lines.append("every invited client flips its own secret coin and adds its noise on tails")
    if plan.noise.distributed:
        lines.append(
            f"of each cohort at most {plan.dropout:.0%} drop out and {plan.colluding:.0%} collude; "
            "secure aggregation reveals the sum alone"
        )
    else:
        lines.append("the server adds the noise, and is trusted with the sum and with the noise")
    if plan.noise.continuous:
        lines.append("numbers are real: the last bits of floating-point noise may give more away")
    return tuple(lines)
