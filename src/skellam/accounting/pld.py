"""Privacy loss distributions: composition by tilted FFT, rounded to the private side.

Weights e^(theta loss) move the tail that decides delta to the centre of a law, where an FFT is
accurate in relative terms; the tilt is then undone. So delta 1e-12 after a million rounds is as
sharp as delta 1e-3 after ten. The error bound is proven in docs/maths/accounting.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from skellam import _checks
from skellam.accounting.curves import NO_SLACK, ORDERS, RdpCurve, Slack
from skellam.accounting.fixed_size import fixed_size_laws, replaced_size_law, sizes_of
from skellam.accounting.gdp import dominating, pure_epsilon, sized_slack
from skellam.accounting.losslaw import (
    LossLaw,
    Masses,
    Pair,
    coarsened,
    epsilon_at,
    gaussian_laws,
    log_moment,
    pair_law,
    pure_pair,
    scalar_pair,
    snapped,
    tilted_moments,
)
from skellam.accounting.mechanisms import (
    Adjacency,
    DiscreteLaplace,
    Laplace,
    Mechanism,
    Sampled,
    SampledKnownSize,
    SampledWithoutReplacement,
    compares_three,
    noise_of,
    rate_of,
)

_UNIT = 2.0**-53
_RELATIVE = 5e-13
"""What a release adds to the relative error of delta: weights between e^-750 and e^750 err by 4 *
750 units, the probabilities of cells by `losslaw.MASS_ERROR`."""
_OUTSIDE = 30.0
"""Minus the logarithm of the tilted mass beyond each end of an FFT's window."""
_LOG_SIZES = range(12, 22)
_MAX_SIZE = 1 << _LOG_SIZES[-1]
_MANY = 10**7
"""Rounds beyond which smaller FFTs must do, so that a calibration takes seconds."""
_TOLERANCE = 5e-5
"""The part of epsilon that equidistant losses may cost, where the largest FFT allows it."""


_Parts: TypeAlias = tuple[tuple[LossLaw, int], ...]
Grids: TypeAlias = Sequence[tuple[NDArray[np.int64], Masses, int]]
"""For each release: multiples of an interval, their masses, and how often it is repeated."""


@dataclass(frozen=True, slots=True, eq=False)
class Composition:
    """Releases (law, number of times) whose losses add up: one direction of them."""

    parts: _Parts

    def __add__(self, other: Composition) -> Composition:
        return Composition(self.parts + other.parts)

    def __mul__(self, rounds: int) -> Composition:
        return Composition(tuple((law, n * rounds) for law, n in self.parts))

    @property
    def infinite(self) -> float:
        """The probability of infinite loss."""
        if any(not law.infinite < 1 for law, _ in self.parts):
            return 1.0
        finite = sum(n * math.log1p(-law.infinite) for law, n in self.parts)
        return min(1.0, -math.expm1(finite) * (1 + 1e-12))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon >= 0 whose profile is at most ``delta``, or infinity."""
        left = delta - self.infinite
        if not left > 0:
            return math.inf
        if self._releases == 1:
            return self.parts[0][0].epsilon(delta)
        theta, bound = self._tilt(lambda t: (self._log_delta(t) - math.log(left)) / t)
        if bound <= 0:
            return 0.0
        composed = _transformed(self.parts, theta, bound)
        epsilon = min(bound, epsilon_at(*composed.profile, left))
        refine = composed.cost > _TOLERANCE * epsilon and len(composed.masses) < _MAX_SIZE
        if epsilon and (refine or epsilon < 0.9 * bound):
            # The first tilt was chosen by a bound; the second one by what it led to.
            theta, _ = self._tilt(lambda t: self._log_delta(t) - t * epsilon)
            again = _transformed(self.parts, theta, epsilon).profile
            epsilon = min(epsilon, epsilon_at(*again, left))
        return epsilon

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on the profile at ``epsilon``."""
        if self._releases == 1:
            return self.parts[0][0].delta(epsilon)
        if epsilon == math.inf or self.infinite == 1:
            return self.infinite
        theta, log_bound = self._tilt(lambda t: self._log_delta(t) - t * epsilon)
        losses, profile = _transformed(self.parts, theta, max(abs(epsilon), 1e-9)).profile
        bound = min(_interpolated(losses, profile, epsilon), math.exp(min(0.0, log_bound)))
        return min(1.0, bound + self.infinite)

    def interval(self) -> float:
        """Return a distance of equidistant losses that is fine enough for `grid`."""
        return _transformed(self.parts, 0.0, 0.1).interval

    def grid(self, interval: float) -> tuple[int, Masses, float]:
        """Return masses at multiples of ``interval``: the first one, the masses, infinite mass.

        Not tilted, so that errors are absolute: they are counted as infinite loss.
        """
        if self._releases == 1:
            index, masses = snapped(self.parts[0][0], interval)
            first = int(index.min())
            found = np.bincount(index - first, masses).astype(np.float64)
            return first, found, self.infinite
        composed = _transformed(self.parts, 0.0, 0.1, interval=interval)
        lost = math.sqrt(len(composed.masses)) * composed.error + math.exp(
            min(0.0, composed.log_beyond)
        )
        masses = composed.masses * math.exp(composed.relative)
        return composed.first, masses, min(1.0, self.infinite + lost)

    @property
    def _releases(self) -> int:
        return sum(n for _, n in self.parts)

    def log_moments(self, theta: Masses) -> Masses:
        """Bound log E e^(theta loss) from above, finite losses alone."""
        sums = (n * log_moment(law.losses, law.masses, theta) for law, n in self.parts)
        return np.asarray(np.sum(list(sums), axis=0) + _RELATIVE * self._releases)

    def _log_delta(self, theta: Masses) -> Masses:
        """Bound log delta(epsilon) + theta epsilon.

        (1 - e^-x) <= e^(theta x) theta^theta/(theta + 1)^(theta + 1) (Canonne, Kamath, Steinke
        2020, proposition 12).
        """
        weight = -theta * np.log1p(1 / theta) - np.log1p(theta)
        return self.log_moments(theta) + weight

    def _tilt(self, bound: Callable[[Masses], Masses]) -> tuple[float, float]:
        """Return the tilt at which the ``bound`` is least, and the bound."""
        spread = math.sqrt(sum(n * tilted_moments(law, 0.0)[1] for law, n in self.parts))
        theta = np.geomspace(1e-4, 1e4, 49) / min(max(spread, 1e-12), 1e12)
        best = (float(theta[0]), math.inf)
        for _ in range(3):
            values = bound(theta)
            i = int(np.argmin(values))
            best = float(theta[i]), float(values[i])
            theta = np.geomspace(theta[max(0, i - 1)], theta[min(len(theta) - 1, i + 1)], 9)
        return best


@dataclass(frozen=True, eq=False)
class _Transformed:
    """Tilted masses of the losses (first + i) * interval.

    The true ones are ``masses`` * exp(log_mass - theta * loss), but for a common factor of at most
    exp(relative), errors of ``masses`` whose Euclidean norm is at most ``error``, and true mass
    exp(log_beyond) at larger losses. ``cost`` is about what equidistant losses add to epsilon.
    """

    theta: float
    first: int
    interval: float
    masses: Masses
    log_mass: float
    error: float
    relative: float
    log_beyond: float
    cost: float

    @cached_property
    def profile(self) -> tuple[Masses, Masses]:
        """The losses, and upper bounds on the finite part of delta at each."""
        from scipy.signal import lfilter

        h, theta = self.interval, self.theta
        losses = h * np.arange(self.first, self.first + len(self.masses), dtype=np.float64)
        # b_j = sum over i > j of masses_i e^(-(theta + 1)(l_i - l_j)), and then
        # delta(l_j) e^(theta l_j - log_mass) = sum_(i >= j) (e^h - 1) b_i e^(-theta (l_i - l_j)).
        # Sums of positive terms as recursions: relative errors are below 4 N units.
        # Of e^h - 1 and the first e^(-(theta + 1) h) the product is taken: e^h may overflow.
        fall, slow = math.exp(-(theta + 1) * h), math.exp(-theta * h)
        b = lfilter([0.0, 1.0], [1.0, -fall], self.masses[::-1])
        d = lfilter([-slow * math.expm1(-h)], [1.0, -slow], b)[::-1]
        # Cauchy-Schwarz with weights e^(-theta x) (1 - e^-x): their squares, summed over a grid.
        integral = 1 / (2 * theta * (2 * theta + 1) * (theta + 1))
        weights = math.sqrt(integral / h + 1 / (theta + 1) ** 2)
        logs = self.log_mass - theta * losses + self.relative
        with np.errstate(divide="ignore"):
            bound = np.exp(np.minimum(logs + np.log(d + self.error * weights), 0.0))
        return losses, np.minimum(1.0, bound + math.exp(min(0.0, self.log_beyond)))


def _transformed(
    parts: _Parts, theta: float, scale: float, *, interval: float | None = None
) -> _Transformed:
    """Compose ``parts``, tilted by ``theta``; ``scale`` is about the epsilon that is looked for."""
    low, high, spread = _window(parts, theta)
    probe, releases = max(theta, 1 / spread), sum(n for _, n in parts)
    # Multiples of the interval are exact integers of float64.
    finest = 1e-14 * max(float(np.abs(law.losses).max()) for law, _ in parts) + 1e-300
    exact = sum(n * log_moment(law.losses, law.masses, np.array([probe]))[0] for law, n in parts)
    for log_size in _LOG_SIZES if releases <= _MANY else _LOG_SIZES[:-2]:
        size = 1 << log_size
        # Room for the upper neighbours of the largest losses, where releases are few.
        used = size - 4 - min(2 * releases, size // 8)
        h = interval or _aligned(max((high - low) / used, finest), parts[0][0])
        grids = [(*snapped(law, h), n) for law, n in parts]
        found = sum(n * log_moment(h * i, m, np.array([probe]))[0] for i, m, n in grids)
        cost = float(found - exact) / probe
        fits = h * used >= (high - low) * (1 - 1e-9)
        if fits and (interval or cost <= _TOLERANCE * max(scale, 0.02 * spread)):
            break
    # Losses below the window count as losses above; it may miss none above but ``log_beyond``.
    first = max(math.floor(low / h) - 1, math.ceil(high / h) + 2 - used)
    return _composed(parts, theta, h=h, size=size, first=first, spread=spread, cost=cost)


@lru_cache(maxsize=4)
def _composed(
    parts: _Parts, theta: float, *, h: float, size: int, first: int, spread: float, cost: float
) -> _Transformed:
    """Compose ``parts`` on multiples of ``h`` from ``first`` on.

    The latest are remembered: an epsilon is asked for again at a delta that is a little smaller.
    """
    grids = [(*snapped(law, h), n) for law, n in parts]
    releases = sum(n for _, n in parts)
    masses, log_mass, error = _powered(grids, theta, h, size)
    relative = _RELATIVE * releases + 4 * size * _UNIT
    log_beyond = _log_beyond(grids, theta + _chernoff_steps(parts, spread), h, first + size)
    return _Transformed(
        theta,
        first,
        h,
        np.maximum(np.roll(masses, -(first % size)), 0.0),
        log_mass,
        error,
        relative,
        log_beyond + relative,
        cost,
    )


def _aligned(interval: float, law: LossLaw) -> float:
    """Return a slightly larger interval of which the largest loss is a multiple.

    Losses of a few values, as of Laplace noise, then need no splitting.
    """
    reach = float(np.abs(law.losses).max())
    return reach / math.floor(reach / interval) if reach >= interval else interval


def _log_beyond(grids: Grids, theta: Masses, h: float, end: int) -> float:
    """Bound the logarithm of the composed mass at losses from ``end`` * ``h`` on, by Chernoff."""
    if sum(n * int(index.max()) for index, _, n in grids) < end:
        return -math.inf
    logs = np.sum([n * log_moment(h * i, m, theta) for i, m, n in grids], axis=0)
    return float(np.min(logs - theta * h * end))


def _powered(grids: Grids, theta: float, h: float, size: int) -> tuple[Masses, float, float]:
    """Return the composed tilted masses modulo ``size``, their log factor, and their error.

    Every butterfly of an FFT of 2^k points errs by at most 6 units, so each value by 6 (k + 2) in
    proportion to the sum of the inputs, which is 1; powers multiply that.
    """
    from scipy import fft

    wrong = 6 * _UNIT * (math.log2(size) + 2)
    log_mass, transforms = 0.0, list[tuple[NDArray[np.complex128], int]]()
    for index, masses, n in grids:
        moment = float(log_moment(h * index, masses, np.array([theta]))[0])
        with np.errstate(divide="ignore"):
            tilted = np.exp(np.log(masses) + theta * h * index - moment)
        log_mass += n * moment
        transforms.append((fft.rfft(np.bincount(index % size, tilted, size)), n))
    # A frequency is used where it is known and its power matters; any other counts as an error.
    known, logs = np.ones(size // 2 + 1, dtype=bool), np.zeros(size // 2 + 1)
    for one, n in transforms:
        magnitude = np.abs(one)
        known &= magnitude > 4 * wrong
        logs += n * np.log(magnitude + wrong)
    known &= logs > -80
    used = np.flatnonzero(known)
    missing = float(np.exp(2 * logs[~known]).sum())
    exponents, wrongs = np.zeros(len(used), dtype=np.complex128), np.zeros(len(used))
    for one, n in transforms:
        exponents += n * np.log(one[used])
        wrongs += n * (wrong + 8 * _UNIT) / (np.abs(one[used]) - wrong)
    power = np.zeros(size // 2 + 1, dtype=np.complex128)
    power[used] = np.exp(exponents)
    errors = np.abs(power[used]) * (np.expm1(np.minimum(wrongs, 700.0)) + 2 * wrong)
    with np.errstate(over="ignore"):  # an infinite error bounds nothing, which is true
        error = math.sqrt(2 / size * (float((errors * errors).sum()) + missing))
    return np.asarray(fft.irfft(power, size)), log_mass, error


def _window(parts: Sequence[tuple[LossLaw, int]], theta: float) -> tuple[float, float, float]:
    """Return where the tilted loss lies but for e^-30 at each end (Chernoff), and its deviation."""
    variance = sum(n * tilted_moments(law, theta)[1] for law, n in parts)
    spread = math.sqrt(variance) + 1e-30
    steps = _chernoff_steps(parts, spread)
    at = np.concatenate(([theta], theta + steps, theta - steps))
    logs = np.sum([n * log_moment(law.losses, law.masses, at) for law, n in parts], axis=0)
    up, down = logs[1 : 1 + len(steps)], logs[1 + len(steps) :]
    high = float(np.min((up - logs[0] + _OUTSIDE) / steps))
    low = float(np.max((logs[0] - down - _OUTSIDE) / steps))
    ends = [sum(n * float(law.losses[i]) for law, n in parts) for i in (0, -1)]
    return max(low, ends[0]), min(high, ends[1]), spread


def _chernoff_steps(parts: Sequence[tuple[LossLaw, int]], spread: float) -> Masses:
    """Return tilts that bound the tails of a normal law, and of one with rare large losses."""
    normal = math.sqrt(2 * _OUTSIDE) / spread
    reach = max(float(np.abs(law.losses).max()) for law, _ in parts)
    return np.geomspace(min(normal / 32, 1 / (reach + 1e-300)), 32 * normal, 33)


def _interpolated(losses: Masses, profile: Masses, epsilon: float) -> float:
    """Return the profile at ``epsilon``: linear in e^epsilon, and 1 at epsilon = -infinity."""
    if epsilon <= losses[0]:
        kept = math.exp(epsilon - losses[0]) * float(profile[0])
        return (kept - math.expm1(epsilon - losses[0])) * (1 + 1e-12)
    if epsilon >= losses[-1]:
        return float(profile[-1])
    i = int(np.searchsorted(losses, epsilon, side="right"))
    gap = losses[i] - losses[i - 1]
    # Of a gap whose exponential overflows the left end is taken: the profile falls.
    share = min(1.0, math.expm1(epsilon - losses[i - 1]) / math.expm1(gap)) if gap < 700 else 0.0
    return float(profile[i - 1] + share * (profile[i] - profile[i - 1])) * (1 + 1e-12)


@dataclass(frozen=True, slots=True, eq=False)
class Pld:
    """The privacy loss distribution of some releases, in both directions."""

    remove: Composition
    add: Composition
    slack: Slack = NO_SLACK

    @classmethod
    def of(cls, remove: LossLaw, add: LossLaw, slack: Slack = NO_SLACK) -> Pld:
        """Return the distribution of one release."""
        first = Composition(((remove, 1),))
        return cls(first, first if add is remove else Composition(((add, 1),)), slack)

    def __add__(self, other: Pld) -> Pld:
        return Pld(self.remove + other.remove, self.add + other.add, self.slack + other.slack)

    def __mul__(self, rounds: int) -> Pld:
        n = _checks.integer("rounds", rounds, 1)
        remove = self.remove * n
        add = remove if self.add is self.remove else self.add * n
        return Pld(remove, add, self.slack * n)

    def epsilon(self, delta: float) -> float:
        """Return an epsilon at ``delta``; infinite where slack and cut-off tails take it all."""
        return self.slack.epsilon(self._epsilon, delta)

    def delta(self, epsilon: float) -> float:
        """Return the total delta at ``epsilon``."""
        _checks.number("epsilon", epsilon)
        return self.slack.delta(self._delta, epsilon)

    def rdp(self, orders: tuple[float, ...] = ORDERS) -> RdpCurve:
        """Return the Rényi curve of the finite losses; infinite ones are rare events."""
        a = np.array(orders)
        logs = np.maximum(self.remove.log_moments(a - 1), self.add.log_moments(a - 1))
        infinite = Slack(rare=max(self.remove.infinite, self.add.infinite))
        values = tuple((np.maximum(logs, 0.0) / (a - 1)).tolist())
        return RdpCurve(orders, values, self.slack + infinite)

    def _epsilon(self, delta: float) -> float:
        first = self.remove.epsilon(delta)
        # One profile tells whether the other direction costs more, where an epsilon takes two.
        if self.add is self.remove or self.add.delta(first) <= delta:
            return first
        return max(first, self.add.epsilon(delta))

    def _delta(self, epsilon: float) -> float:
        first = self.remove.delta(epsilon)
        return first if self.add is self.remove else max(first, self.add.delta(epsilon))


def gaussian_pld(z: float, *, rate: float = 1.0, slack: Slack = NO_SLACK) -> Pld:
    """Return the distribution of a (Poisson sampled) Gaussian of noise multiplier ``z``."""
    return Pld.of(*gaussian_laws(z, rate), slack)


def pair_pld(p: Masses, q: Masses, *, outside: float) -> Pld:
    """Return the distribution of the pair (p, q) of laws on one finite set, in both directions.

    ``outside`` bounds the mass that either law has elsewhere: it counts as infinite loss.
    """
    return Pld.of(pair_law(p, q, outside=outside), pair_law(q, p, outside=outside))


def symmetrised(pld: Pld) -> Pld:
    """Return the pair that the operator C_p of Dong, Roth, Su 2019 (theorem 4.2) makes of a sample.

    ``pld`` is that of one release, (1-p) Q + p P against Q, whose profile is the larger one at
    epsilon >= 0. The convex hull of both directions has this profile there and its mirror image
    below: a loss l > 0 keeps its mass m, -l gets m e^-l, and 0 the rest.
    """
    ((law, _),) = pld.remove.parts
    losses, masses = law.losses[law.losses > 0], law.masses[law.losses > 0]
    mirrored = masses * np.exp(-losses)
    centre = max(0.0, 1 - law.infinite - float(masses.sum() + mirrored.sum()))
    both = LossLaw(
        np.concatenate((-losses[::-1], [0.0], losses)),
        np.concatenate((mirrored[::-1], [centre], masses)),
        law.infinite,
    )
    return Pld.of(both, both, pld.slack)


def mixed(parts: Sequence[tuple[float, Pld]]) -> Pld:
    """Return the pair of a public draw of one of ``parts``, given with their weights.

    What is left to 1 is a draw that shows nothing. All parts have the slack of the first.
    """

    def side(laws: Sequence[tuple[float, LossLaw]]) -> LossLaw:
        losses = np.concatenate([[0.0], *(law.losses for _, law in laws)])
        nothing = max(0.0, 1 - sum(weight for weight, _ in laws))
        masses = np.concatenate([[nothing], *(weight * law.masses for weight, law in laws)])
        order = np.argsort(losses, kind="stable")
        infinite = sum(weight * law.infinite for weight, law in laws)
        longest = max(1024, *(len(law.losses) for _, law in laws))
        return coarsened(LossLaw(losses[order], masses[order], infinite), 2 * longest)

    removes = [(weight, pld.remove.parts[0][0]) for weight, pld in parts]
    adds = [(weight, pld.add.parts[0][0]) for weight, pld in parts]
    return Pld.of(side(removes), side(adds), parts[0][1].slack)


def _by_rate(mechanism: Mechanism, pld: Callable[[Mechanism], Pld]) -> Pld | None:
    """Return the mixture over the rates of ``mechanism``, None where it has one rate."""
    if not (isinstance(mechanism, Sampled) and mechanism.mixture):
        return None
    noise = mechanism.mechanism
    return mixed([(weight, pld(Sampled(noise, rate))) for weight, rate in mechanism.mixture])


def mechanism_pld(mechanism: Mechanism) -> Pld:
    """Return the losses of one release: its own where they are known, else the Gaussian's."""
    if (by_rate := _by_rate(mechanism, mechanism_pld)) is not None:
        return by_rate
    pair = own_pair(mechanism)
    if pair is None:
        return dominating_pld(mechanism)
    shifted, plain, outside = pair.sampled(rate_of(mechanism))
    own = pair_pld(shifted, plain, outside=outside)
    return symmetrised(own) if _needs_symmetry(mechanism) else own


@lru_cache(maxsize=32)
def dominating_pld(mechanism: Mechanism) -> Pld:
    """Return the losses of the dominating Gaussian, sampled as ``mechanism`` is."""
    if (by_rate := _by_rate(mechanism, dominating_pld)) is not None:
        return by_rate
    noise, curve = noise_of(mechanism), dominating(noise_of(mechanism))
    match mechanism:
        case SampledWithoutReplacement() | SampledKnownSize() if mechanism.rate < 1:
            if compares_three(mechanism):
                laws = fixed_size_laws(curve.mu, sizes_of(mechanism))
                return Pld.of(*laws, sized_slack(noise))
            law = replaced_size_law(curve.mu, sizes_of(mechanism))
            return Pld.of(law, law, curve.slack)
        case _:
            pld = gaussian_pld(1 / curve.mu, rate=rate_of(mechanism), slack=curve.slack)
            return symmetrised(pld) if _needs_symmetry(mechanism) else pld


def own_pair(mechanism: Mechanism) -> Pair | None:
    """Return the mechanism's own pair of laws, None where only a dominating Gaussian is known."""
    if compares_three(mechanism) or isinstance(mechanism, SampledKnownSize):
        return None
    noise = noise_of(mechanism)
    own = scalar_pair(noise)
    if own is None and isinstance(noise, DiscreteLaplace | Laplace):
        return pure_pair(pure_epsilon(noise))
    return own


def _needs_symmetry(mechanism: Mechanism) -> bool:
    """Return whether both neighbours are samples: under replace-one neither law is plain.

    Then C_p of Dong, Roth, Su applies, to cohorts of fixed size (their theorem 4.2) and, by
    advanced joint convexity (Balle, Barthe, Gaboardi 2018, theorem 2), to Poisson cohorts.
    """
    return noise_of(mechanism).adjacency is Adjacency.REPLACE_ONE and rate_of(mechanism) < 1
