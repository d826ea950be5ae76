"""Correlated noise: the band of smallest error for a run, and the ring that holds its sums.

At one and the same privacy the noise of a round has to grow with the band's sensitivity, and the
noise in the model falls with the band's responses (`skellam.bands`). Their product is the error. It
is smallest near ``c_j = binom(2j, j) / 4^j`` (Kalinin and Lampert 2024), and integers do as well:
the search begins there and moves the rounds at which the coefficients step down by one.

*The ring.* What a round's ring must hold is ``c_0 (X_t + e_t)``, and a coordinate that wraps once
is lost for the rest of the run, so a plan has to rule out wraps in ALL rounds and coordinates.
``e_t = sum_i r_i Z_{t-i}`` with ``|c_0 r_i| <= 1``: with f_j = (c_{j-1} - c_j) / c_0, the law of a
waiting time, ``c_0 / c(z) = (1 - z) / (1 - f(z)) = (1 - z) u(z)``, u_n the probability that a
renewal falls on n, so that ``c_0 r_n = u_n - u_{n-1}``. As ``cosh(a x) - 1 <= a^2 (cosh(x) - 1)``
for ``|a| <= 1``, the moment generating function of ``c_0 e_t`` is at most that of a Skellam
variable of the same variance, and so is that of a normal variable: Chernoff's bound for Skellam
noise (`skellam.plan.integers.reach`) holds for their sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from skellam import _checks, bands
from skellam.errors import DomainError, InfeasibleError
from skellam.plan import integers, sizes
from skellam.plan.choices import Accountant, Noise, Rounding, Sampling, Servers

if TYPE_CHECKING:
    from skellam.plan.plan import CalibratedPlan, Plan

WRAP_CHANCE: Final = 1e-3
"""Chance, at most, that any coordinate wraps in any round of a run."""
MAX_ROUNDS: Final = 1 << 20
"""Rounds of a run with a band, at most."""
_LONG: Final = 2000
"""Rounds from which on bands are compared by the first so many."""
_MAX_COEFFICIENT: Final = 8
"""The largest coefficient that is searched: larger ones gain less than 1 %, and cost bits."""


# What a plan has to do with it.


def check(plan: Plan) -> None:
    """Raise unless noise can cancel over the rounds of ``plan``, which asks for it."""
    asked = plan.correlation
    if isinstance(asked, str):
        if asked != "auto":
            raise DomainError(f'correlation must be a band of integers or "auto", got {asked!r}')
    else:
        _checks.assign(plan, correlation=bands.require_band(tuple(asked or ())))
    for holds, reason in _requirements(plan):
        if not holds:
            raise DomainError(f"correlation {reason}")


def _requirements(plan: Plan) -> Iterator[tuple[bool, str]]:
    one_server = (
        'needs aggregation="two-servers": one server opens every sum by itself, and noise of '
        "clients cannot be taken back later"
    )
    sampling = (
        'needs sampling="cyclic", which keeps the rounds of a client apart; it is not amplified by '
        f'sampling, got sampling="{plan.sampling}"'
    )
    subset = (
        "needs compression=None: the error of one subset of coordinates would add up over rounds"
    )
    queries = 'is for sums that add up in a model; rounding="integer" is for queries'
    yield plan.aggregation is Servers.TWO, one_server
    yield plan.sampling is Sampling.CYCLIC, sampling
    yield plan.compression is None, subset
    yield plan.rounding is not Rounding.INTEGER, queries
    paper = 'has no bound by the paper; take accountant="best"'
    yield plan.accountant is not Accountant.PAPER, paper
    yield plan.rounds <= MAX_ROUNDS, f"goes with at most {MAX_ROUNDS} rounds, got {plan.rounds}"


def check_band(plan: CalibratedPlan) -> None:
    """Raise unless the band of a calibrated plan is the one, or of the kind, that was asked for."""
    _checks.assign(plan, band=bands.require_band(tuple(plan.band)))
    asked = (1,) if plan.correlation is None else plan.correlation
    if asked not in ("auto", plan.band):
        raise DomainError(f"band must be correlation={plan.correlation!r}, got {plan.band}")
    if len(plan.band) > plan.groups:
        raise DomainError(
            f"band must have at most {plan.groups} coefficients, as many as rounds lie between two "
            f"of one client, got {len(plan.band)}; take a shorter one, or smaller cohorts"
        )


def candidates(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return the bands that a planner chooses from: the best of every first coefficient."""
    if plan.correlation is None or (plan.correlation == "auto" and plan.noise is Noise.NONE):
        return ((1,),)
    if not isinstance(plan.correlation, str):
        return (plan.correlation,)
    return found_bands(run_of(plan), None, _MAX_COEFFICIENT, plan.groups)


def run_of(plan: Plan) -> CorrelatedRun:
    """Return the rounds of ``plan`` whose noise is to cancel."""
    return CorrelatedRun(
        rounds=plan.rounds,
        participations=sizes.chosen_participations(plan),
        separation=plan.groups,
        momentum=plan.server_momentum,
        noises=1 if plan.noise_by is None else plan.noise_by.servers,
    )


@lru_cache(maxsize=256)
def noise_ratios(band: tuple[int, ...], rounds: int, momentum: float) -> tuple[float, float]:
    """Return the variance of noise in an estimate, at most, and in the model, mean over rounds.

    The first over that of the noise drawn, the second over what independent rounds of it leave.
    """
    model, independent = (
        bands.model_variances(each, rounds=rounds, momentum=momentum) for each in (band, (1,))
    )
    estimate = bands.estimate_variances(band, rounds=rounds)[-1]
    return float(estimate), float(model.mean() / independent.mean())


def signal_multiple(plan: Plan, coordinates: int) -> float:
    """Return how many deviations half the modulus must hold so that nothing wraps in any round."""
    allowed = _ring_variance_limit(plan.bits, WRAP_CHANCE / plan.rounds / coordinates)
    return float((1 << (plan.bits - 1)) / math.sqrt(allowed)) if allowed > 0 else math.inf


# Runs, rings and bands.


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedRun:
    """Rounds whose noise is to cancel, and what the server does with their estimates.

    A client takes part in at most ``participations`` rounds, any two at least ``separation``
    apart. The server is fedavg with ``momentum`` and a constant learning rate. ``noises`` servers
    add noise; each noise alone has to protect the clients from the other server.
    """

    rounds: int
    participations: int
    separation: int
    momentum: float = 0.0
    noises: int = 2

    def __post_init__(self) -> None:
        for name in ("rounds", "participations", "separation"):
            _checks.integer(name, getattr(self, name), 1)
        _checks.between("momentum", self.momentum, 0, 1)
        _checks.integer("noises", self.noises, 1, 2)

    def sensitivity(self, band: tuple[int, ...]) -> float:
        """Return by how much unit vectors of a client move all opened sums, at most."""
        return math.sqrt(
            bands.squared_sensitivity(
                band,
                participations=self.participations,
                separation=self.separation,
                rounds=self.rounds,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSignal:
    """The sums that the ring has to hold beside noise, per coordinate.

    ``signal`` is the deviation of a coordinate of the sum of all clients' vectors, in units of the
    noise that a client of sensitivity 1 would need. ``rounding`` is the variance that rounding adds
    to that sum in the integer domain, at most a quarter for each client.
    """

    bits: int
    coordinates: int
    signal: float
    rounding: float

    def __post_init__(self) -> None:
        _checks.integer("bits", self.bits, 2, 32)
        _checks.integer("coordinates", self.coordinates, 1)
        _checks.non_negative("signal", self.signal)
        _checks.non_negative("rounding", self.rounding)


@dataclass(frozen=True, slots=True)
class BandChoice:
    """A band and what it is worth: deviations of the noise in the model, at the same privacy."""

    band: tuple[int, ...]
    gain: float
    """Deviation with independent noise over deviation with this band, root mean square."""
    last_gain: float
    """The same for the model after the last round."""
    sensitivity: float
    """A noise's deviation over that which one participation of an independent round needs."""
    scale: float | None = None
    """The largest scale that the ring allows, in units of 1 / that deviation."""


def best_band(
    run: CorrelatedRun,
    *,
    ring: RingSignal | None = None,
    max_coefficient: int = 8,
    max_band: int | None = None,
    independent_noises: int = 1,
) -> BandChoice:
    """Return the band of smallest mean squared error of the model over all rounds.

    No band is longer than ``run.separation`` or ``max_band``. With a ``ring`` a larger c_0 has to
    earn the bits that it takes. The alternative is independent noise, once where the clients draw
    it and ``independent_noises=2`` times where both servers do so anyway; where no band is better,
    the choice is (1,) and the gain 1.
    """
    _checks.integer("max_coefficient", max_coefficient, 1, bands.MAX_COEFFICIENT)
    found = found_bands(run, ring, max_coefficient, max_band or run.separation)
    best = max(
        (_choice(run, band, ring, independent_noises) for band in found),
        key=lambda choice: choice.gain,
    )
    if best.scale == 0:
        raise InfeasibleError("no scale is so small that the sums fit the ring; use more bits")
    return best


@lru_cache(maxsize=64)
def found_bands(
    run: CorrelatedRun, ring: RingSignal | None, max_coefficient: int, max_band: int
) -> tuple[tuple[int, ...], ...]:
    """Return the best band of every first coefficient, and (1,)."""
    longest = min(run.separation, run.rounds, max_band, bands.MAX_BAND)
    compared = min(run.rounds, _LONG)

    def cost(band: tuple[int, ...]) -> float:
        return _error(run, band, ring, compared, run.noises)[0]

    leadings = range(2, max_coefficient + 1) if longest > 1 else ()
    return tuple(sorted({(1,), *(_searched(cost, longest, leading) for leading in leadings)}))


def chosen(
    run: CorrelatedRun,
    band: tuple[int, ...],
    *,
    ring: RingSignal | None = None,
    independent_noises: int = 1,
) -> BandChoice:
    """Return what a given ``band`` is worth in ``run``, compared as in `best_band`."""
    return _choice(run, bands.require_band(band), ring, independent_noises)


def closed_form(width: int, leading: int) -> tuple[int, ...]:
    """Return ``leading * binom(2j, j) / 4^j``, rounded, for j below ``width``, without zeros."""
    exact = np.cumprod([float(leading), *((2 * j - 1) / (2 * j) for j in range(1, width))])
    rounded = [leading, *(min(leading - 1, math.floor(x + 0.5)) for x in exact[1:])]
    return reduced(tuple(c for c in rounded if c))


def reduced(band: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``band`` over its greatest common divisor."""
    divisor = math.gcd(*band)
    return tuple(c // divisor for c in band)


def ring_variance(
    band: tuple[int, ...],
    *,
    rounds: int,
    signal_variance: float,
    noise_variance: float,
) -> float:
    """Return the largest variance over all rounds of what the ring must hold.

    ``signal_variance`` is that of a coordinate of X_t, ``noise_variance`` that of all of Z_t.
    """
    noise = noise_variance * float(bands.estimate_variances(band, rounds=rounds)[-1])
    return band[0] ** 2 * (signal_variance + noise)


def ring_reach(variance: float, *, rounds: int, coordinates: int) -> float:
    """Return what no coordinate of any round exceeds in magnitude, but for `WRAP_CHANCE`."""
    return integers.reach(variance, WRAP_CHANCE / rounds / coordinates)


def ring_bits(
    band: tuple[int, ...],
    *,
    rounds: int,
    coordinates: int,
    signal_variance: float,
    noise_variance: float,
) -> int:
    """Return the fewest bits in which a run of ``band`` wraps nowhere, but for `WRAP_CHANCE`."""
    variance = ring_variance(
        band, rounds=rounds, signal_variance=signal_variance, noise_variance=noise_variance
    )
    return integers.bits_for(ring_reach(variance, rounds=rounds, coordinates=coordinates))


def _choice(
    run: CorrelatedRun, band: tuple[int, ...], ring: RingSignal | None, independent_noises: int
) -> BandChoice:
    noises = independent_noises if band == (1,) else run.noises
    independent = _error(run, (1,), ring, run.rounds, independent_noises)
    gain, last = map(_gain, independent, _error(run, band, ring, run.rounds, noises))
    scale = None if ring is None else _scale(run, band, ring, noises)
    return BandChoice(band, gain, last, run.sensitivity(band), scale)


def _gain(independent: float, error: float) -> float:
    """Return a ratio of deviations; an error without limit is that of a ring that holds nothing."""
    if error == math.inf:
        return 0.0
    return math.sqrt(independent / error)


def _error(
    run: CorrelatedRun, band: tuple[int, ...], ring: RingSignal | None, rounds: int, noises: int
) -> tuple[float, float]:
    """Return the variance of the model's noise, mean over rounds and last round."""
    noise = bands.model_variances(band, rounds=rounds, momentum=run.momentum)
    unit = noises * run.sensitivity(band) ** 2
    total = unit * noise
    if ring is not None:
        scale = _scale(run, band, ring, noises)
        if scale == 0:
            return math.inf, math.inf
        rounding = bands.model_variances((1,), rounds=rounds, momentum=run.momentum)
        total = total + ring.rounding / scale**2 * rounding
    return float(total.mean()), float(total[-1])


def _scale(run: CorrelatedRun, band: tuple[int, ...], ring: RingSignal, noises: int) -> float:
    """Return the largest scale at which nothing wraps, 0 if there is none."""
    allowed = _ring_variance_limit(ring.bits, WRAP_CHANCE / run.rounds / ring.coordinates)
    per_unit = ring_variance(
        band,
        rounds=run.rounds,
        signal_variance=ring.signal**2,
        noise_variance=noises * run.sensitivity(band) ** 2,
    )
    left = allowed - band[0] ** 2 * ring.rounding
    return math.sqrt(left / per_unit) * (1 - 1e-9) if left > 0 else 0.0


@lru_cache(maxsize=64)
def _ring_variance_limit(bits: int, chance: float) -> float:
    """Return the largest variance whose reach fits ``bits`` bits."""
    half = (1 << (bits - 1)) - 1
    low, high = 0.0, float(half) ** 2
    for _ in range(60):
        middle = (low + high) / 2
        fits = integers.reach(middle, chance) <= half
        low, high = (middle, high) if fits else (low, middle)
    return low


# The search: a band is given by c_0 = leading and by how many coefficients are at least 1, 2, ...,
# leading - 1; these numbers fall.


def _searched(
    cost: Callable[[tuple[int, ...]], float], longest: int, leading: int
) -> tuple[int, ...]:
    best = min(_starts(longest, leading), key=lambda counts: cost(_band(counts)))
    smallest, step = cost(_band(best)), max(1, longest // 4)
    while step:
        moved = False
        for counts in _neighbours(best, longest, step):
            if (value := cost(_band(counts))) < smallest * (1 - 1e-12):
                best, smallest, moved = counts, value, True
        step = step if moved else step // 2
    return reduced(_band(best))


def _starts(longest: int, leading: int) -> Iterator[tuple[int, ...]]:
    for length in {min(longest, 2**i) for i in range(longest.bit_length() + 1)} - {1}:
        band = closed_form(length, leading)
        unit = leading // band[0]
        yield tuple(sum(unit * c >= v for c in band) for v in range(1, leading))


def _neighbours(counts: tuple[int, ...], longest: int, step: int) -> Iterator[tuple[int, ...]]:
    """Yield ``counts`` with a run of neighbouring steps moved; none leaves the order."""
    for start in range(len(counts)):
        for end in range(start + 1, len(counts) + 1):
            for move in (step, -step):
                inner = (min(longest, max(1, n + move)) for n in counts[start:end])
                moved = (*counts[:start], *inner, *counts[end:])
                if moved != counts and all(a >= b for a, b in itertools.pairwise(moved)):
                    yield moved


def _band(counts: tuple[int, ...]) -> tuple[int, ...]:
    return (len(counts) + 1, *(sum(n > j for n in counts) for j in range(1, counts[0])))
