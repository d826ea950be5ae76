"""The planner: of all ways to carry the vectors through the ring, the one with the least error.

Scale, noise, rounding, block and signal multiple depend on each other. For a wanted *effective*
noise multiplier (that of the Gaussian mechanism which is as private) each route is solved with a
closed-form estimate of its price; the best is then made exact by the accountant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from skellam.codec import rounded_norm_bound
from skellam.errors import InfeasibleError
from skellam.plan import load as loads
from skellam.plan.choices import Rounding
from skellam.plan.load import Load
from skellam.plan.solution import Solution

BLOCKS = (1, 16, 64, 256, 1024)
SIGNAL_MULTIPLES = tuple(2.5 + i / 4 for i in range(15))
LARGEST_MULTIPLES = (3.0, 3.5, 4.0, 4.5, 5.0, 6.0)
"""Deviations beyond which a rotated coordinate may be cut; 3 shrink a vector by 0.27 %."""
_HIGHEST = 1e6
_ROUNDINGS = (Rounding.UNBIASED, Rounding.CONDITIONAL)


@dataclass(frozen=True, slots=True)
class Request:
    """What the user fixed; ``None`` leaves the choice to the planner."""

    beta: float
    tail_mass: float
    """What all blocks together may leave uncertified in a round."""
    tail: float | None = None
    rounding: Rounding | None = None
    block: int | None = None
    signal_multiple: float | None = None
    scale: float | None = None
    largest: float | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """One combination of the discrete choices."""

    rounding: Rounding
    block: int
    signal_multiple: float


def routes(request: Request, load: Load) -> Iterator[Route]:
    """Yield every combination that the request leaves open."""
    multiples = (request.signal_multiple,) if request.signal_multiple else SIGNAL_MULTIPLES
    roundings = (request.rounding,) if request.rounding else _ROUNDINGS
    for rounding in roundings:
        blocked = rounding is Rounding.UNBIASED and request.block is None
        blocks = BLOCKS if blocked else (request.block or 1,)
        for block in blocks:
            if block <= load.kept:
                yield from (Route(rounding, block, k) for k in multiples)


def solve(request: Request, load: Load, route: Route, multiplier: float) -> Solution:
    """Return the solution of ``route`` whose noise is exactly ``multiplier`` clips."""
    scale = request.scale or _scale(load, route, multiplier)
    unit = scale * load.kept_clip
    variance = (unit * multiplier) ** 2
    blocked = route.block > 1
    reach = _largest_multiple(load, route.block, multiplier) * unit / math.sqrt(load.kept)
    bound = request.largest or (reach if blocked else None)
    return Solution(
        scale=scale,
        variance=variance,
        rounding=route.rounding,
        block=route.block,
        tail=request.tail or request.tail_mass / math.ceil(load.kept / route.block),
        largest=min(bound, unit) if bound and route.rounding is Rounding.UNBIASED else None,
        signal_multiple=route.signal_multiple,
        rotated=load.dimension,
        kept=load.kept,
    )


def ranked_routes(request: Request, load: Load, effective: float) -> list[Route]:
    """Return the best route of each rounding and block, least predicted error first."""
    best: dict[tuple[Rounding, int], tuple[float, Route]] = {}
    for route in routes(request, load):
        try:
            multiplier = estimated_multiplier(request, load, route, effective)
        except InfeasibleError:
            continue
        solution = solve(request, load, route, multiplier)
        error = loads.predicted_error(load, solution.scale, multiplier, solution.largest)
        found = (error.total, route)
        kind = (route.rounding, route.block)
        best[kind] = min(best.get(kind, found), found, key=lambda pair: pair[0])
    if not best:
        raise InfeasibleError(f"no scale exists with {load.bits} bits")
    return [route for _, route in sorted(best.values(), key=lambda pair: pair[0])]


def estimated_multiplier(request: Request, load: Load, route: Route, effective: float) -> float:
    """Return about the noise multiplier whose guarantee is that of ``effective``."""
    multiplier = effective
    for _ in range(100):
        solution = solve(request, load, route, multiplier)
        wanted = effective * _price(request, load, solution)
        if not wanted < _HIGHEST:
            raise InfeasibleError(f"no scale exists with {load.bits} bits")
        if abs(wanted - multiplier) <= 1e-9 * multiplier:
            break
        multiplier = wanted
    return multiplier


def _largest_multiple(load: Load, block: int, multiplier: float) -> float:
    """Return where to cut: a closer cut loses more of the mean and asks for less noise."""
    noise = load.surplus * block * (multiplier / load.cohort) ** 2
    return min(
        LARGEST_MULTIPLES,
        key=lambda m: noise * m**2 + load.mean_norm_ratio**2 * loads.cut_square(m),
    )


def _price(request: Request, load: Load, solution: Solution) -> float:
    """Return about how much more noise this solution needs than the Gaussian mechanism."""
    unit = solution.scale * load.kept_clip
    match solution.rounding:
        case Rounding.UNBIASED:
            quantile = math.sqrt(-2 * math.log(solution.tail)) - 0.5
            tail_price = 1 + quantile / (2 * math.sqrt(solution.variance * solution.block))
            spread = solution.block * (solution.largest or 0.0) ** 2 if solution.block > 1 else 0.0
            return tail_price * math.sqrt(1 + spread / unit**2)
        case Rounding.CONDITIONAL:
            return rounded_norm_bound(unit, load.kept, request.beta) / unit
        case Rounding.WHOLE:
            return 1.0
        case _ as never:
            assert_never(never)


def _scale(load: Load, route: Route, multiplier: float) -> float:
    match route.rounding:
        case Rounding.UNBIASED:
            return loads.largest_scale(load, multiplier, route.signal_multiple)
        case Rounding.CONDITIONAL:
            return loads.paper_scale(load, multiplier, route.signal_multiple)
        case Rounding.WHOLE:
            return 1.0
        case _ as never:
            assert_never(never)
