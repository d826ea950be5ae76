"""Targets to parameters: of all ways to carry the vectors through the ring, the least error.

Scale, noise, rounding, block and signal multiple depend on each other. For a wanted *effective*
noise multiplier (that of the Gaussian mechanism which is as private) each candidate is solved with
a closed-form estimate of its price; the best is then made exact by the accountant.

Whatever is returned can run: the noise share of a client in the smallest cohort, and all the noise
together, stay within what sampler and certificate can do, which bounds the scale.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, assert_never

from skellam import _checks, accounting
from skellam.accounting.accountants import multiplier_guess
from skellam.codec import MAX_RADIUS, rounded_norm_bound
from skellam.errors import CertificateError, DomainError, InfeasibleError
from skellam.plan import choices, clipping, correlation, integers, signal_model, sizes
from skellam.plan.choices import Accountant, Noise, Rounding, Servers
from skellam.plan.signal_model import SignalModel

if TYPE_CHECKING:
    from skellam.plan.plan import CalibratedPlan, Plan

TAIL_SHARE: Final = 3e-4
"""Part of delta that uncertified tails may take."""
TAIL: Final = 1e-17
"""The tail where no delta is known."""
BLOCKS: Final = (1, 16, 64, 256, 1024)
SIGNAL_MULTIPLES: Final = tuple(2.5 + i / 4 for i in range(15))
_TARGETS, _MIN_DELTA = (1e-100, 1e100), 1e-300
"""Targets whose squares and reciprocals are numbers."""
_LOWEST, _HIGHEST = 1e-3, 1e6
_TOLERANCE = 2e-6
_MAX_SUM_VARIANCE = 1e9
"""Of sums of discrete Gaussians, whose law takes a second or more beyond it."""
_MAX_BITS = 32
"""More are never named to a user who asked for too few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a candidate sets of the fields of a `CalibratedPlan` that a `Plan` leaves open."""

    scale: float
    variance: float
    rounding: Rounding
    padded_dim: int
    sent_dim: int
    block: int = 1
    tail: float = TAIL
    coordinate_bound: float | None = None
    signal_multiple: float = 1.0


@dataclass(frozen=True)
class Request:
    """A plan with the numbers that every candidate shares."""

    plan: Plan
    min_cohort: int
    participations: int
    surplus: float
    band: tuple[int, ...] = (1,)

    @classmethod
    def of(cls, plan: Plan, *, delta: float | None, epsilon: float | None = None) -> Request:
        """Return the request of ``plan`` for these targets, or raise if no cohort can serve it."""
        chosen = plan.target_delta if delta is None else delta
        aimed = replace(plan, target_delta=chosen, target_epsilon=epsilon)
        min_cohort = sizes.chosen_min_cohort(aimed)
        request = cls(
            aimed, min_cohort, sizes.chosen_participations(aimed), sizes.surplus(aimed, min_cohort)
        )
        clipping.require_bits(request)
        return request

    def model(self, multiplier: float) -> SignalModel:
        """Return the signal model, with as many coordinates as are sent at this noise."""
        model = SignalModel.asked(self.plan, self.surplus, self.band)
        return replace(
            model, sent_dim=signal_model.sent_dim(self.plan, model.padded_dim, multiplier)
        )

    def made(self, solution: Solution) -> CalibratedPlan:
        """Return the calibrated plan."""
        from skellam.plan.plan import CalibratedPlan, Plan

        asked = {f.name: getattr(self.plan, f.name) for f in fields(Plan)}
        found = {f.name: getattr(solution, f.name) for f in fields(solution)}
        shared = {name: getattr(self, name) for name in ("min_cohort", "participations", "band")}
        return CalibratedPlan(**{**asked, **found, **shared, "request": self.plan})

    @cached_property
    def max_variance(self) -> float:
        """The largest guaranteed variance that sampler and certificate can bear."""
        plan = self.plan
        parties = plan.tolerance.survivors(self.min_cohort) if plan.clients_add_noise else 1
        tables = plan.noise is Noise.DISCRETE_GAUSSIAN and plan.accountant is Accountant.BEST
        certified = _MAX_SUM_VARIANCE if tables else accounting.MAX_VARIANCE
        return min(sizes.MAX_SHARE * parties / self.surplus, certified) * (1 - 1e-9)

    @property
    def min_variance(self) -> float:
        """The smallest guaranteed variance whose shares can be drawn, however large the cohort."""
        plan = self.plan
        if not plan.clients_add_noise:
            return sizes.MIN_SHARE
        return sizes.MIN_SHARE * plan.tolerance.survivors(plan.population_size) / self.surplus


def with_noise(plan: Plan, multiplier: float, *, delta: float | None) -> CalibratedPlan:
    """Return ``plan`` with noise of exactly ``multiplier`` clips."""
    z = (_checks.non_negative if plan.noise is Noise.NONE else _checks.positive)(
        "noise_multiplier", multiplier
    )
    _checks.between("noise_multiplier", z, 0, _TARGETS[1])
    request = Request.of(plan, delta=delta)
    if plan.noise.continuous:
        return request.made(_continuous(request, z))
    if integers.is_integer(plan):
        return integers.require_bits(_require_drawable(request, request.made(_integer(request, z))))
    bands = _bands(plan)
    if len(bands) > 1:
        raise DomainError(
            'correlation="auto" compares bands at the same privacy, and noise of a given size is '
            "another privacy with each; call calibrated or matched, or give the band"
        )
    effective = max(z / math.hypot(*bands[0]), _LOWEST)
    (_, choice, best), *_ = _options(request, effective)
    return _require_drawable(choice, _on_candidate(choice, best, z))


def matched(plan: Plan, multiplier: float, *, delta: float | None) -> CalibratedPlan:
    """Return ``plan`` with a round as private as Gaussian noise of ``multiplier`` clips."""
    z = _checks.positive("noise_multiplier", multiplier)
    request = Request.of(plan, delta=delta)
    if plan.noise.continuous:
        return request.made(_continuous(request, z))

    def cost(candidate: CalibratedPlan) -> float:
        return 1 / candidate.effective_multiplier

    return _solved(request, z, cost, 1 / z)


def calibrated(plan: Plan, *, epsilon: float, delta: float) -> CalibratedPlan:
    """Return the plan of least predicted error that costs at most ``epsilon``."""
    target = _checks.between("epsilon", _checks.positive("epsilon", epsilon), *_TARGETS)
    _checks.between("delta", _checks.open_unit("delta", delta), _MIN_DELTA, 1)
    if plan.noise is Noise.NONE:
        raise InfeasibleError('noise="none" reaches no epsilon; choose another noise')
    sizes.require_small_delta(plan, delta)
    request = Request.of(plan, delta=delta, epsilon=target)

    def cost(candidate: CalibratedPlan) -> float:
        return candidate.privacy().epsilon

    gaussian = _gaussian_multiplier(request, target, delta)
    if plan.noise.continuous:
        return request.made(_continuous(request, gaussian))

    def solve(asked: Request) -> CalibratedPlan:
        return _solved(asked, gaussian, cost, target)

    try:
        return solve(request)
    except InfeasibleError as error:
        if integers.is_integer(plan):
            raise
        raise _naming_bits(request, error, gaussian, solve) from error


def min_bits(plan: CalibratedPlan, *, relative_error: float) -> int:
    """Return the fewest bits whose error is within ``1 + relative_error`` of Gaussian noise."""
    allowed = 1 + _checks.positive("relative_error", relative_error)
    wanted = plan.effective_multiplier
    for bits in range(2, _MAX_BITS + 1):
        try:
            asked = replace(plan.request, bits=bits)
            if matched(asked, wanted, delta=plan.target_delta).relative_error <= allowed:
                return bits
        except InfeasibleError:
            continue
    raise InfeasibleError(f"not even 32 bits come within {relative_error:g} of Gaussian noise")


# From an effective multiplier to a calibrated plan.


def _solved(
    request: Request, effective: float, cost: Callable[[CalibratedPlan], float], target: float
) -> CalibratedPlan:
    """Return the plan of least predicted error whose cost is at most ``target``."""
    if integers.is_integer(request.plan):
        solved = accounting.calibrate(
            lambda z: cost(request.made(_integer(request, z))),
            target,
            guess=min(effective, _max_integer_multiplier(request)),
            max_value=_max_integer_multiplier(request),
        )
        made = request.made(_integer(request, solved.value))
        return integers.require_bits(_require_drawable(request, made))
    best: CalibratedPlan | None = None
    for estimate, choice, candidate in _options(request, effective):
        if best is not None and estimate >= best.error.total:
            break
        try:
            found = _exact(choice, candidate, effective, cost, target)
        except CertificateError:  # this candidate cannot be proven here; the next one may
            continue
        except InfeasibleError:
            if request.plan.correlation == "auto":  # with another band it may be
                continue
            raise
        if request.plan.correlation != "auto":
            return found
        if best is None or found.error.total < best.error.total:
            best = found
    if best is None:
        raise InfeasibleError(
            f"no rounding can be certified with {request.plan.bits} bits; use more bits"
        )
    return best


def _bands(plan: Plan) -> tuple[tuple[int, ...], ...]:
    return ((1,),) if plan.correlation is None else correlation.candidates(plan)


def _options(request: Request, effective: float) -> list[tuple[float, Request, Candidate]]:
    """Return the candidates of every band, each with its predicted error, least error first."""
    found: list[tuple[float, Request, Candidate]] = []
    for band in _bands(request.plan):
        choice = replace(request, band=band)
        try:
            ranked = _ranked(choice, choice.model(effective), effective)
        except InfeasibleError:
            continue
        found.extend((error, choice, candidate) for error, candidate in ranked)
    if not found:
        raise InfeasibleError(f"no scale exists with {request.plan.bits} bits")
    return sorted(found, key=lambda option: option[0])


def _exact(
    request: Request,
    candidate: Candidate,
    effective: float,
    cost: Callable[[CalibratedPlan], float],
    target: float,
) -> CalibratedPlan:
    """Return the plan on ``candidate`` whose cost is ``target``, or raise if there is none."""
    guess = _estimated_multiplier(request, request.model(effective), candidate, effective)
    found = accounting.calibrate(
        lambda z: cost(_on_candidate(request, candidate, z)),
        target,
        guess=guess,
        max_value=_HIGHEST,
        tolerance=_TOLERANCE,
    )
    return _require_drawable(request, _on_candidate(request, candidate, found.value))


def _naming_bits(
    request: Request, error: InfeasibleError, effective: float, solve: Callable[[Request], object]
) -> InfeasibleError:
    """Return ``error`` with a width that carries the plan, by estimate the least, or none."""

    def wider(bits: int) -> Request:
        return replace(request, plan=replace(request.plan, bits=bits))

    def may_carry(bits: int) -> bool:
        try:
            _, choice, candidate = _options(wider(bits), effective)[0]
            z = _estimated_multiplier(choice, choice.model(effective), candidate, effective)
            _require_drawable(choice, _on_candidate(choice, candidate, z))
        except InfeasibleError:
            return False
        return True

    asked = request.plan.bits
    estimated = asked + 1 + bisect_left(range(asked + 1, _MAX_BITS), True, key=may_carry)
    for bits in sorted({estimated, _MAX_BITS}) if asked < _MAX_BITS else ():
        try:
            solve(wider(bits))
        except InfeasibleError:
            continue
        return InfeasibleError(f"{asked} bits cannot carry this plan; {bits} can")
    return InfeasibleError(
        f"{error}; more bits do not help: allow a larger epsilon or delta, or fewer rounds"
    )


def _gaussian_multiplier(request: Request, epsilon: float, delta: float) -> float:
    """Return the multiplier that continuous Gaussian noise would need."""
    gaussian = replace(
        request,
        plan=replace(
            request.plan,
            noise=Noise.GAUSSIAN,
            aggregation=Servers.ONE,
            noise_by=None,
            correlation=None,
            quantile_noise=None,
            rounding=None,
            l1=None,
        ),
    )

    def cost(z: float) -> float:
        return gaussian.made(_continuous(gaussian, z)).privacy().epsilon

    guess = multiplier_guess(epsilon, delta, request.plan.rate, request.plan.rounds)
    try:
        return accounting.calibrate(cost, epsilon, guess=guess, max_value=_HIGHEST).value
    except InfeasibleError as error:
        raise InfeasibleError(
            f"no noise reaches epsilon {epsilon:g} at delta {delta:g}: {error}; allow a larger "
            "epsilon or delta, or fewer rounds"
        ) from error


def _continuous(request: Request, multiplier: float) -> Solution:
    """Return the solution of noise that needs no ring: reals as they are."""
    dim = request.plan.dimension
    return Solution(
        scale=1.0,
        variance=(multiplier * request.plan.clip) ** 2,
        rounding=Rounding.UNBIASED,
        padded_dim=dim,
        sent_dim=dim,
    )


def _integer(request: Request, multiplier: float) -> Solution:
    """Return the solution for vectors of integers: only the noise is to be found."""
    plan = request.plan
    variance = (multiplier * plan.clip) ** 2
    spread = math.sqrt(variance * request.surplus)
    return Solution(
        scale=1.0,
        variance=variance,
        rounding=Rounding.INTEGER,
        padded_dim=plan.dimension,
        sent_dim=plan.dimension,
        tail=integers.WRAP,
        coordinate_bound=plan.coordinate_bound,
        signal_multiple=integers.reach(spread**2) / spread if spread else math.inf,
    )


def _max_integer_multiplier(request: Request) -> float:
    return min(_HIGHEST, math.sqrt(request.max_variance) / request.plan.clip)


def _require_drawable(request: Request, plan: CalibratedPlan) -> CalibratedPlan:
    """Return ``plan`` if the noise of every cohort that it allows can be drawn and certified."""
    if plan.correlated:
        signal_model.require_ring(plan)
    if plan.noise is Noise.NONE:
        return plan
    if not plan.variance <= request.max_variance * (1 + 1e-9):
        raise InfeasibleError(
            f"the noise has variance {plan.variance:.3g} in the integer domain, at most "
            f"{request.max_variance:.3g} can be drawn for cohorts of {request.min_cohort}; "
            + ("lower the bounds" if integers.is_integer(plan) else "take a smaller scale")
        )
    if not plan.variance >= request.min_variance:
        raise InfeasibleError(
            f"the noise has variance {plan.variance:.3g} in the integer domain, at least "
            f"{request.min_variance:.3g} can be shared by a cohort of any size; take a larger "
            "scale or a smaller epsilon"
        )
    return plan


# Candidates.


@dataclass(frozen=True, slots=True)
class Candidate:
    """One combination of the discrete choices."""

    rounding: Rounding
    block: int
    signal_multiple: float


def _candidates(plan: Plan, model: SignalModel, band: tuple[int, ...]) -> Iterator[Candidate]:
    """Yield every combination that the plan leaves open."""
    multiples = (plan.signal_multiple,) if plan.signal_multiple else SIGNAL_MULTIPLES
    if band != (1,):  # a coordinate that wraps once stays wrong
        needed = correlation.signal_multiple(plan, model.sent_dim)
        multiples = (max(needed, plan.signal_multiple or 0.0),)
    for rounding in choices.roundings(plan):
        blocked = rounding is Rounding.UNBIASED and plan.block is None
        blocks = BLOCKS if blocked else (plan.block or 1,)
        for block in blocks:
            if block <= model.sent_dim:
                yield from (Candidate(rounding, block, k) for k in multiples)


def _tail_of_block(plan: Plan, blocks: int) -> float:
    """Return the mass that a block may leave uncertified: a small part of delta in the end."""
    if plan.tail is not None or plan.target_delta is None:
        return plan.tail or TAIL
    return TAIL_SHARE * plan.target_delta / plan.rounds / blocks


def _on_candidate(request: Request, candidate: Candidate, multiplier: float) -> CalibratedPlan:
    """Return the plan on ``candidate`` with noise of exactly ``multiplier`` clips."""
    model = request.model(multiplier)
    return request.made(_solve(request, model, candidate, multiplier))


def _solve(
    request: Request, model: SignalModel, candidate: Candidate, multiplier: float
) -> Solution:
    """Return the solution of ``candidate`` whose noise is exactly ``multiplier`` clips."""
    plan = request.plan
    scale = plan.scale or min(
        signal_model.chosen_scale(model, candidate.rounding, multiplier, candidate.signal_multiple),
        _max_scale(request, model, multiplier),
    )
    unit = scale * model.sent_clip
    blocked = candidate.block > 1
    multiple = signal_model.coordinate_multiple(model, candidate.block, multiplier)
    reach = multiple * unit / math.sqrt(model.sent_dim)
    bound = plan.coordinate_bound or (reach if blocked else None)
    unbiased = candidate.rounding is Rounding.UNBIASED
    return Solution(
        scale=scale,
        variance=(unit * multiplier) ** 2,
        rounding=candidate.rounding,
        padded_dim=model.padded_dim,
        sent_dim=model.sent_dim,
        block=candidate.block,
        tail=_tail_of_block(plan, math.ceil(model.sent_dim / candidate.block)),
        coordinate_bound=min(bound, unit) if bound and unbiased else None,
        signal_multiple=candidate.signal_multiple,
    )


def _max_scale(request: Request, model: SignalModel, multiplier: float) -> float:
    """Return the scale beyond which noise or vectors are too large to be computed with."""
    radius = MAX_RADIUS * (1 - 1e-9)
    if request.plan.noise is not Noise.NONE:
        radius = min(radius, math.sqrt(request.max_variance) / multiplier)
    return min(radius / model.sent_clip, 2.0**64)


def _ranked(
    request: Request, model: SignalModel, effective: float
) -> list[tuple[float, Candidate]]:
    """Return the best candidate of each rounding and block, least predicted error first."""
    best: dict[tuple[Rounding, int], tuple[float, Candidate]] = {}
    for candidate in _candidates(request.plan, model, request.band):
        try:
            multiplier = _estimated_multiplier(request, model, candidate, effective)
        except InfeasibleError:
            continue
        solution = _solve(request, model, candidate, multiplier)
        error = signal_model.predicted_error(
            model, solution.scale, multiplier, solution.coordinate_bound
        )
        found = (error.total, candidate)
        kind = (candidate.rounding, candidate.block)
        best[kind] = min(best.get(kind, found), found, key=lambda pair: pair[0])
    if not best:
        raise InfeasibleError(f"no scale exists with {model.bits} bits")
    return sorted(best.values(), key=lambda pair: pair[0])


def _estimated_multiplier(
    request: Request, model: SignalModel, candidate: Candidate, effective: float
) -> float:
    """Return about the noise multiplier whose guarantee is that of ``effective``."""
    multiplier = effective * math.hypot(*request.band)
    for _ in range(100):
        solution = _solve(request, model, candidate, multiplier)
        wanted = effective * math.hypot(*request.band) * _price(request, model, solution)
        if not wanted < _HIGHEST:
            raise InfeasibleError(f"no scale exists with {model.bits} bits")
        if abs(wanted - multiplier) <= 1e-9 * multiplier:
            break
        multiplier = wanted
    return multiplier


def _price(request: Request, model: SignalModel, solution: Solution) -> float:
    """Return about how much more noise this solution needs than the Gaussian mechanism."""
    unit = solution.scale * model.sent_clip
    match solution.rounding:
        case Rounding.UNBIASED:
            quantile = math.sqrt(-2 * math.log(solution.tail)) - 0.5
            step = math.hypot(*request.band) / math.sqrt(solution.variance)
            tail_price = 1 + quantile * step / (2 * math.sqrt(solution.block))
            bound = solution.coordinate_bound or 0.0
            spread = solution.block * bound**2 if solution.block > 1 else 0.0
            return tail_price * math.sqrt(1 + spread / unit**2)
        case Rounding.CONDITIONAL:
            return rounded_norm_bound(unit, model.sent_dim, request.plan.beta) / unit
        case Rounding.INTEGER:
            return 1.0
        case _ as never:
            assert_never(never)
