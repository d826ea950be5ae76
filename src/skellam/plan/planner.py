"""Targets to parameters: the planner's loop around solver and accountant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from skellam import _checks, accounting
from skellam.errors import CertificateError, InfeasibleError
from skellam.plan import clipping, solver, specs, whole
from skellam.plan.choices import Accountant, Noise, Rounding
from skellam.plan.load import Load
from skellam.plan.solution import Solution

if TYPE_CHECKING:
    from skellam.plan.plan import Plan

_PlanT = TypeVar("_PlanT", bound="Plan")

TAIL_SHARE = 3e-4
"""Part of delta that uncertified tails may take."""
_LOWEST, _HIGHEST = 1e-3, 1e6
_TOLERANCE = 2e-6
TAIL = 1e-17
"""The tail where no delta is known."""


def with_noise(plan: _PlanT, multiplier: float, *, delta: float | None) -> _PlanT:
    """Return ``plan`` with noise of exactly ``multiplier`` clips."""
    z = (_checks.non_negative if plan.noise is Noise.NONE else _checks.positive)(
        "noise_multiplier", multiplier
    )
    bare = _bare(plan, delta)
    if plan.noise.continuous:
        return replace(bare, solution=_continuous(bare, z))
    if whole.is_whole(plan):
        return whole.require_room(whole.solved(bare, z))
    effective = max(z, _LOWEST)
    best, *_ = solver.ranked_routes(_request(bare), _load(bare, effective), effective)
    return _on_route(bare, best, z)


def matched(plan: _PlanT, multiplier: float, *, delta: float | None) -> _PlanT:
    """Return ``plan`` with a round as private as Gaussian noise of ``multiplier`` clips."""
    z = _checks.positive("noise_multiplier", multiplier)
    bare = _bare(plan, delta)
    if plan.noise.continuous:
        return replace(bare, solution=_continuous(bare, z))

    def cost(candidate: _PlanT) -> float:
        return 1 / candidate.effective_multiplier

    return _solved(bare, z, cost, 1 / z)


def calibrated(plan: _PlanT, *, epsilon: float, delta: float) -> _PlanT:
    """Return the plan of least predicted error whose public epsilon is at most ``epsilon``."""
    target = _checks.positive("epsilon", epsilon)
    bare = _bare(plan, delta, target)
    if plan.noise is Noise.NONE:
        raise InfeasibleError('noise="none" reaches no epsilon')

    def cost(candidate: _PlanT) -> float:
        return candidate.privacy().epsilon

    gaussian = _gaussian_multiplier(bare, target)
    if plan.noise.continuous:
        return replace(bare, solution=_continuous(bare, gaussian))
    if whole.is_whole(plan):
        return _solved(bare, gaussian, cost, target)
    try:
        return _solved(bare, gaussian, cost, target)
    except InfeasibleError as error:
        raise _naming_the_fewest_bits(
            bare, error, lambda wider: _solved(wider, gaussian, cost, target)
        ) from error


def fewest_bits(plan: Plan, *, loss: float) -> int:
    """Return the fewest bits whose error is within ``1 + loss`` of continuous Gaussian noise."""
    allowed = 1 + _checks.positive("loss", loss)
    wanted = plan.effective_multiplier
    for bits in range(2, 33):
        try:
            if matched(replace(plan, bits=bits), wanted, delta=plan.delta).loss <= allowed:
                return bits
        except InfeasibleError:
            continue
    raise InfeasibleError(f"not even 32 bits come within {loss:g} of Gaussian noise")


def most_rounds(plan: Plan, *, epsilon: float, delta: float | None) -> int:
    """Return the largest number of rounds whose public epsilon is at most ``epsilon``."""
    target = _checks.positive("epsilon", epsilon)

    def allowed(rounds: int) -> bool:
        return plan.privacy(rounds=rounds, delta=delta).epsilon <= target

    if not allowed(1):
        raise InfeasibleError(f"one round alone costs more than epsilon = {target:g}")
    low, high = 1, 2
    while allowed(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def _naming_the_fewest_bits(
    plan: _PlanT, error: InfeasibleError, attempt: Callable[[_PlanT], object]
) -> InfeasibleError:
    for bits in range(plan.bits + 1, 33):
        try:
            attempt(replace(plan, bits=bits))
        except InfeasibleError:
            continue
        return InfeasibleError(
            f"{plan.bits} bits cannot carry this plan; the fewest that can: {bits}"
        )
    return error


def _solved(
    plan: _PlanT, effective: float, cost: Callable[[_PlanT], float], target: float
) -> _PlanT:
    """Return the plan of least predicted error whose cost is at most ``target``."""
    if whole.is_whole(plan):
        least = accounting.calibrate(
            lambda z: cost(whole.solved(plan, z)), target, guess=effective, largest=_HIGHEST
        )
        return whole.require_room(whole.solved(plan, least.value))
    load = _load(plan, effective)
    for route in solver.ranked_routes(_request(plan), load, effective):
        guess = solver.estimated_multiplier(_request(plan), load, route, effective)
        try:
            found = accounting.calibrate(
                lambda z, route=route: cost(_on_route(plan, route, z)),  # type: ignore[misc]
                target,
                guess=guess,
                largest=_HIGHEST,
                tolerance=_TOLERANCE,
            )
        except CertificateError:  # this route cannot be proven here; the next one may
            continue
        return _on_route(plan, route, found.value)
    raise InfeasibleError(f"no rounding can be certified with {plan.bits} bits; use more bits")


def _bare(plan: _PlanT, delta: float | None, epsilon: float | None = None) -> _PlanT:
    chosen = plan.delta if delta is None else delta
    clipping.require_room(plan)
    return replace(plan, solution=None, delta=chosen, epsilon=epsilon)


def _gaussian_multiplier(plan: Plan, epsilon: float) -> float:
    """Return the multiplier that continuous Gaussian noise would need."""
    gaussian = replace(plan, noise=Noise.GAUSSIAN, removable=False, quantile_noise=None)

    def cost(z: float) -> float:
        return replace(gaussian, solution=_continuous(gaussian, z)).privacy().epsilon

    return accounting.calibrate(cost, epsilon, largest=_HIGHEST).value


def _continuous(plan: Plan, multiplier: float) -> Solution:
    """Return the solution of noise that needs no ring: reals as they are."""
    return Solution(
        scale=1.0,
        variance=(multiplier * plan.clip) ** 2,
        rounding=Rounding.UNBIASED,
        block=1,
        tail=TAIL,
        largest=None,
        signal_multiple=1.0,
        rotated=plan.dimension,
        kept=plan.dimension,
    )


def _on_route(plan: _PlanT, route: solver.Route, multiplier: float) -> _PlanT:
    """Return ``plan`` solved on ``route`` with noise of exactly ``multiplier`` clips."""
    return replace(
        plan, solution=solver.solve(_request(plan), _load(plan, multiplier), route, multiplier)
    )


def _request(plan: Plan) -> solver.Request:
    skellam = plan.noise in {Noise.SKELLAM, Noise.CENTRAL_SKELLAM, Noise.NONE}
    conditional = plan.accountant is Accountant.PAPER or not skellam
    return solver.Request(
        beta=plan.beta,
        tail=plan.tail or (TAIL if plan.delta is None else None),
        tail_mass=_tail_mass(plan),
        rounding=plan.rounding or (Rounding.CONDITIONAL if conditional else None),
        block=plan.block,
        signal_multiple=plan.signal_multiple,
        scale=plan.scale,
        largest=plan.largest,
    )


def _tail_mass(plan: Plan) -> float:
    """Return the uncertified mass that a round may have: a small part of delta in the end."""
    return TAIL_SHARE * (plan.delta or 1e-5) / plan.rounds


def _load(plan: Plan, multiplier: float) -> Load:
    whole = specs.load(plan)
    return replace(whole, kept=_kept(plan, whole.dimension, multiplier))


def _kept(plan: Plan, rotated: int, multiplier: float) -> int:
    """Return how many coordinates travel.

    Keeping d' of d adds (1/d' - 1/d) (n |mean| / (z c))^2 to the error, relative to the noise.
    """
    if plan.compression is None or plan.noise.continuous:
        return rotated
    if plan.compression != "auto":
        return min(rotated, int(plan.compression))
    signal = (plan.mean_norm_ratio * plan.cohort / multiplier) ** 2
    return math.ceil(1 / (plan.compression_loss / signal + 1 / rotated)) if signal else 1
